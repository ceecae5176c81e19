"""Which GPUs a process uses, by tables of what launchers set; no GPU is needed, as only variables are read."""

import subprocess
import sys

import pytest

from shardfit.distributed import gpus
from shardfit.distributed.gpus import exchange_flag, idle_gpus, own_gpus, visible
from shardfit.distributed.launchers import PORTS, Place, find_place

MEETING = {"SHARDFIT_COORDINATOR": "node7:4000"}
# the second task of the second of two nodes with four tasks each, as each launcher tells it
SLURM = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_NODELIST": "gpu[1-2]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_RANK": "5",
}
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
PBS = MPICH | {"PBS_JOBID": "77.server", "PBS_NODEFILE": "/var/spool/pbs/aux/77.server"}
PALS = {
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "4",
    "PALS_RANKID": "5",
    "PALS_LOCAL_RANKID": "1",
    "PBS_JOBID": "77.server",
}
FLUX = {
    "FLUX_TASK_RANK": "5",
    "FLUX_JOB_SIZE": "8",
    "FLUX_TASK_LOCAL_ID": "1",
    "FLUX_JOB_NNODES": "2",
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
}
JSRUN = {
    "JSM_NAMESPACE_RANK": "5",
    "JSM_NAMESPACE_SIZE": "8",
    "JSM_NAMESPACE_LOCAL_RANK": "1",
    "JSM_NAMESPACE_LOCAL_SIZE": "4",
}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "gpu1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
# an indexed job tells the index only; the rest stands in its manifest
KUBERNETES = {"JOB_COMPLETION_INDEX": "5", "SHARDFIT_RANK": "5", "SHARDFIT_SIZE": "8"} | MEETING
OURS = {"SHARDFIT_RANK": "5", "SHARDFIT_SIZE": "8", "SHARDFIT_LOCAL_RANK": "1", "SHARDFIT_LOCAL_SIZE": "4"} | MEETING
ALL, ONE = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, {"CUDA_VISIBLE_DEVICES": "0"}
FOUR = {"SLURM_GPUS_ON_NODE": "4"}


@pytest.mark.parametrize("environ", [SLURM, OPEN_MPI, MPICH, PBS, PALS, JSRUN, TORCHRUN, OURS])
def test_a_process_knows_its_place_on_its_machine(environ):
    place = find_place(environ | MEETING)
    assert place is not None and place[:2] == (5, 8) and place[3:] == (1, 4)


def test_what_launchers_leave_out_is_not_made_up():
    assert find_place(FLUX | MEETING) == Place(5, 8, "node7:4000", 1, None)
    assert find_place(FLUX | MEETING | {"FLUX_JOB_NNODES": "1"}) == Place(5, 8, "node7:4000", 1, 8)
    assert find_place({k: v for k, v in FLUX.items() if "PMI" not in k} | MEETING) == Place(5, 8, "node7:4000", 1, None)
    assert find_place(KUBERNETES) == Place(5, 8, "node7:4000", None, None)
    assert find_place({"RANK": "1", "WORLD_SIZE": "2"}) is None  # anybody may set these
    tasks = {"SLURM_STEP_TASKS_PER_NODE": "3,2(x2)"}
    sizes = [find_place(SLURM | tasks | {"SLURM_NODEID": node}).local_size for node in ("0", "2", "3", "x")]
    assert sizes == [3, 2, None, None]


def test_torchrun_names_a_host_and_another_port_than_its_own():
    host, _, port = find_place(TORCHRUN).coordinator.partition(":")
    assert host == "gpu1" and PORTS <= int(port) < PORTS + 4096
    assert find_place(SLURM | TORCHRUN).coordinator == find_place(TORCHRUN).coordinator  # srun torchrun


@pytest.mark.parametrize(
    ("environ", "installed", "used"),
    [
        # every process is shown its own: number 0 whoever it is
        (SLURM | ONE | FOUR, 4, None),  # --gpus-per-task=1
        (SLURM | {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "8"}, 8, None),  # --gpus-per-task=2
        (JSRUN | ONE, 4, None),
        (FLUX | ONE, 4, None),  # gpu-affinity=per-task
        (KUBERNETES | {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, 1, None),
        (OPEN_MPI | {"ROCR_VISIBLE_DEVICES": "GPU-b1c2"}, 0, None),
        # all are shown all: each takes its share
        (SLURM | ALL | FOUR, 4, [1]),  # --gpus-per-node=4
        (SLURM | {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "SLURM_GPUS_ON_NODE": "8"}, 8, [2, 3]),
        (PALS | ALL, 4, [1]),
        (PBS, 4, [1]),
        (TORCHRUN, 8, [2, 3]),
        (MPICH | {"HIP_VISIBLE_DEVICES": "0,1,2,3"}, 0, [1]),
        # one process on its machine has them all
        (SLURM | ALL | FOUR | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}, 4, None),
        (PALS | {"PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "1"}, 4, None),
        # who is told obeys
        (SLURM | ALL | {"JAX_LOCAL_DEVICE_IDS": "2,3"}, 4, None),
        (OURS | {"SHARDFIT_DEVICES": "2"}, 8, [2, 3]),
        (OURS | {"JAX_LOCAL_DEVICE_IDS": "0"}, 8, None),
    ],
)
def test_gpus_of_a_process(environ, installed, used):
    place = find_place(environ | MEETING)
    assert place is not None and own_gpus(place, environ, installed) == used


@pytest.mark.parametrize(
    ("shown", "n"), [("0,1", 2), ("", 0), ("-1", 0), ("NoDevFiles", 0), ("0,-1,2", 1), ("GPU-a,MIG-b", 2)]
)
def test_visible_gpus_are_counted_as_cuda_does(shown, n):
    assert visible({"CUDA_VISIBLE_DEVICES": shown}) == n


def test_gpus_that_nobody_uses_are_told():
    first = Place(0, 2, "node7:4000", 0, 2)
    told = idle_gpus(first, ALL, [0], 4)
    assert told.startswith("2 of the 4 GPUs of this machine are used: it has 2 processes with 1 each.")
    assert "--devices-per-process" in told and "JAX_LOCAL_DEVICE_IDS" in told
    assert not idle_gpus(first, ALL, [0, 1], 4) and not idle_gpus(first, ALL, None, 4)
    assert not idle_gpus(first._replace(local_rank=1), ALL, [0], 4) and not idle_gpus(first, {}, [0], 0)


def test_the_flag_for_exchanges_between_gpus_is_one_that_xla_knows():
    flag = exchange_flag(20)
    assert flag == f"--{gpus.TERMINATE}=20"
    code = f"import os; os.environ['XLA_FLAGS'] = {flag!r}; import jax; print(jax.numpy.ones(2).sum())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "2.0"


def test_a_flag_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(gpus, "TERMINATE", "xla_gpu_no_such_flag")
    assert exchange_flag(20) == ""
