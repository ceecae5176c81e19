"""Independent tasks on many workers, through the standard library's Executor interface.

Whatever has `submit` and gives concurrent.futures' futures serves: a local pool, loky, Dask's `Client.get_executor()`,
`mpi4py.futures.MPIPoolExecutor`. Without one, a local pool of fresh processes is made: forked ones would inherit locks
that JAX's threads hold.
"""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, ProcessPoolExecutor, wait
from functools import cache
from typing import Any, NamedTuple

NAMES_SHOWN = 10
LOOK_SECONDS = 1.0


class Outcome(NamedTuple):
    """What became of one task: its value, or the error that it raised."""

    name: Any
    value: Any = None
    error: BaseException | None = None


@contextlib.contextmanager
def as_executor(executor: Any = None, workers: int | None = None) -> Iterator[Any]:
    """Give an executor for a while: the one given, left open afterwards, or a local pool of `workers` processes.

    Example: `with as_executor(loky.get_reusable_executor(max_workers=4)) as pool: ...`.
    """
    if executor is None:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool
        return
    if workers is not None:
        raise ValueError(f"workers={workers} is for a local pool: the executor that was given has its own.")
    if hasattr(executor, "get_executor"):
        raise TypeError(f"pass {type(executor).__name__}.get_executor(), not the client itself.")
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"{type(executor).__name__} is not an executor: it has no submit. Use concurrent.futures, loky, Dask's "
            "Client.get_executor() or mpi4py.futures.MPIPoolExecutor."
        )
    yield executor


def run_tasks(
    function: Callable,
    tasks: Mapping[Any, tuple],
    *,
    executor: Executor | Any = None,
    workers: int | None = None,
    retries: int = 1,
    look: Callable[[Sequence[Any]], Any] | None = None,
) -> Iterator[Outcome]:
    """Call function(*arguments) for every task, and yield outcomes as they come; a failed task does not end the others.

    tasks: arguments by name. function and arguments must be importable and picklable, as in any process pool. When a
    worker dies, a local pool is made again up to `retries` times for what is unfinished; a given executor cannot be
    mended, so the error then names the unfinished tasks. look(names of unfinished tasks) is called every second or so;
    what it raises ends the waiting.

    Example: `for name, value, error in run_tasks(fit_one, {"a": (1.0,), "b": (2.0,)}, workers=2): ...`.
    """
    left = dict(tasks)
    broken = None
    for _ in range(1 if executor is not None else 1 + retries):
        try:
            with as_executor(executor, workers) as pool:
                for outcome in _completed(pool, function, left, look):
                    del left[outcome.name]
                    yield outcome
            return
        except BrokenExecutor as error:
            broken = error
    shown = ", ".join(map(str, list(left)[:NAMES_SHOWN])) + (", ..." if len(left) > NAMES_SHOWN else "")
    raise RuntimeError(
        f"a worker process ended unexpectedly (killed, out of memory, or a crash in compiled code); {len(left)} of "
        f"{len(tasks)} tasks are unfinished: {shown}. Run these again, with fewer workers if memory was short."
    ) from broken


def _completed(pool: Any, function: Callable, tasks: Mapping[Any, tuple], look: Callable | None) -> Iterator[Outcome]:
    futures = {pool.submit(function, *arguments): name for name, arguments in tasks.items()}
    waiting = set(futures)
    try:
        while waiting:
            done, waiting = wait(waiting, None if look is None else LOOK_SECONDS, FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    raise error
                value = None if error is not None else future.result()
                yield Outcome(futures[future], value, error)
            if look is not None:
                look([name for future, name in futures.items() if future in waiting])
    finally:
        for future in futures:
            future.cancel()


@cache  # once in a process
def end_with_parent() -> None:
    """End this process when the one that started it has ended: a killed caller must not leave workers behind."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch():
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
