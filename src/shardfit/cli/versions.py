"""Versions of this package and of those it computes with."""

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "optax", "optimistix", "matplotlib")


def own_version() -> str:
    """Return the version of shardfit."""
    return _version("shardfit") or "(not installed: run from source)"


def versions() -> dict[str, str]:
    """Return the version of Python and of every package, '–' where it is not installed."""
    found = {"python": platform.python_version(), "shardfit": own_version()}
    return found | {name: _version(name) or "–" for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
