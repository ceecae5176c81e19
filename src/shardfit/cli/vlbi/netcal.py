"""`shardfit vlbi netcal`: take gains of stations that share a site out of data, given the source's flux."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.vlbi.files import read_observation
from shardfit.cli.vlbi.selfcal import add_solution, solution, tell_gains

EXAMPLES = ("shardfit vlbi netcal m87.uvfits --flux 1.2 --out calibrated.uvfits",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the flux and what to solve for."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument(
        "--flux",
        metavar="JY",
        type=options.amount,
        required=True,
        help="flux of the whole source, as seen within a site, in Jy",
    )
    add_solution(parser, "amp")


def run(args: argparse.Namespace) -> int:
    """Write the calibrated data and print sites and the gains' size by station."""
    from shardfit.domains.vlbi.network import solve_network
    from shardfit.domains.vlbi.operations import add_fractional_noise
    from shardfit.domains.vlbi.selfcal import apply_gains
    from shardfit.domains.vlbi.sites import sites
    from shardfit.domains.vlbi.uvfits import write_uvfits

    obs = read_observation(args.file)
    gains = solve_network(add_fractional_noise(obs, args.systematic), args.flux, **solution(args))
    write_uvfits(apply_gains(obs, gains), args.out, overwrite=True)
    site = sites(obs)
    for number in sorted(set(site.tolist())):
        names = sorted(name for name, at in zip(obs.stations.names, site, strict=True) if at == number)
        if len(names) > 1:
            print(f"one site: {', '.join(names)}")
    return tell_gains(args, gains, obs)
