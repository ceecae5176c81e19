"""The version of this package, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("shardfit")
except PackageNotFoundError:
    __version__ = "(not installed: run from source)"
