"""Processes of several hosts, through a program that stands in for ssh, and through ssh: answers and clear errors."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from shardfit.cli import main
from shardfit.distributed.hosts import HostError, coordinator_of, inspect_hosts, over_ssh, parse_hosts
from tests.processes import sshd
from tests.processes.conftest import HERE, run_command

pytestmark = pytest.mark.processes
SSH = (str(HERE / "fake_ssh"),)


def launch_on(hosts, *words, options=(), ssh=SSH, **more):
    start = (sys.executable, "-m", "shardfit", "launch", "--hosts", hosts, "--ssh", shlex.join(ssh))
    return run_command(*start, *options, "--", *words, **more)


@pytest.fixture(scope="module")
def real_ssh(tmp_path_factory):
    if sshd.program() is None:
        pytest.skip("sshd is not installed")
    with sshd.server(tmp_path_factory.mktemp("ssh")) as command:
        if command is None:
            pytest.skip("sshd does not start here")
        yield command


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ("a",)),
        ("a:2,me@b.example.org:1", ("a", "a", "me@b.example.org")),
        ("10.0.0.1:2, [fe80::1]:1", ("10.0.0.1", "10.0.0.1", "[fe80::1]")),
    ],
)
def test_hosts_are_read(text, hosts):
    assert parse_hosts(text) == hosts


def test_hosts_are_read_from_a_file(tmp_path):
    (tmp_path / "hosts").write_text("# the quiet ones\na slots=2\nb:1\n\nc 2  # shared\nd\n")
    assert parse_hosts(str(tmp_path / "hosts")) == ("a", "a", "b", "c", "c", "d")


@pytest.mark.parametrize("text", ["a:0", "a:b", "a,,b", "-oProxyCommand=x", "a;b", ""])
def test_what_is_no_host(text):
    with pytest.raises(ValueError, match=r"neither HOST nor HOST:PROCESSES"):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("gone", r"host gone: .*does not connect \(ssh: connect to host gone port 22: No route to host\)"),
        ("bare", "host bare: there is no folder .* file system that all hosts see"),
        ("nopython", "host nopython: there is no .*python"),
        ("old", "host old: it has other versions: jax 0.0.1, here"),
        ("away", "host away: its own name, away, stands for 127.0.1.1 there"),
    ],
)
def test_hosts_that_cannot_take_part_are_named(host, words):
    with pytest.raises(HostError, match=words) as caught:
        inspect_hosts(("here", host, host), SSH, None)
    assert host in caught.value.wrong


def test_localhost_is_no_place_for_several_machines_to_meet():
    with pytest.raises(HostError, match="host me@localhost: the other hosts cannot find the first one by this name"):
        inspect_hosts(("me@localhost", "far"), SSH, None)
    assert coordinator_of(inspect_hosts(("far", "me@localhost"), SSH, None)).startswith("10.0.0.1:")


def test_a_missing_script_and_a_missing_ssh_are_named():
    with pytest.raises(HostError, match="host here: there is no script 'nowhere.py'"):
        inspect_hosts(("here",), SSH, "nowhere.py")
    with pytest.raises(HostError, match="`no-such-ssh` cannot be run"):
        inspect_hosts(("here",), ("no-such-ssh",), None)


def test_where_they_meet(monkeypatch):
    facts = inspect_hosts(("me@127.0.0.1", "no-such-name.invalid"), SSH, None)
    assert coordinator_of(facts) == f"127.0.0.1:{facts['me@127.0.0.1'].port}"
    alias = {"no-such-name.invalid": facts["no-such-name.invalid"]}
    assert coordinator_of(alias).startswith(f"{alias['no-such-name.invalid'].address}:")  # known to ssh only
    monkeypatch.setenv("SHARDFIT_COORDINATOR", "b:77")
    assert coordinator_of(facts) == "b:77"


def test_words_and_settings_reach_the_other_shell(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")  # another launcher's, not to be passed on
    script = "import os, sys; print(sys.argv[1:], os.environ['XLA_A'], os.getcwd()); sys.exit(7)"
    words = [sys.executable, "-c", script, "it's", "a b", '"$HOME"']
    command = over_ssh(SSH, "a", {"XLA_A": "x 'y'"}, words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{words[3:]} x 'y' {os.getcwd()}\n"
    assert done.returncode == 7
    assert "OMPI_" not in command[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "how many processes"),
        (("--hosts", "a:2", "-n", "3"), "-n 3: --hosts has places for 2 processes"),
        (("-n", "2", "--grow"), "--grow .* give --shrink too"),
    ],
)
def test_options_that_contradict_each_other(options, words, capsys):
    assert main(["launch", *options, "--", str(HERE / "ranks.py")]) == 2
    assert re.search(words, capsys.readouterr().err)


@pytest.mark.slow
def test_two_hosts_give_the_answer_of_one_machine(launch, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = launch(4, "decay.py", "lbfgs", "own", tmp_path / "one")
    options = ("--logs", tmp_path / "logs")
    two = launch_on("localhost:2,b:2", HERE / "decay.py", "lbfgs", "own", tmp_path / "two", options=options)
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
    expected, found = (json.loads((tmp_path / name / "3.json").read_text()) for name in ("one", "two"))
    assert found["processes"] == 4
    assert found["params"] == expected["params"] and found["history"]["value"] == expected["history"]["value"]
    assert sorted(file.name for file in (tmp_path / "logs").iterdir()) == [f"rank-{rank}.log" for rank in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("raise", "rank 2 (b) failed with exit code 1"),
        ("code", "rank 2 (b) failed with exit code 7"),
        ("kill", "rank 2 (b) was ended by SIGKILL"),
        ("hang", "rank 2 (b) hung"),
    ],
)
def test_a_failing_process_is_named_with_its_host(tmp_path, how, named):
    done = launch_on("a:2,b", HERE / "failing.py", how, 2, tmp_path, options=("--timeout", 8))
    assert done.returncode != 0
    assert f"shardfit launch: {named}" in done.stderr
    assert not any(_runs(file.read_text()) for file in tmp_path.glob("*.pid"))


@pytest.mark.slow
def test_through_ssh(real_ssh, launch, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = launch(2, "decay.py", "lbfgs", "own", tmp_path / "one")
    two = launch_on("alpha,beta", HERE / "decay.py", "lbfgs", "own", tmp_path / "two", ssh=real_ssh)
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
    expected, found = (json.loads((tmp_path / name / "1.json").read_text()) for name in ("one", "two"))
    assert found["processes"] == 2 and found["params"] == expected["params"]
    done = launch_on("alpha,beta", HERE / "failing.py", "kill", 1, tmp_path, options=("--timeout", 8), ssh=real_ssh)
    assert "shardfit launch: rank 1 (beta) was ended by SIGKILL" in done.stderr
    assert done.returncode == 128 + signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_of_hosts_end_with_launch(request, tmp_path, number, real):
    ssh = request.getfixturevalue("real_ssh") if real else SSH
    command = [sys.executable, "-m", "shardfit", "launch", "--hosts", "alpha,beta", "--ssh", shlex.join(ssh), "--"]
    words = [HERE / "failing.py", "nothing", "0", tmp_path]
    parent = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 100
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    running = [int(file.read_text()) for file in tmp_path.glob("*.pid")]
    assert len(running) == 2
    parent.send_signal(number)
    assert parent.wait(30) != 0
    time.sleep(2.0 if number == signal.SIGKILL else 0.0)
    assert not any(_runs(process) for process in running)


def _runs(process):
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip()) and "Z" not in listed.stdout


@pytest.mark.slow
def test_a_lost_host_is_left_out_and_taken_back(tmp_path):
    """Rank 0 is lost and host flaky is down: one process goes on, is lost too, and then there are three again."""
    down = tmp_path / "down"
    words = (HERE / "lost_host.py", tmp_path)
    options = ("--restarts", 2, "--shrink", "--grow", "--timeout", 8)
    done = launch_on("a,b,flaky", *words, options=options, environ={"SHARDFIT_TEST_DOWN": str(down)})
    assert done.returncode == 0, done.stderr
    assert "rank 0 (a) was ended by SIGKILL" in done.stderr and "rank 0 (b) was ended by SIGKILL" in done.stderr
    assert "host flaky: " in done.stderr and "left out" in done.stderr
    assert (tmp_path / "attempts").read_text().split() == ["3", "1", "3"]
