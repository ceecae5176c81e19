"""The command `shardfit`. Commands are imported when they are asked for."""

from shardfit.cli.app import main

__all__ = ["main"]
