"""`shardfit vlbi image`: from a uvfits file to an image and its report."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli.processes import request_devices
from shardfit.cli.vlbi.files import read_observation, require_seed

STOPPED = 130  # exit code of an interrupted command
# option of the command → field of Options; what is not given is left to the preset
FIELDS = {
    "npix": "npix",
    "fov": "fov_uas",
    "flux": "flux",
    "prior": "prior_fwhm_uas",
    "systematic": "systematic",
    "restarts": "restarts",
    "maxiter": "maxiter",
    "stop": "stop",
    "operator": "operator",
}


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the preset and what may differ from it."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("--out", metavar="DIR", default="vlbi-out", help="run directory to write (vlbi-out)")
    parser.add_argument("--preset", metavar="NAME", default="default", help="default, or m87: the released pipeline")
    parser.add_argument("--npix", metavar="N", type=int, help="pixels a side (64)")
    parser.add_argument("--fov", metavar="UAS", type=float, help="field of view in µas (128)")
    parser.add_argument(
        "--flux", metavar="JY", type=float, help="flux of the compact source in Jy (estimated; m87 0.6)"
    )
    parser.add_argument("--prior", metavar="UAS", type=float, help="FWHM of the prior in µas (40)")
    parser.add_argument("--systematic", metavar="F", type=float, help="fraction of |V| added to all errors (0.02)")
    parser.add_argument("--solver", metavar="NAME", default="lbfgs", help="lbfgs, lbfgsb, lbfgs-bt, adam, … (lbfgs)")
    parser.add_argument("--operator", metavar="NAME", help="auto, separable, dense or nufft (auto)")
    parser.add_argument("--maxiter", metavar="N", type=int, help="iterations of every fit (100)")
    parser.add_argument("--stop", metavar="T", type=float, help="relative tolerance of every fit (1e-6; m87 1e-4)")
    parser.add_argument("--restarts", metavar="N", type=int, help="fits from the blurred image in every round (3)")
    parser.add_argument("--devices", metavar="N", type=int, help="devices to split the data over (1)")
    parser.add_argument("--errors", action="store_true", help="also map the standard deviation of every pixel")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of the parity check and of --errors (0)")
    parser.add_argument(
        "--resume",
        choices=("auto", "must", "never"),
        default="auto",
        help="go on with an interrupted run in DIR, insist on it, or start anew (auto)",
    )


def run(args: argparse.Namespace) -> int:
    """Make the image; return 0, or 130 if it was interrupted."""
    began = time.perf_counter()
    require_seed(args.seed)
    out = Path(args.out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out}: a file of this name exists. Name a directory.")
    devices = request_devices(args.devices)

    from shardfit import Status, mesh
    from shardfit.cli.vlbi.image_report import write_run
    from shardfit.domains.vlbi.recipes import error_map, image
    from shardfit.report.values import seconds

    obs = read_observation(args.file)
    name = Path(args.file).name
    print(f"{name}: {obs.source or 'unnamed source'}, {len(obs):,} visibilities", flush=True)
    options = {field: getattr(args, option) for option, field in FIELDS.items() if getattr(args, option) is not None}
    split = mesh(rows=devices) if devices > 1 else None
    found = image(
        obs,
        preset=args.preset,
        solver=args.solver,
        mesh=split,
        seed=args.seed,
        run_dir=out,
        resume=args.resume,
        on_fit=_progress(),
        **options,
    )
    if found.result.status is Status.INTERRUPTED:
        print(f"interrupted in fit {len(found.fits)}; the same command goes on from there")
        return STOPPED
    estimated = found.options.flux is None
    if estimated:
        print(f"  compact flux estimated as {found.flux:.3f} Jy; give --flux if it is known")
    errors = None
    if args.errors:
        print("  error bars: fitting on to the minimum, then its curvature", flush=True)
        errors = error_map(found, seed=args.seed, mesh=split)
        flux_sd = errors.laplace.sd_of(lambda params: params["I"].sum())
        print(
            f"  flux {errors.image.flux:.4f} ± {flux_sd:.4f} Jy; deviations known to {100 * errors.uncertainty:.1f} %"
        )
    report, table = write_run(out, found, name, estimated, errors)
    for product, (count, *values) in table.items():
        print(f"  χ² {product:<8} {count:>5} measurements  " + "  ".join(f"{kind} {v}" for kind, v in values))
    print(f"image: {out / 'image.fits'}\nreport: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return 0


def _progress() -> Callable[[Any, int, int], None]:
    """Return a callback that prints a line for every fit, with the time left if the others take as long.

    Compilation falls on the first fit of a round, so it is rather less.
    """
    from shardfit.io.progress import duration
    from shardfit.report.values import seconds

    began = time.perf_counter()

    def show(one: Any, number: int, total: int) -> None:
        left = (total - number) * (time.perf_counter() - began) / number
        note = f"  at most {duration(left)} left" if number < total else ""
        text = f"  {number:>2}/{total} {one.label:<19} objective {one.value:10.4f}  {one.steps:4d} steps"
        print(f"{text}  {seconds(one.seconds):>7}{note}", flush=True)

    return show
