"""All shards of a consensus sampled, here or on workers, those of earlier calls included."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.io.run_dir import RunDir
from shardfit.sampling.progress import ShardProgress
from shardfit.sampling.shard_control import ShardControl
from shardfit.sampling.shard_plan import ShardPlan
from shardfit.sampling.shard_store import ShardRun, ShardStore
from shardfit.sampling.shard_workers import run_on_workers
from shardfit.sampling.start import Start, find_start, read_start, write_start
from shardfit.surveys.engine import Tally


@dataclass(frozen=True, eq=False)
class ShardSampling:
    """A plan at work. make: gives the problem to workers; folder: has begun the plan's run, None to keep nothing."""

    plan: ShardPlan
    make: Callable[[], Problem] | None
    mesh: Any
    folder: RunDir | None
    control: ShardControl
    tally: Tally = field(default_factory=Tally)

    @property
    def store(self) -> ShardStore | None:
        """Where shards are kept."""
        return None if self.folder is None else ShardStore(self.folder.path, self.plan.identity.digest)

    def start(self) -> Start:
        """Return where all shards begin: the mode of the posterior of all rows; it is found once in a run."""
        store = self.store
        start = None if store is None else read_start(store.start)
        if start is None:
            start = find_start(self.plan.problem, self.mesh, self.plan.division.seed)
            if store is not None:
                write_start(store.start, start)
        return start

    def runs(self, start: Start) -> list[ShardRun]:
        """Return the draws of all shards, in order."""
        total, store = len(self.plan.parts), self.store
        missing = total if store is None else len(store.missing(range(total)))
        found: dict[int, ShardRun] = {}
        with ShardProgress(self.plan.problem.name, missing, self.control.progress) as show:
            for run in self._fresh(start):
                found[run.number] = run
                show.update(run)
                self._note(run)
        if store is not None:
            found |= {k: store.read(k) for k in range(total) if k not in found}
        return [found[k] for k in range(total)]

    def _fresh(self, start: Start) -> Iterator[ShardRun]:
        """Yield the shards that are not finished yet, as they end."""
        every, store = range(len(self.plan.parts)), self.store
        if self.control.elsewhere:
            assert store is not None and self.make is not None  # what `consensus` has checked
            yield from map(store.read, run_on_workers(self.make, self.plan, store, self.control))
            return
        missing = every if store is None else store.missing(every)
        for run in self.plan.run(start, missing, self.mesh, tally=self.tally):
            if store is not None:
                store.write(run)
            yield run

    def _note(self, run: ShardRun) -> None:
        if self.folder is not None:
            diverging = float(np.mean(run.arrays["diverging"]))
            self.folder.event("shard", number=run.number, gradients=run.evaluations, diverging=diverging)
