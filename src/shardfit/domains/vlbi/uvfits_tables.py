"""Tables of a uvfits file: antennas (AIPS AN), frequencies (AIPS FQ), scans (AIPS NX)."""

import datetime
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardfit.domains.vlbi.fits_units import Unit
from shardfit.domains.vlbi.observation import Stations

log = logging.getLogger(__name__)
SCAN_OVERLAP_H = 5e-3  # two neighbours that are rounded, or padded by their writer
SCAN_PAD_H = 1e-4  # on both sides of a scan of no length
_UNSET = object()


def number(header: Any, key: str, default: Any = _UNSET, *, positive: bool = False) -> float:
    """Return a header value that must be a finite number; default where the keyword is missing."""
    value = header.get(key, default)
    if value is _UNSET or value is None:
        raise ValueError(f"keyword {key} is missing.")
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError(f"keyword {key} = {value!r} is not a number.")
    if positive and value <= 0:
        raise ValueError(f"keyword {key} = {value!r} is not positive.")
    return value


def covers(scans: np.ndarray, time: np.ndarray) -> bool:
    """Whether every time (n,) lies in one of the scans (m, 2), start < time <= stop."""
    scan = np.searchsorted(scans[:, 0], time, side="left") - 1  # the last scan that starts before
    return bool(((scan >= 0) & (time <= scans[scan, 1])).all())


def an_table(units: Sequence[Unit], size: int) -> Unit:
    """Return the antenna table."""
    table = _table(units, "AIPS AN", size)
    if table is None:
        raise ValueError("no antenna table (AIPS AN).")
    return table


def antennas(table: Unit, codes: np.ndarray, station_order: str) -> tuple[Stations, np.ndarray, np.ndarray]:
    """Return the stations and the two station indices of each baseline code."""
    numbers = _column(table, "NOSTA", int)
    names = _names(_column(table, "ANNAME"), numbers)
    sefd = _column(table, "SEFD", float) if "SEFD" in table.columns else np.zeros(len(names))
    stations = Stations(names, _column(table, "STABXYZ", float), sefd)
    if not (np.isfinite(stations.xyz).all() and np.isfinite(stations.sefd).all() and (stations.sefd >= 0).all()):
        raise ValueError("antenna table: STABXYZ or SEFD is not a usable number.")
    for feed in ("POLTYA", "POLTYB"):
        if feed in table.columns:
            odd = {str(x).strip().upper() for x in _column(table, feed)} - {"R", "L", ""}
            if odd:
                raise ValueError(
                    f"{feed} has feeds {sorted(odd)}: only circular feeds (R, L) are supported. Convert first."
                )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"antenna table: station numbers {numbers.tolist()} are not all different.")

    if not np.isfinite(codes).all() or (codes < 257).any() or (codes >= 65536).any() or (codes % 1 != 0).any():
        raise ValueError(
            "BASELINE is not 256 * ant1 + ant2 everywhere. Several subarrays in one file are not supported."
        )
    order = np.argsort(sefd, kind="stable") if station_order == "sefd" and sefd.any() else np.arange(len(names))
    place = np.full(65536, -1)
    inside = (numbers > 0) & (numbers < 256)
    place[numbers[inside]] = np.argsort(order)[inside]
    ant1, ant2 = (place[x] for x in divmod(codes.astype(int), 256))
    unknown = (ant1 < 0) | (ant2 < 0)
    if unknown.any():
        raise ValueError(f"baseline {codes[unknown][0]:.0f} names a station that the antenna table lacks.")
    return stations.take(order), ant1, ant2


def _names(written: np.ndarray, numbers: np.ndarray) -> tuple[str, ...]:
    """Return names of stations that differ: one without a name, or with that of another, gets its number."""
    plain = ["".join(c for c in str(name) if c.isprintable()).strip() for name in written]
    shared = {name for name in plain if plain.count(name) > 1}
    names = tuple(
        f"{name or 'ANT'}{'-' if name else ''}{number}" if not name or name in shared else name
        for name, number in zip(plain, numbers, strict=True)
    )
    if names != tuple(plain):
        log.warning("stations without a name of their own are told apart by their numbers: %s", ", ".join(names))
    return names


