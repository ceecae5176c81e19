"""`shardfit vlbi chi2`: how well an image explains data."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli import record
from shardfit.cli.outcome import record_output
from shardfit.cli.vlbi.files import read_pair
from shardfit.cli.vlbi.preparation import FIELDS, add_preparation, given
from shardfit.io.files import read_json

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
    parser.set_defaults(preset=None)  # that of the image, if its record lies beside it
    parser.add_argument("--any-frequency", action="store_true", help="accept an image of another frequency")
    shared.add_json(parser)


def _as_made(args: argparse.Namespace) -> str:
    """Prepare data as for the image, if a record lies beside it and the command says nothing else; say how."""
    path = Path(args.image).parent / record.NAME
    names = ("preset", *FIELDS, "flux")
    if args.preset is not None or given(args, FIELDS | {"flux": "flux"}) or not path.is_file():
        args.preset = args.preset or "default"
        return ""
    made = read_json(path)
    options = made.get("options", {}) if list(made.get("command", ()))[:2] == ["vlbi", "image"] else {}
    args.preset = options.get("preset") or "default"
    for name in names[1:]:
        setattr(args, name, options.get(name))
    told = [f"--{name.replace('_', '-')} {_typed(options[name])}" for name in names if options.get(name) is not None]
    return f"{' '.join(told)} ({path})" if told else ""


def _typed(value: Any) -> str:
    """Return the value of an option as it is typed."""
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def run(args: argparse.Namespace) -> int:
    """Print χ² of an image, with the data prepared as asked, and after self-calibration to the image."""
    from shardfit.domains.vlbi.recipes import PRESETS, chi2, prepare
    from shardfit.domains.vlbi.recipes.options import options_from
    from shardfit.domains.vlbi.selfcal import self_calibrate

    made = _as_made(args)
    options = options_from(args.preset, PRESETS, given(args, FIELDS))
    obs, image = read_pair(args.file, args.image, args.any_frequency)
    flux = image.flux if args.flux is None else args.flux
    ready = prepare(obs, flux, **options.preparation)
    about = {"count": options.count, "cp_uv_min": options.cp_uv_min, "systematic": options.tolerance}
    found = chi2(ready, image, args.products.split(","), any_frequency=True, **about)
    calibrated = chi2(self_calibrate(ready, image).data, image, ("vis", "amp"), any_frequency=True)
    about = {"file": args.file, "image": args.image, "flux_jy": flux, "preset": args.preset}
    if record_output(args, **about, chi2=found, chi2_self_calibrated=calibrated):
        return 0
    if made:
        print(f"data prepared as for the image: {made}")
    for name, value in found.items():
        print(f"{name:<10} {value:.4f}")
    for name, value in calibrated.items():
        print(f"{name:<10} {value:.4f}  after self-calibration to the image")
    return 0
