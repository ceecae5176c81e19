"""Writer of uvfits files; numbers are stored as 32-bit floats, as the format's readers expect."""

import datetime
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra
from shardfit.domains.vlbi.constants import HANDS, MJD_ZERO, STOKES
from shardfit.domains.vlbi.geometry import sidereal_time
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.stokes import to_circular

SAME_PLACE = 1e-6  # of the longest baseline: rows of several frequencies closer than this were measured together


def write_uvfits(obs: Observation, path: Any, *, polrep: str | None = None, overwrite: bool = False) -> None:
    """Write an observation as uvfits.

    polrep: "circ" writes RR, LL, RL, LR; "stokes" writes I, Q, U, V; None takes "circ" wherever reading it back gives
    the same products and errors, which is the case for measured data, and "stokes" otherwise. Missing samples get
    weight zero. u, v, visibilities keep 7 digits, times 3 ms. Every frequency becomes an IF.
    """
    with require_extra("write_uvfits", "vlbi"):
        from astropy.io import fits

    if polrep not in (None, "circ", "stokes"):
        raise ValueError(f'write_uvfits: polrep={polrep!r} must be "circ", "stokes" or None.')
    if not np.isfinite(obs.stations.xyz).all():
        raise ValueError("write_uvfits: stations without positions. Give the observation stations with xyz in metres.")
    if len(obs.stations) > 255:
        raise ValueError(f"write_uvfits: {len(obs.stations)} stations, but baseline codes allow 255.")
    circular = polrep == "circ" or (polrep is None and obs.polrep == "circ" and _circular_is_exact(obs))
    tables = [_antennas(fits, obs), _frequencies(fits, obs)]
    if obs.scans is not None:
        tables.append(_scans(fits, obs, obs.scans))
    fits.HDUList([_visibilities(fits, obs, circular), *tables]).writeto(path, overwrite=overwrite)


def _circular_is_exact(obs: Observation) -> bool:
    def same(a: str, b: str) -> bool:
        return a in obs.sigma and b in obs.sigma and np.allclose(obs.sigma[a], obs.sigma[b], rtol=1e-7, atol=0)

    only_i = set(obs.sigma) == {"I"}
    cross = same("Q", "U") or not {"Q", "U"} & set(obs.sigma)
    # without cross hands a V that is exactly zero reads as polarisation removed
    return only_i or (same("I", "V") and cross and ("Q" in obs.sigma or bool(np.any(obs.vis["V"]))))


def _visibilities(fits: Any, obs: Observation, circular: bool) -> Any:
    vis, sigma = to_circular(obs.vis, obs.sigma) if circular else (obs.vis, obs.sigma)
    first, group = _groups(obs)
    at = np.searchsorted(obs.frequencies, obs.hz)
    data = np.zeros((len(first), 1, 1, len(obs.frequencies), 1, 4, 3), np.float32)
    for k, name in enumerate(HANDS if circular else STOKES):
        if name in vis:
            sample = np.stack([np.real(vis[name]), np.imag(vis[name]), 1 / sigma[name] ** 2], axis=-1)
            data[group, 0, 0, at, 0, k] = sample
    day = np.full(len(first), obs.mjd + MJD_ZERO, np.float32)
    to_reference = obs.frequencies[0] / obs.hz[first]
    params = {
        "UU---SIN": obs.u[first] * to_reference,
        "VV---SIN": obs.v[first] * to_reference,
        "WW---SIN": np.zeros(len(first)),
        "BASELINE": (256 * (obs.ant1 + 1) + obs.ant2 + 1)[first],
        "DATE": day,
        "_DATE": obs.time[first] / 24,
        "INTTIM": obs.tint[first],
    }
    names = [name.strip("_") for name in params]
    groups = fits.GroupData(
        data, bitpix=-32, parnames=names, pardata=[np.asarray(x, np.float32) for x in params.values()]
    )
    hdu = fits.GroupsHDU(groups)
    header = hdu.header
    header["OBJECT"] = obs.source[:68]
    header["MJD"] = float(obs.mjd)
    header["DATE-OBS"] = _date(obs.mjd)
    header["BUNIT"] = "JY"
    header["EQUINOX"] = 2000.0
    header["OBSRA"], header["OBSDEC"] = obs.ra_hours * 15, obs.dec_deg
    axes = {
        2: ("COMPLEX", 1.0, 1.0),
        3: ("STOKES", -1.0, -1.0) if circular else ("STOKES", 1.0, 1.0),
        4: ("FREQ", obs.frequencies[0], obs.bandwidth_hz / len(obs.frequencies)),
        5: ("IF", 1.0, 1.0),
        6: ("RA", obs.ra_hours * 15, 1.0),
        7: ("DEC", obs.dec_deg, 1.0),
    }
    for i, (kind, value, step) in axes.items():
        header[f"CTYPE{i}"], header[f"CRVAL{i}"], header[f"CDELT{i}"], header[f"CRPIX{i}"] = kind, value, step, 1.0
    for i, name in enumerate(names, start=1):
        # u and v are kept in wavelengths, so that reading gives the same 32 bits again; the scale makes them seconds
        scale = 1 / obs.frequencies[0] if name.endswith("SIN") else 1.0
        header[f"PTYPE{i}"], header[f"PSCAL{i}"], header[f"PZERO{i}"] = name, scale, 0.0
    header.add_history("AIPS SORT ORDER='TB'")
    return hdu


