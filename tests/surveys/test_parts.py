"""A survey in parts on workers: each point once, whoever dies, and the same table as in one process."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shardfit.core.errors import CheckpointError
from shardfit.surveys import parts as module
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import table
from shardfit.surveys.halving import Halving
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.parts import survey_parts
from shardfit.surveys.picture import Picture
from shardfit.surveys.reading import Survey
from tests.surveys.small import AXES, MAXITER, NEVER, POINTS, SLOTS, P, cells, point, problem, run

SICK = [*POINTS, point(**NEVER)]


def make(points=SICK, **options):
    usual = {"design": table(AXES, points), "control": SurveyControl(SLOTS), "maxiter": MAXITER}
    return problem(), AXES, usual | options


def make_or_die(mark):
    """Return the survey; the first worker that has found its fourth point is killed before that is written."""
    drawn = []

    def draw(params):
        drawn.append(params)
        if len(drawn) > 4 and multiprocessing.parent_process() is not None and not os.path.exists(mark):
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return params["m"]

    return make(picture=Picture((1, P), draw=draw))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with run(tmp_path_factory.mktemp("whole"), SICK) as found:
        yield cells(found)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as made:
        yield made


def test_parts_give_the_same_table(whole, pool, tmp_path):
    with survey_parts(make, run_dir=tmp_path, parts=3, executor=pool) as found:
        assert found.complete
        assert cells(found) == whole
    assert not list((tmp_path / "parts").iterdir())
    with survey_parts(make, run_dir=tmp_path, parts=3, executor=pool) as again:  # nothing is left to do
        assert cells(again) == whole
    with survey_parts(make, run_dir=tmp_path, parts=2, executor=pool, retry=True) as again:
        (row,) = again.failures()
        assert row["attempt"] == 2
        assert len(again) == len(SICK)


def test_parts_and_whole_surveys_continue_each_other(whole, pool, tmp_path):
    run(tmp_path, SICK, limit=5).close()
    with survey_parts(make, run_dir=tmp_path, parts=2, executor=pool) as found:
        assert cells(found) == whole


def test_points_of_parts_that_ended_early_are_kept(whole, pool, tmp_path, monkeypatch):
    """A part writes some points and ends with an error; its caller is gone; someone looks; another goes on."""
    written, once = [], module.run_points

    def some(prepared, ledger, points, slots, **more):
        written.extend(point.id for point in points[:2])
        once(prepared, ledger, points[:2], slots, **more)
        raise OSError("the network is gone")

    monkeypatch.setattr(module, "run_points", some)
    with pytest.raises(OSError, match="the network is gone") as caught:
        survey_parts(make, run_dir=tmp_path, parts=2, executor=pool)
    assert "2 of 2 parts ended with an error; what they finished is kept" in caught.value.__notes__[0]
    with Survey(tmp_path) as found:
        assert found.ledger.ids() == sorted(written)
    monkeypatch.setattr(module, "run_points", once)
    seen = []
    with run(tmp_path, SICK, on_points=seen.extend) as found:
        assert cells(found) == whole
    assert {record.id for record in seen} == set(range(len(SICK))) - set(written)


def test_what_parts_refuse(pool, tmp_path):
    with pytest.raises(ValueError, match="parts=0 must be at least 1"):
        survey_parts(make, run_dir=tmp_path, parts=0)
    with pytest.raises(ValueError, match="halving ranks all points together"):
        survey_parts(lambda: make(halving=Halving()), run_dir=tmp_path, parts=2, executor=pool)
    run(tmp_path, POINTS[:2]).close()
    with pytest.raises(CheckpointError, match="belongs to another survey"):
        survey_parts(make, run_dir=tmp_path, parts=2, executor=pool)


@pytest.mark.slow
def test_a_killed_worker_is_replaced(whole, tmp_path):
    """The local pool is made anew, and the part goes on where its ledger ends."""
    mark = tmp_path / "died"
    with survey_parts(make_or_die, (str(mark),), run_dir=tmp_path / "run", parts=2, workers=2) as found:
        assert mark.exists()
        assert found.complete
        values = {key: kept["value"] for key, (kept, _) in cells(found).items()}
    assert values.keys() == whole.keys()
    finite = [key for key in whole if whole[key][0]["value"] is not None]
    np.testing.assert_allclose([values[k] for k in finite], [whole[k][0]["value"] for k in finite], rtol=1e-12)


CALLER = """
import sys
from shardfit.surveys.parts import survey_parts
from tests.surveys.test_parts import make_slow
survey_parts(make_slow, (sys.argv[1],), run_dir=sys.argv[1] + "/run", parts=2, workers=2)
"""


def make_slow(folder):
    """Return the survey; every worker leaves its number and takes its time."""

    def draw(params):
        Path(folder, f"worker{os.getpid()}").touch()
        time.sleep(0.3)
        return params["m"]

    return make(picture=Picture((1, P), draw=draw))


def worker_numbers(folder, caller):
    return {int(path.name.removeprefix("worker")) for path in folder.glob("worker*")} - {caller}


@pytest.mark.slow
def test_a_killed_caller_leaves_no_workers_and_loses_no_points(tmp_path):
    with subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path)]) as caller:
        while not any(len(part_ids(path)) for path in (tmp_path / "run" / "parts").glob("*.sqlite")):
            assert caller.poll() is None
            time.sleep(0.05)
        caller.kill()
    workers = worker_numbers(tmp_path, caller.pid)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their caller"
        time.sleep(0.1)
    with Survey(tmp_path / "run", gather=True) as found:
        kept = dict(zip(found.column("id"), found.column("finished"), strict=True))
        assert 0 < len(kept) < len(SICK)
    options = {"run_dir": tmp_path / "run", "parts": 2, "workers": 2}
    with survey_parts(make_slow, (str(tmp_path),), **options) as found:
        assert found.complete
        ended = dict(zip(found.column("id"), found.column("finished"), strict=True))
    assert {i: ended[i] for i in kept} == kept  # none was run again


def part_ids(path):
    try:
        with Ledger.open(path.parent, path.name, read_only=True) as part:
            return part.ids()
    except CheckpointError:  # only just begun
        return []


@pytest.mark.slow
@pytest.mark.parametrize("package", ["loky", "distributed"])
def test_other_executors(whole, tmp_path, package):
    found = pytest.importorskip(package)
    if package == "loky":
        with (
            found.ProcessPoolExecutor(max_workers=2) as pool,
            survey_parts(make, run_dir=tmp_path, parts=2, executor=pool) as done,
        ):
            assert done.complete and cells(done) == whole
        return
    with (
        found.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        found.Client(cluster) as client,
        survey_parts(make, run_dir=tmp_path, parts=3, executor=client.get_executor()) as done,
    ):
        assert done.complete and cells(done) == whole
