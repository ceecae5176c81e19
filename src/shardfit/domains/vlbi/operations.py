"""Averages, flags and noise of an Observation; every function returns a new one."""

from collections.abc import Sequence

import numpy as np

from shardfit.domains.vlbi.constants import FWHM_TO_SIGMA
from shardfit.domains.vlbi.geometry import elevation, hour_angle
from shardfit.domains.vlbi.observation import Observation, make_observation

_ABOUT = ("stations", "freq_hz", "bandwidth_hz", "mjd", "source", "ra_hours", "dec_deg", "scans", "polrep")
SCAN_GAP_H = 0.0165  # a longer pause starts a new scan
SCAN_PAD_H = 1e-4  # added on both sides, so that rounded times stay inside


def scan_table(obs: Observation) -> np.ndarray:
    """Return scans (m, 2) h, first and last time padded by 1e-4 h: the observation's own, else split at gaps."""
    if obs.scans is not None:
        return np.asarray(obs.scans)
    times = np.unique(obs.time)
    split = np.flatnonzero(np.diff(times) > SCAN_GAP_H)
    first, last = np.concatenate([[0], split + 1]), np.concatenate([split, [len(times) - 1]])
    return np.stack([times[first] - SCAN_PAD_H, times[last] + SCAN_PAD_H], axis=1)


def average_scans(obs: Observation, *, weights: str = "inverse", common_time: bool = False) -> Observation:
    """Average each baseline coherently over each scan; visibilities must be phase-stable over a scan.

    weights: "inverse" weighs samples by 1/σ²; "legacy" takes plain means with σ = √Σσ²/N. u and v are plain means,
    tint is summed. A baseline's time is that of its first sample in the scan, so one that starts late forms no
    closures with the others; common_time gives all baselines of a scan the scan's first time instead.
    """
    scans = scan_table(obs)
    scan = np.searchsorted(scans[:, 0], obs.time, side="left") - 1
    outside = (scan < 0) | (obs.time > scans[scan, 1])
    if outside.any():
        raise ValueError(
            f"average_scans: {int(outside.sum())} rows, first row {int(outside.argmax())}, lie in no scan. Select the "
            "others, or use obs.replace(scans=None) to split at gaps."
        )
    first = np.full(len(scans), np.inf)
    np.minimum.at(first, scan, obs.time)
    averaged = _average(obs, scan, first if common_time else None, weights)
    return averaged.replace(scans=scans)


def average_time(obs: Observation, seconds: float, *, weights: str = "inverse") -> Observation:
    """Average each baseline coherently over fixed bins of this length; the time is the bin's centre."""
    if not seconds > 0:
        raise ValueError(f"average_time: seconds={seconds} must be positive.")
    bins = np.floor(3600 * obs.time / seconds).astype(int)
    numbers, index = np.unique(bins, return_inverse=True)
    return _average(obs, index, (numbers + 0.5) * seconds / 3600, weights)


def _average(obs: Observation, group: np.ndarray, times: np.ndarray | None, weights: str) -> Observation:
    """Average rows that share baseline, frequency and group; times: (groups,) h, or None for each baseline's first."""
    if weights not in ("inverse", "legacy"):
        raise ValueError(f'weights={weights!r} must be "inverse" or "legacy".')
    k, at = len(obs.stations), np.searchsorted(obs.frequencies, obs.hz)
    group_hz = group * len(obs.frequencies) + at
    key, first, cell = np.unique((group_hz * k + obs.ant1) * k + obs.ant2, return_index=True, return_inverse=True)
    count = np.bincount(cell)

    def total(values):
        if np.iscomplexobj(values):
            return total(values.real) + 1j * total(values.imag)
        return np.bincount(cell, values, len(key))

    vis, sigma = {}, {}
    with np.errstate(divide="ignore", invalid="ignore"):  # groups without a sample of a product end as missing
        for name in obs.vis:
            value, error = obs.vis[name], obs.sigma[name]
            good = np.isfinite(error)
            if weights == "inverse":
                weight = total(1 / error**2)
                vis[name], sigma[name] = total(value / error**2) / weight, 1 / np.sqrt(weight)
            else:
                n = total(good.astype(float))
                vis[name], sigma[name] = total(value) / n, np.sqrt(total(np.where(good, error, 0) ** 2)) / n
    return make_observation(
        time=obs.time[first] if times is None else times[group[first]],
        tint=total(obs.tint),
        ant1=obs.ant1[first],
        ant2=obs.ant2[first],
        u=total(obs.u) / count,
        v=total(obs.v) / count,
        hz=obs.hz[first],
        vis=vis,
        sigma=sigma,
        **{name: getattr(obs, name) for name in _ABOUT},
    )


