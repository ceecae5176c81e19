"""Visibilities of one observation: immutable, in one canonical row order, all units in the names or docstrings."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.constants import STOKES
from shardfit.domains.vlbi.stokes import present

_ROWS = {"time": float, "tint": float, "ant1": np.intp, "ant2": np.intp, "u": float, "v": float, "hz": float}


def frozen(values: Any, dtype: Any, shape: tuple[int | None, ...], what: str) -> np.ndarray:
    """Return a read-only copy of values, of the given dtype and shape (None: any length)."""
    array = np.array(values, dtype=dtype)
    if array.ndim != len(shape) or any(m is not None and m != n for m, n in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{what} has shape {array.shape}, expected {shape}. Give one entry per row.")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Stations:
    """Stations of an array, in the order that closures use. xyz: (k, 3) m, geocentric, NaN if unknown; sefd: (k,) Jy.

    Example: `Stations(("AA", "LM"), xyz, sefd=(74.0, 4500.0))`.
    """

    names: tuple[str, ...]
    xyz: np.ndarray
    sefd: np.ndarray

    def __post_init__(self):
        names = tuple(str(name) for name in self.names)
        if not names or not all(names) or len(set(names)) < len(names):
            raise ValueError(f"station names {names} must be non-empty and all different. Rename the stations.")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "xyz", frozen(self.xyz, float, (len(names), 3), "Stations.xyz"))
        object.__setattr__(self, "sefd", frozen(self.sefd, float, (len(names),), "Stations.sefd"))

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the index of a station."""
        if name not in self.names:
            raise ValueError(f"no station {name!r}.{suggestion(name, self.names)}")
        return self.names.index(name)

    def take(self, order: Any) -> "Stations":
        """Return the stations with these indices, in this order."""
        order = np.asarray(order, np.intp)
        return Stations(tuple(self.names[i] for i in order), self.xyz[order], self.sefd[order])


