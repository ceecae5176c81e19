"""`shardfit vlbi chi2`: how well an image explains data."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options as shared
from shardfit.cli.outcome import answered
from shardfit.cli.vlbi.files import read_pair
from shardfit.cli.vlbi.preparation import FIELDS, add_preparation, given

EXAMPLES = (
    "shardfit vlbi chi2 m87.uvfits vlbi-image/image.fits --preset eht",
    "shardfit vlbi chi2 m87.uvfits theirs.fits --products vis,amp --json",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add files, products and preparation."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("image", metavar="IMAGE", help="FITS image in Jy/pixel")
    parser.add_argument(
        "--products",
        metavar="A,B",
        default="amp,cphase,logcamp",
        help="data products, also vis, logamp, bs, camp, and pvis, m, vvis, v of polarised images (amp,cphase,logcamp)",
    )
    parser.add_argument(
        "--flux", metavar="JY", type=shared.amount, help="flux of the compact source in Jy (the image's)"
    )
    add_preparation(parser)
    parser.add_argument("--any-frequency", action="store_true", help="accept an image of another frequency")
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print χ² of an image, with the data prepared as asked, and after self-calibration to the image."""
    from shardfit.domains.vlbi.recipes import PRESETS, chi2, prepare
    from shardfit.domains.vlbi.recipes.options import options_from
    from shardfit.domains.vlbi.selfcal import self_calibrate

    options = options_from(args.preset, PRESETS, given(args, FIELDS))
    obs, image = read_pair(args.file, args.image, args.any_frequency)
    flux = image.flux if args.flux is None else args.flux
    ready = prepare(obs, flux, **options.preparation)
    about = {"count": options.count, "cp_uv_min": options.cp_uv_min, "systematic": options.tolerance}
    found = chi2(ready, image, args.products.split(","), any_frequency=True, **about)
    calibrated = chi2(self_calibrate(ready, image).data, image, ("vis", "amp"), any_frequency=True)
    about = {"file": args.file, "image": args.image, "flux_jy": flux}
    if answered(args, **about, chi2=found, chi2_self_calibrated=calibrated):
        return 0
    for name, value in found.items():
        print(f"{name:<10} {value:.4f}")
    for name, value in calibrated.items():
        print(f"{name:<10} {value:.4f}  after self-calibration to the image")
    return 0
