"""`shardfit population init`: a commented configuration to start from."""

import argparse
import json
from collections.abc import Sequence

from shardfit.cli.outcome import record_output
from shardfit.cli.toml import add_new_file, write_new

EXAMPLES = ("shardfit population init smf.toml",)
TEMPLATE = """\
# What `shardfit population fit` and `swarm` read. Every line may be left out; command-line options take precedence.

problem = "{problem}"    # {problems}
rows = {rows}    # model rows: halos, or points
seed = 0
precision = "float64"    # or "float32": half the memory, twice the speed, counts right to 2e-4 of the largest

[options]    # of the problem
{options}

[solver]    # a name and its own options; `swarm` takes particles, maxiter, ... of [swarm] instead
{solver}

[swarm]
particles = 100
maxiter = 100
"""


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and the problem."""
    add_new_file(parser)
    parser.add_argument("--problem", metavar="NAME", default="smf", help="smf, gaussian, colours, ackley (smf)")


def run(args: argparse.Namespace) -> int:
    """Write the configuration."""
    from shardfit.domains.population.recipes import STUDIES, as_study

    study = as_study(args.problem)

    def lines(values):
        return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())

    text = TEMPLATE.format(
        problem=args.problem,
        problems=", ".join(STUDIES),
        rows=study.rows,
        options=lines(study.options) or "# none",
        solver=lines(study.solver),
    )
    path = write_new(args.file, text, args.force)
    record_output(args, files=[path])
    print(f"{path}: edit it, then `shardfit population fit {path}`")
    return 0
