"""What every results file says of the run behind it: when, which code, which packages, which machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version

from benchmarks.peers import ROOT, peer_versions

OURS = ("shardfit", "jax", "jaxlib", "numpy", "scipy")


def begin() -> dict:
    """Return what is known before a run, and may be different after it."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "load": round(os.getloadavg()[0], 2),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "packages": {name: version(name) for name in OURS},
    }


def finish(record: dict, peers: tuple[str, ...], settings: dict[str, str], seconds: float) -> dict:
    """Return the whole record. settings: precision and threads, in words or variables."""
    return {
        **record,
        "peers": {name: peer_versions(name) for name in peers},
        "settings": settings,
        "seconds": round(seconds),
        "load_after": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """Return the commit whose code runs; with a plus sign if files differ from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "src", "benchmarks", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not a git checkout"
    return head + ("+" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
