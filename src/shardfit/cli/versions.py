"""Versions of this package and of those it computes with."""

import platform
from importlib.metadata import PackageNotFoundError, version

from shardfit.version import __version__

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "optax", "optimistix", "matplotlib")


def versions() -> dict[str, str]:
    """Return the version of Python and of every package, '–' where it is not installed."""
    found = {"python": platform.python_version(), "shardfit": __version__}
    return found | {name: _version(name) or "–" for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
