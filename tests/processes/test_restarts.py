"""A job that lost a process starts again from its last checkpoint, also with fewer processes, and ends the same."""

import json

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def answer(folder, rank=0):
    return json.loads((folder / f"{rank}.json").read_text())


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
