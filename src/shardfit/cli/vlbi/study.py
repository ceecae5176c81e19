"""`shardfit vlbi study`: train an imager's choices on known images, keep the Top Set, and image all days with it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.outcome import record_output
from shardfit.cli.processes import request_devices
from shardfit.cli.surveys.run import add_slots
from shardfit.cli.vlbi.files import read_observation

EXAMPLES = (
    "shardfit data get m87-days",
    "shardfit vlbi study m87-days/*.uvfits --share 0.2 --out study",
    "shardfit vlbi study m87-days/*.uvfits --out study      # the rest of the grid",
)
PAPER4 = "paper4"
BELOW = ("data.cphase=2", "data.logcamp=2")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the files, the grid of choices, and what makes a Top Set of it."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="uvfits files of one source: days, and their bands")
    options.add_out(parser, "vlbi-study")
    parser.add_argument(
        "--grid",
        metavar="NAME",
        default=PAPER4,
        help="paper4: 7,500 choices, those of the 2019 papers on M87; or the [axes] and [vlbi] of a survey's TOML file",
    )
    parser.add_argument(
        "--share",
        metavar="F",
        type=float,
        default=1.0,
        help="run this share of the grid, drawn at random; a later call with a larger share adds the rest (1)",
    )
    parser.add_argument(
        "--train",
        metavar="DAY",
        help="day whose baselines train the choices, such as 2017-04-11, or `all`: each its own (that with most data)",
    )
    parser.add_argument(
        "--below", nargs="+", default=BELOW, metavar="COLUMN=LIMIT", help=f"what fits the data ({' '.join(BELOW)})"
    )
    parser.add_argument("--preset", metavar="NAME", default="eht", help="default: data as they are; eht (eht)")
    parser.add_argument(
        "--flux", metavar="JY", type=options.amount, help="flux of the compact source in Jy (estimated)"
    )
    parser.add_argument("--npix", metavar="N", type=options.positive, default=64, help="pixels a side (64)")
    add_slots(parser)
    options.add_devices(parser, "devices that share the fits of a batch (1)")
    options.add_seed(parser, 0, of="the draw of choices")
    options.add_resume(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run what is missing of all surveys, then write images, tables and the report."""
    from shardfit.cli.surveys.top import limits_of
    from shardfit.cli.vlbi.study_parts import check_parts, days_of, run_parts
    from shardfit.cli.vlbi.study_report import numbers, write_study
    from shardfit.cli.vlbi.study_result import evaluate

    out = options.directory(args.out)
    if not 0 < args.share <= 1:
        raise ValueError(f"--share {args.share}: give a number above 0, at most 1.")
    limits = limits_of(args.below)
    mesh = options.devices_mesh(request_devices(args.devices), 1)
    days = days_of(args.files)
    parts = plan(out, days, args)
    check_parts(parts, args.resume)
    record.begin(args, out)
    asked = sum(part.points(args.share) for part in parts)
    print(f"{days[0].source or 'unnamed source'}: {len(days)} days, {asked:,} fits in {len(parts)} surveys", flush=True)
    for part in parts:
        print(f"  {part.name}: shardfit serve {part.folder}")
    told = run_parts(parts, args.share, args.slots, mesh=mesh, resume=args.resume)
    found = evaluate(parts, limits, told)
    report = write_study(out, found, record.options_of(args))
    print("\n".join(found.lines()))
    print(f"report: {report}")
    whole = all(seen.images for seen in found.days.values())
    record_output(args, success=whole, **numbers(found))
    return int(not whole)


def plan(out: Path, days: Sequence[Any], args: argparse.Namespace) -> list[Any]:
    """Return the surveys of a study: the training first, then the data of every day."""
    from shardfit.cli.vlbi.study_parts import Part
    from shardfit.domains.vlbi.models import MODELS

    axes, settings = _grid(args.grid)
    settings = {"preset": args.preset, "npix": args.npix, **settings}
    if "flux" not in settings and "flux" not in axes:
        settings["flux"] = args.flux if args.flux is not None else _flux(days)
    trained = _trained_on(days, args.train)
    shared = {"settings": settings, "axes": axes, "seed": args.seed}
    truths = tuple(MODELS)
    parts = [
        Part(f"training, {day.name}", out / "training" / day.name, day, **shared, truths=truths) for day in trained
    ]
    return parts + [Part(day.name, out / "days" / day.name, day, **shared) for day in days]


def _trained_on(days: Sequence[Any], asked: str | None) -> list[Any]:
    if asked == "all":
        return list(days)
    if asked is None:
        return [max(days, key=lambda day: day.rows)]
    chosen = [day for day in days if day.name == asked]
    if not chosen:
        names = ", ".join(day.name for day in days)
        raise ValueError(f"--train {asked}: no file is of this day. Give one of {names}, or `all`.")
    return chosen


def _grid(asked: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return axes, and settings of imaging, by the name of a grid or from a file."""
    from shardfit.domains.vlbi.recipes.surveys import PAPER_IV

    if asked == PAPER4:
        return {name: list(values) for name, values in PAPER_IV.items()}, {}
    if not asked.endswith(".toml"):
        raise ValueError(f"--grid {asked}: give {PAPER4}, or a TOML file as `shardfit init survey` writes it.")
    from shardfit.cli.surveys.config import read_config

    config = read_config(asked)
    if config.science != "vlbi":
        raise ValueError(f"--grid {asked}: its science is {config.science}, not vlbi.")
    axes = {name: values for name, values in config.axes.items() if name != "data"}
    for name, values in axes.items():
        if not isinstance(values, list | tuple):
            raise ValueError(f"--grid {asked}: axis {name} must be a list of values, the same ones for every day.")
    settings = {name: value for name, value in config.settings.items() if name not in ("data", "data_seed")}
    return {name: list(values) for name, values in axes.items()}, settings


def _flux(days: Sequence[Any]) -> float:
    """Return an estimate of the compact flux, Jy, the same for all days."""
    from shardfit.domains.vlbi.recipes.preparation import usual_flux

    flux = usual_flux([read_observation(file) for day in days for file in day.files], None)
    print(f"  compact flux, estimated: {flux:.3f} Jy; --flux gives another")
    return round(flux, 4)