def if_axes(units: Sequence[Unit], size: int, n_if: int, setup: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return each IF's frequency relative to the reference and the step of its channels, (n_if,) Hz.

    setup: number of the frequency setup; step: of the header, Hz. An IF of the lower sideband counts downwards.
    """
    table = _table(units, "AIPS FQ", size)
    if table is None:
        if n_if > 1:
            raise ValueError(f"{n_if} IFs, but no frequency table (AIPS FQ).")
        return np.zeros(1), np.full(1, step)
    n = len(table.rows)
    offsets = _column(table, "IF FREQ", float).reshape(n, -1)
    numbers = _column(table, "FRQSEL", int).ravel() if "FRQSEL" in table.columns else np.arange(1, n + 1)
    found = np.flatnonzero(numbers == setup)
    if not found.size and n > 1:
        raise ValueError(f"frequency table: no row has FRQSEL {setup}, which rows of the data refer to.")
    row = int(found[0]) if found.size else 0  # writers of one setup number it as they like
    if n == 0 or offsets.shape[1] != n_if or not np.isfinite(offsets[row]).all():
        raise ValueError(f"frequency table: IF FREQ does not give {n_if} numbers.")
    return offsets[row], _steps(table, row, n_if, step)


def _steps(table: Unit, row: int, n_if: int, step: float) -> np.ndarray:
    """Return the signed width of a channel of every IF, (n_if,) Hz, the header's where the table gives none."""
    steps = np.full(n_if, step)
    width, side = (_per_if(table, name, row, n_if) for name in ("CH WIDTH", "SIDEBAND"))
    if width is not None:  # the table has 32 bits of what the header has in full
        other = np.isfinite(width) & (width != 0) & ~np.isclose(np.abs(width), abs(step), rtol=1e-6)
        steps = np.where(other, width, steps)
    return steps if side is None else np.where(np.abs(side) == 1, side * np.abs(steps), steps)


def _per_if(table: Unit, name: str, row: int, n_if: int) -> np.ndarray | None:
    """Return a row of a column with a number for every IF, None where there is no such column."""
    if name not in table.columns:
        return None
    values = _column(table, name, float).reshape(len(table.rows), -1)
    return values[row] if values.shape[1] == n_if else None


def scan_table(units: Sequence[Unit], size: int) -> np.ndarray | None:
    """Return scans as (m, 2) hours since MJD 0, or None without a usable table."""
    table = _table(units, "AIPS NX", size)
    if table is None or len(table.rows) == 0:
        return None
    date = str(an_table(units, size).header.get("RDATE", ""))[:10]
    try:
        start = (datetime.date.fromisoformat(date) - datetime.date(1858, 11, 17)).days * 24
    except ValueError:
        log.info("RDATE %r is not a date; the scan table is ignored", date)
        return None
    middle, length = _column(table, "TIME", float) * 24, _column(table, "TIME INTERVAL", float) * 24
    sound = np.isfinite(middle).all() and (length >= 0).all() and (length < 24).all()
    scans = np.stack([middle - length / 2, middle + length / 2], axis=1)
    scans = scans[np.argsort(middle, kind="stable")] if sound else scans
    overlap = scans[:-1, 1] - scans[1:, 0]
    if not sound or (overlap > SCAN_OVERLAP_H).any() or (np.diff(scans[:, 0]) <= 0).any():
        log.info("the scan table is not a list of scans one after another; scans are split at gaps instead")
        return None
    # neighbours that share an integration meet in its middle
    middle = np.maximum(overlap, 0) / 2
    scans[:-1, 1] -= middle
    scans[1:, 0] += middle
    single = (
        scans[:, 1] - scans[:, 0] <= 0
    )  # one integration: its own time, and what rounding makes of it, must lie inside
    scans += np.where(single, SCAN_PAD_H, 0.0)[:, None] * [-1, 1]
    return scans + start


def _table(units: Sequence[Unit], name: str, size: int) -> Unit | None:
    """Return the first table with this name, its size checked before anything is read; None without one."""
    table = next((unit for unit in units[1:] if unit.name == name), None)
    if table is None:
        return None
    if str(table.header.get("XTENSION", "")).strip() not in ("BINTABLE", "A3DTABLE"):
        raise ValueError(f"{name} is not a binary table.")
    width, n, heap = (int(number(table.header, key)) for key in ("NAXIS1", "NAXIS2", "PCOUNT"))
    if min(width, n, heap) < 0 or table.offset + width * n + heap > size:
        raise ValueError(f"truncated: table {name} needs {width * n + heap} bytes.")
    if table.row.itemsize != width:
        raise ValueError(f"table {name}: columns of {table.row.itemsize} bytes in rows of {width}.")
    return table


def _column(table: Unit, name: str, dtype: Any = None) -> np.ndarray:
    if name not in table.columns:
        raise ValueError(f"table {table.name} has no column {name}.")
    return table.column(name) if dtype is None else table.column(name).astype(dtype)
