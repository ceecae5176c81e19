"""`shardfit vlbi info`: what a uvfits file holds."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.vlbi.files import read_observation

EXAMPLES = ("shardfit vlbi info m87.uvfits", "shardfit vlbi info m87.uvfits --json | jq .stations")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file."""
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    options.add_json(parser)


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
    noise = _noise(obs)
    scatter = None if noise is None else asdict(noise)
    if record_output(args, **_numbers(obs, averaged, zero), stations=used, noise_scale=scatter):
        return 0
    lines = {
        "source": obs.source or "–",
        "position": f"{obs.ra_hours:.6f} h, {obs.dec_deg:+.6f}°",
        "date": f"MJD {obs.mjd}, {obs.time.min():.3f} to {obs.time.max():.3f} h UTC",
        "frequency": f"{_band(obs)}, bandwidth {obs.bandwidth_hz / 1e9:.3f} GHz",
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
    lines["errors"] = _errors(noise)
    for name, text in lines.items():
        print(f"{name:<13} {text}")
    return 0


def _band(obs: Any) -> str:
    """Return the frequencies in words."""
    if len(obs.frequencies) == 1:
        return f"{obs.freq_hz / 1e9:.3f} GHz"
    return f"{obs.band} (channels averaged where that smears less than the noise)"


def _noise(obs: Any) -> Any:
    """Return how the scatter of closure phases compares with the errors of the data; None where too few tell."""
    from shardfit.domains.vlbi.error_sizes import noise_scale

    try:
        return noise_scale(obs)
    except ValueError:
        return None


def _errors(noise: Any) -> str:
    """Return in words what it tells of the errors."""
    if noise is None:
        return "cannot be checked: too few successive closure phases"
    times = f"{noise.factor:.3f} ± {noise.sd:.3f} times"
    return f"closure phases scatter {times} as much as they say ({noise.samples:,} samples)"


def _numbers(obs: Any, averaged: Any, zero: Any) -> dict[str, Any]:
    """Return the same facts as numbers, units in their names. zero: scan averages of baselines within a site."""
    import numpy as np

    from shardfit.domains.vlbi.closures import quadrangles, triangles
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.recipes import compact_flux

    closures = {"closure_phases": len(triangles(averaged)), "closure_amplitudes": len(quadrangles(averaged))}
    within = float(np.median(np.abs(averaged.vis["I"][zero]))) if zero.any() else None
    return {
        "source": obs.source,
        "ra_hours": obs.ra_hours,
        "dec_deg": obs.dec_deg,
        "mjd": obs.mjd,
        "hours_utc": [obs.time.min(), obs.time.max()],
        "freq_hz": obs.freq_hz,
        "frequencies_hz": obs.frequencies,
        "bandwidth_hz": obs.bandwidth_hz,
        "polarisation": list(obs.vis),
        "visibilities": len(obs),
        "scan_averages": len(averaged),
        **closures,
        "baselines_wavelengths": [obs.uv_distance.min(), obs.uv_distance.max()],
        "resolution_uas": obs.nominal_resolution / UAS,
        "snr": np.median(obs.snr),
        "snr_scan_averages": np.median(averaged.snr),
        "compact_flux_jy": compact_flux(obs),
        "flux_within_a_site_jy": within,
    }
