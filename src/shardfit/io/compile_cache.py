"""Compiled programs are kept between processes, in a folder of the user (docs/decisions/0012-compile-cache.md).

JAX's own persistent cache does the work; this turns it on, in a place that only the user can write to, and keeps it
small. What the user has set of JAX's cache stays as it is.
"""

import contextlib
import hashlib
import importlib.util
import logging
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from shardfit.core.private_folder import cache_home, private_folder

log = logging.getLogger(__name__)

VARIABLE = "SHARDFIT_COMPILE_CACHE"  # 'off', or a folder
OFF = ("off", "0", "no", "false")
MAX_BYTES, MAX_ENTRIES = 512 << 20, 4096
_decided = False


def use_compile_cache() -> None:
    """Keep compiled programs, unless told otherwise; only the first call of a process does anything.

    The variable SHARDFIT_COMPILE_CACHE names another folder, or is 'off'. A folder that others could write to is not
    used: programs read from it would run as this user's.
    """
    global _decided
    if _decided:
        return
    _decided = True
    wanted = os.environ.get(VARIABLE, "")
    if wanted.lower() in OFF or _user_has_set_it():
        return
    try:
        home = Path(wanted).expanduser() if wanted else cache_home() / "compiled"
        folder = private_folder(private_folder(home) / _kind())
        prune(home)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where home is
        if wanted:
            raise ValueError(f"{VARIABLE}={wanted}: {error} ({VARIABLE}=off does without.)") from error
        log.warning("compiled programs are not kept: %s (%s=off silences this.)", error, VARIABLE)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # many small programs make a slow start
    log.info("compiled programs are kept in %s", folder)


def prune(home: Path, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
    """Delete the entries used least recently, of all kinds, until both limits hold with a fifth to spare.

    Another process that is about to read one of them compiles it again.
    """
    entries = []
    for path in home.glob("*/*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            facts = path.lstat()
            entries.append((max(facts.st_atime, facts.st_mtime), facts.st_size, path))
    size, count = sum(entry[1] for entry in entries), len(entries)
    if size <= max_bytes and count <= max_entries:
        return
    for _, bytes_of_it, path in sorted(entries):
        if size <= 0.8 * max_bytes and count <= 0.8 * max_entries:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        size, count = size - bytes_of_it, count - 1


def _user_has_set_it() -> bool:
    settings: Any = jax.config
    return settings.jax_compilation_cache_dir is not None or not settings.jax_enable_compilation_cache


def _kind() -> str:
    """Name of the subfolder of programs that this process can read.

    JAX's key leaves out how an entry is compressed and for which processor a CPU program was made; home directories are
    shared between machines.
    """
    packed = "zstd" if sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") else "zlib"
    return f"jaxlib-{version('jaxlib')}-{packed}-{hashlib.sha256(_processor().encode()).hexdigest()[:8]}"


def _processor() -> str:
    """Return what this processor can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in lines if line.lower().startswith(("flags", "features", "isa", "cpu part", "model name"))]
    return "\n".join(dict.fromkeys(told)) or platform.machine()
