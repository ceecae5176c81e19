"""Compile the native kernels on first use, into the user's cache; a wheel may bring them compiled (prebuilt.py).

One small library per kind of wave and order, named by a hash of everything that decides what it contains: sources,
flags, jaxlib, processor, and CXX where it is set. It appears under its name only when complete, and one process
compiles it for all; once built it needs no compiler. What is loaded runs as the user: a library counts only if it lies
in a folder and a file that nobody else can write, and is what was compiled, by its checksum; any other is built anew.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import jax

log = logging.getLogger(__name__)
SOURCES = Path(__file__).parent / "native"
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-w")
HERE = ("-march=native",)
# not -ffast-math: linked into a library, it would change the arithmetic of the whole process
ARITHMETIC = ("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros")
MOST_CPU = 600  # seconds of processor time; a compiler takes 30
TIMEOUT = 3600  # seconds by the clock, which run while other programs have the processor


class BuildError(RuntimeError):
    """The native kernel cannot be compiled here; the message says why and what to do."""


def cache_folder() -> Path:
    """Return where compiled kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shardfit" / "native"


def compiler() -> tuple[str, ...] | None:
    """Return the C++ compiler: the environment's CXX with its words, or the first of c++, g++, clang++ installed."""
    given = shlex.split(os.environ.get("CXX", ""))
    for words in [given] if given else [["c++"], ["g++"], ["clang++"]]:
        if found := shutil.which(words[0]):
            return found, *words[1:]
    return None


@lru_cache
def library(kind: str, half: int) -> ctypes.CDLL:
    """Return the kernel of a kind of wave, for stencils that reach `half` cells, compiled if need be."""
    path = library_path(kind, half)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:  # of another libc, or on a file system that forbids to run what it holds
        raise BuildError(f"the compiled kernel {path} cannot be loaded here: {error}.") from error


def library_path(kind: str, half: int) -> Path:
    """Return the file of a compiled kernel that may be loaded, after compiling it where it is missing or wrong.

    kind: 'acoustic' or 'elastic', the name of its source file.
    """
    path = cache_folder() / f"{kind}-{2 * half}-{_key(half)}{'.dylib' if sys.platform == 'darwin' else '.so'}"
    try:
        _own_folder(path.parent)
        if _fault(path) is not None:
            _compile(kind, half, path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the seismic kernel could not be built in {path.parent}: {error}.") from error
    return path


def _own_folder(folder: Path) -> None:
    """Make the folder, or make sure that only this user can write there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not hasattr(os, "getuid"):
        return
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise BuildError(
            f"{folder} belongs to another user, who could put any program there. Name a folder of your own: "
            "XDG_CACHE_HOME=DIR."
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)


def _fault(path: Path) -> str | None:
    """Return why a library must not be loaded, None if it may."""
    try:
        found = path.lstat()
        expected = _checksum_file(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return "it is missing, or has no checksum"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        return "another user can write it"
    if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
        return "it is not what was compiled"
    return None


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _key(half: int) -> str:
    parts = [os.environ.get("CXX", ""), *FLAGS, *HERE, str(half), version("jaxlib"), _processor(), source_digest()]
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


def command(kind: str, half: int, path: Path, flags: tuple[str, ...] = HERE) -> list[str]:
    """Return the words that compile a kernel into a file."""
    program, given = compiler(), os.environ.get("CXX")
    if program is None and given:
        raise BuildError(f"CXX={given!r} names a program that is not installed. Install it, or unset CXX.")
    if program is None:
        raise BuildError("no C++ compiler was found. Install one (g++ or clang++), or set CXX to it.")
    words = [*program, *FLAGS, *flags, *ARITHMETIC, f"-DHALF={half}", f"-I{jax.ffi.include_dir()}"]
    return [*words, str(SOURCES / f"{kind}.cpp"), "-o", str(path)]


def _compile(kind: str, half: int, path: Path) -> None:
    with _one_at_a_time(path), tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fault = _fault(path)
        if fault is None:
            return  # another process has compiled it meanwhile
        if path.is_symlink() or path.exists():
            log.warning("%s is compiled again: %s", path, fault)
        made = Path(folder) / path.name
        _make(kind, half, made)
        made.chmod(0o600)
        # a damaged one was perhaps also found right: what is new is compared with JAX again
        path.with_suffix(".checked").unlink(missing_ok=True)
        checksum = Path(folder) / "checksum"
        checksum.write_text(hashlib.sha256(made.read_bytes()).hexdigest(), encoding="ascii")
        made.replace(path)
        checksum.replace(_checksum_file(path))


def _limited(words: list[str]) -> list[str]:
    """Return the command with a limit on its processor time, where a shell can set one."""
    shell = shutil.which("sh")
    return words if shell is None else [shell, "-c", f'ulimit -t {MOST_CPU}; exec "$@"', "compile", *words]


def _make(kind: str, half: int, made: Path) -> None:
    """Copy the kernel that came with the package, or compile it; a compiler that is named by CXX is used."""
    from shardfit.domains.seismic import prebuilt

    ready = None if os.environ.get("CXX") else prebuilt.find(kind, half)
    if ready is not None:
        shutil.copyfile(ready, made)
        return
    words = command(kind, half, made)
    done = subprocess.run(_limited(words), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode:
        told = done.stderr[-2000:].strip() or "it said nothing"
        raise BuildError(f"{words[0]} failed to compile the seismic kernel ({told}).")
