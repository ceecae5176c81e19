"""`shardfit vlbi weights`: weights of regularisers by cross-validation, and the image made with them."""

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli import record
from shardfit.cli.processes import request_devices
from shardfit.cli.surveys.run import add_slots
from shardfit.cli.vlbi import preparation
from shardfit.cli.vlbi.files import read_observation

EXAMPLES = (
    "shardfit vlbi weights vlba.uvfits --try tv=0.1,1,10 --try simple=1,10",
    "shardfit vlbi weights m87.uvfits --preset eht --by baselines",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, what is tried, and how the data are divided."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    shared.add_out(parser, "vlbi-weights")
    parser.add_argument(
        "--try",
        metavar="NAME=A,B",
        dest="tried",
        action="append",
        type=_axis,
        help="values of a weight or of prior_fwhm_uas; once for each (simple=0.1,1,10,100 tv=0.1,1,10 tv2=0.01,0.1,1)",
    )
    parser.add_argument(
        "--folds", metavar="K", type=shared.positive, default=5, help="parts that are held out in turn (5)"
    )
    parser.add_argument("--by", metavar="WHAT", default="scans", help="parts are whole scans or baselines (scans)")
    parser.add_argument("--score", metavar="A,B", help="products that count (the closures that are fitted, or all)")
    preparation.add_image(
        parser, "iterations of every fit of the last image (1000)", "fits from the blurred image, of the last (3)"
    )
    preparation.add_products(parser)
    add_slots(parser)
    shared.add_seed(parser, 0, of="how the data are divided")
    shared.add_devices(parser, "devices that share the fits of a batch, and the rows of the last image (1)")
    shared.add_resume(parser)
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Choose weights, make the image, write scores, figures and report."""
    out = shared.directory(args.out)
    devices = request_devices(args.devices)

    from shardfit import RunOptions, Status, SurveyControl, mesh
    from shardfit.cli.vlbi.image_report import answer_of, write_run
    from shardfit.domains.vlbi.recipes.weights import AXES, cross_validate

    obs = read_observation(args.file)
    name = Path(args.file).name
    print(f"{name}: {obs.source or 'unnamed source'}, {len(obs):,} visibilities", flush=True)
    record.begin(args, out)
    resume = "never" if args.resume == "never" else "auto"  # the last image begins when all scores are there
    found = cross_validate(
        obs,
        dict(args.tried) if args.tried else AXES,
        run_dir=out,
        folds=args.folds,
        by=args.by,
        score=args.score.split(",") if args.score else None,
        preset=args.preset,
        seed=args.seed,
        mesh=shared.devices_mesh(devices, 1),
        control=SurveyControl(args.slots, resume=args.resume),
        run=RunOptions(None, mesh(rows=devices) if devices > 1 else None, args.seed, out, resume),
        **preparation.given(args, preparation.IMAGE_FIELDS | preparation.FITTED),
    )
    if found.image.result.status is Status.INTERRUPTED:
        print("interrupted in the last image; run the same command again to continue")
        return 130
    for k in dict.fromkeys((found.chosen, found.best)):
        what = "chosen" if k == found.chosen else "lowest score"
        weights = " ".join(f"{axis}={value:g}" for axis, value in found.choices[k].items())
        print(f"  {what}: {weights}  χ² held out {found.mean[k]:.3f}, fitted {found.training[k]:.3f}")
    final = replace(found.image, doubts=(*found.image.doubts, *found.doubts))
    report, _ = write_run(out, final, name, args.flux is None, sections=[_section(out, found)])
    for doubt in final.doubts:
        print(f"  doubtful: {doubt}")
    print(f"image: {out / 'image.fits'}\nscores: {out / 'scores.csv'}\nreport: {report}")
    return answer_of(final).verdict().exit


def _section(out: Path, found: Any) -> Any:
    """Write the scores as table and figure; return their part of the report."""
    from shardfit.domains.vlbi import plots
    from shardfit.io.files import write_atomic
    from shardfit.report.blocks import Section, Table
    from shardfit.report.study import save_figure

    header = [*found.weights, "held out", "error", "fitted", *(f"fold {k}" for k in range(found.scores.shape[1]))]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    numbers = zip(found.mean, found.error, found.training, found.scores, strict=True)
    rows = [[*one.values(), a, b, c, *folds] for one, (a, b, c, folds) in zip(found.choices, numbers, strict=True)]
    writer.writerows(rows)
    write_atomic(out / "scores.csv", lambda file: file.write(text.getvalue().encode()))
    caption = (
        f"χ² per measurement of {' and '.join(found.products)}, mean over {found.scores.shape[1]} parts of the data: "
        "of the part held out (dots), and of what was fitted (line). For every value the best of the others. The "
        "ring is what was chosen: of those within one standard error of the best, the one that fits least closely."
    )
    order = sorted(range(len(rows)), key=lambda k: found.mean[k])[:12]
    cells = [
        [*(f"{v:g}" for v in found.choices[k].values()), *(f"{v:.3f}" for v in rows[k][len(found.weights) :][:3])]
        for k in order
    ]
    table = Table(header[: len(found.weights) + 3], cells, "The twelve best; all: scores.csv.")
    return Section("Weights by cross-validation", [save_figure(plots.scores(found), out, "scores", caption), table])


def _axis(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, values = text.partition("=")
    try:
        return name.strip(), tuple(float(value) for value in values.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=A,B,... with numbers") from None
