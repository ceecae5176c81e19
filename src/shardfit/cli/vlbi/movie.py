"""`shardfit vlbi movie`: from a uvfits file of a changing source to a movie and its report."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli import record
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.vlbi import preparation
from shardfit.cli.vlbi.files import read_observation

EXAMPLES = ("shardfit vlbi movie sgra.uvfits --frames 12 --smooth 10",)
STOPPED = 130  # exit code of an interrupted command
SUBTITLE = "Images at several times, linear in between, fitted together to the data of one night."


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the frames and what joins them."""
    parser.add_argument("file", metavar="FILE", help="uvfits file of one night, calibrated")
    shared.add_out(parser, "vlbi-movie")
    parser.add_argument(
        "--frames", metavar="N", type=shared.positive, default=12, help="images, at equal steps of time (12)"
    )
    parser.add_argument(
        "--products",
        metavar="NAME",
        default="closures",
        help="closures: amplitudes and closures; vis: calibrated visibilities, which hold the position (closures)",
    )
    parser.add_argument("--smooth", metavar="W", type=shared.size, default=1.0, help="weight of smooth change, dt (1)")
    parser.add_argument("--calm", metavar="W", type=shared.size, default=0.1, help="weight of little change, di (0.1)")
    preparation.add_image(
        parser, "iterations of every fit (100; of the movie 1000)", "further fits from blurred frames (3)"
    )
    shared.add_devices(parser)
    shared.add_processes(parser)
    shared.add_seed(parser, 0, of="the parity check")
    shared.add_resume(parser)
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Make the movie; 0 if it can be trusted, 1 if it is doubtful, 130 if it was interrupted."""
    out = shared.directory(args.out)
    devices = request_devices(args.devices)

    from shardfit import RunOptions, Status, mesh
    from shardfit.domains.vlbi.recipes import movie

    obs = read_observation(args.file)
    print(f"{Path(args.file).name}: {obs.source or 'unnamed source'}, {len(obs):,} visibilities", flush=True)
    record.begin(args, out)
    how = RunOptions(None, mesh(rows=devices) if devices > 1 else None, args.seed, out, args.resume)
    joining = {"dt": args.smooth, "di": args.calm}
    options = preparation.given(args, preparation.IMAGE_FIELDS) | _products(args.products)
    found = movie(obs, frames=args.frames, joining=joining, preset=args.preset, run=how, **options)
    if found.result.status is Status.INTERRUPTED:
        print("interrupted; run the same command again to continue")
        return STOPPED
    for name, value in found.chi2.items():
        print(f"  χ² {name:<8} movie {value:8.3f}   one image {found.static.chi2[name]:8.3f}   per measurement")
    low, high = found.movie.light_curve.min(), found.movie.light_curve.max()
    print(f"  {len(found.movie)} frames, flux {low:.3f} to {high:.3f} Jy")
    for doubt in found.doubts:
        print(f"  doubtful: {doubt}")
    if writes_files():
        print(f"movie: {out / 'movie.fits'}, movie.gif\nreport: {write_movie_run(out, found, args.file)}")
    return found.result.verdict().exit


def _products(name: str) -> dict[str, Any]:
    if name not in ("closures", "vis"):
        raise ValueError(f"--products {name}: give closures or vis.")
    return {"data": {"vis": 1.0}} if name == "vis" else {}


def write_movie_run(out: Path, found: Any, file: str) -> Path:
    """Write cube, animation, figures and report; return the path of the report."""
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.movies import write_movie
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import write_environment
    from shardfit.report.blocks import Section
    from shardfit.report.run import report_run
    from shardfit.report.study import Study, save_figure

    write_movie(found.movie, out / "movie.fits", overwrite=True)
    plots.animate(found.movie, out / "movie.gif")
    derived = {f"χ² of {name}, one image": value for name, value in found.static.chi2.items()}
    save_result(replace(found.result, derived=derived), out)
    write_environment(out)
    one = plots.sky(found.static.image, beam_rad=found.data.nominal_resolution)
    begun = "The best single image of the same data, from which the frames began."
    pictures = [
        save_figure(
            plots.movie(found.movie), out, "movie", "Frames of the movie, in one scale. movie.gif shows them moving."
        ),
        save_figure(plots.light_curve(found.movie), out, "light_curve", "Flux of the frames."),
        save_figure(one, out, "one_image", begun),
    ]
    sections = [Section("Movie", pictures), Section("Data", [_parts(found)])]
    return report_run(out, Study(f"{found.data.source or 'Movie'} from {Path(file).name}", SUBTITLE, sections))


def _parts(found: Any) -> Any:
    """Return the table of what lies between each two frames."""
    from shardfit.report.blocks import Table

    names, hours = list(found.part_chi2), found.movie.time_h
    rows = []
    for k, count in enumerate(found.counts):
        values = [found.part_chi2[name][k] for name in names]
        shown = [f"{value:.2f}" if value == value else "none" for value in values]
        rows.append((f"{hours[k]:.2f} to {hours[k + 1]:.2f}", str(count), *shown))
    header = ["h UTC", "visibilities", *(f"χ² {name}" for name in names)]
    return Table(header, rows, "χ² per measurement between each two frames.")
