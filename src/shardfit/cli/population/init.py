"""`shardfit population init`: a commented configuration to start from."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.population.config import Config
from shardfit.cli.toml import add_new_file, write_new
from shardfit.options.writing import template

EXAMPLES = ("shardfit population init smf.toml",)
HEAD = """\
# What `shardfit population fit` and `swarm` read: all there is, as comments what need not be said. Options of
# the command line win.

"""


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and the problem."""
    add_new_file(parser)
    options.add_declared(parser, Config, problem="NAME")


def text(problem: str | None = None) -> str:
    """Return the configuration for a built-in problem."""
    from shardfit.domains.population.recipes import as_study

    name = Config(problem=problem or "smf").problem
    study = as_study(name)
    own = {each.name: each.default for each in study.options.declared_options().values()}
    values = {"problem": name, "rows": study.rows, "options": own, "solver": study.solver}
    return HEAD + template(Config, values)


def run(args: argparse.Namespace) -> int:
    """Write the configuration."""
    path = write_new(args.file, text(args.problem), args.force)
    record_output(args, files=[path])
    print(f"{path}: edit it, then `shardfit population fit {path}`")
    return 0
