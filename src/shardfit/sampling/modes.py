"""Modes of a density: which there are, how much each weighs, and which draws belong to which.

No diagnostic of chains can see a mode that no chain has visited, so they are looked for before: by fits from dispersed
points, of which there are few while they all end in the same place and more once they do not.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardfit.core.params import Space, element_label
from shardfit.sampling.dispersed import dispersed
from shardfit.sampling.landscape import BATCH, Bowl, Landscape, bowl, narrowed, polished

STARTS, MOST_STARTS = 4, 16  # fits of a round, and in all
LEAST_WEIGHT = 1e-3  # share of the posterior below which a mode is left out
LEAST_BARRIER = 0.2  # by which -log density rises between two minima that are not the same
NEAR = 1.0  # widths within which two minima are the same
MOST_SHOWN = 6
CLOSE = 10.0  # difference of -log density up to which minima matter where their widths are not known


class End(NamedTuple):
    """Where a fit ended: a minimum with its quadratic, or with None where its widths are not known."""

    z: np.ndarray
    value: float
    bowl: Bowl | None

    @property
    def log_weight(self) -> float:
        """Laplace's log weight, as far as it is known."""
        return -self.value if self.bowl is None else self.bowl.log_weight


@dataclass(frozen=True, eq=False)
class Modes:
    """Modes that matter, the heaviest first: z (k, n), weight (k,) that sum to one, roots (k, n, n) or None.

    log_z: Laplace's log of the integral of the density, over all of them.
    """

    z: np.ndarray
    weight: np.ndarray
    roots: np.ndarray | None
    log_z: float

    def __len__(self):
        return len(self.z)

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.z) > 1

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Return the number of the mode that points (..., n) belong to."""
        if self.roots is None:
            scale = self.z.std(0) + np.finfo(float).tiny
            distances = [np.linalg.norm((points - z) / scale, axis=-1) for z in self.z]
        else:
            flat = points.reshape(-1, points.shape[-1])
            distances = [
                np.linalg.norm(np.linalg.solve(root, (flat - z).T), axis=0).reshape(points.shape[:-1])
                for z, root in zip(self.z, self.roots, strict=True)
            ]
        return np.argmin(distances, axis=0)

    def starts(self, chains: int, spread: np.random.Generator) -> np.ndarray:
        """Return starts (chains, n), shared out among the modes."""
        own = np.arange(chains) % len(self)
        noise = spread.standard_normal((chains, self.z.shape[1]))
        if self.roots is None:
            return self.z[own]
        return self.z[own] + np.einsum("cij,cj->ci", self.roots[own], noise)


def shares(modes: Modes | None, z: np.ndarray) -> dict[str, np.ndarray]:
    """Return, where there are several modes, what a posterior keeps of them: their coordinates, Laplace's weights, and
    the share of each chain's draws z (chains, draws, n) that lies in each.
    """
    if modes is None or not modes.several:
        return {}
    own = modes.nearest(z)[..., None] == np.arange(len(modes))
    return {"mode_z": modes.z, "mode_weight": modes.weight, "mode_share": own.mean(1)}


def find_modes(landscape: Landscape, first: End | None, around: np.ndarray, seed: int) -> Modes | None:
    """Return the modes that dispersed fits find beside the first one; None if there is no minimum at all.

    around: where to look, besides the start of the problem; the answer of a fit.
    """
    sd = None if first is None or first.bowl is None else np.linalg.norm(first.bowl.root, axis=1)
    pool = dispersed(landscape.problem, around, sd, BATCH, seed)
    values = landscape.values(pool)
    found, pool = [] if first is None else [first], _Pool(pool, values, around)
    for i in range(MOST_STARTS // STARTS):
        new = 0
        for j in range(STARTS):
            z = pool.farthest() if j % 2 or not found else pool.unexplained(found)
            end = None if z is None else minimum(landscape, z)
            if end is not None and all(_apart(landscape, end, other) for other in found):
                found.append(end)
                new += 1
        if found and not new and i >= 1 - bool(first):
            break
    return settled(found) if found else None


def minimum(landscape: Landscape, z: np.ndarray) -> End | None:
    """Return the minimum that a fit from z ends in, None if it ends elsewhere."""
    finish = landscape.descend(z)
    if finish.value is None or not np.isfinite(finish.z).all():
        return None
    return end_of(landscape, finish.z, float(finish.value), finish.status.converged)


def end_of(landscape: Landscape, z: np.ndarray, value: float, converged: bool) -> End | None:
    """Return the end of a fit if it is a minimum: by its curvature, or where there is none by what the fit says."""
    if not landscape.curved:
        return End(z, value, None) if converged else None
    here = bowl(landscape, z)
    here = here and polished(landscape, here)
    if here is None or not here.minimum:
        return None
    return End(here.z, here.value, narrowed(landscape, here))


def settled(ends: list[End]) -> Modes:
    """Return the minima that matter, with their weights."""
    ends = sorted(ends, key=lambda end: -end.log_weight)
    logs = np.array([end.log_weight for end in ends])
    log_z = float(np.logaddexp.reduce(logs))
    least = np.log(LEAST_WEIGHT) if ends[0].bowl is not None else -CLOSE
    kept = [end for end, log in zip(ends, logs, strict=True) if log - log_z > least]
    weight = np.exp(logs[: len(kept)] - np.logaddexp.reduce(logs[: len(kept)]))
    bowls = [end.bowl for end in kept]
    roots = None if any(b is None for b in bowls) else np.stack([b.root for b in bowls if b is not None])
    return Modes(np.stack([end.z for end in kept]).astype(float), weight, roots, log_z)


class _Pool:
    """Points (m, n) that fits may start from, each once, with their -log density."""

    def __init__(self, points: np.ndarray, values: np.ndarray, around: np.ndarray):
        finite = np.isfinite(values)
        self.points, self.values = points[finite], values[finite]
        order = np.argsort(self.values, kind="stable")
        self.better = order[: max(MOST_STARTS, len(order) // 4)]
        self.scale = np.ones(points.shape[1])
        if len(self.better):
            self.scale = np.subtract(*np.quantile(self.points[self.better], (0.75, 0.25), axis=0))
            self.scale += np.finfo(float).tiny
        self.away = np.linalg.norm((self.points - around) / self.scale, axis=1)

    def farthest(self) -> np.ndarray | None:
        """Return the point, of the better ones, that is farthest from all that have been taken."""
        merit = np.full(len(self.points), -np.inf)
        merit[self.better] = self.away[self.better]
        return self._take(merit)

    def unexplained(self, found: list[End]) -> np.ndarray | None:
        """Return the point whose density is most above the Gaussians of minima found so far."""
        if any(end.bowl is None for end in found):
            return self.farthest()
        told = [-end.value - 0.5 * end.bowl.distance(self.points) ** 2 for end in found if end.bowl is not None]
        return self._take(-self.values - np.max(told, axis=0))

    def _take(self, merit: np.ndarray) -> np.ndarray | None:
        at = int(np.argmax(np.where(self.away > 0, merit, -np.inf))) if len(merit) else 0
        if not len(merit) or not self.away[at] > 0:
            return None
        self.away = np.minimum(self.away, np.linalg.norm((self.points - self.points[at]) / self.scale, axis=1))
        return self.points[at]


def _apart(landscape: Landscape, one: End, other: End) -> bool:
    """Return whether two minima are not the same: more than a width apart, with a barrier between them."""
    for a, b in ((one, other), (other, one)):
        if a.bowl is not None and a.bowl.distance(b.z) < NEAR:
            return False
    along = np.linspace(0, 1, 34)[1:-1, None]
    between = landscape.values(one.z + along * (other.z - one.z))
    return not np.nanmax(between, initial=-np.inf) < max(one.value, other.value) + LEAST_BARRIER


def caveats(modes: Modes, space: Space) -> str:
    """Return where the modes are and what they weigh, as text; of the two parameters that differ most."""
    numbers = np.stack([space.free(space.host_params(z)) for z in modes.z])
    names = [element_label(label, at) for i, label in enumerate(space.labels) for at in np.argwhere(~space.held_at(i))]
    differ = np.ptp(numbers, axis=0) / (np.abs(numbers).max(0) + np.finfo(float).tiny)
    shown = np.sort(np.argsort(-differ, kind="stable")[:2])
    told = [
        f"{weight:.2g} at {', '.join(f'{names[i]} = {row[i]:.3g}' for i in shown)}"
        for row, weight in list(zip(numbers, modes.weight, strict=True))[:MOST_SHOWN]
    ]
    return "; ".join(told) + ("; ..." if len(modes) > MOST_SHOWN else "")
