"""A rank that raises, exits, is killed or hangs ends all, soon, with a message that names it; nobody is left behind."""

import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardfit.distributed import processes, supervisor
from shardfit.distributed.launchers import FOLLOWED, JUDGED, WAITED_FOR
from shardfit.distributed.supervisor import culprits, exit_code

pytestmark = pytest.mark.processes
SECONDS = 30


def alive(folder):
    """Ranks whose process group still has a member that runs; the dead that nobody has buried do not count."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    running = {line.split()[0] for line in listed.splitlines() if "Z" not in line.split()[1]}
    return [file.stem for file in folder.glob("*.pid") if file.read_text() in running]


@pytest.mark.parametrize("n", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
@pytest.mark.parametrize(
    ("how", "rank", "named"),
    [
        ("raise", 1, "rank 1 failed (ArithmeticError: the model broke)"),
        ("kill", 1, "rank 1 was ended by SIGKILL"),
        ("hang", 1, "rank 1 hangs or is slow"),
        pytest.param("exit", 1, "rank 1 failed (SystemExit: no such file)", marks=pytest.mark.slow),
        pytest.param("raise", 0, "rank 0 failed (ArithmeticError: the model broke)", marks=pytest.mark.slow),
        pytest.param("kill", 0, "rank 0 was ended by SIGKILL", marks=pytest.mark.slow),
        pytest.param("hang", 0, "rank 0 hangs or is slow", marks=pytest.mark.slow),
    ],
)
def test_one_failure_ends_all(launch, tmp_path, n, how, rank, named):
    # long enough for ranks that compile at different speeds
    done = launch(n, "failing.py", how, rank, tmp_path, options=("--timeout", 8))
    seconds = time.time() - float((tmp_path / "began").read_text())
    assert done.returncode != 0
    assert named in done.stderr
    assert f"shardfit launch: rank {rank} " in done.stderr
    assert seconds < SECONDS
    assert len(list(tmp_path.glob("*.pid"))) == n
    assert alive(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_no_process_outlives_its_parent(tmp_path, number):
    script = Path(__file__).parent / "failing.py"
    command = [sys.executable, "-m", "shardfit", "launch", "-n", "2", "--", script, "nothing", "0", tmp_path]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 100
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert alive(tmp_path)
    parent.send_signal(number)
    assert parent.wait(SECONDS) != 0
    time.sleep(1.0 if number == signal.SIGKILL else 0.0)
    assert alive(tmp_path) == []


@pytest.mark.parametrize(
    ("codes", "hung", "blamed"),
    [
        ([0, 0], [], {}),
        ([JUDGED, JUDGED], [], {}),
        ([JUDGED, 0], [], {}),
        ([JUDGED, FOLLOWED, 1], [], {2: "failed with exit code 1"}),
        ([FOLLOWED, 1, FOLLOWED], [], {1: "failed with exit code 1"}),
        ([FOLLOWED, 3, FOLLOWED], [], {1: "failed with exit code 3"}),
        ([-9, -6, -6], [], {0: "was ended by SIGKILL"}),
        ([FOLLOWED, -15], [1], {1: "hung"}),
        ([FOLLOWED, WAITED_FOR], [], {1: "hung"}),
        ([WAITED_FOR, FOLLOWED, -9], [], {2: "was ended by SIGKILL"}),
        ([-6, -6], [], {0: "was ended by SIGABRT", 1: "was ended by SIGABRT"}),
        ([FOLLOWED] * 2, [], {r: f"failed with exit code {FOLLOWED}" for r in (0, 1)}),
    ],
)
def test_culprits_are_told_from_followers(codes, hung, blamed):
    assert culprits(codes, hung) == blamed


def test_the_exit_code_is_that_of_the_culprit():
    assert exit_code([7]) == 7 and exit_code([-9, 1]) == 137 and exit_code([WAITED_FOR]) == 1


def test_code_and_logs_of_the_failed_rank(launch, tmp_path):
    done = launch(2, "failing.py", "code", 1, tmp_path, options=("--logs", tmp_path / "logs", "--timeout", 8))
    assert done.returncode == 7
    first, second = ((tmp_path / "logs" / f"rank-{rank}.log").read_text() for rank in (0, 1))
    assert "here is rank 0" in first and "here is rank 0" in done.stdout
    assert "here is rank 1" in second and "rank 1 failed (SystemExit: 7)" in second


class Service:
    """JAX's store of keys, and other ranks whose listening threads answer the roll."""

    def __init__(self, living, arrived):
        self.keys, self.living = {f"{processes.ARRIVED}{rank}": "" for rank in arrived}, living

    def key_value_set(self, name, text):
        if name in self.keys:
            raise RuntimeError("ALREADY_EXISTS")
        self.keys[name] = text
        if name == processes.ROLL:
            self.keys |= {f"{processes.PRESENT}{rank}": "" for rank in self.living}

    def key_value_dir_get(self, where):
        return [(name, text) for name, text in self.keys.items() if name.startswith(where)]


@pytest.mark.parametrize(
    ("living", "arrived", "lost", "late"),
    [
        ((0, 1, 3), (1,), [2], [2, 3]),  # rank 3 still computes: it has not ended
        ((0, 1, 2, 3), (1, 3), [], [2]),
        ((0, 1, 2, 3), (1, 2, 3), [], []),
        ((), (1, 2), [3], [3]),  # who has arrived is alive, though its thread was not quick enough
    ],
)
def test_the_roll_tells_who_has_ended_from_who_is_slow(monkeypatch, living, arrived, lost, late):
    monkeypatch.setattr(processes, "ROLL_CALL_SECONDS", 0.0)
    monkeypatch.setattr(processes, "latest_ranks", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(processes, "client", lambda: Service(living, arrived))
    assert processes._roll_call(0) == (lost, late)


def test_traces_of_the_coordination_service_are_not_shown(capsys):
    said = b"""shardfit: rank 1: rank 0 ended or does not respond.
E1119 22:07:05.817872   24757 coordination_service_agent.cc:289] Polled an error from coordination service.
F1119 22:07:05.817915   24757 client.h:80] Terminating process because the JAX distributed service failed.
Additional GRPC error information from remote target coordination_service while calling /xla.PollForError:
:UNKNOWN:Error received from peer  {grpc_message:"recvmsg:Connection reset by peer", grpc_status:14}
W1119 22:27:59.843011   30359 preemption_sync_manager.cc:147] Failed to retrieve preemption notice: Socket closed
*** Check failure stack trace: ***
    @     0x7f1958040634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
    @ home we are 0x ok
W1119 22:07:05.817915   24757 other.cc:80] of the user's library
"""
    supervisor._show_errors(io.BytesIO(said))
    shown = capsys.readouterr().err.splitlines()
    assert [line[:12] for line in shown] == ["shardfit: ra", "    @ home w", "W1119 22:07:"]


@pytest.mark.parametrize("option", ["--start-timeout", pytest.param("--timeout", marks=pytest.mark.slow)])
def test_a_rank_that_sleeps_before_the_first_exchange_is_named(launch, tmp_path, option):
    began = time.time()
    when = "early" if option == "--start-timeout" else "placed"
    done = launch(2, "failing.py", when, 1, tmp_path, options=(option, 5))
    assert done.returncode != 0
    assert "rank 1 hangs or is slow" in done.stderr and f"more time with {option}." in done.stderr
    assert time.time() - began < 90  # it sleeps for an hour
