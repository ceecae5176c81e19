"""Compiled programs are kept between processes, in a folder of the user (docs/decisions/0012-compile-cache.md).

JAX's own persistent cache does the work; this turns it on, in a place that only the user can write to, and keeps it
small. What the user has set of JAX's cache stays as it is, and so do programs that are not ours.
"""

import contextlib
import hashlib
import importlib.util
import logging
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from shardfit.core.private_folder import cache_home, private_folder

log = logging.getLogger(__name__)

VARIABLE = "SHARDFIT_COMPILE_CACHE"  # 'off', or a folder
OFF = ("off", "0", "no", "false")
MAX_BYTES, MAX_ENTRIES = 512 << 20, 4096
DIRECTORY, LEAST_SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
_lock = threading.Lock()
_open = 0  # blocks that keep programs, in all threads: JAX has one cache for a process
_before: float | None = None  # LEAST_SECONDS of the caller while the folder is ours


def use_compile_cache() -> None:
    """Keep all programs that this process compiles from now on: for commands, whose process is theirs."""
    if not _user_has_set_it() and (folder := _folder()):
        _turn_on(folder)
        log.info("compiled programs are kept in %s", folder)


@contextmanager
def programs_kept() -> Iterator[None]:
    """Keep the programs that are compiled while this lasts, unless told otherwise. Also a decorator.

    The variable SHARDFIT_COMPILE_CACHE names another folder, or is 'off'. A folder that others could write to is not
    used: programs read from it would run as this user's. Afterwards JAX's settings are what they were.
    """
    _begin()
    try:
        yield
    finally:
        _end()


def not_kept(fn: Callable) -> Callable:
    """Return a caller's function, which is called inside `programs_kept`, such that what it compiles is not kept."""

    @wraps(fn)
    def run(*args, **options):
        _end()
        try:
            return fn(*args, **options)
        finally:
            _begin()

    return run


def _begin() -> None:
    global _open, _before
    with _lock:
        if not _open and not _user_has_set_it() and (folder := _folder()):
            _before = _turn_on(folder)
        _open += 1


def _end() -> None:
    global _open, _before
    with _lock:
        _open -= 1
        if _open or _before is None:
            return
        settings: Any = jax.config
        if settings.jax_compilation_cache_dir == str(_folder()):  # else the caller has chosen one meanwhile
            jax.config.update(DIRECTORY, None)
        if settings.jax_persistent_cache_min_compile_time_secs == 0.0:
            jax.config.update(LEAST_SECONDS, _before)
        _before = None
        reset_cache()  # JAX would go on with the folder that it began with


def _turn_on(folder: Path) -> float:
    """Have JAX keep programs in a folder; return what it asked of the seconds that compiling one takes."""
    settings: Any = jax.config
    before = settings.jax_persistent_cache_min_compile_time_secs
    jax.config.update(DIRECTORY, str(folder))
    if LEAST_SECONDS.upper() not in os.environ:
        jax.config.update(LEAST_SECONDS, 0.0)  # many small programs make a slow start
    return before


@cache
def _folder() -> Path | None:
    """Return where programs are kept, made and pruned by the first call of a process; None if they are not."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted.lower() in OFF:
        return None
    try:
        home = Path(wanted).expanduser() if wanted else cache_home() / "compiled"
        folder = private_folder(private_folder(home) / _kind())
        prune(home)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where home is
        if wanted:
            raise ValueError(f"{VARIABLE}={wanted}: {error} ({VARIABLE}=off does without.)") from error
        log.warning("compiled programs are not kept: %s (%s=off silences this.)", error, VARIABLE)
        return None
    return folder


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
