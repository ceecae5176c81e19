"""Which GPUs of its machine a process uses, from what its launcher has bound and said.

JAX numbers the GPUs that a process sees from 0 and takes all of them unless told. Some launchers show every process its
own (one, numbered 0, under Slurm's --gpus-per-task=1), others show all to all: then they are dealt out here.
"""

import mmap
from collections.abc import Mapping
from pathlib import Path

from shardfit.distributed.launchers import Place

TOLD = "JAX_LOCAL_DEVICE_IDS"  # JAX reads it itself
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
NONE = ("", "-1", "NoDevFiles", "none", "void")
INSTALLED = Path("/proc/driver/nvidia/gpus")
TERMINATE = "xla_gpu_nccl_termination_timeout_seconds"


def installed() -> int:
    """Return how many GPUs of NVIDIA this machine has, 0 where the system does not tell."""
    return len(list(INSTALLED.iterdir())) if INSTALLED.is_dir() else 0


def visible(environ: Mapping[str, str]) -> int | None:
    """Return how many GPUs a launcher shows this process; None if it does not say."""
    for name in VISIBLE:
        if name in environ:
            entries = [entry.strip() for entry in environ[name].split(",")]
            shown = [entry in NONE for entry in entries]
            return shown.index(True) if True in shown else len(entries)  # those behind an invalid one do not count
    return None


def own_gpus(place: Place, environ: Mapping[str, str], n_installed: int) -> list[int] | None:
    """Return the numbers, among those that it sees, of the GPUs that this process uses; None leaves it to JAX.

    n_installed: GPUs of the machine, as far as known. `shardfit launch` says how many each process has.
    """
    own, beside = place.local_rank, place.local_size
    told = int(environ.get("SHARDFIT_DEVICES", "0"))
    if TOLD in environ or own is None or beside is None:
        return None
    if told:
        return [own * told + i for i in range(told)]
    seen = visible(environ)
    n = n_installed if seen is None else seen
    if beside == 1 or (seen is not None and _has_its_own(n, beside, _of_job(environ, n_installed))):
        return None
    each = max(1, n // beside)
    return [own * each + i for i in range(each)]


def _of_job(environ: Mapping[str, str], n_installed: int) -> int:
    """Return how many GPUs the job has on this machine, 0 if unknown."""
    given = environ.get("SLURM_GPUS_ON_NODE", "")
    return int(given) if given.isdigit() else n_installed


def _has_its_own(n: int, beside: int, total: int) -> bool:
    """Return whether n GPUs that a process sees are its own, and not those of all `beside` processes of its machine."""
    return n < beside or n * beside <= total


def idle_gpus(place: Place, environ: Mapping[str, str], chosen: list[int] | None, n_installed: int) -> str:
    """Return what to say where GPUs that this process sees are used by nobody, else ''."""
    seen = visible(environ)
    n, beside = n_installed if seen is None else seen, place.local_size
    if chosen is None or beside is None or place.local_rank != 0 or len(chosen) * beside >= n:
        return ""
    return (
        f"{len(chosen) * beside} of the {n} GPUs of this machine are used: it has {beside} process"
        f"{'es' * (beside > 1)} with {len(chosen)} each. Start a process for each GPU, or say how many each one has: "
        "shardfit launch --devices-per-process, or JAX_LOCAL_DEVICE_IDS=0,1 for every process."
    )


def exchange_flag(seconds: int) -> str:
    """Return the flag that limits exchanges between GPUs, '' where XLA does not know it, for it ends at such a one."""
    import jaxlib

    for library in Path(jaxlib.__file__).parent.glob("*.so"):
        if library.stat().st_size > 1 << 20:
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                if text.find(TERMINATE.encode()) >= 0:
                    return f"--{TERMINATE}={seconds}"
    return ""
