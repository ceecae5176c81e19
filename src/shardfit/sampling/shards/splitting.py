"""Shards as points of a survey: one compiled sampler, whose rows are what differs from slot to slot."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import ROWS, n_shards, replicate
from shardfit.core.objective import Objective, replace_terms
from shardfit.core.problem import Problem
from shardfit.core.rows import leading
from shardfit.core.terms import RowTerm, Term
from shardfit.surveys.point import SurveyPoint

SHARD = "shard"  # the axis of which shards are points


@dataclass(frozen=True, eq=False)
class Shards:
    """Objectives of equal shapes that differ in their rows; an Engine runs them in its slots, as it runs Variants.

    problem: of all rows, in coordinates without a box. parts: from `Objective.split`, or data sets of equal shape. z:
    (n,) where every run begins, (shards, n) where each has its own. devices: over how many devices each part's rows
    are split.

    Example: `Engine(Shards(problem, tuple(problem.objective.split(16)), z), NUTS(), 16).run(shards.points())`.
    """

    problem: Problem
    parts: tuple[Objective, ...]
    z: np.ndarray
    devices: int = 1

    @property
    def precision(self) -> str:
        """The problem's."""
        return self.problem.precision

    def points(self, numbers: Iterable[int] | None = None) -> Iterator[SurveyPoint]:
        """Yield shards, all or some, as points to run."""
        chosen = range(len(self.parts)) if numbers is None else numbers
        return (SurveyPoint(int(k), {SHARD: int(k)}) for k in chosen)

    def placed(self, mesh: Mesh | None) -> Objective:
        """Return the first shard on the mesh; the others' rows take the place of its own."""
        if n_shards(mesh) != self.devices:
            raise ValueError(f"Shards: made for {self.devices} devices per shard, but the mesh has {n_shards(mesh)}.")

        def put(term: Term) -> Term:
            if not isinstance(term, RowTerm):
                return replicate(term, mesh)
            rows = jax.device_put(term.rows, None if mesh is None else NamedSharding(mesh, P(ROWS)))
            return replace(replicate(replace(term, rows=None), mesh), rows=rows)

        first = self._laid_out(0)
        return Objective(tuple(map(put, first.terms)), first.names, mesh, first.precision)

    def places(self, placed: Objective) -> tuple[int, ...]:
        """Return the positions of rows and counts among the leaves of the placed objective."""
        marked = [
            replace(jax.tree.map(lambda _: False, term), rows=_all(term.rows), counts=_all(term.counts))
            if isinstance(term, RowTerm)
            else jax.tree.map(lambda _: False, term)
            for term in placed.terms
        ]
        return tuple(np.flatnonzero(jax.tree.leaves(replace_terms(placed, marked))).tolist())

    def leaves_of(self, point: Mapping[str, Any]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Return rows and counts of one shard, and where its run begins."""
        number = point.get(SHARD, 0)
        own = [(t.rows, t.counts) for t in self._laid_out(number).terms if isinstance(t, RowTerm)]
        return tuple(map(np.asarray, jax.tree.leaves(own))), self.z if self.z.ndim == 1 else self.z[number]

    def _laid_out(self, number: int) -> Objective:
        part = self.parts[number]
        return replace_terms(part, [_spread(t, self.devices) if isinstance(t, RowTerm) else t for t in part.terms])


def _all(tree: Any) -> Any:
    return jax.tree.map(lambda _: True, tree)


def _spread(term: RowTerm, devices: int) -> RowTerm:
    """Return a shard's term with as many rows for each device, real ones first, and the number of these."""
    n = leading(term.rows)
    each = -(-n // devices)
    if devices == 1 or (each * devices == n and term.counts is None):
        return term
    own = n if term.counts is None else int(term.counts[0])
    counts = np.clip(own - each * np.arange(devices), 0, each).astype(np.int32)
    order = np.resize(np.arange(n), each * devices)
    return replace(term, rows=jax.tree.map(lambda leaf: leaf[order], term.rows), counts=counts)
