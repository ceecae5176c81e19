"""Kernels that come compiled with a wheel, for a few levels of processors; without one they are compiled on first use.

`make wheel` compiles them into this package before it packs it; a checkout has none.
"""

import platform
import re
import subprocess
import sys
from pathlib import Path

import jax

from shardfit.domains.seismic import build
from shardfit.domains.seismic.stencil import ORDERS

FOLDER = Path(__file__).parent / "prebuilt"
KINDS = tuple(sorted(file.stem for file in build.SOURCES.glob("*.cpp")))
_V2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())  # noqa: SIM905 (one line)
_V3 = _V2 | frozenset("abm avx avx2 bmi1 bmi2 f16c fma movbe".split())  # noqa: SIM905
_V4 = _V3 | frozenset("avx512bw avx512cd avx512dq avx512f avx512vl".split())  # noqa: SIM905
# of a machine: names that compilers know, best first, and what /proc/cpuinfo must list for them
LEVELS: dict[str, dict[str, frozenset[str]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2},
    "aarch64": {"armv8-a": frozenset()},
}
# the C++ library of the machine that runs it may be older, so it is inside; what is not called of it is left out, for
# that would ask for a C library as new as here
PORTABLE = ("-static-libstdc++", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-s")


def find(kind: str, half: int) -> Path | None:
    """Return the kernel of this package for the best level that this processor has, None if there is none.

    XLA calls kernels that were compiled for an earlier version of its interface, but for no later one.
    """
    known, (major, minor) = features(), interface()
    for level, needed in LEVELS.get(platform.machine(), {}).items():
        for earlier in range(minor, -1, -1) if needed <= known else ():
            path = FOLDER / _name(kind, half, level, (major, earlier))
            if path.is_file():
                return path
    return None


def interface() -> tuple[int, int]:
    """Return the version, (major, minor), of the interface that the installed jaxlib calls kernels by."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text(encoding="utf-8")
    found = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header, re.MULTILINE))
    if len(found) != 2:
        raise build.BuildError("the version of XLA's foreign functions is not in the headers of this jaxlib.")
    return int(found["MAJOR"]), int(found["MINOR"])


def features() -> frozenset[str]:
    """Return what the processor can do, as Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith(("flags", "Features"))), "").split())


def make() -> None:
    """Compile all kernels for all levels of this kind of machine into the package."""
    levels = LEVELS.get(platform.machine(), {}) if sys.platform == "linux" else {}
    if not levels:
        raise SystemExit(f"no kernels are built ahead for {sys.platform} on {platform.machine()}.")
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for kind in KINDS:
        for order in ORDERS:
            for level in levels:
                path = FOLDER / _name(kind, order // 2, level, interface())
                flags = (f"-march={level}", *PORTABLE)
                subprocess.run(build.command(kind, order // 2, path, flags), check=True, timeout=build.TIMEOUT)
                print(path.name, flush=True)


def _name(kind: str, half: int, level: str, version: tuple[int, int]) -> str:
    """The name says which sources it was made from: a file that was left from other ones is not found."""
    return f"{kind}-{2 * half}-{level}-ffi{version[0]}.{version[1]}-{build.source_digest()}.so"


if __name__ == "__main__":
    make()
