"""Through a real Slurm of one node: srun's variables are enough, also with PMI2, and a failing rank is named."""

import json
import os
import sys

import jax
import numpy as np
import pytest

from tests.processes import decay, slurm
from tests.processes.conftest import HERE, run_command

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def srun(tmp_path_factory):
    if reason := slurm.missing():
        pytest.skip(reason)
    # one device each: the flag of this test run would give eight
    flags = " ".join(flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag)
    with slurm.one_node(tmp_path_factory.mktemp("slurm")) as environ:

        def run(*words, options=(), **more):
            # mpi4py of another MPI would start itself: these ranks must find each other without it
            given = environ | {"XLA_FLAGS": flags} | more
            command = ("srun", "-n", 2, "--overcommit", "--kill-on-bad-exit=1", *options, sys.executable, "-m")
            return run_command(*command, "shardfit", "rank", "--", *words, environ=given, seconds=300)

        yield run


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_two_tasks_give_the_answer_of_one(srun, tmp_path, mpi):
    done = srun(HERE / "decay.py", "lbfgsb", "own", tmp_path, options=(f"--mpi={mpi}",))
    if "pmi2" in done.stderr and "plugin" in done.stderr:
        pytest.skip(f"this Slurm has no PMI2: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["processes"] == 2
    value, _ = decay.objective_of(decay.read()).value_and_grad(jax.tree.map(np.float64, decay.POINT))
    assert first["value"] == pytest.approx(float(value), rel=1e-12)


def test_a_failing_task_ends_the_step(srun, tmp_path):
    done = srun(HERE / "failing.py", "raise", 1, tmp_path)
    assert done.returncode != 0
    assert "rank 1 failed (ArithmeticError: the model broke)" in done.stderr
