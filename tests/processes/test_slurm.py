"""Through a real Slurm of one node: srun's variables are enough, also with PMI2, and a failing rank is named."""

import json
import os
import re
import sys
import time

import jax
import numpy as np
import pytest

from tests.processes import decay, slurm
from tests.processes.conftest import HERE, run_command
from tests.test_docs import ROOT, blocks

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The environment in which commands of Slurm find a node."""
    if reason := slurm.missing():
        pytest.skip(reason)
    # one device each: the flag of this test run would give eight
    flags = " ".join(flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag)
    with slurm.one_node(tmp_path_factory.mktemp("slurm")) as environ:
        yield environ | {"XLA_FLAGS": flags}


@pytest.fixture
def srun(cluster):
    def run(*words, options=(), **more):
        # mpi4py of another MPI would start itself: these ranks must find each other without it
        command = ("srun", "-n", 2, "--overcommit", "--kill-on-bad-exit=1", *options, sys.executable, "-m")
        return run_command(*command, "shardfit", "rank", "--", *words, environ=cluster | more, seconds=300)

    return run


def batch_script(words):
    """Return the batch script of the cluster page with another command, of two tasks on the one node there is."""
    (script,) = (text for _, text in blocks(ROOT / "docs" / "cluster.md", "bash") if "scontrol requeue" in text)
    kept = [line for line in script.splitlines() if not re.match("#SBATCH --(nodes|ntasks|cpus|time|signal)", line)]
    command = " ".join(map(str, ("srun -n 2 --overcommit --kill-on-bad-exit=1", sys.executable, "-m", *words)))
    changed = [f"{command} &" if line.startswith("srun ") else line for line in kept]
    assert changed != kept
    return "\n".join([changed[0], "#SBATCH -n 2 --overcommit", *changed[1:]]) + "\n"


def submitted(cluster, folder, *words):
    """Submit the batch script with a command of `shardfit rank`, wait until it has ended, return what Slurm says."""
    (folder / "job.sh").write_text(batch_script(("shardfit", "rank", "--", *words)))
    sent = run_command("sbatch", "--parsable", "-o", folder / "out", folder / "job.sh", environ=cluster)
    assert sent.returncode == 0, sent.stderr
    until = time.monotonic() + 400
    while time.monotonic() < until:
        said = run_command("scontrol", "show", "job", "-o", sent.stdout.strip(), environ=cluster).stdout
        if re.search("JobState=(COMPLETED|FAILED|NODE_FAIL)", said):
            return said
        if "Reason=BeginTime" in said:  # Slurm would let a requeued job wait for two minutes
            run_command("scontrol", "update", f"JobId={sent.stdout.strip()}", "StartTime=now", environ=cluster)
        time.sleep(1.0)
    raise AssertionError(f"{said}\n{(folder / 'out').read_text()}")


def test_a_killed_rank_is_queued_again_and_goes_on(cluster, tmp_path):
    said = submitted(cluster, tmp_path, HERE / "decay.py", "lbfgs", "own", tmp_path, tmp_path / "run", 0, 3)
    assert "JobState=COMPLETED" in said and "Restarts=1" in said, (tmp_path / "out").read_text()
    events = [json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events.count("started") == 2 and events[-1] == "finished"


def test_a_script_that_fails_is_not_queued_again(cluster, tmp_path):
    said = submitted(cluster, tmp_path, HERE / "failing.py", "raise", 1, tmp_path)
    assert "JobState=FAILED" in said and "Restarts=0" in said
    assert "rank 1 failed (ArithmeticError: the model broke)" in (tmp_path / "out").read_text()


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
