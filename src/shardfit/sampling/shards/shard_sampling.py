"""All shards of a consensus sampled, here or on workers, those of earlier calls included."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardfit.core.current import at_work
from shardfit.core.mesh import n_shards
from shardfit.core.problem import Problem
from shardfit.io.run_dir import RunDir
from shardfit.sampling.chains.placement import Place, places, run_groups
from shardfit.sampling.chains.progress import ShardProgress
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.sampling.shards.shard_plan import ShardPlan
from shardfit.sampling.shards.shard_store import ShardRun, ShardStore
from shardfit.sampling.shards.shard_workers import run_on_workers
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
    tallies: list[Tally] = field(default_factory=list)

    @property
    def store(self) -> ShardStore | None:
        """Where shards are kept."""
        return None if self.folder is None else ShardStore(self.folder.path, self.plan.identity.digest)

    @property
    def tally(self) -> Tally:
        """Counts of what this process has sampled."""
        sums = {name: sum(getattr(one, name) for one in self.tallies) for name in ("useful", "total")}
        return Tally(**sums, compile_seconds=max((one.compile_seconds for one in self.tallies), default=0.0))

    def start(self) -> Start:
        """Return where all shards begin: the mode of the posterior of all rows; it is found once in a run."""
        store = self.store
        start = None if store is None else read_start(store.start, store.run)
        if start is None:
            # devices that do not share the rows have no part in it, and must not change its last digits
            mesh = self.mesh if n_shards(self.mesh) > 1 else None
            start = find_start(self.plan.problem, mesh, self.plan.division.seed)
            if store is not None:
                write_start(store.start, start, store.run)
        return start

    def runs(self, start: Start) -> list[ShardRun]:
        """Return the draws of all shards, in order."""
        every, store = range(len(self.plan.parts)), self.store
        missing = list(every) if store is None else store.missing(every)
        found: dict[int, ShardRun] = {}
        folder = None if store is None else store.folder
        with ShardProgress(self.plan.problem.name, len(missing), self.control.progress, folder) as show:

            def keep(run: ShardRun) -> None:
                found[run.number] = run
                show.update(run)
                self._note(run)

            if self.control.elsewhere:
                assert store is not None and self.make is not None  # what `consensus` has checked
                for number in run_on_workers(self.make, self.plan, store, self.control):
                    keep(store.read(number))
            elif missing:
                self._run_here(start, missing, keep)
        if store is not None:
            found |= {k: store.read(k) for k in every if k not in found}
        return [found[k] for k in every]

    def _run_here(self, start: Start, missing: list[int], keep: Callable[[ShardRun], None]) -> None:
        """Sample shards on every slice of the mesh along `runs`, each with slots of its own that take the next.

        What a shard draws does not depend on where, so that any number of devices gives the same, to the bit.
        """
        lock, waiting, store = threading.Lock(), iter(missing), self.store

        def take() -> int | None:
            with lock:
                return next(waiting, None)

        def run_at(_: int, place: Place) -> None:
            tally = Tally()
            with at_work(self.plan.problem), place.chosen():
                for run in self.plan.run(start, iter(take, None), place.mesh, tally=tally):
                    with lock:
                        if store is not None:
                            store.write(run)
                        keep(run)
            self.tallies.append(tally)

        where = places(self.mesh, max(2, len(missing)))
        run_groups(run_at, len(where), where)

    def _note(self, run: ShardRun) -> None:
        if self.folder is not None:
            diverging = float(np.mean(run.arrays["diverging"]))
            self.folder.event("shard", number=run.number, gradients=run.evaluations, diverging=diverging)
