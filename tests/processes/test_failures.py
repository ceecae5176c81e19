"""A rank that raises, exits, is killed or hangs ends all, soon, with a message that names it; nobody is left behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
        ("hang", 1, "rank 1 ended or hangs"),
        pytest.param("exit", 1, "rank 1 failed (SystemExit: no such file)", marks=pytest.mark.slow),
        pytest.param("raise", 0, "rank 0 failed (ArithmeticError: the model broke)", marks=pytest.mark.slow),
        pytest.param("kill", 0, "rank 0 was ended by SIGKILL", marks=pytest.mark.slow),
        pytest.param("hang", 0, "rank 0 ended or hangs", marks=pytest.mark.slow),
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


@pytest.mark.parametrize("option", ["--start-timeout", pytest.param("--timeout", marks=pytest.mark.slow)])
def test_a_rank_that_sleeps_before_the_first_exchange_is_named(launch, tmp_path, option):
    began = time.time()
    when = "early" if option == "--start-timeout" else "placed"
    done = launch(2, "failing.py", when, 1, tmp_path, options=(option, 5))
    assert done.returncode != 0
    assert "rank 1 ended or hangs" in done.stderr and f"more time with {option}." in done.stderr
    assert time.time() - began < 90  # it sleeps for an hour