def _groups(obs: Observation) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of every group of the file, and the group of every row, (n,).

    A group holds all frequencies of a time and baseline, unless averages or flags left them different u and v.
    """
    if len(obs.frequencies) == 1:
        return np.arange(len(obs)), np.arange(len(obs))
    seconds = np.stack([obs.u, obs.v]) / obs.hz
    same_place = np.round(seconds / (SAME_PLACE * np.abs(seconds).max()))
    keys = np.stack([obs.time, obs.tint, obs.ant1, obs.ant2, *same_place])
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")  # in order of time
    return first[order], np.argsort(order)[group.ravel()]


def _antennas(fits: Any, obs: Observation) -> Any:
    k = len(obs.stations)
    zeros = np.zeros(k)
    width = max(8, *(len(name) for name in obs.stations.names))
    columns = [
        fits.Column("ANNAME", f"{width}A", array=np.array(obs.stations.names)),
        fits.Column("STABXYZ", "3D", unit="METERS", array=obs.stations.xyz),
        fits.Column("NOSTA", "1J", array=np.arange(1, k + 1)),
        fits.Column("MNTSTA", "1J", array=zeros),
        fits.Column("STAXOF", "1E", unit="METERS", array=zeros),
        fits.Column("POLTYA", "1A", array=np.full(k, "R")),
        fits.Column("POLAA", "1E", unit="DEGREES", array=zeros),
        fits.Column("POLTYB", "1A", array=np.full(k, "L")),
        fits.Column("POLAB", "1E", unit="DEGREES", array=np.full(k, 90.0)),
        fits.Column("SEFD", "1D", array=obs.stations.sefd),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="AIPS AN")
    about = {
        "EXTVER": 1,
        "ARRAYX": 0.0,
        "ARRAYY": 0.0,
        "ARRAYZ": 0.0,
        "GSTIA0": float(np.rad2deg(sidereal_time(obs.mjd, 0.0))),
        "DEGPDY": 360.9856,
        "FREQ": float(obs.frequencies[0]),
        "RDATE": _date(obs.mjd),
        "TIMESYS": "UTC",
        "UT1UTC": 0.0,
        "DATUTC": 0.0,
        "POLARX": 0.0,
        "POLARY": 0.0,
        "ARRNAM": "VLBI",
        "XYZHAND": "RIGHT",
        "NUMORB": 0,
        "NO_IF": len(obs.frequencies),
        "NOPCAL": 0,
        "FREQID": 1,
    }
    table.header.update(about)
    return table


def _frequencies(fits: Any, obs: Observation) -> Any:
    n = len(obs.frequencies)
    width = np.full((1, n), obs.bandwidth_hz / n)
    columns = [
        fits.Column("FRQSEL", "1J", array=[1]),
        fits.Column("IF FREQ", f"{n}D", unit="HZ", array=(obs.frequencies - obs.frequencies[0])[None]),
        fits.Column("CH WIDTH", f"{n}E", unit="HZ", array=width),
        fits.Column("TOTAL BANDWIDTH", f"{n}E", unit="HZ", array=width),
        fits.Column("SIDEBAND", f"{n}J", array=np.ones((1, n), int)),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="AIPS FQ")
    table.header["NO_IF"] = n
    return table


def _scans(fits: Any, obs: Observation, scans: np.ndarray) -> Any:
    start, stop = scans.T
    ones = np.ones(len(scans))
    columns = [
        fits.Column("TIME", "1D", unit="DAYS", array=(start + stop) / 48),
        fits.Column("TIME INTERVAL", "1E", unit="DAYS", array=(stop - start) / 24),
        fits.Column("SOURCE ID", "1J", array=ones),
        fits.Column("SUBARRAY", "1J", array=ones),
        fits.Column("FREQ ID", "1J", array=ones),
        fits.Column("START VIS", "1J", array=np.searchsorted(obs.time, start, side="right") + 1),
        fits.Column("END VIS", "1J", array=np.searchsorted(obs.time, stop, side="right")),
    ]
    return fits.BinTableHDU.from_columns(columns, name="AIPS NX")


def _date(mjd: int) -> str:
    return (datetime.date(1858, 11, 17) + datetime.timedelta(days=int(mjd))).isoformat()
