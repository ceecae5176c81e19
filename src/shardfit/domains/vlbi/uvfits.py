"""Reader of uvfits files (FITS random groups with an antenna table)."""

import logging
import math
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.domains.vlbi.constants import HANDS, MJD_ZERO, STOKES
from shardfit.domains.vlbi.fits_units import read_units
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.uvfits_channels import Setup, joined
from shardfit.domains.vlbi.uvfits_tables import an_table, antennas, if_axes, number, scan_table
from shardfit.domains.vlbi.uvfits_write import write_uvfits

__all__ = ["read_uvfits", "write_uvfits"]

MOST_DAYS = 10.0  # from the first row to the last
DAY_S = 86400.0
MOST_SECONDS = 10.0  # light travel time of a baseline: twice the way to the second Lagrange point
log = logging.getLogger(__name__)
_DTYPES = {8: ">u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
_CODES = {**{i + 1: name for i, name in enumerate(STOKES)}, **{-i - 1: name for i, name in enumerate(HANDS)}}


def read_uvfits(
    path: Any, *, channels: str = "auto", station_order: str = "sefd", dtype: Any = np.float64
) -> Observation | list[Observation]:
    """Read a uvfits file.

    channels: "auto" averages neighbouring IFs and channels by inverse variance where that smears a usual field by less
    than the noise, and otherwise keeps rows of several frequencies, each with its own u and v (`by_frequency` tells
    them apart); "average" combines all at their mean frequency; "separate" returns a list with one Observation per IF
    and channel, each at its own frequency, without channels that have no data. station_order: "sefd" sorts stations by
    increasing SEFD if the file has any, as closures of published pipelines assume; "file" keeps the order of the
    antenna table. dtype: precision of the average over channels; float32 gives the rounded values, 1e-7 off, that
    published reductions of 32-bit files rest on.
    Raises ValueError, naming the file, for anything that is not a sound uvfits file of circular feeds or Stokes
    parameters.
    """
    for name, value, known in (
        ("channels", channels, ("auto", "average", "separate")),
        ("station_order", station_order, ("sefd", "file")),
    ):
        if value not in known:
            raise ValueError(f"read_uvfits: {name}={value!r} must be one of {known}.")
    with _naming(path):
        setups, about = _load(Path(path), station_order, np.dtype(dtype))
        if channels == "average":
            return joined(setups, [[range(len(one.frequencies))] for one in setups], about)
        if channels == "separate":
            return _separate(setups, about)
        groups = [one.groups() for one in setups]
        obs = joined(setups, groups, about)
    total, n = sum(len(one.frequencies) for one in setups), len(obs.frequencies)
    if total > 1:
        log.info(
            "%s: %d channels averaged to %d frequencies, by which half a usual field is smeared less than the noise; "
            "channels='separate' keeps all",
            path,
            total,
            n,
        )
    return obs


def _separate(setups: list[Setup], about: dict[str, Any]) -> list[Observation]:
    """Return every channel that has data as an observation of its own."""
    found = []
    for i, one in enumerate(setups):
        for k in range(len(one.frequencies)):
            if one.average([k]) is None:
                log.info("channel %d has no valid data and is left out", k)
                continue
            found.append(joined(setups, [[[k]] if j == i else [] for j in range(len(setups))], about))
    if not found:
        raise ValueError("no valid data: every visibility is flagged.")
    return found


@contextmanager
def _naming(path: Any):
    """Turn whatever a damaged file provokes into a ValueError that names the file."""
    try:
        with np.errstate(all="ignore"):  # what matters is checked
            yield
    except (FileNotFoundError, IsADirectoryError, PermissionError, ImportError):
        raise
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:
        raise ValueError(
            f"{path}: cannot be read as uvfits ({type(error).__name__}: {error}). The file is damaged or of another "
            "kind; fetch it again."
        ) from error


def _load(path: Path, station_order: str, dtype: np.dtype) -> tuple[list[Setup], dict[str, Any]]:
    """Return the rows of every frequency setup, and what an Observation says of the whole."""
    units, size = read_units(path), path.stat().st_size
    header = units[0].header
    if header.get("GROUPS") is not True or header.get("NAXIS1") != 0:
        raise ValueError("not a random-groups file (GROUPS, NAXIS1). Images are read by read_image.")
    params, data = _groups(path, header, units[0].offset, size)
    cube, names = _cube(header, data)
    an = an_table(units, size)
    freq_hz = number(header, "CRVAL4", number(an.header, "FREQ", None), positive=True)
    rows = _rows(header, params)
    scans = scan_table(units, size)
    stations, ant1, ant2 = antennas(an, rows.pop("baseline"), station_order)

    place = np.arange(1, cube.shape[2] + 1) - number(header, "CRPIX4", 1.0)
    jd = rows.pop("jd")
    mjd = int(np.floor(jd.min() - MJD_ZERO))
    rows |= {"time": (jd - MJD_ZERO - mjd) * 24, "ant1": ant1, "ant2": ant2}
    cross = ant1 != ant2
    if not cross.all():
        log.info("%d autocorrelations are left out", int((~cross).sum()))
        rows, cube = {name: x[cross] for name, x in rows.items()}, cube[cross]
    about = {
        "stations": stations,
        "source": str(header.get("OBJECT", "")).strip(),
        "ra_hours": number(header, "OBSRA", number(header, "CRVAL6", 0.0)) * 12 / 180,
        "dec_deg": number(header, "OBSDEC", number(header, "CRVAL7", 0.0)),
        "mjd": mjd,
        "scans": None if scans is None else scans - 24 * mjd,
        "polrep": "circ" if names[0] in HANDS else "stokes",
    }
    setups = []
    setup, width, n_if = rows.pop("freqsel", np.ones(len(cube))), number(header, "CDELT4"), cube.shape[1]
    cube = cube.reshape(len(cube), -1, len(names), 3)
    for code in np.unique(setup):
        offsets, steps = if_axes(units, size, n_if, int(code), width)
        frequencies = (freq_hz + offsets[:, None] + steps[:, None] * place).ravel()
        if not (frequencies > 0).all():
            raise ValueError(f"channels at {frequencies.min():.4g} Hz: no frequencies of receivers.")
        at = setup == code
        mine = {name: x[at] for name, x in rows.items()}
        setups.append(Setup(cube[at], names, mine, frequencies, np.repeat(np.abs(steps), len(place)), dtype))
    return setups, about


def _groups(path: Path, header: Any, offset: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups' parameters (n, p), float64, and data (n, ..., 3) as stored."""
    n, n_params, n_axes = (int(number(header, key)) for key in ("GCOUNT", "PCOUNT", "NAXIS"))
    if not 3 <= n_axes <= 8 or n < 1 or not 1 <= n_params <= 100:
        raise ValueError(f"GCOUNT={n}, PCOUNT={n_params}, NAXIS={n_axes}: not those of visibility data.")
    shape = tuple(int(number(header, f"NAXIS{i}")) for i in range(n_axes, 1, -1))
    if min(shape) < 1 or shape[-1] != 3:
        raise ValueError(f"data axes {shape}: the last must hold real part, imaginary part and weight.")
    if header.get("BITPIX") not in _DTYPES:
        raise ValueError(f"BITPIX={header.get('BITPIX')} is no FITS number type.")
    dtype = np.dtype(_DTYPES[header["BITPIX"]])
    per_group = n_params + math.prod(shape)
    needed = n * per_group * dtype.itemsize
    if offset + needed > size:
        raise ValueError(f"truncated: {n} groups need {needed} bytes after byte {offset}, the file has {size}.")
    raw = np.fromfile(path, dtype, n * per_group, offset=offset).reshape(n, per_group)
    data = raw[:, n_params:].reshape(n, *shape)
    scale, zero = number(header, "BSCALE", 1.0), number(header, "BZERO", 0.0)
    if scale != 1 or zero != 0:
        data = data * scale + zero
    return raw[:, :n_params].astype(float), data


def _cube(header: Any, data: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return data as (n, IF, channel, product, 3) and the names of the products."""
    kinds = {str(header.get(f"CTYPE{i}", "")).strip().upper() or f"axis {i}": i for i in range(3, data.ndim + 1)}
    if "IF" not in kinds and "axis 5" in kinds:  # AIPS names the axis, others leave it blank
        kinds["IF"] = kinds.pop("axis 5")
    for needed in ("STOKES", "FREQ"):
        if needed not in kinds:
            raise ValueError(f"no {needed} axis among {list(kinds)}.")
    wanted = [kinds[k] for k in ("IF", "FREQ", "STOKES") if k in kinds]
    place = {i: data.ndim + 1 - i for i in kinds.values()}
    rest = [i for i in place if i not in wanted]
    if any(data.shape[place[i]] != 1 for i in rest):
        raise ValueError("several pointings in one file. Split it by source first.")
    cube = data.transpose(0, *(place[i] for i in rest + wanted), data.ndim - 1)
    n_if = data.shape[place[kinds["IF"]]] if "IF" in kinds else 1
    cube = cube.reshape(len(data), n_if, *cube.shape[-3:])
    return cube, _product_names(header, kinds["STOKES"], cube.shape[3])


def _product_names(header: Any, axis: int, n: int) -> tuple[str, ...]:
    first, step, at = (number(header, f"{key}{axis}", 1.0) for key in ("CRVAL", "CDELT", "CRPIX"))
    codes = [first + (k + 1 - at) * step for k in range(min(n, 9))]
    names = tuple(_CODES.get(int(code), "") if code == int(code) else "" for code in codes)
    if any(-8 <= code <= -5 for code in codes):
        raise ValueError(f"linear correlations (Stokes codes {codes}) are not supported. Convert to circular first.")
    if not all(names) or len({name in HANDS for name in names}) > 1 or len(set(names)) < n:
        raise ValueError(f"Stokes codes {codes} are unknown. Known: 1..4 for I, Q, U, V; -1..-4 for RR, LL, RL, LR.")
    return names


def _rows(header: Any, params: np.ndarray) -> dict[str, np.ndarray]:
    """Return u, v (s), tint (s), jd (d), baseline codes and FREQSEL of the groups."""
    columns: dict[str, list[np.ndarray]] = {}
    for i, raw in enumerate(params.T, start=1):
        name = str(header.get(f"PTYPE{i}", "")).strip().upper()
        name = name[:2] if name[:2] in ("UU", "VV") else name
        zero = number(header, f"PZERO{i}", 0.0)
        if name == "DATE" and raw.max(initial=0) > MJD_ZERO - 1e5:
            zero = 0.0  # some writers repeat the day of a date that is complete already
        columns.setdefault(name, []).append(raw * number(header, f"PSCAL{i}", 1.0) + zero)
    missing = [name for name in ("UU", "VV", "BASELINE", "DATE") if name not in columns]
    if missing:
        raise ValueError(f"no group parameter {missing[0]} among {list(columns)}.")
    if "SOURCE" in columns and np.ptp(columns["SOURCE"][0]) > 0:
        raise ValueError("several sources in one file. Split it by source first.")
    jd = np.stack(columns["DATE"]).sum(0)
    if not np.all(np.abs(jd - MJD_ZERO - 50000) < 50000):
        raise ValueError("DATE is not a Julian date of the years 1858 to 2132 in every row.")
    if np.ptp(jd) > MOST_DAYS:
        raise ValueError(f"rows are up to {np.ptp(jd):.3g} days apart. Remove stray rows, or split the file by day.")
    for name in ("UU", "VV"):
        if not np.all(np.abs(columns[name][0]) < MOST_SECONDS):
            raise ValueError(
                f"{name} reaches {np.abs(columns[name][0]).max():.3g} light-seconds: no baseline is so long."
            )
    tint = _integration_times(columns["INTTIM"][0] if "INTTIM" in columns else None, jd)
    rows = {"u": columns["UU"][0], "v": columns["VV"][0], "tint": tint, "jd": jd, "baseline": columns["BASELINE"][0]}
    return rows | ({"freqsel": columns["FREQSEL"][0]} if "FREQSEL" in columns else {})


def _integration_times(given: np.ndarray | None, jd: np.ndarray) -> np.ndarray:
    """Return integration times, s; those that cannot be any are replaced by the median of the others."""
    good = np.zeros(len(jd), bool) if given is None else (given >= 0) & (given < DAY_S)
    if given is not None and good.any():
        if not good.all():
            usual = float(np.median(given[good]))
            log.warning("INTTIM of %d of %d rows is no time; %g s taken", int((~good).sum()), len(jd), usual)
            return np.where(good, given, usual)
        return given
    gaps = np.diff(DAY_S * np.unique(jd))
    usual = float(gaps.min()) if gaps.size else 1.0
    if given is None:
        log.info("no INTTIM: the shortest gap between times, %.3g s, is taken as integration time", usual)
    else:
        log.warning("INTTIM is no time in any row; the shortest gap between times, %.3g s, is taken", usual)
    return np.full(len(jd), usual)
