"""A consensus before it runs: shards, sampler, slots, and what makes its draws the same draws."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardfit.check.identity import Identity, identity, of_value
from shardfit.core.errors import NonFiniteError
from shardfit.core.mesh import n_shards
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.rows import leading
from shardfit.core.terms import RowTerm
from shardfit.sampling.chains.nuts import NUTS
from shardfit.sampling.density import sampled
from shardfit.sampling.shards.shard_store import ShardRun
from shardfit.sampling.shards.splitting import Shards
from shardfit.sampling.start import Start
from shardfit.solve.base import check_options
from shardfit.surveys.engine import Engine, Tally

BATCH = 1 << 16  # rows that chains evaluate together: more leave the cache, and a tick of one chain grows longer
MOST_SLOTS = 16


@dataclass(frozen=True)
class Division:
    """How a problem is divided: number of shards, labels to stratify by, seed, slots (None: chosen), sampler's options.

    What is here and the problem decide all draws of all shards; how many devices and workers there are does not.
    """

    shards: int
    by: Any = None
    seed: int = 0
    slots: int | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class ShardPlan:
    """What can run. problem: in coordinates without bounds; slots: shards that share a batch on every device."""

    problem: Problem
    division: Division
    parts: tuple[Objective, ...]
    solver: NUTS
    slots: int
    identity: Identity

    @classmethod
    def make(cls, problem: Problem, division: Division) -> "ShardPlan":
        """Check everything and return what can run."""
        problem, options = sampled(problem, "consensus"), dict(division.options or {})
        check_options("nuts", NUTS, options)
        if "temper" in options:
            raise ValueError("consensus: temper is 1 / shards, which the shards' posteriors need to multiply to one.")
        parts = tuple(problem.objective.split(division.shards, division.by, division.seed))
        solver = NUTS(temper=1 / len(parts), **options)
        slots = _slots(division.slots, parts, solver.chains)
        known = identity(problem, solver, division.seed)
        facts = {"number of shards": str(len(parts)), "slots": str(slots), **of_value("labels", division.by).facts}
        return cls(problem, division, parts, solver, slots, replace(known, facts={**known.facts, **facts}))

    def rows(self) -> np.ndarray:
        """Return (shards,) how many rows each shard has, of all terms."""
        return np.array([sum(part.n_rows.values()) for part in self.parts])

    def run(
        self,
        start: Start,
        numbers: Iterable[int],
        mesh: Any = None,
        look: Callable[[], Any] | None = None,
        tally: Tally | None = None,
    ) -> Iterator[ShardRun]:
        """Sample some shards and yield them as they end; raise, after all have, if one had no finite density.

        numbers: taken one by one, as slots become free. mesh: devices that share the rows of every shard.
        """
        shards, n = Shards(self.problem, self.parts, start.z, n_shards(mesh)), len(self.parts)
        # a shard knows as much as 1/n of the rows: its posterior is that much wider
        given = {name: root * np.sqrt(n) for name, root in start.given.items()}
        engine = Engine(
            shards, self.solver, self.slots, mesh, self.division.seed, given=given, look=look, tally=tally or Tally()
        )
        failed = []
        with closing(engine.run(shards.points(numbers))) as batches:
            for point in (point for batch in batches for point in batch):
                if point.failed:
                    failed.append(point.id)
                    continue
                # ticks go on until the host looks: they are no part of the answer
                arrays = {name: np.asarray(a) for name, a in point.payload.items() if name != "ticks"}
                yield ShardRun(point.id, arrays, point.evaluations, point.seconds)
        if failed:
            raise NonFiniteError(
                f"consensus: shards {', '.join(map(str, sorted(failed)))} found no finite density where they began. "
                "Start elsewhere (x0), bound the parameters, or use fewer shards."
            )


def _slots(asked: int | None, parts: tuple[Objective, ...], chains: int) -> int:
    """Return how many shards share a batch: a choice by shapes alone, for it decides the last digits of all draws."""
    if asked is not None:
        if isinstance(asked, bool) or not isinstance(asked, int | np.integer) or asked < 1:
            raise ValueError(f"consensus: slots={asked!r} must be a whole number, at least 1, or None to choose.")
        return int(asked)
    rows = sum(leading(t.rows) for t in parts[0].terms if isinstance(t, RowTerm))
    # at the end slots are idle until the slowest shard has ended: several shards for each make that a small part
    most = int(np.clip(BATCH // (rows * chains), 1, min(MOST_SLOTS, max(2, len(parts) // 4))))
    waves = -(-len(parts) // most)
    return -(-len(parts) // waves)
