"""A consensus that is killed at random instants, or whose workers are, ends with the draws of one left alone."""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from shardfit.sampling.shards.shard_consensus import consensus
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.sampling.store import load_posterior
from tests.sampling.shard_cases import QUICK, line, line_or_die, line_or_wait

pytestmark = pytest.mark.processes


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "shards"), [(2, 4), (12, 32)])
def test_the_same_draws_after_kills(tmp_path, kills, shards):
    command = [sys.executable, "-m", "tests.sampling.killed_shards", str(tmp_path), str(kills), "3", str(shards)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=os.environ | {"JAX_PLATFORMS": "cpu"}
    )
    assert not done.returncode, done.stderr
    assert int(done.stdout.split()[0]) >= kills - 1, f"processes had ended before they were killed: {done.stdout}"
    whole, killed = (load_posterior(tmp_path / name) for name in ("whole", "killed"))
    np.testing.assert_array_equal(killed.z, whole.z)
    if whole.weights is not None:
        np.testing.assert_array_equal(killed.weights, whole.weights)
    for name, column in whole.extra["shards"].items():
        np.testing.assert_array_equal(killed.extra["shards"][name], column, err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the posterior, sampled by one worker: numbers of devices differ between this process and workers."""
    return run(line, tmp_path_factory.mktemp("whole"), workers=1)


def run(make, folder, **control):
    control = ShardControl(slots=2, progress=False, **control)
    return consensus(make, 4, by="third", run_dir=folder, control=control, **QUICK)


@pytest.mark.slow
def test_one_worker_or_two(whole, tmp_path):
    np.testing.assert_array_equal(run(line, tmp_path, workers=2).z, whole.z)
    np.testing.assert_array_equal(run(line, tmp_path / "here").z, whole.z)


@pytest.mark.slow
@pytest.mark.parametrize("make", [line_or_die, line_or_wait])
def test_a_worker_that_dies_or_hangs_is_replaced(whole, tmp_path, make):
    mark = tmp_path / "mark"
    found = run(partial(make, str(mark)), tmp_path / "run", workers=2, patience=40)
    assert mark.exists()
    np.testing.assert_array_equal(found.z, whole.z)


@pytest.mark.slow
def test_workers_that_always_hang_are_named(tmp_path):
    with pytest.raises(RuntimeError, match="unfinished: shards 0, 1, shards 2, 3") as caught:
        run(partial(line_or_wait, None), tmp_path, workers=1, patience=5)
    assert any("No response for 5 s: shards 0, 1" in note for note in caught.value.__notes__)
    assert any("the same call samples the rest" in note for note in caught.value.__notes__)
