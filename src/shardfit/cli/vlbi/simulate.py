"""`shardfit vlbi simulate`: data of a known image."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli.outcome import record_output

EXAMPLES = (
    "shardfit vlbi simulate --image ring --out ring.uvfits --truth ring.fits",
    "shardfit vlbi simulate --image jet.fits --array vlba.txt --gains 0.1 --seed 3 --out jet.uvfits",
    "shardfit vlbi simulate --array vlba.txt --freq 43 --scale 7 --bandwidth 0.256 --out ring43.uvfits",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add image, array and errors."""
    shared.add_out_file(parser, "uvfits file")
    parser.add_argument("--truth", metavar="FILE", help="FITS file to write the image behind the data to")
    parser.add_argument(
        "--image", metavar="NAME", default="ring", help="ring, crescent, disk, double, or a FITS image (ring)"
    )
    parser.add_argument(
        "--flux", metavar="JY", type=shared.amount, help="total flux in Jy (0.6; of a FITS image its own)"
    )
    parser.add_argument(
        "--scale", metavar="F", type=shared.amount, help="makes a known image larger: 42 µas times F (1)"
    )
    parser.add_argument(
        "--freq", metavar="GHZ", type=shared.amount, help="frequency in GHz (227.1; of a FITS image its own)"
    )
    parser.add_argument("--array", metavar="FILE", help="text file: name, x, y, z in m, SEFD in Jy on each line (2017)")
    parser.add_argument("--start", metavar="H", type=float, default=0.0, help="first time, h UTC (0)")
    parser.add_argument("--stop", metavar="H", type=float, default=12.0, help="last time, h UTC (12)")
    parser.add_argument(
        "--cadence", metavar="S", type=shared.amount, default=600.0, help="between integrations, s (600)"
    )
    parser.add_argument("--bandwidth", metavar="GHZ", type=shared.amount, default=2.0, help="of the receivers, GHz (2)")
    parser.add_argument(
        "--gains", metavar="F", type=shared.size, default=0.05, help="size of amplitude gain errors (0.05)"
    )
    parser.add_argument(
        "--leakage", metavar="F", type=shared.size, default=0.0, help="size of polarisation leakage (0)"
    )
    parser.add_argument("--opacity", metavar="T", type=shared.size, default=0.0, help="zenith opacity: noise grows (0)")
    parser.add_argument("--no-phases", action="store_true", help="do not add tropospheric phase errors")
    shared.add_seed(parser, 0, of="noise and gains")
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the data, and the image behind them if asked."""
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.domains.vlbi.recipes import observe
    from shardfit.domains.vlbi.simulation import EHT2017, read_array
    from shardfit.domains.vlbi.uvfits import write_uvfits

    truth = _truth(args)
    array = EHT2017 if args.array is None else read_array(args.array)
    errors = {"gains": args.gains, "random_phase": not args.no_phases, "seed": args.seed}
    errors |= {"leakage": args.leakage, "opacity": args.opacity}
    night = {"cadence_s": args.cadence, "bandwidth_hz": 1e9 * args.bandwidth}
    obs = observe(truth, array, **errors, **night, start_h=args.start, stop_h=args.stop)
    write_uvfits(obs, args.out, overwrite=True)
    files = [args.out, *([args.truth] if args.truth else [])]
    record_output(args, files=files, visibilities=len(obs), flux_jy=truth.flux, seed=args.seed)
    print(f"{args.out}: {len(obs)} visibilities of {args.image}, {truth.flux:g} Jy, seed {args.seed}")
    if args.truth:
        write_image(truth, args.truth, overwrite=True)
        print(f"{args.truth}: the image behind them")
    return 0


def _truth(args: argparse.Namespace) -> Any:
    """Return the image behind the data: a known one, or that of a file."""
    from shardfit.core.errors import suggestion
    from shardfit.domains.vlbi.fits_image import read_image
    from shardfit.domains.vlbi.models import MODELS
    from shardfit.domains.vlbi.recipes import known_image

    name, given = args.image, {k: getattr(args, k) for k in ("flux", "scale", "freq") if getattr(args, k) is not None}
    if "freq" in given:
        given["freq_hz"] = 1e9 * given.pop("freq")
    if name in MODELS:
        return known_image(name, **given)
    if not Path(name).exists():
        raise ValueError(f"--image {name}: neither a file nor a known image.{suggestion(name, MODELS)}")
    if "scale" in given:
        raise ValueError("--scale is for known images: a FITS image has its own size.")
    image = read_image(name)
    image = image.replace(freq_hz=given.get("freq_hz", image.freq_hz))
    return image.normalise(given["flux"]) if "flux" in given else image
