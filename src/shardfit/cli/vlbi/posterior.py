"""`shardfit vlbi posterior`: from a uvfits file to images drawn from what it leaves open, and their report."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli import record
from shardfit.cli.vlbi.files import read_observation
from shardfit.cli.vlbi.preparation import add_zero_baseline

EXAMPLES = (
    "shardfit vlbi posterior m87.uvfits --ring --draws 400",
    "shardfit vlbi posterior vlba.uvfits --products vis      # once more after a crash: goes on where it was",
)
SUBTITLE = (
    "Images drawn from the posterior under a log-normal field in an envelope, whose hyper-parameters the data choose. "
    "Features that all draws share are what the data say."
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, what of it is used, and the pixels."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    shared.add_out(parser, "vlbi-posterior")
    parser.add_argument(
        "--products",
        metavar="NAME",
        default="gains",
        help="gains: amplitudes with unknown gains, and closure phases; vis: calibrated visibilities (gains)",
    )
    parser.add_argument(
        "--gain-error",
        metavar="F[,ST=F]",
        default="0.1",
        help="size of amplitude errors of stations, and of some by name: 0.1,LM=0.3 (0.1)",
    )
    parser.add_argument("--start", metavar="IMAGE", help="FITS image to begin with, same pixels: see `vlbi image`")
    parser.add_argument("--npix", metavar="N", type=shared.positive, default=32, help="pixels a side (32)")
    parser.add_argument("--fov", metavar="UAS", type=shared.amount, help="field of view in µas (8 resolutions)")
    parser.add_argument("--flux", metavar="JY", type=shared.amount, help="flux of the compact source in Jy (estimated)")
    parser.add_argument(
        "--systematic", metavar="F", type=shared.size, default=0.01, help="fraction of |V| added to all errors (0.01)"
    )
    add_zero_baseline(parser, "those within a site are left out")
    parser.add_argument("--ring", action="store_true", help="measure the diameter of a ring in every draw")
    parser.add_argument("--no-average", action="store_true", help="do not average the data over scans")
    parser.add_argument("--draws", metavar="N", type=shared.positive, default=100, help="images to draw (100)")
    shared.add_seed(parser, 0)
    shared.add_resume(parser)
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Draw the images; write them and their report; 0 if they can be trusted, 1 if not."""
    out = shared.directory(args.out)

    from shardfit.domains.vlbi.fits_image import read_image
    from shardfit.domains.vlbi.operations import flag
    from shardfit.domains.vlbi.recipes import co_located, compact_flux, posterior, prepare

    errors, start = _gain_errors(args.gain_error), None if args.start is None else read_image(args.start)
    if args.zero_baseline is not None and args.flux is None:
        raise ValueError("--zero-baseline needs --flux, the flux of the compact source in Jy.")
    obs = read_observation(args.file)
    how = {"systematic": args.systematic, "average": not args.no_average}
    # baselines within a site see flux that no image of the compact source has
    if args.zero_baseline is not None:
        obs = prepare(obs, args.flux, zero_baseline=args.zero_baseline, **how)
    else:
        obs = flag(prepare(obs, **how), uv_below=co_located(obs))
    flux = compact_flux(obs) if args.flux is None else args.flux
    print(
        f"{Path(args.file).name}: {obs.source or 'unnamed source'}, {len(obs):,} visibilities, {flux:.3f} Jy",
        flush=True,
    )
    record.begin(args, out)
    found = posterior(
        obs,
        npix=args.npix,
        fov_uas=args.fov,
        flux=flux,
        products=args.products,
        gain_error=errors,
        start=start,
        draws=args.draws,
        seed=args.seed,
        run_dir=out,
        resume=args.resume,
        on_progress=lambda text: print(f"  {text}", flush=True),
    )
    numbers = found.numbers
    print(f"  χ² of the draws {found.chi2.mean():.3f} per measurement")
    print(f"  flux {numbers.flat('flux').mean():.4f} ± {numbers.flat('flux').std(ddof=1):.4f} Jy")
    if args.ring:
        print(f"  {_rings(found)}")
    verdict = numbers.verdict()
    for text in (*verdict.reasons, *filter(None, [numbers.note])):
        print(f"  doubtful: {text}")
    report = write_draws(out, found, obs, args)
    print(f"images: {out / 'images.npz'}, mean.fits, sd.fits\nreport: {report}")
    return verdict.exit


def _rings(found: Any) -> str:
    """Return the diameter of a ring over all draws, in words."""
    import numpy as np

    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.rings import extract_ring

    def diameter(image: Any) -> float:
        try:
            return extract_ring(image).diameter / UAS
        except ValueError:  # no ring in this draw
            return np.nan

    seen = found.of(diameter)
    seen = seen[np.isfinite(seen)]
    if len(seen) < 2:
        return "no ring in the draws"
    counted = f"{len(seen)} of {len(found.images)} draws have one"
    return f"ring diameter {seen.mean():.1f} ± {seen.std(ddof=1):.1f} µas ({counted})"


def _gain_errors(text: str) -> dict[str, float]:
    """Return gain errors by station from `0.1,LM=0.3`."""
    found = {}
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        try:
            found[name.strip() or "others"] = float(value)
        except ValueError:
            raise ValueError(f"--gain-error {text}: write a number, and STATION=NUMBER: 0.1,LM=0.3") from None
    return found


def write_draws(out: Path, found: Any, obs: Any, args: argparse.Namespace) -> Path:
    """Write images, their mean and standard deviation, figures and report; return the path of the report."""
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.io.files import write_arrays
    from shardfit.io.run_dir import write_environment
    from shardfit.report.blocks import Section, Table
    from shardfit.report.posterior import report_posterior
    from shardfit.report.study import Study, save_figure
    from shardfit.sampling.store import save_posterior

    out.mkdir(parents=True, exist_ok=True)
    mean, sd = found.mean(), found.sd()
    write_arrays(out / "images.npz", {"images": found.images, "chi2": found.chi2})
    write_image(mean, out / "mean.fits", overwrite=True)
    write_image(sd, out / "sd.fits", overwrite=True)
    save_posterior(found.numbers, out)
    write_environment(out)
    drawn = {
        "draws": (
            "Mean, standard deviation and some of the images drawn, in one scale.",
            plots.draws(found),
        ),
        "errors": ("Standard deviation of every pixel, and the mean in units of it.", plots.errors(mean, sd)),
        "amplitudes": ("Amplitudes of the data and of the mean image, gains as they are.", plots.amplitudes(obs, mean)),
        "closure_phases": ("Closure phases of the data and of the mean image.", plots.closure_phases(obs, mean)),
    }
    pictures = [save_figure(figure, out, name, caption) for name, (caption, figure) in drawn.items()]
    given = record.options_of(args)
    rows = [(name.replace("_", " "), str(value)) for name, value in sorted(given.items()) if _plain(value)]
    sections = [Section("Images", pictures), Section("Options", [Table(["option", "value"], rows)])]
    title = f"{obs.source or 'Images'} from {Path(args.file).name}"
    return report_posterior(out, Study(title, SUBTITLE, sections))


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float)
