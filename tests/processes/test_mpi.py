"""Through a real mpiexec: ranks find each other, the answer is that of one process, and MPI's pool runs tasks."""

import json
import os
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.processes import decay
from tests.processes.conftest import HERE, run_command

pytestmark = pytest.mark.processes
BESIDE = Path(sys.executable).parent / "mpiexec"  # of the package mpich, in this environment
ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


@pytest.fixture
def mpiexec():
    found = BESIDE if BESIDE.exists() else shutil.which("mpiexec")
    if not found:
        pytest.skip("no mpiexec: pip install mpich brings one")
    # one device each: the flag of this test run would give eight
    flags = " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)
    return lambda *words: run_command(found, "-n", 2, sys.executable, "-m", *words, environ=ROOT | {"XLA_FLAGS": flags})


@pytest.mark.slow
def test_two_ranks_give_the_answer_of_one(mpiexec, tmp_path):
    done = mpiexec("shardfit", "rank", "--", HERE / "decay.py", "lbfgsb", "own", tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["processes"] == 2
    value, _ = decay.objective_of(decay.read()).value_and_grad(jax.tree.map(np.float64, decay.POINT))
    assert first["value"] == pytest.approx(float(value), rel=1e-12)


def test_a_wrapper_script_around_each_rank(tmp_path):
    if not BESIDE.exists():
        pytest.skip("no mpiexec of the package mpich in this environment")
    wrapper = tmp_path / "wrapper.sh"
    wrapper.write_text(f'#!/bin/sh\n"{sys.executable}" -m shardfit rank -- "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    done = run_command(BESIDE, "-n", 2, wrapper, HERE / "ranks.py", environ={"XLA_FLAGS": ""})
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):  # mpiexec may join the lines of two ranks
        assert f"rank {rank} of 2: sum 1" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "hang"])
def test_a_failing_rank_is_named(mpiexec, tmp_path, how):
    done = mpiexec("shardfit", "rank", "--", HERE / "failing.py", how, 1, tmp_path)
    assert done.returncode != 0
    assert "rank 1 failed" in done.stderr or "rank 1 ended or does not respond" in done.stderr


@pytest.mark.slow
def test_mpi_pool_runs_tasks(mpiexec):
    pytest.importorskip("mpi4py")
    done = mpiexec("mpi4py.futures", HERE / "tasks.py")
    assert done.returncode == 0, done.stderr
    assert "2.0 3.0 no root of -1.0" in done.stdout
