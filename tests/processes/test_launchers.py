"""Rank, size and coordinator from the variables of each launcher; what makes no sense is refused in clear words."""

import os
import socket
import sys

import pytest

from shardfit.distributed import launchers
from shardfit.distributed.launchers import PORTS, Place, ancestors, find_place, first_host, require_free

OWN = {"SHARDFIT_RANK": "1", "SHARDFIT_SIZE": "3", "SHARDFIT_COORDINATOR": "127.0.0.1:4000"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
}
OPEN_MPI_5 = OPEN_MPI | {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-node-15658@1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}
SLURM = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "node[07-08]",
}
MEETING = {"SHARDFIT_COORDINATOR": "node7:4000"}


@pytest.fixture(autouse=True)
def no_mpi4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)


def test_a_process_without_launcher_is_alone():
    assert find_place({}) is None
    assert find_place({"SHARDFIT_RANK": "0", "SHARDFIT_SIZE": "1", "SHARDFIT_COORDINATOR": "a:1"}) is None


def test_the_body_of_a_batch_script_is_alone():
    assert find_place({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        (OWN, Place(1, 3, "127.0.0.1:4000")),
        (SLURM, Place(5, 8, f"node07:{PORTS + (1234 * 31 + 2) % 4096}", 1)),
        (SLURM | MEETING, Place(5, 8, "node7:4000", 1)),
        # the Slurm beneath an MPI counts the MPI's daemons
        (SLURM | MPICH | MEETING, Place(1, 3, "node7:4000", 1, 3)),
        (OPEN_MPI | MEETING, Place(1, 3, "node7:4000", 1, 3)),
        (OWN | SLURM, Place(1, 3, "127.0.0.1:4000")),
    ],
)
def test_place(environ, place):
    assert find_place(environ) == place


@pytest.mark.parametrize("environ", [OPEN_MPI, MPICH])
def test_mpi_on_one_machine_needs_no_address(environ, monkeypatch):
    # a shell script and `time` between the launcher's daemon and this process
    above = [(50, "time"), (49, "wrapper.sh"), (4100, "hydra_pmi_proxy"), (40, "mpiexec"), (1, "init")]
    monkeypatch.setattr(launchers, "ancestors", lambda: iter(above))
    assert find_place(environ) == Place(1, 3, f"127.0.0.1:{PORTS + 4100 % 4096}", 1, 3)


def test_open_mpi_5_tells_the_name_of_the_job():
    first, second = (find_place(OPEN_MPI_5 | {"PMIX_NAMESPACE": name}) for name in ("prterun-a-1@1", "prterun-a-2@1"))
    assert first.coordinator.startswith("127.0.0.1:") and first != second


def test_without_a_launcher_above_the_address_must_be_given(monkeypatch):
    monkeypatch.setattr(launchers, "ancestors", lambda: iter([(1, "sh")]))
    with pytest.raises(RuntimeError, match="in containers.*Install mpi4py, or set SHARDFIT_COORDINATOR"):
        find_place(MPICH)


def test_ancestors_are_those_of_the_system():
    assert next(ancestors())[0] == os.getppid()
    assert all(name for _, name in ancestors())


def test_pmi2_of_slurm_is_slurm():
    environ = SLURM | {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_JOBID": "1234.2"}
    assert find_place(environ) == find_place(SLURM)


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"cannot listen on port {port} .*SHARDFIT_COORDINATOR"):
            require_free(f"127.0.0.1:{port}")
    require_free(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"PMI_RANK": "1"}, "PMI_RANK is set but PMI_SIZE is not"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not"),
        (MPICH | {"PMI_RANK": "3"}, "PMI_RANK=3 and PMI_SIZE=3 contradict"),
        (MPICH | {"PMI_RANK": "first"}, "PMI_RANK='first' is not a number"),
        (OPEN_MPI | {"PMIX_RANK": "0"}, "PMIX_RANK=0: one launcher inside another"),
        (OPEN_MPI | MPICH | {"PMI_RANK": "0"}, "Open MPI says rank 1 .* MPICH says rank 0 of 3"),
        ({"SHARDFIT_RANK": "0", "SHARDFIT_SIZE": "2"}, "SHARDFIT_COORDINATOR is not"),
        (OWN | {"SHARDFIT_COORDINATOR": "node7"}, "must be host:port"),
        (MPICH | {"MPI_LOCALNRANKS": "2"}, "several machines.*Install mpi4py, or set SHARDFIT_COORDINATOR"),
        ({k: v for k, v in SLURM.items() if k != "SLURM_PROCID"}, "SLURM_PROCID is not set"),
        (SLURM | {"SLURM_STEP_NODELIST": ""}, "names no machine"),
    ],
)
def test_nonsense_is_refused(environ, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        find_place(environ)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("gpu[07-09,12],login", "gpu07"),
        ("a,b", "a"),
        ("rack1-n[3,5]", "rack1-n3"),
        ("c[1-2]-ib", "c1-ib"),
    ],
)
def test_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first
