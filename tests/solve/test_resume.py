"""Interrupted and resumed equals uninterrupted, to the bit, for every built-in solver."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import shardfit as sf
from tests.solve.cases import barzilai_borwein, least_squares_problem

CASES = {
    "lbfgsb": ("lbfgsb", {}),
    "lbfgs": ("lbfgs", {}),
    "lbfgs-bt": ("lbfgs-bt", {}),
    "lm": ("lm", {}),
    "adam": ("adam", {"maxiter": 60}),
    "batches": ("adam", {"maxiter": 30, "batch": 50}),
    "callable": (barzilai_borwein, {"maxiter": 40}),
}


def same(one, other, exact=True):
    for name in ("a", "tau", "c"):
        if exact:
            assert one.params[name] == other.params[name]
        else:
            np.testing.assert_allclose(one.params[name], other.params[name], rtol=1e-10)
    assert one.steps == other.steps and one.evaluations == other.evaluations and one.status is other.status
    for column in ("value", "gradient", "step"):
        compare = np.testing.assert_array_equal if exact else partial_close
        compare(one.history[column], other.history[column])


def partial_close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_resumed_equals_unbroken(case, tmp_path):
    solver, options = CASES[case]
    options = {**options, "progress": False}
    problem = least_squares_problem()
    unbroken = sf.fit(problem, solver, **options)
    folder = sf.RunDir(tmp_path / "run", seconds=0.0)
    for _ in range(100):  # stop after every second step
        calls = []
        resumed = sf.fit(
            problem, solver, run_dir=folder, callback=lambda s, c=calls: c.append(s) or len(c) == 2, every=1, **options
        )
        if resumed.status is not sf.Status.INTERRUPTED:
            break
    same(resumed, unbroken)
    stored = sf.load_result(tmp_path / "run")
    assert stored.params["a"] == unbroken.params["a"]
    # asked again, nothing is left to do
    assert sf.fit(problem, solver, run_dir=folder, **options).timings == stored.timings


@pytest.mark.parametrize("case", ["lbfgs", "lbfgsb", "lm", "batches"])
def test_resume_on_another_device_count(case, tmp_path):
    solver, options = CASES[case]
    options = {**options, "progress": False}
    problem = least_squares_problem()
    sf.fit(problem, solver, run_dir=tmp_path, callback=lambda s: True, every=3, **options)
    resumed = sf.fit(problem, solver, run_dir=tmp_path, mesh=sf.mesh(rows=3), **options)
    same(resumed, sf.fit(problem, solver, **options), exact=False)


def test_a_higher_limit_goes_on_where_the_lower_one_ended(tmp_path):
    problem = least_squares_problem()
    short = sf.fit(problem, "adam", maxiter=20, run_dir=tmp_path, progress=False)
    assert short.status is sf.Status.MAX_STEPS
    longer = sf.fit(problem, "adam", maxiter=50, run_dir=tmp_path, progress=False)
    same(longer, sf.fit(problem, "adam", maxiter=50, progress=False))


def test_a_run_directory_belongs_to_one_fit(tmp_path):
    problem = least_squares_problem()
    with pytest.raises(sf.CheckpointError, match="no run to resume"):
        sf.fit(problem, "lbfgs", run_dir=tmp_path / "none", resume="must")
    sf.fit(problem, "lbfgs", run_dir=tmp_path, maxiter=3, progress=False)
    for other, options in ((problem, {"gtol": 1e-3}), (problem.replace(x0={"a": 1.5, "tau": 1.0, "c": 0.2}), {})):
        with pytest.raises(sf.CheckpointError, match="belongs to another fit: (solver's gtol|start)"):
            sf.fit(other, "lbfgs", run_dir=tmp_path, progress=False, **options)
    anew = sf.fit(problem, "lbfgs", gtol=1e-3, run_dir=tmp_path, resume="never", progress=False)
    assert anew.success
    with pytest.raises(ValueError, match="resume='maybe'"):
        sf.fit(problem, "lbfgs", run_dir=tmp_path, resume="maybe")


def test_damaged_state_is_reported_not_used(tmp_path):
    problem = least_squares_problem()
    sf.fit(problem, "lbfgs", run_dir=tmp_path, callback=lambda s: True, every=2, progress=False)
    state = tmp_path / "ckpt" / "state.npz"
    state.write_bytes(state.read_bytes()[:200])
    with pytest.raises(sf.CheckpointError, match="state.npz is damaged"):
        sf.fit(problem, "lbfgs", run_dir=tmp_path, progress=False)


def test_torn_journal_is_cut_back(tmp_path):
    problem = least_squares_problem()
    sf.fit(problem, "lbfgsb", run_dir=tmp_path, callback=lambda s: True, every=3, progress=False)
    journal = tmp_path / "ckpt" / "journal.bin"
    journal.write_bytes(journal.read_bytes()[:-7])
    same(sf.fit(problem, "lbfgsb", run_dir=tmp_path, progress=False), sf.fit(problem, "lbfgsb", progress=False))


def test_run_directory_contents(tmp_path):
    sf.fit(least_squares_problem(), "lm", run_dir=tmp_path, progress=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "env.json", "events.jsonl", "ckpt", "result.json", "arrays.npz"} <= names
    events = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[0] == "started" and events[-1] == "finished"
    facts = json.loads((tmp_path / "config.json").read_text())["facts"]
    assert len(facts["data of term 'data'"]) == 64


VICTIM = """
import sys
import numpy as np
import shardfit as sf
from tests.solve.cases import least_squares_problem
import time
problem = least_squares_problem()
sf.fit(problem, sys.argv[1], run_dir=sf.RunDir(sys.argv[2], seconds=0.0), progress=False, certify=False,
       ftol=0.0, gtol=1e-7, callback=lambda s: time.sleep(0.15), every=1, **eval(sys.argv[3]))
"""


def run_victim(solver, folder, options, kill_after=None):
    """Run a fit in its own process; kill it without warning after so many journalled or saved steps."""
    paths = [str(Path(sf.__file__).parents[1]), str(Path(__file__).parents[2])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen([sys.executable, "-c", VICTIM, solver, str(folder), repr(options)], env=env)
    try:
        if kill_after is not None:
            marker = folder / "ckpt" / ("journal.bin" if solver == "lbfgsb" else "state.npz")
            seen, last = 0, None
            while process.poll() is None and seen < kill_after:
                stat = marker.stat() if marker.exists() else None
                stamp = (stat.st_mtime_ns, stat.st_size) if stat else None
                seen, last = seen + (stamp is not None and stamp != last), stamp
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        return process.wait(timeout=120)
    finally:
        process.kill()


@pytest.mark.processes
@pytest.mark.parametrize(
    "solver", ["lbfgsb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lbfgs", "adam"))]
)
def test_kill_without_warning(solver, tmp_path):
    options = {"maxiter": 25} if solver == "adam" else {}
    for kill_after in (2, 4):
        assert run_victim(solver, tmp_path, options, kill_after) == -signal.SIGKILL
    assert run_victim(solver, tmp_path, options) == 0
    resumed = sf.load_result(tmp_path)
    unbroken = sf.fit(least_squares_problem(), solver, progress=False, certify=False, ftol=0.0, gtol=1e-7, **options)
    same(resumed, unbroken)
