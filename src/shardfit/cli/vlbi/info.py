"""`shardfit vlbi info`: what a uvfits file holds."""

import argparse
from collections.abc import Sequence
from typing import Any

from shardfit.cli.vlbi.files import read_observation

EXAMPLES = ("shardfit vlbi info m87.uvfits",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")


def run(args: argparse.Namespace) -> int:
    """Print one line per fact."""
    import numpy as np

    from shardfit.domains.vlbi.closures import quadrangles, triangles
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.operations import average_scans
    from shardfit.domains.vlbi.recipes import co_located, compact_flux

    obs = read_observation(args.file)
    averaged = average_scans(obs)
    distance = obs.uv_distance
    zero = averaged.uv_distance < co_located(averaged)
    used = obs.drop_unused_stations().stations.names
    lines = {
        "source": obs.source or "–",
        "position": f"{obs.ra_hours:.6f} h, {obs.dec_deg:+.6f}°",
        "date": f"MJD {obs.mjd}, {obs.time.min():.3f} to {obs.time.max():.3f} h UTC",
        "frequency": f"{obs.freq_hz / 1e9:.3f} GHz, bandwidth {obs.bandwidth_hz / 1e9:.3f} GHz",
        "stations": ", ".join(used),
        "polarisation": ", ".join(obs.vis),
        "visibilities": f"{len(obs):,}, {len(averaged):,} scan averages",
        "closures": f"{len(triangles(averaged))} phases, {len(quadrangles(averaged))} amplitudes (minimal sets)",
        "baselines": f"{distance.min() / 1e9:.4f} to {distance.max() / 1e9:.3f} Gλ",
        "resolution": f"{obs.nominal_resolution / UAS:.2f} µas (nominal)",
        "SNR": f"{np.median(obs.snr):.1f} (median), {np.median(averaged.snr):.1f} of scan averages",
        "flux": f"{compact_flux(obs):.3f} Jy compact (rough estimate)",
    }
    if zero.any():
        lines["flux"] += f", {np.median(np.abs(averaged.vis['I'][zero])):.3f} Jy between stations of one site"
    lines["errors"] = _errors(obs)
    for name, text in lines.items():
        print(f"{name:<13} {text}")
    return 0


def _errors(obs: Any) -> str:
    """Return in words how the scatter of closure phases compares with the errors of the data."""
    from shardfit.domains.vlbi.noise_scale import noise_scale

    try:
        seen = noise_scale(obs)
    except ValueError:
        return "cannot be checked: too few successive closure phases"
    return f"closure phases scatter {seen.factor:.3f} ± {seen.sd:.3f} times as much as they say ({seen.pairs:,} pairs)"
