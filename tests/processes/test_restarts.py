"""A job that lost a process starts again from its last checkpoint, also with fewer processes, and ends the same."""

import json

import pytest

from shardfit.distributed.supervisor import Job, Restarts, following

pytestmark = pytest.mark.processes


def answer(folder, rank=0):
    return json.loads((folder / f"{rank}.json").read_text())


@pytest.mark.parametrize(
    ("shrink", "grow", "sizes"),
    [(False, False, [4, 4, 4, 4]), (True, False, [4, 3, 2, 1]), (True, True, [4, 3, 4, 3])],
)
def test_sizes_of_restarts(shrink, grow, sizes):
    asked = job = Job(("script.py",), 4, hosts=("a", "a", "b", "c"))
    found = [job.size]
    for _ in range(3):
        job = following(asked, job, [1], Restarts(3, shrink, grow))
        found.append(job.size)
        assert len(job.hosts) == job.size
    assert found == sizes


def test_one_process_is_always_left():
    assert Job(("script.py",), 2).without([0, 1]).size == 1
    assert Job(("script.py",), 3, hosts=("a", "b", "c")).without([0, 2]).hosts == ("b",)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["lbfgs", "lbfgsb"])
@pytest.mark.parametrize(("shrink", "left"), [(False, 3), (True, 2)])
def test_killed_then_resumed(launch, tmp_path, solver, shrink, left):
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    whole = launch(3, "decay.py", solver, "own", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    options = ("--restarts", "1", *(("--shrink",) if shrink else ()))
    # the leader is the one that sees every step
    done = launch(3, "decay.py", solver, "own", tmp_path / "broken", tmp_path / "run", 0, 3, options=options)
    assert done.returncode == 0, done.stderr
    assert "rank 0 was ended by SIGKILL" in done.stderr
    assert f"starting again with {left} processes" in done.stderr
    expected, found = answer(tmp_path / "whole"), answer(tmp_path / "broken")
    assert found["processes"] == left
    events = [json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events.count("started") == 2
    assert events[-1] == "finished"
    if not shrink:
        assert found["params"] == expected["params"]
        assert found["history"]["value"] == expected["history"]["value"]
    for name, value in expected["params"].items():
        assert found["params"][name] == pytest.approx(value, rel=1e-9)


@pytest.mark.slow
def test_fewer_then_all_again(launch, tmp_path):
    """Three processes, two once the first was killed, three again when that happens a second time."""
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    assert launch(3, "decay.py", "lbfgs", "own", tmp_path / "whole").returncode == 0
    words = ("decay.py", "lbfgs", "own", tmp_path / "broken", tmp_path / "run", 0, 3, 2)
    done = launch(3, *words, options=("--restarts", 2, "--shrink", "--grow"))
    assert done.returncode == 0, done.stderr
    assert processes_of_attempts(tmp_path / "run") == [3, 2, 3]
    require_close(answer(tmp_path / "broken"), answer(tmp_path / "whole"))


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_with_three(launch, tmp_path):
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    assert launch(3, "decay.py", "lbfgs", "own", tmp_path / "whole").returncode == 0
    words = ("decay.py", "lbfgs", "own", tmp_path / "broken", tmp_path / "run", 0, 3)
    assert launch(2, *words).returncode != 0  # killed, and nobody starts it again
    assert launch(3, *words).returncode == 0
    assert processes_of_attempts(tmp_path / "run") == [2, 3]
    require_close(answer(tmp_path / "broken"), answer(tmp_path / "whole"))


def processes_of_attempts(folder):
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event["mesh"]["processes"] for event in events if event["event"] == "started"]


def require_close(found, expected):
    assert found["processes"] == 3
    for name, value in expected["params"].items():
        assert found["params"][name] == pytest.approx(value, rel=1e-9)