def flag(
    obs: Observation,
    *,
    snr_below: float = 0.0,
    uv_below: float = 0.0,
    uv_above: float = np.inf,
    stations: Sequence[str] = (),
    before_h: float = -np.inf,
    after_h: float = np.inf,
    elevation_below_deg: float = -90.0,
    polarisation_above: float = np.inf,
) -> Observation:
    """Remove rows with a low |I|/σ, a baseline too short or long (wavelengths), a listed station, or a time outside.

    A row that meets any of the conditions goes. stations: names, or one name. elevation_below_deg: of the source, at
    either station. polarisation_above: |Q + iU|/|I|; rows without Q and U stay.
    """
    names = (stations,) if isinstance(stations, str) else tuple(stations)
    listed = [obs.stations.index(name) for name in names]
    bad = np.isin(obs.ant1, listed) | np.isin(obs.ant2, listed)
    bad |= (obs.snr < snr_below) | (obs.uv_distance < uv_below) | (obs.uv_distance > uv_above)
    bad |= (obs.time < before_h) | (obs.time > after_h)
    if elevation_below_deg > -90:
        bad |= np.rad2deg(elevations(obs).min(1)) < elevation_below_deg
    if polarisation_above < np.inf:
        bad |= _linear_fraction(obs) > polarisation_above
    return obs.select(~bad)


def elevations(obs: Observation) -> np.ndarray:
    """Return how high the source stands above the horizon of both stations of each row, (n, 2) rad."""
    ends = np.stack([obs.ant1, obs.ant2], axis=1)
    unknown = [obs.stations.names[k] for k in np.unique(ends) if not np.isfinite(obs.stations.xyz[k]).all()]
    if unknown:
        raise ValueError(
            f"elevations: the position of {', '.join(unknown)} is not known. Give obs.stations positions, for instance "
            "those of read_array, or leave these stations out."
        )
    angle = hour_angle(obs.mjd, obs.time, obs.ra_hours)
    return np.stack([elevation(obs.stations.xyz[k], angle, obs.dec_deg) for k in ends.T], axis=1)


def _linear_fraction(obs: Observation) -> np.ndarray:
    if "Q" not in obs.vis or "U" not in obs.vis:
        raise ValueError(f"flag: polarisation_above needs Q and U; the data have {', '.join(obs.vis)}.")
    measured = np.isfinite(obs.sigma["Q"]) & np.isfinite(obs.sigma["U"])
    with np.errstate(divide="ignore", invalid="ignore"):  # |I| may be exactly zero
        return np.where(measured, np.abs(obs.vis["Q"] + 1j * obs.vis["U"]) / np.abs(obs.vis["I"]), 0.0)


def add_fractional_noise(obs: Observation, fraction: float) -> Observation:
    """Add fraction * |I| in quadrature to the errors of every product; do it after averaging."""
    if not fraction >= 0:
        raise ValueError(f"add_fractional_noise: fraction={fraction} must not be negative.")
    extra = fraction * np.abs(obs.vis["I"])
    return obs.replace(sigma={name: np.hypot(s, extra) for name, s in obs.sigma.items()})


def taper(obs: Observation, fwhm_rad: float) -> Observation:
    """Multiply visibilities and errors by the transform of a Gaussian of this FWHM: the image is blurred."""
    return _scaled(obs, _gaussian(obs, fwhm_rad))


def reverse_taper(obs: Observation, fwhm_rad: float) -> Observation:
    """Divide visibilities and errors by the transform of a Gaussian of this FWHM; blur the image by it afterwards."""
    return _scaled(obs, 1 / _gaussian(obs, fwhm_rad))


def total_flux(obs: Observation, station1: str, station2: str) -> float:
    """Median |I|, Jy, on the baseline of two co-located stations, such as "AA" and "AP"."""
    pair = sorted((obs.stations.index(station1), obs.stations.index(station2)))
    rows = (obs.ant1 == pair[0]) & (obs.ant2 == pair[1])
    if not rows.any():
        raise ValueError(f"total_flux: no rows on {station1}-{station2}. Name two stations at one site.")
    return float(np.median(np.abs(obs.vis["I"][rows])))


def rescale_zero_baselines(obs: Observation, flux: float, total: float | None = None, *, uv_max: float) -> Observation:
    """Scale rows shorter than uv_max (wavelengths) by flux/total, Jy, so that they see the compact source only.

    total: the flux they see now; None takes the median |I| of these rows.
    """
    short = obs.uv_distance < uv_max
    if not short.any():
        return obs
    now = float(np.median(np.abs(obs.vis["I"][short]))) if total is None else total
    if not (flux > 0 and now > 0):
        raise ValueError(f"rescale_zero_baselines: flux={flux} and total={now} must be positive, in Jy.")
    return _scaled(obs, np.where(short, flux / now, 1.0))


def _gaussian(obs: Observation, fwhm_rad: float) -> np.ndarray:
    factor = np.exp(-2 * (np.pi * fwhm_rad * FWHM_TO_SIGMA) ** 2 * (obs.u**2 + obs.v**2))
    if not (fwhm_rad >= 0 and factor.min() > 0):
        raise ValueError(f"taper: a FWHM of {fwhm_rad} rad leaves nothing on the longest baseline. Use a smaller one.")
    return factor


def _scaled(obs: Observation, factor: np.ndarray) -> Observation:
    vis, sigma = ({name: x * factor for name, x in d.items()} for d in (obs.vis, obs.sigma))
    return obs.replace(vis=vis, sigma=sigma)
