"""`shardfit xpcs validate`: check a configuration, and the data it names, without fitting."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli import options as shared
from shardfit.cli.outcome import record_output
from shardfit.cli.xpcs.config import read_config

EXAMPLES = ("shardfit xpcs validate homodyne.yaml",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the configuration."""
    parser.add_argument("config", metavar="CONFIG", help="TOML, or YAML of the package homodyne")
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what a fit would do; what is wrong is raised."""
    from shardfit.domains.xpcs import setup
    from shardfit.domains.xpcs.problem import parameter_table

    config = read_config(args.config)
    model, options = config.model(), config.options()
    table = parameter_table(model, options)
    record_output(
        args, config=args.config, mode=config.mode, scaling=options.scaling, loss=options.loss, parameters=table
    )
    record_output(args, fixed=options.fixed, file=config.data.file, checked=False)
    print(f"{args.config}: {config.mode}, scaling {options.scaling}, loss {options.loss}")
    for name, p in table.items():
        state = f"held at {options.fixed[name]:g}" if name in options.fixed else f"{p.lower:g} … {p.upper:g}"
        begins = f", begins at {p.start:g}" if name in options.start else ""
        print(f"  {name:<20} {state}{begins} {p.unit}".rstrip())
    if config.data.file is None or not Path(config.data.file).is_file():
        print(f"  data are not checked: {config.data.file or 'no file is named'}")
        return 0
    data = config.load(config.data.file)
    ready = setup(data, model, config.options(data))
    print(f"  {config.data.file}: {len(data.phi)} angles, {data.n_frames} frames, {ready.n_points:,} points")
    about = {"angles": len(data.phi), "frames": data.n_frames, "points": ready.n_points, "notes": list(data.notes)}
    record_output(args, checked=True, **about)
    for note in data.notes:
        print(f"  note: {note}")
    return 0
