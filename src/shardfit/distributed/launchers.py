"""Rank, size and meeting point of this process, read from the environment that started it.

Launchers tell their processes who they are through variables. They are read here and handed to JAX explicitly, since
its own detection misses Open MPI 5 and MPICH. No variables of a launcher: the process is alone.
"""

import errno
import os
import re
import socket
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

REMEDY = (
    "Set SHARDFIT_RANK, SHARDFIT_SIZE and SHARDFIT_COORDINATOR=host:port for every process, or use `shardfit launch`."
)
EXCHANGE_SECONDS = 15  # how long a process waits for the others in an exchange
START_SECONDS = 600  # the same until all have joined, and where they meet before work: one may load data longer
FAILED, FOLLOWED = 1, 113  # exit codes: own failure, another's (one that scripts hardly use themselves)
JUDGED = 114  # under `shardfit launch`: a command did its work and ends with UNMET, which is no failure of a process
WAITED_FOR = 115  # exit code of a process that others say hangs: it may, or it was only the last to notice a failure
UNMET = 1  # exit code of shardfit's commands whose answer is not what was asked for, such as a fit not converged
STDIN = "stdin"  # in place of the number of a parent: the process ends when its standard input does
PORTS = 61440  # 4096 ports from here on lie above those that systems hand out by themselves


class Launcher(NamedTuple):
    """Names of a launcher's variables; local: of rank and number on this machine, in order of preference."""

    name: str
    rank: str
    size: str
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()


LAUNCHERS = (
    Launcher("shardfit", "SHARDFIT_RANK", "SHARDFIT_SIZE", ("SHARDFIT_LOCAL_RANK",), ("SHARDFIT_LOCAL_SIZE",)),
    # inside whatever starts its agents
    Launcher("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    # PMI is spoken by MPICH and Intel MPI, by PALS (Cray, under PBS) and by Flux
    Launcher(
        "MPICH",
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    ),
    Launcher(
        "jsrun",
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        ("JSM_NAMESPACE_LOCAL_RANK",),
        ("JSM_NAMESPACE_LOCAL_SIZE",),
    ),
    Launcher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", ("FLUX_TASK_LOCAL_ID",)),
    # variables of a step, which srun sets: the body of a batch script has a rank and a size too but runs only once
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",)),
)
OWN, TORCHRUN, OPEN_MPI, MPICH, JSRUN, FLUX, SLURM = LAUNCHERS
# programs of MPI launchers that are an ancestor of every process of one machine, whatever is wrapped around it
DAEMONS = frozenset(
    "hydra_pmi_proxy pmi_proxy mpiexec mpirun mpiexec.hydra orterun orted prte prted prterun flux-shell jsrun".split()  # noqa: SIM905
)


class Place(NamedTuple):
    """Who this process is among `size`; local_rank numbers the local_size processes of one machine, None if unknown."""

    rank: int
    size: int
    coordinator: str
    local_rank: int | None = None
    local_size: int | None = None


def find_place(environ: Mapping[str, str]) -> Place | None:
    """Return this process's place in its job; None when it is alone. Raise when the variables make no sense."""
    present = [launcher for launcher in LAUNCHERS if _present(launcher, environ)]
    if not present:
        return None
    launcher = SLURM if _slurm_speaks_pmi(present, environ) else present[0]
    rank, size = _number(launcher.rank, environ), _number(launcher.size, environ)
    if not 0 <= rank < size:
        raise ValueError(f"{launcher.rank}={rank} and {launcher.size}={size} contradict each other. {REMEDY}")
    _require_one_story(launcher, present, rank, environ)
    if size == 1:
        return None
    local_rank, local_size = _first(launcher.local_rank, environ), _local_size(launcher, size, environ)
    return Place(rank, size, _coordinator(launcher, rank, size, local_size, environ), local_rank, local_size)


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    """Return the number that the first of these variables has; None if none is set."""
    return next((_number(name, environ) for name in names if name in environ), None)


def _local_size(launcher: Launcher, size: int, environ: Mapping[str, str]) -> int | None:
    """Return how many of the job's processes are on this machine, None if the variables do not tell."""
    if launcher is SLURM:
        return _tasks_on_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""), environ.get("SLURM_NODEID", ""))
    found = _first(launcher.local_size, environ)
    return size if found is None and environ.get("FLUX_JOB_NNODES") == "1" else found


def _tasks_on_node(tasks: str, node: str) -> int | None:
    """Return the number of a node in Slurm's list of tasks per node: '2(x3),1', '3' -> 1."""
    if not re.fullmatch(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*", tasks) or not node.isdigit():
        return None
    each = [int(n) for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks) for _ in range(int(times or 1))]
    return each[int(node)] if int(node) < len(each) else None


def _slurm_speaks_pmi(present: list[Launcher], environ: Mapping[str, str]) -> bool:
    """Return whether the variables of PMI are Slurm's own (srun --mpi=pmi2): both tell the same rank and size."""
    if present[0] is not MPICH or SLURM not in present:
        return False
    return [environ.get(name) for name in (MPICH.rank, MPICH.size)] == [
        environ.get(name) for name in (SLURM.rank, SLURM.size)
    ]


def _present(launcher: Launcher, environ: Mapping[str, str]) -> bool:
    if launcher is SLURM:
        return launcher.size in environ
    if launcher is TORCHRUN and "TORCHELASTIC_RUN_ID" not in environ:  # its other names are anybody's
        return False
    given = [name for name in (launcher.rank, launcher.size) if name in environ]
    if len(given) == 1:
        missing = launcher.size if given == [launcher.rank] else launcher.rank
        raise ValueError(f"{given[0]} is set but {missing} is not, so this process does not know its rank. {REMEDY}")
    return bool(given)


