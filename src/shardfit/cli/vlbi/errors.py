"""`shardfit vlbi errors`: conservative error bars of a survey's Top Set, its spread and errors under regularisers."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit vlbi errors runs/m87 --below data.cphase=2 data.logcamp=2",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the survey, what of it is the Top Set, and where to write."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey of images")
    options.add_out(parser, otherwise="RUN/errors")
    parser.add_argument("--below", nargs="+", default=[], metavar="COLUMN=LIMIT", help="only points within limits")
    parser.add_argument("--where", nargs="+", default=[], metavar="AXIS=VALUE", help="only these values of axes")
    parser.add_argument("--trained", metavar="RUN", help="only choices that recover every known image of this survey")
    parser.add_argument("--align", action="store_true", help="shift pictures onto each other before the mean")
    parser.add_argument("--blur", metavar="UAS", type=options.size, default=0.0, help="FWHM to blur to, µas (0)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write mean and standard deviation as FITS files, and their picture."""
    from shardfit.cli.surveys.config import saved_config
    from shardfit.cli.surveys.top import chosen
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.recipes import top_set_errors
    from shardfit.domains.vlbi.recipes.survey_config import prepared
    from shardfit.surveys.reading import Survey

    out = options.directory(args.out or str(Path(args.run_dir) / "errors"))
    with record.in_original_cwd(args.run_dir) as (folder,):
        config, _ = saved_config(folder)
        if config.science != "vlbi":
            raise ValueError(f"{args.run_dir} is no survey of images: its science is {config.science}.")
        made = prepared(config.settings, config.axes)
    with Survey(args.run_dir) as survey:
        rows = chosen(survey, survey.ranked_by(None), args.below, args.trained, args.where)
        if len(rows) < 2:
            raise ValueError(f"{len(rows)} points are chosen, which have no spread. Loosen --below or --trained.")
        record.begin(args, out)
        # pictures are aligned to the first of them, whose error bars then lie where they are
        rows.sort(key=lambda row: _far_from_one(survey, row))
        images = [made.image(one) for one in survey.pictures([row["id"] for row in rows], align=args.align)]
        under = _under(made, survey, rows[0])
    found = top_set_errors(images, under, fwhm_rad=args.blur * UAS)
    _write(out, found)
    kind = "spread and errors under the regularisers" if found.under else "spread alone, which is far too small"
    print(f"{len(images)} points; standard deviations are {kind}\nimages: {out / 'mean.fits'}, sd.fits, errors.png")
    whole = bool(found.under)
    record_output(args, success=whole, points=[row["id"] for row in rows], with_errors_under_regularisers=found.under)
    return int(not whole)


def _far_from_one(survey: Any, row: dict[str, Any]) -> float:
    """Return by how much χ² per measurement of a point is off 1: errors of data are right where it is not."""
    return sum(abs(row[f"part.{name}"] - 1) for name in survey.heading.parts if name.startswith("data."))


def _under(made: Any, survey: Any, row: dict[str, Any]) -> Any:
    """Return the error bars of one point, None where its fit does not explain the data or is at no minimum."""
    from shardfit.domains.vlbi.recipes.quality import Unexplained
    from shardfit.stats.laplace import NoMinimum

    point = {name: row[f"axis.{name}"] for name in survey.heading.axes}
    print(f"error bars of point {row['id']} under its regularisers: fitting on to the minimum", flush=True)
    try:
        return made.errors(point, survey.params(row["id"]))
    except (Unexplained, NoMinimum) as reason:
        print(f"doubtful: {reason}")
        return None


def _write(out: Path, found: Any) -> None:
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.io.files import write_arrays, write_atomic
    from shardfit.report.style import png_bytes

    out.mkdir(parents=True, exist_ok=True)
    write_image(found.mean, out / "mean.fits", overwrite=True)
    write_image(found.sd, out / "sd.fits", overwrite=True)
    images = {"mean": found.mean, "sd": found.sd, "spread": found.spread}
    write_arrays(out / "images.npz", {name: one.values["I"] for name, one in images.items()})
    png = png_bytes(plots.errors(found.mean, found.sd))
    write_atomic(out / "errors.png", lambda file: file.write(png))
