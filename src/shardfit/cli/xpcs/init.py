"""`shardfit xpcs init`: a commented configuration to start from."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.toml import add_new_file, write_new
from shardfit.cli.xpcs.config import Config
from shardfit.options.writing import template

EXAMPLES = ("shardfit xpcs init c2.toml",)
HEAD = """\
# What `shardfit xpcs fit` reads: all there is, as comments what need not be said. Options of the command line win.

"""
GAP = {"laminar_flow": {"gap": 2e6}}  # of modes with shear


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and the mode."""
    add_new_file(parser)
    options.add_declared(parser, Config, mode="NAME")


def text(mode: str | None = None) -> str:
    """Return the configuration for a mode."""
    mode = Config(mode=mode or "static").mode
    data = {"q": 0.0054, "dt": 0.1, **GAP.get(mode, {})}
    return HEAD + template(Config, {"mode": mode, "data": data})


def run(args: argparse.Namespace) -> int:
    """Write the configuration."""
    path = write_new(args.file, text(args.mode), args.force)
    record_output(args, files=[path])
    print(f"{path}: edit it, then `shardfit xpcs fit FILE --config {path}`")
    return 0
