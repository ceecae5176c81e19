"""`shardfit vlbi chi2`: how well an image explains data."""

import argparse
import json
from collections.abc import Sequence

from shardfit.cli.vlbi.files import read_pair


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add files and preparation."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("image", metavar="IMAGE", help="FITS image in Jy/pixel")
    parser.add_argument("--flux", metavar="JY", type=float, help="flux of the compact source in Jy (the image's)")
    parser.add_argument(
        "--systematic", metavar="F", type=float, default=0.02, help="fraction of |V| added to all errors (0.02)"
    )
    parser.add_argument("--any-frequency", action="store_true", help="accept an image of another frequency")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print χ² of an image, with the data prepared as for imaging, and after self-calibration to the image."""
    from shardfit.domains.vlbi.recipes import EHT2017_TOLERANCE, ZERO_BASELINE, chi2, prepare
    from shardfit.domains.vlbi.selfcal import self_calibrate

    obs, image = read_pair(args.file, args.image, args.any_frequency)
    flux = image.flux if args.flux is None else args.flux
    ready = prepare(obs, flux, systematic=args.systematic)
    found = chi2(ready, image, ("amp", "cphase", "logcamp"), cp_uv_min=ZERO_BASELINE, systematic=EHT2017_TOLERANCE)
    calibrated = chi2(self_calibrate(ready, image).data, image, ("vis", "amp"))
    if args.json:
        content = {"file": args.file, "image": args.image, "flux_jy": flux, "chi2": found}
        print(json.dumps({**content, "chi2_self_calibrated": calibrated}))
        return 0
    for name, value in found.items():
        print(f"{name:<10} {value:.4f}")
    for name, value in calibrated.items():
        print(f"{name:<10} {value:.4f}  after self-calibration to the image")
    return 0