def _require_one_story(launcher: Launcher, present: list[Launcher], rank: int, environ: Mapping[str, str]) -> None:
    """Raise when two MPI launchers disagree; Slurm beneath an MPI tells the rank of the MPI's own daemon."""
    if launcher is OPEN_MPI and (other := environ.get("PMIX_RANK", str(rank))) != str(rank):
        raise ValueError(f"{launcher.rank}={rank}, but PMIX_RANK={other}: one launcher inside another? {REMEDY}")
    for other in present[1:]:
        said = _number(other.rank, environ), _number(other.size, environ)
        if launcher is OPEN_MPI and other is MPICH and said != (rank, _number(launcher.size, environ)):
            raise ValueError(
                f"{launcher.name} says rank {rank} ({launcher.rank}), {other.name} says rank {said[0]} of {said[1]} "
                f"({other.rank}): one launcher inside another? {REMEDY}"
            )


def _number(name: str, environ: Mapping[str, str]) -> int:
    if name not in environ:
        raise ValueError(f"{name} is not set, so this process does not know its rank. {REMEDY}")
    text = environ[name]
    if not text.isdigit():
        raise ValueError(f"{name}={text!r} is not a number. {REMEDY}")
    return int(text)


def _coordinator(launcher: Launcher, rank: int, size: int, local_size: int | None, environ: Mapping[str, str]) -> str:
    """Return host:port of rank 0, where all processes meet."""
    given = environ.get("SHARDFIT_COORDINATOR")
    if given is not None:
        if not re.fullmatch(r"\S+:\d+", given):
            raise ValueError(f"SHARDFIT_COORDINATOR={given!r} must be host:port, of the machine of rank 0.")
        return given
    if launcher is OWN:
        raise ValueError(f"SHARDFIT_RANK is set but SHARDFIT_COORDINATOR is not. {REMEDY}")
    if launcher is SLURM:
        job = _number("SLURM_JOB_ID", environ) * 31 + int(environ.get("SLURM_STEP_ID", "0"))
        return f"{first_host(environ.get('SLURM_STEP_NODELIST', ''))}:{PORTS + job % 4096}"
    if launcher is TORCHRUN and "MASTER_ADDR" in environ:  # its agents meet at MASTER_PORT
        job = zlib.crc32(f"{environ['TORCHELASTIC_RUN_ID']} {environ.get('MASTER_PORT', '')}".encode())
        return f"{environ['MASTER_ADDR']}:{PORTS + job % 4096}"
    if local_size == size and (job := _job_on_one_machine(environ)) is not None:
        return f"127.0.0.1:{PORTS + job % 4096}"
    return _agree_by_mpi(launcher, rank, size)


def _job_on_one_machine(environ: Mapping[str, str]) -> int | None:
    """Return a number that all processes of an MPI job on one machine know without asking each other."""
    if "PMIX_NAMESPACE" in environ:
        return zlib.crc32(environ["PMIX_NAMESPACE"].encode())
    return next((number for number, name in ancestors() if name in DAEMONS), None)


def ancestors() -> Iterator[tuple[int, str]]:
    """Yield number and program of the processes above this one, the nearest first; of a container, those inside it."""
    number = os.getppid()
    while number > 1:
        try:
            parent, name = _parent_and_name(number)
        except (OSError, ValueError, subprocess.SubprocessError):
            return
        yield number, name
        number = parent


def _parent_and_name(number: int) -> tuple[int, str]:
    file = Path(f"/proc/{number}/stat")
    if file.exists():
        name, _, rest = file.read_text().partition("(")[2].rpartition(")")
        return int(rest.split()[1]), name
    listed = subprocess.run(["ps", "-o", "ppid=,comm=", "-p", str(number)], capture_output=True, text=True, check=True)
    parent, _, name = listed.stdout.strip().partition(" ")
    return int(parent), Path(name.strip()).name


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list: 'gpu[07-09,12],login' -> 'gpu07'."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,\[]*)", nodes)
    if match is None:
        raise ValueError(f"SLURM_STEP_NODELIST={nodes!r} names no machine. Start the processes with srun. {REMEDY}")
    return "".join(part or "" for part in match.groups())


def _agree_by_mpi(launcher: Launcher, rank: int, size: int) -> str:
    """Return what rank 0 tells the others through mpi4py."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise RuntimeError(
            f"{launcher.name} started {size} processes on several machines, or in containers, and its variables do not "
            "tell the address of rank 0. Install mpi4py, or set SHARDFIT_COORDINATOR=host:port (machine of rank 0, any "
            "free port)."
        ) from None
    world = MPI.COMM_WORLD
    if (world.rank, world.size) != (rank, size):
        raise RuntimeError(
            f"mpi4py says rank {world.rank} of {world.size}, the launcher says {rank} of {size}: mpi4py belongs to "
            "another MPI than the launcher. Install it for this one, or set SHARDFIT_COORDINATOR=host:port."
        )
    return world.bcast(f"{socket.gethostname()}:{free_port()}" if rank == 0 else None)


def require_free(coordinator: str) -> None:
    """Raise, naming the port, where rank 0 cannot listen: another program does."""
    port = int(coordinator.rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what an ended job left behind does not count
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise RuntimeError(
                f"rank 0 cannot listen on port {port} ({error.strerror}), where the other processes look for it. Start "
                "again, or choose a free port of its machine: SHARDFIT_COORDINATOR=host:port for every process."
            ) from None


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
