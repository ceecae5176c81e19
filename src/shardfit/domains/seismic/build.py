"""Compile the native kernel on first use, into the user's cache.

One small library per order, named by a hash of everything that decides what it contains: sources, flags, compiler,
jaxlib and processor. It appears under its name only when complete, and one process compiles it for all.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import jax

SOURCES = Path(__file__).parent / "native"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-pthread", "-w")
# not -ffast-math: linked into a library, it would change the arithmetic of the whole process
ARITHMETIC = ("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros")
TIMEOUT = 600  # seconds; a busy machine takes 30


class BuildError(RuntimeError):
    """The native kernel cannot be compiled here; the message says why and what to do."""


def cache_folder() -> Path:
    """Return where compiled kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shardfit" / "native"


def compiler() -> str | None:
    """Return the C++ compiler: the environment's CXX, or the first of c++, g++, clang++ that is installed."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


@lru_cache
def library(half: int) -> ctypes.CDLL:
    """Return the kernel for stencils that reach `half` cells, compiled if need be."""
    return ctypes.CDLL(str(library_path(half)))


def library_path(half: int) -> Path:
    """Return the file of a compiled kernel, after compiling it where it is missing."""
    program = compiler()
    if program is None:
        raise BuildError("no C++ compiler was found. Install one (g++ or clang++), or set CXX to it.")
    command = (*FLAGS, *ARITHMETIC, f"-DHALF={half}", f"-I{jax.ffi.include_dir()}", str(SOURCES / "kernel.cpp"))
    path = cache_folder() / f"wave-{2 * half}-{_key(program, half)}{'.dylib' if sys.platform == 'darwin' else '.so'}"
    if not path.exists():
        _compile(program, command, path)
    return path


def _key(program: str, half: int) -> str:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    parts = [told, *FLAGS, *ARITHMETIC, str(half), version("jaxlib"), _processor(), source_digest()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@lru_cache
def source_digest() -> str:
    """Return a short digest of the kernel's sources and of the arithmetic they are compiled with."""
    parts = [*ARITHMETIC, *(file.read_text(encoding="utf-8") for file in sorted(SOURCES.iterdir()))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return what -march=native looks at: a cache may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Wait for another process that compiles the same kernel; where there are no file locks, both compile it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_suffix(".lock"), "w") as file:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(program: str, command: tuple[str, ...], path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(path), tempfile.TemporaryDirectory(dir=path.parent) as folder:
            if path.exists():
                return  # another process has compiled it meanwhile
            made = Path(folder) / path.name
            done = subprocess.run(
                [program, *command, "-o", str(made)], capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
            if done.returncode:
                raise BuildError(f"{program} failed to compile the seismic kernel:\n{done.stderr[-2000:]}")
            made.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the seismic kernel could not be built in {path.parent}: {error}.") from error
