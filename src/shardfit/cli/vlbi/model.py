"""`shardfit vlbi model`: a simple shape fitted to a uvfits file, with error bars."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options as shared
from shardfit.cli.outcome import record_output
from shardfit.cli.vlbi.files import read_observation
from shardfit.cli.vlbi.preparation import FIELDS, add_preparation, given

EXAMPLES = ("shardfit vlbi model m87.uvfits --shape mring --modes 2 --preset eht",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add file, shape and preparation."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("--shape", metavar="NAME", default="mring", help="gaussian, ellipse, disk, ring, mring (mring)")
    parser.add_argument(
        "--modes", metavar="M", type=shared.whole, default=1, help="Fourier modes of an m-ring's brightness (1)"
    )
    parser.add_argument(
        "--products", metavar="A,B", default="amp,cphase", help="data: vis, or amp, cphase, closures (amp,cphase)"
    )
    parser.add_argument("--flux", metavar="JY", type=shared.amount, help="compact flux for --zero-baseline (estimated)")
    add_preparation(parser)
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print parameters with errors, χ², and doubts; 0 if there are none, else 1."""
    from shardfit.domains.vlbi.recipes import PRESETS, compact_flux, prepare
    from shardfit.domains.vlbi.recipes.geometric import fit_shape
    from shardfit.domains.vlbi.recipes.options import options_from
    from shardfit.domains.vlbi.shapes import UNITS

    options = options_from(args.preset, PRESETS, given(args, FIELDS))
    obs = read_observation(args.file)
    flux = compact_flux(obs) if args.flux is None else args.flux
    ready = prepare(obs, flux, **options.preparation)
    about = {"count": options.count, "cp_uv_min": options.cp_uv_min, "systematic": options.tolerance}
    found = fit_shape(ready, args.shape, products=tuple(args.products.split(",")), modes=args.modes, **about)
    content = {"values": found.values, "errors": found.errors, "chi2": found.chi2, "doubts": found.doubts}
    verdict = found.result.verdict()
    if record_output(args, shape=found.shape, success=verdict.success, **content):
        return verdict.exit
    for name, value in found.values.items():
        print(f"{name:<10} {value:.5g} ± {found.errors[name]:.2g} {UNITS.get(name, '')}".rstrip())
    print("χ²         " + ", ".join(f"{name} {value:.3f}" for name, value in found.chi2.items()))
    for doubt in found.doubts:
        print(f"doubtful: {doubt}")
    return verdict.exit
