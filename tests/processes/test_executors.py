"""Tasks on any executor: order of completion, a failing task, a dying worker."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from shardfit.distributed.executors import as_executor, run_tasks


def root(x):
    if x < 0:
        raise ValueError(f"no root of {x}")
    return x**0.5


def die_once(folder, x):
    mark = Path(folder, "died")
    if x == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def die(x):
    if x == 2:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    return x


TASKS = {"four": (4.0,), "nine": (9.0,), "bad": (-1.0,)}


def require_outcomes(outcomes):
    found = {outcome.name: outcome for outcome in outcomes}
    assert {name: outcome.value for name, outcome in found.items()} == {"four": 2.0, "nine": 3.0, "bad": None}
    assert "no root of -1.0" in str(found["bad"].error)
    assert found["four"].error is None


def test_local_pool():
    require_outcomes(run_tasks(root, TASKS, workers=2))


def test_a_given_executor_stays_open():
    with ThreadPoolExecutor(2) as pool:
        require_outcomes(run_tasks(root, TASKS, executor=pool))
        assert pool.submit(root, 4.0).result() == 2.0


def test_loky():
    loky = pytest.importorskip("loky")
    with loky.ProcessPoolExecutor(max_workers=2) as pool:
        require_outcomes(run_tasks(root, TASKS, executor=pool))


def test_dask():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        require_outcomes(run_tasks(root, TASKS, executor=client.get_executor()))


def test_unfinished_tasks_are_run_again_when_a_worker_dies(tmp_path):
    found = list(run_tasks(die_once, {x: (tmp_path, x) for x in range(5)}, workers=1))
    assert sorted(outcome.value for outcome in found) == [0, 1, 2, 3, 4]


def test_a_task_that_always_kills_its_worker_is_named():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        outcomes = run_tasks(die, {x: (x,) for x in range(4)}, executor=pool)
        assert {next(outcomes).name, next(outcomes).name} == {0, 1}  # both may have ended when the caller looks
        with pytest.raises(RuntimeError, match=r"2 of 4 tasks are unfinished: 2, 3\. Run these again"):
            next(outcomes)


@pytest.mark.parametrize(
    ("executor", "workers", "words"),
    [
        (object(), None, "object is not an executor: it has no submit"),
        (ThreadPoolExecutor(1), 2, "workers=2 is for a local pool"),
        (type("Client", (), {"get_executor": None})(), None, r"pass Client.get_executor\(\)"),
    ],
)
def test_what_is_no_executor(executor, workers, words):
    with pytest.raises((TypeError, ValueError), match=words), as_executor(executor, workers):
        pass
