"""Shards on many workers: each samples whole shards into files that all see, and shows that it gets on."""

import secrets
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from shardfit.core.errors import CheckpointError
from shardfit.core.problem import Problem
from shardfit.distributed.executors import end_with_parent, run_tasks
from shardfit.distributed.pulse import Pulse, Watch
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.sampling.shards.shard_plan import Division, ShardPlan
from shardfit.sampling.shards.shard_store import FOLDER, ShardStore
from shardfit.sampling.start import read_start


def run_on_workers(
    make: Callable[[], Problem], plan: ShardPlan, store: ShardStore, control: ShardControl
) -> Iterator[int]:
    """Sample the missing shards on an executor's workers, and yield their numbers as they are finished.

    A worker that dies or falls silent is replaced once, if the pool is a local one; then, or where it cannot be, an
    error names the shards that are unfinished. All others are kept.
    """
    missing, local = store.missing(range(len(plan.parts))), control.executor is None
    # names that were never used before: a worker of a run that was killed may still be beating its own
    token = secrets.token_hex(4)
    tasks, pulses = {}, {}
    for i in range(0, len(missing), plan.slots):
        numbers = missing[i : i + plan.slots]
        name = f"shards {', '.join(map(str, numbers))}"
        pulses[name] = store.folder.resolve() / FOLDER / f"{token}-{i}.pulse"
        tasks[name] = (make, plan.division, store.folder.resolve(), store.run, numbers, pulses[name], local)
    watch, failed = Watch(pulses, control.patience, kill=local), {}
    try:
        outcomes = run_tasks(run_part, tasks, executor=control.executor, workers=control.workers, look=watch)
        for name, _, error in outcomes:
            if error is not None:
                failed[name] = error
            yield from (k for k in tasks[name][4] if store.path(k).exists())
    except (RuntimeError, TimeoutError) as error:
        if watch.silent:
            error.add_note(f"No response for {control.patience:g} s: {'; '.join(dict.fromkeys(watch.silent))}.")
        error.add_note("What was finished is kept: the same call samples the rest.")
        raise
    finally:
        for path in pulses.values():
            path.unlink(missing_ok=True)
    if failed:
        first = next(iter(failed.values()))
        first.add_note(f"{'; '.join(failed)} ended with an error; what was finished is kept.")
        raise first


def run_part(
    make: Callable[[], Problem],
    division: Division,
    folder: Path,
    run: str,
    numbers: list[int],
    pulse: Path,
    local: bool,
) -> None:
    """Sample some shards into their files; those that have one are left out. Called in a worker."""
    if local:
        end_with_parent()
    alive, store, known = Pulse(pulse), ShardStore(folder, run), _remembered(run)
    if "plan" not in known:  # tasks of one worker share what it has compiled
        known["plan"] = ShardPlan.make(make(), division)
    plan: ShardPlan = known["plan"]
    if plan.identity.digest != run:
        raise CheckpointError(
            "consensus: this worker's problem is another one than its caller's. The function that makes it must give "
            "the same data and settings everywhere."
        )
    start = read_start(store.start, run)
    assert start is not None  # written before workers begin
    for done in plan.run(start, store.missing(numbers), look=alive.beat):
        store.write(done)
        alive.beat()


@lru_cache(maxsize=1)
def _remembered(run: str) -> dict[str, Any]:
    """Return what this process keeps of a run."""
    return {}
