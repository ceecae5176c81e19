"""Closure phases of triangles and closure amplitudes of quadrangles, with their covariance.

Tables point at rows of the observation, so that a forward model computes every visibility once. Samples are combined
where their times and frequencies are exactly equal.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.constants import DEGREE
from shardfit.domains.vlbi.observation import Observation

_TRIANGLE = np.array([[0, 1], [1, 2], [2, 0]])
_QUADRANGLE = np.array([[0, 1], [2, 3], [0, 3], [1, 2]])  # numerator 12, 34; denominator 14, 23


@dataclass(frozen=True, eq=False)
class Triangles:
    """Closure phases, n triangles (1, 2, 3) with legs 12, 23, 31.

    time: (n,) h; stations: (n, 3) indices; row: (n, 3) rows of the observation; conjugate: (n, 3) whether the leg runs
    against its row; uv: (n, 3, 2) wavelengths; value, sigma: (n,) closure phase, degrees; bispectrum: (n,) Jy³ complex
    and bispectrum_sigma.
    """

    time: np.ndarray
    stations: np.ndarray
    row: np.ndarray
    conjugate: np.ndarray
    uv: np.ndarray
    value: np.ndarray
    sigma: np.ndarray
    bispectrum: np.ndarray
    bispectrum_sigma: np.ndarray

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, eq=False)
class Quadrangles:
    """Closure amplitudes |V12 V34|/|V14 V23| of n quadrangles (1, 2, 3, 4), or their logarithms where log is true.

    time: (n,) h; stations: (n, 4) indices; row, conjugate: (n, 4) for the legs 12, 34, 14, 23; uv: (n, 4, 2)
    wavelengths; value, sigma: (n,) dimensionless.
    """

    time: np.ndarray
    stations: np.ndarray
    row: np.ndarray
    conjugate: np.ndarray
    uv: np.ndarray
    value: np.ndarray
    sigma: np.ndarray
    log: bool

    def __len__(self) -> int:
        return len(self.time)


class CovarianceBlock(NamedTuple):
    """Closures of one time: index (m,) into the table, covariance (m, m), whitener (m, m) with unit-variance W r."""

    time: float
    index: np.ndarray
    covariance: np.ndarray
    whitener: np.ndarray


def triangles(obs: Observation, *, count: str = "min", uv_min: float = 0.0, snrcut: float = 0.0) -> Triangles:
    """Return closure phases of Stokes I.

    count: "min" takes all triangles with the first present station; "max" takes all triangles; "min-cut0bl" completes
    "min" where uv_min removed one baseline of the first station. uv_min: rows shorter than this, wavelengths, are left
    out first. snrcut: least |B|/σ of the bispectrum. Triangles with a missing baseline are skipped.
    """
    _check_count(count, ("min", "max", "min-cut0bl"))
    short = obs.uv_distance < uv_min
    lookup = _Lookup(obs, ~short & (np.abs(obs.vis["I"]) > 0))  # an exact zero has no phase

    def choose(order, removed):
        if count == "max":
            return list(combinations(order, 3))
        chosen = [(order[0], a, b) for a, b in combinations(order[1:], 2)]
        partners = [c for c in order if (min(order[0], c), max(order[0], c)) in removed]
        if count == "min-cut0bl" and len(partners) == 1:
            rest = [s for s in order if s not in (order[0], partners[0])]
            chosen += [(partners[0], rest[0], t) for t in rest[1:]]
        return chosen

    legs = lookup.gather(choose, _TRIANGLE, by_name=count == "max", removed=short if "cut" in count else None)
    value = np.where(legs["conjugate"], obs.vis["I"].conj()[legs["row"]], obs.vis["I"][legs["row"]])
    bispectrum = value.prod(1)
    error = np.sqrt(((obs.sigma["I"][legs["row"]] / np.abs(value)) ** 2).sum(1))
    keep = snrcut * error <= 1
    legs = {name: x[keep] for name, x in legs.items()}
    bispectrum, error = bispectrum[keep], error[keep]
    return Triangles(
        **legs,
        value=np.angle(bispectrum) / DEGREE,
        sigma=error / DEGREE,
        bispectrum=bispectrum,
        bispectrum_sigma=np.abs(bispectrum) * error,
    )


def quadrangles(
    obs: Observation, *, count: str = "min", snrcut: float = 0.0, debias: bool = False, log: bool = True
) -> Quadrangles:
    """Return (log) closure amplitudes of Stokes I.

    count: "min" takes an independent set built on the first present station; "max" takes the three of each four
    stations. snrcut: least value/σ, for logarithms least 1/σ. debias: correct amplitudes for their noise. Quadrangles
    with a missing baseline are skipped.
    """
    _check_count(count, ("min", "max"))

    def choose(order, removed):
        if count == "max":
            return [q for a, b, c, d in combinations(order, 4) for q in ((a, b, c, d), (a, c, b, d), (a, b, d, c))]
        return [
            (order[0], order[i], order[j], order[1 if j == i - 1 else j + 1])
            for i in range(3, len(order))
            for j in range(1, i)
        ]

    use = np.abs(obs.vis["I"]) > 0  # an exact zero has no logarithm
    legs = _Lookup(obs, use).gather(choose, _QUADRANGLE, by_name=count == "max")
    amplitude, sigma = np.abs(obs.vis["I"][legs["row"]]), obs.sigma["I"][legs["row"]]
    if debias:
        amplitude = np.where(amplitude > sigma, np.sqrt(np.maximum(amplitude**2 - sigma**2, 0)), sigma)
    noise = (sigma / amplitude) ** 2
    error = np.sqrt(noise.sum(1))
    value = np.log(amplitude) @ [1, 1, -1, -1]
    if log:
        value = value + (0.5 * (noise @ [1, 1, -1, -1]) if debias else 0.0)
    else:
        value = np.exp(value)
        error = value * error
        value = value / (1 + noise @ [0, 0, 1, 1]) if debias else value
    keep = (1 if log else value) >= snrcut * error
    return Quadrangles(**{k: x[keep] for k, x in legs.items()}, value=value[keep], sigma=error[keep], log=log)


def closure_covariance(obs: Observation, table: Triangles | Quadrangles) -> list[CovarianceBlock]:
    """Return the covariance of a table's closures, one block per time: rad² for phases, as the table for amplitudes.

    Closures that share a baseline are correlated, with a sign if they run along it in opposite directions. χ² of
    residuals r is Σ|whitener r|². Redundant sets (count="max") have no inverse and are refused.
    """
    noise = (obs.sigma["I"][table.row] / np.abs(obs.vis["I"][table.row])) ** 2
    if isinstance(table, Triangles):
        signs, scale = np.where(table.conjugate, -1.0, 1.0), np.ones(len(table))
    else:
        signs = np.broadcast_to([1.0, 1.0, -1.0, -1.0], table.row.shape)
        scale = np.ones(len(table)) if table.log else table.value
    blocks = []
    for time in np.unique(table.time):
        index = np.flatnonzero(table.time == time)
        rows, place, column = np.unique(table.row[index], return_index=True, return_inverse=True)
        design = np.zeros((len(index), len(rows)))
        np.add.at(design, (np.arange(len(index))[:, None], column.reshape(len(index), -1)), signs[index])
        if np.linalg.matrix_rank(design) < len(index):
            raise ValueError(
                f"closure_covariance: the {len(index)} closures at {time:.6f} h are redundant, their covariance has no "
                'inverse. Use a table made with count="min".'
            )
        design *= scale[index, None]
        covariance = (design * noise[index].ravel()[place]) @ design.T
        whitener = np.linalg.inv(np.linalg.cholesky(covariance))
        blocks.append(CovarianceBlock(float(time), index, covariance, whitener))
    return blocks


class _Lookup:
    """Row of every time, frequency and ordered pair of stations, -1 where there is none."""

    def __init__(self, obs: Observation, use: np.ndarray):
        self.obs = obs
        self.times, self.at = obs.stamps
        k = len(obs.stations)
        self.row = np.full((len(self.times), k, k), -1)
        rows = np.flatnonzero(use)
        self.row[self.at[rows], obs.ant1[rows], obs.ant2[rows]] = rows
        self.row[self.at[rows], obs.ant2[rows], obs.ant1[rows]] = rows

    def gather(self, choose: Any, legs: np.ndarray, *, by_name: bool, removed: np.ndarray | None = None) -> dict:
        """Return the columns common to both tables; choose(order, removed pairs) lists the station tuples of a time."""
        obs = self.obs
        gone = np.zeros(self.row.shape, bool)
        if removed is not None:
            gone[self.at[removed], obs.ant1[removed], obs.ant2[removed]] = True
        taken = np.any(self.row >= 0, axis=2)
        n_times, k = taken.shape
        # times with the same stations (and the same removed baselines) have the same list
        patterns, which = np.unique(np.c_[taken, gone.reshape(n_times, k * k)], axis=0, return_inverse=True)
        found: list[tuple[np.ndarray, ...]] = []
        for p, pattern in enumerate(patterns):
            order = [int(s) for s in np.flatnonzero(pattern[:k])]
            if by_name:
                order.sort(key=lambda s: obs.stations.names[s])
            pairs = {tuple(pair) for pair in np.argwhere(pattern[k:].reshape(k, k)).tolist()}
            tuples = np.array(choose(order, pairs) if len(order) > 2 else [], np.intp).reshape(-1, legs.max() + 1)
            times = np.flatnonzero(which.ravel() == p)
            ends = tuples[:, legs]  # (m, legs, 2)
            rows = self.row[times[:, None, None], ends[..., 0], ends[..., 1]]
            t, m = np.nonzero((rows >= 0).all(-1))
            found.append((times[t], m, tuples[m], rows[t, m], ends[m]))
        at, m, stations, row, ends = (np.concatenate(x) for x in zip(*found, strict=True))
        order = np.lexsort((m, at))
        at, stations, row, ends = at[order], stations[order], row[order], ends[order]
        conjugate = obs.ant1[row] != ends[..., 0]
        uv = np.stack([obs.u[row], obs.v[row]], -1) * np.where(conjugate, -1, 1)[..., None]
        return {"time": self.times[at], "stations": stations, "row": row, "conjugate": conjugate, "uv": uv}


def _check_count(count: str, known: tuple[str, ...]) -> None:
    if count not in known:
        raise ValueError(f"unknown count {count!r}.{suggestion(str(count), known)}")
