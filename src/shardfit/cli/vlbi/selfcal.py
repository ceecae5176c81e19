"""`shardfit vlbi selfcal`: take station gains out of data, given an image."""

import argparse
from collections.abc import Sequence
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli.outcome import record_output
from shardfit.cli.vlbi.files import read_pair

EXAMPLES = ("shardfit vlbi selfcal m87.uvfits vlbi-image/image.fits --out calibrated.uvfits",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add files and what to solve for."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("image", metavar="IMAGE", help="FITS image in Jy/pixel")
    add_solution(parser, "both")
    parser.add_argument("--any-frequency", action="store_true", help="accept an image of another frequency")


def run(args: argparse.Namespace) -> int:
    """Write the calibrated data and print the gains' size by station."""
    from shardfit.domains.vlbi.operations import add_fractional_noise, flag
    from shardfit.domains.vlbi.recipes import co_located
    from shardfit.domains.vlbi.selfcal import apply_gains, solve_gains
    from shardfit.domains.vlbi.uvfits import write_uvfits

    obs, image = read_pair(args.file, args.image, args.any_frequency)
    # baselines within a site see flux that the image lacks
    compared = add_fractional_noise(flag(obs, uv_below=co_located(obs)), args.systematic)
    gains = solve_gains(compared, image, **solution(args))
    write_uvfits(apply_gains(obs, gains), args.out, overwrite=True)
    return tell_gains(args, gains, obs)


def tell_gains(args: argparse.Namespace, gains: Any, obs: Any) -> int:
    """Print how a calibration ended, and the gains' size by station; write them if asked.

    Return 0, or 1 if a solution did not converge or is not a number.
    """
    import numpy as np

    from shardfit.domains.vlbi.gain_files import write_gains

    before, after = gains.cost_before.sum(), gains.cost_after.sum()
    wrong = int((~gains.converged | ~np.isfinite(gains.gain).all(axis=1)).sum())
    sizes = {name: np.abs(gains.gain[gains.solved[:, k], k]) for k, name in enumerate(gains.stations)}
    medians = {name: np.median(size) for name, size in sizes.items() if len(size)}
    found = {"solutions": len(gains), "not_converged": wrong, "cost_before": before, "cost_after": after}
    files = [args.out, *map(str, write_gains(gains, args.gain_table, obs) if args.gain_table else ())]
    code = int(wrong > 0)
    if record_output(args, success=not wrong, files=files, **found, median_gains=medians):
        return code
    print(f"{args.out}: {len(gains)} solutions, {wrong} of them not converged")
    print(f"cost {before:.6g} before, {after:.6g} after")
    for name, size in sizes.items():
        if len(size):
            print(f"  {name:<4} |g| {medians[name]:.3f} (median), {size.min():.3f} to {size.max():.3f}")
    if args.gain_table:
        print(f"gains: {len(files) - 1} files in {args.gain_table}")
    return code


def add_solution(parser: argparse.ArgumentParser, method: str) -> None:
    """Add what to solve for, and how far gains may stray; method: the default."""
    shared.add_out_file(parser, "uvfits file")
    parser.add_argument("--gain-table", metavar="DIR", help="folder to write gains to, a text file per station")
    parser.add_argument(
        "--method", choices=("both", "phase", "amp"), default=method, help=f"what to solve for ({method})"
    )
    parser.add_argument("--stations", metavar="A,B", help="stations to solve for; the others stay unchanged (all)")
    parser.add_argument(
        "--tolerance", metavar="F", type=shared.amount, default=0.2, help="expected size of amplitude errors (0.2)"
    )
    parser.add_argument(
        "--interval", metavar="I", default="scan", help="one solution per 'scan', 'time' stamp or this many s (scan)"
    )
    parser.add_argument(
        "--systematic", metavar="F", type=shared.size, default=0.0, help="fraction of |V| added to errors (0)"
    )
    shared.add_json(parser)


def solution(args: argparse.Namespace) -> dict[str, Any]:
    """Return settings of the solver."""
    return {
        "method": args.method,
        "stations": args.stations.split(",") if args.stations else None,
        "tolerance": args.tolerance,
        "interval": _interval(args.interval),
    }


def _interval(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
