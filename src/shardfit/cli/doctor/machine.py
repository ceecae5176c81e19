"""The machine as it is: versions, devices, cores, memory, disk, what is installed."""

import os
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from shardfit.cli.doctor.finding import BAD, GOOD, NOTE, Finding
from shardfit.core.extras import extras as optional_parts
from shardfit.core.extras import needed

LITTLE_DISK, LITTLE_MEMORY = 1 << 30, 2 << 30
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def versions() -> Finding:
    """Python and the packages that every run needs, against what this package asks for."""
    wrong, seen = [], [f"Python {'.'.join(map(str, sys.version_info[:3]))}", f"shardfit {version('shardfit')}"]
    for name, least in needed("").items():
        present = _version(name)
        if present is not None:
            seen.append(f"{name} {present}")
        if present is None or _numbers(present) < _numbers(least):
            wrong.append(f"'{name}>={least}'")
    if version("jax") != version("jaxlib"):
        seen.append(f"jaxlib {version('jaxlib')}")
    remedy = f"pip install {' '.join(wrong)}" if wrong else ""
    return Finding("versions", BAD if wrong else GOOD, ", ".join(seen), remedy)


def extras() -> Finding:
    """Which optional parts are installed, as new as they must be."""
    missing = {extra: _lacking(extra) for extra in optional_parts()}
    missing = {extra: lacking for extra, lacking in missing.items() if lacking}
    if not missing:
        return Finding("optional parts", GOOD, "all installed")
    text = "; ".join(f"{extra} lacks {', '.join(lacking)}" for extra, lacking in missing.items())
    return Finding("optional parts", NOTE, text, f"pip install 'shardfit[{','.join(missing)}]' for these")


def _lacking(extra: str) -> list[str]:
    """Return the packages of an optional part that are missing or too old."""
    found = []
    for name, least in needed(extra).items():
        present = _version(name)
        if present is None:
            found.append(name)
        elif _numbers(present) < _numbers(least):
            found.append(f"{name}>={least} (there is {present})")
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in [*re.findall(r"\d+", text), 0, 0][:3])


def devices() -> Finding:
    """What JAX computes on; a GPU that it does not see."""
    import jax

    seen = jax.devices()
    text = f"{len(seen)} × {seen[0].platform} ({seen[0].device_kind})"
    if seen[0].platform == "cpu" and shutil.which("nvidia-smi"):
        return Finding(
            "devices", NOTE, f"{text}, but this machine has nvidia-smi", "pip install 'jax[cuda12]' for GPUs"
        )
    return Finding("devices", GOOD, text)


def cores() -> Finding:
    """Cores that this process may use, and variables that say otherwise."""
    present = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    text = f"{usable} usable of {present}"
    quota = _quota()
    if quota is not None and quota < usable - 0.5:
        return Finding("cores", NOTE, f"{text}, but the container gives {quota:.1f}", "Set OMP_NUM_THREADS to that.")
    told = {name: os.environ[name] for name in THREADS if name in os.environ}
    more = "".join(f", {name}={value}" for name, value in told.items())
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 1.5 * usable:
        return Finding("cores", NOTE, f"{text}{more}, load {load:.1f}", "Other programs are running: runs take longer.")
    return Finding("cores", GOOD, text + more)


def _quota() -> float | None:
    """Cores that the control group allows, None for all."""
    path = Path("/sys/fs/cgroup/cpu.max")
    words = path.read_text().split() if path.is_file() else []
    return float(words[0]) / float(words[1]) if len(words) == 2 and words[0] != "max" else None


def memory() -> Finding:
    """Memory that is free now."""
    import jax

    from shardfit.core.free_memory import available_bytes
    from shardfit.planning.units import bytes_text

    free = available_bytes(jax.devices())
    text = f"{bytes_text(free)} free for each device"
    if free < LITTLE_MEMORY:
        return Finding("memory", NOTE, text, "`shardfit plan` says whether a problem fits.")
    return Finding("memory", GOOD, text)


def disk() -> Finding:
    """Room in the present folder, and whether it can hold a ledger."""
    from shardfit.planning.units import bytes_text

    here = Path.cwd()
    free = shutil.disk_usage(here).free
    text = f"{bytes_text(free)} free here"
    if not os.access(here, os.W_OK):
        return Finding("disk", NOTE, f"{text}, which cannot be written", "Work in a folder of your own.")
    if free < LITTLE_DISK:
        return Finding("disk", BAD, text, "Free some room: checkpoints and ledgers need it.")
    return Finding("disk", GOOD, text)


CHECKS = (versions, extras, devices, cores, memory, disk)