@dataclass(frozen=True, eq=False)
class Observation:
    """Visibilities in canonical order; make one with `make_observation`.

    time: (n,) h UTC since 0h of mjd; tint: (n,) s; ant1 < ant2: (n,) indices into stations; u, v: (n,) wavelengths,
    (r1 - r2)/λ; vis, sigma: (n,) Jy by Stokes parameter, "I" always, "Q", "U", "V" where measured (0 ± inf in a row
    without them); scans: (m, 2) h, first and last time, or None; polrep: "stokes" or "circ", what the receivers
    measured; hz: (n,) frequency of each row, freq_hz unless given, which is then the reference; bandwidth_hz: of all
    frequencies together. Rows are sorted by time, frequency, name of the first station, tint, name of the second.
    """

    time: np.ndarray
    tint: np.ndarray
    ant1: np.ndarray
    ant2: np.ndarray
    u: np.ndarray
    v: np.ndarray
    vis: Mapping[str, np.ndarray]
    sigma: Mapping[str, np.ndarray]
    stations: Stations
    freq_hz: float
    bandwidth_hz: float
    mjd: int
    source: str = ""
    ra_hours: float = 0.0
    dec_deg: float = 0.0
    scans: np.ndarray | None = None
    polrep: str = "circ"
    hz: Any = None

    def __post_init__(self):
        n = len(np.asarray(self.time))
        if self.hz is None:
            object.__setattr__(self, "hz", np.full(n, float(self.freq_hz)))
        if n == 0:
            raise ValueError("an observation needs at least one row; none is left. Relax the selection.")
        for name, dtype in _ROWS.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, (n,), f"Observation.{name}"))
        for name in ("vis", "sigma"):
            products, dtype = getattr(self, name), complex if name == "vis" else float
            arrays = {key: frozen(products[key], dtype, (n,), f"{name}[{key!r}]") for key in STOKES if key in products}
            if len(arrays) < len(products):
                raise ValueError(f"{name} has products {list(products)}; use {STOKES}, converting with from_circular.")
            object.__setattr__(self, name, MappingProxyType(arrays))
        if self.scans is not None:
            object.__setattr__(self, "scans", frozen(self.scans, float, (None, 2), "Observation.scans"))
        self._check()

    def __repr__(self) -> str:
        """Say in one line what it holds; the arrays are a name away."""
        stokes = "".join(self.vis)
        return (
            f"Observation of {self.source or 'an unnamed source'}: {len(self.time):,} visibilities, Stokes {stokes}, "
            f"{self.band}, MJD {self.mjd}, stations {', '.join(self.stations.names)}"
        )

    def _check(self) -> None:
        for name in ("freq_hz", "bandwidth_hz"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name}={getattr(self, name)} must be positive, in Hz.")
        if self.polrep not in ("stokes", "circ"):
            raise ValueError(f'polrep={self.polrep!r} must be "stokes" or "circ".')
        if "I" not in self.vis or self.vis.keys() != self.sigma.keys():
            raise ValueError(f"vis has {list(self.vis)}, sigma {list(self.sigma)}: both need I and the same products.")
        for name in ("time", "tint", "u", "v"):
            _refuse(~np.isfinite(getattr(self, name)), f"{name} is not finite", "Remove these rows.")
        for name, sigma in self.sigma.items():
            _refuse(~(sigma > 0), f"sigma[{name!r}] is not positive", "A missing sample is 0 with an infinite sigma.")
            _refuse(~np.isfinite(self.vis[name]), f"vis[{name!r}] is not finite", "Remove these rows.")
        _refuse(~np.isfinite(self.sigma["I"]), "sigma['I'] is not finite", "Remove these rows.")
        ordered = (self.ant1 >= 0) & (self.ant1 < self.ant2) & (self.ant2 < len(self.stations))
        _refuse(~ordered, f"not 0 <= ant1 < ant2 < {len(self.stations)}", "Use make_observation.")
        _refuse(~(np.isfinite(self.hz) & (self.hz > 0)), "hz is not positive", "Give every row its frequency in Hz.")
        _refuse(np.diff(self.time, prepend=-np.inf) < 0, "time decreases", "Use make_observation.")
        back = (np.diff(self.time, prepend=-np.inf) == 0) & (np.diff(self.hz, prepend=0.0) < 0)
        _refuse(back, "frequency decreases within a time", "Use make_observation.")
        if self.scans is not None and not ((np.diff(self.scans) >= 0).all() and (np.diff(self.scans[:, 0]) > 0).all()):
            raise ValueError("scans must be (start, stop) with start <= stop, in order of start. Sort the table.")

    def __len__(self) -> int:
        return len(self.time)

    @property
    def uv_distance(self) -> np.ndarray:
        """Baseline length of each row, (n,) wavelengths."""
        return np.hypot(self.u, self.v)

    @property
    def nominal_resolution(self) -> float:
        """Fringe spacing of the longest baseline, rad."""
        return float(1 / self.uv_distance.max())

    @property
    def snr(self) -> np.ndarray:
        """|I|/σ of each row, (n,)."""
        return np.abs(self.vis["I"]) / self.sigma["I"]

    @property
    def frequencies(self) -> np.ndarray:
        """Frequencies of the rows, (k,) Hz, each once, in increasing order."""
        return np.unique(self.hz)

    @property
    def band(self) -> str:
        """The frequencies in words."""
        ends = self.frequencies[[0, -1]] / 1e9
        k = len(self.frequencies)
        return f"{self.freq_hz / 1e9:.4g} GHz" if k == 1 else f"{k} frequencies, {ends[0]:.4g} to {ends[1]:.4g} GHz"

    @property
    def stamps(self) -> tuple[np.ndarray, np.ndarray]:
        """Time of every instant and frequency, (t,) h, and which of them each row is of, (n,)."""
        new = (np.diff(self.time, prepend=-np.inf) > 0) | (np.diff(self.hz, prepend=0.0) != 0)
        return self.time[new], np.cumsum(new) - 1

    @property
    def baseline_names(self) -> tuple[str, ...]:
        """Names such as "AA-LM", one per row."""
        names = self.stations.names
        return tuple(f"{names[i]}-{names[j]}" for i, j in zip(self.ant1, self.ant2, strict=True))

    def replace(self, **changes: Any) -> "Observation":
        """Return a copy with other fields; the rows must stay in canonical order."""
        if "freq_hz" in changes and "hz" not in changes:
            single = len(self.frequencies) == 1
            changes["hz"] = None if single else self.hz * (changes["freq_hz"] / self.freq_hz)
        return dataclasses.replace(self, **changes)

    def by_frequency(self) -> "list[Observation]":
        """Return one observation per frequency, in increasing order; the bandwidth is divided equally."""
        if len(self.frequencies) == 1:
            return [self]
        width = self.bandwidth_hz / len(self.frequencies)
        parts = [(hz, self.select(self.hz == hz)) for hz in self.frequencies]
        return [one.replace(freq_hz=float(hz), hz=None, bandwidth_hz=width) for hz, one in parts]

    def require_one_frequency(self, what: str) -> None:
        """Raise if the rows are of several frequencies, for what knows only one."""
        if len(self.frequencies) > 1:
            raise ValueError(f"{what}: the rows are of {self.band}. Take each of obs.by_frequency().")

    def select(self, mask: Any) -> "Observation":
        """Return the rows where mask (n,) is true; a product left without samples disappears."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != self.time.shape:
            raise ValueError(f"select: mask is {mask.dtype} {mask.shape}, expected bool {self.time.shape}.")
        rows = {name: getattr(self, name)[mask] for name in _ROWS}
        vis, sigma = present(*({k: x[mask] for k, x in d.items()} for d in (self.vis, self.sigma)))
        return self.replace(**rows, vis=vis, sigma=sigma)

    def with_stations(self, order: Any) -> "Observation":
        """Return the observation with the stations `order` (indices), rows oriented and sorted accordingly."""
        order = np.asarray(order, np.intp)
        place = np.full(len(self.stations), -1)
        place[order] = np.arange(len(order))
        ant1, ant2 = place[self.ant1], place[self.ant2]
        if (ant1 < 0).any() or (ant2 < 0).any():
            raise ValueError("with_stations: a station with data is left out. Select the rows without it first.")
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return make_observation(**{**fields, "ant1": ant1, "ant2": ant2, "stations": self.stations.take(order)})

    def order_by_snr(self) -> "Observation":
        """Return the observation with stations by decreasing median SNR of their rows; closures start at the best."""
        median = np.full(len(self.stations), -1.0)
        for k in range(len(self.stations)):
            rows = (self.ant1 == k) | (self.ant2 == k)
            if rows.any():
                median[k] = np.median(self.snr[rows])
        return self.with_stations(np.argsort(-median, kind="stable"))

    def drop_unused_stations(self) -> "Observation":
        """Return the observation without the stations that have no rows."""
        return self.with_stations(np.union1d(self.ant1, self.ant2))


def make_observation(*, vis: Mapping, sigma: Mapping, stations: Stations, **fields: Any) -> Observation:
    """Return an Observation from rows in any order and orientation; the fields are those of Observation.

    A baseline given backwards is conjugated. The two rows of a conjugate pair become one; any other repetition of a
    time, frequency and baseline is an error, since dropping one of the rows would lose data.
    """
    n = len(np.asarray(fields["time"]))
    if fields.get("hz") is None:
        fields["hz"] = np.full(n, float(fields["freq_hz"]))
    rows = {name: np.array(frozen(fields.pop(name), dtype, (n,), name)) for name, dtype in _ROWS.items()}
    vis, sigma = present(vis, sigma)
    for name, values in rows.items():
        _refuse(~np.isfinite(values), f"{name} is not finite", "Remove these rows.")
    out = (np.minimum(rows["ant1"], rows["ant2"]) < 0) | (np.maximum(rows["ant1"], rows["ant2"]) >= len(stations))
    _refuse(out, f"station index outside 0..{len(stations) - 1}", "Indices refer to `stations`.")
    _refuse(rows["ant1"] == rows["ant2"], "baseline of a station with itself", "Remove autocorrelations.")

    back = rows["ant1"] > rows["ant2"]
    rows["ant1"], rows["ant2"] = np.where(back, (rows["ant2"], rows["ant1"]), (rows["ant1"], rows["ant2"]))
    for name in ("u", "v"):
        rows[name] = np.where(back, -rows[name], rows[name])
    vis = {name: np.where(back, x.conj(), x) for name, x in vis.items()}

    rank = np.argsort(np.argsort(stations.names))
    keep = np.lexsort((rank[rows["ant2"]], rows["tint"], rank[rows["ant1"]], rows["hz"], rows["time"]))
    keep = keep[~_repeated(rows, vis, sigma, back, stations)[keep]]
    vis, sigma = ({k: x[keep] for k, x in d.items()} for d in (vis, sigma))
    return Observation(**{k: x[keep] for k, x in rows.items()}, vis=vis, sigma=sigma, stations=stations, **fields)


def _repeated(rows: dict, vis: dict, sigma: dict, back: np.ndarray, stations: Stations) -> np.ndarray:
    """Mark the backward row of each conjugate pair; raise for other repetitions."""
    order = np.lexsort((back, rows["ant2"], rows["ant1"], rows["hz"], rows["time"]))
    same = np.all([np.diff(rows[k][order]) == 0 for k in ("time", "hz", "ant1", "ant2")], axis=0)
    first, second = order[:-1][same], order[1:][same]
    close = [np.isclose(rows[k][first], rows[k][second], rtol=1e-6, atol=1e-6) for k in ("u", "v")]
    close += [np.isclose(d[k][first], d[k][second], rtol=1e-6, atol=0) for d in (vis, sigma) for k in d]
    pair = np.all(close, axis=0) & (back[first] != back[second])
    if not pair.all():
        i, j = (int(rows_[~pair][0]) for rows_ in (first, second))
        name = "-".join(stations.names[rows[k][i]] for k in ("ant1", "ant2"))
        raise ValueError(
            f"rows {i} and {j} are both baseline {name} at {rows['time'][i]:.6f} h and differ or point the same way "
            f"({int((~pair).sum())} such cases). Average them first, or remove one."
        )
    drop = np.zeros(len(back), bool)
    drop[second] = True
    return drop


def _refuse(bad: np.ndarray, what: str, remedy: str) -> None:
    if bad.any():
        raise ValueError(f"{what} in {int(bad.sum())} of {bad.size} rows, first in row {int(bad.argmax())}. {remedy}")
