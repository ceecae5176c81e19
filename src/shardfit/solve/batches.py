"""Mini-batches: which rows every step uses, and the next ones read from disk while the devices work."""

from concurrent.futures import Future, ThreadPoolExecutor
from math import gcd

import jax
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic, is_mapped
from shardfit.core.terms import RowTerm
from shardfit.solve.base import Task


class Epochs:
    """Rows of every step: an epoch uses each of n rows once, in an order drawn for it; a step never has a row twice.

    A step may take the last rows of one epoch and the first of the next. The order of an epoch follows from the seed
    and its number, but for what such a step demands: what it has already is moved behind its first rows.
    """

    def __init__(self, n: int, size: int, seed: tuple[int, ...]):
        self.n, self.size, self.seed = n, size, seed
        self.cycle = size // gcd(n, size)  # after so many epochs an epoch ends with a step, and nothing is remembered
        self.epoch, self.order = -1, np.zeros(0, int)

    def __call__(self, step: int) -> np.ndarray:
        """Return the rows of a step, (size,)."""
        first = step * self.size
        epoch, begin = divmod(first, self.n)
        rows = self._order_of(epoch)[begin : begin + self.size]
        missing = self.size - len(rows)
        return np.concatenate([rows, self._order_of(epoch + 1)[:missing]]) if missing else rows

    def _order_of(self, epoch: int) -> np.ndarray:
        begin = epoch - epoch % self.cycle
        if not begin <= self.epoch <= epoch:
            self.epoch, self.order = begin, self._drawn(begin)
        while self.epoch < epoch:
            self.epoch, self.order = self.epoch + 1, self._after(self.order, self.epoch + 1)
        return self.order

    def _after(self, before: np.ndarray, epoch: int) -> np.ndarray:
        """Return the order of an epoch, whose first rows complete a step that the epoch before began."""
        order, begun = self._drawn(epoch), epoch * self.n % self.size
        if not begun:
            return order
        fresh = np.flatnonzero(~np.isin(order, before[-begun:]))[: self.size - begun]
        return np.concatenate([order[fresh], np.delete(order, fresh)])

    def _drawn(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([*self.seed, epoch]).permutation(self.n)


class Batches:
    """Objectives of the rows of every step, on the devices: a function of seed and step alone.

    Rows in memory maps are read by a thread, one step ahead and no further; what goes wrong there is raised where the
    step is asked for.
    """

    def __init__(self, task: Task, size: int):
        self.objective, self.mesh = task.problem.objective, task.mesh
        terms = enumerate(self.objective.terms)
        self.epochs = {i: Epochs(t.n_rows, size, (task.seed, i)) for i, t in terms if isinstance(t, RowTerm)}
        self.reader = ThreadPoolExecutor(1, "read-ahead") if mapped(self.objective) else None
        self.ahead: dict[int, Future] = {}
        self.now: dict[int, Objective] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.reader is not None:
            self.reader.shutdown(cancel_futures=True)

    def at(self, step: int) -> Objective:
        """Return the objective of a step, and begin to read the rows of the next."""
        if step not in self.now:
            self.now = {}  # these rows are not needed any more
            self.now = {step: self._next(step).place(self.mesh)}
        return self.now[step]

    def _next(self, step: int) -> Objective:
        if self.reader is None:
            return self._read(step)
        # all reading is in the one thread, for the order of an epoch is remembered
        batch = (self.ahead.get(step) or self.reader.submit(self._read, step)).result()
        self.ahead = {step + 1: self.reader.submit(self._read, step + 1)}
        return batch

    def _read(self, step: int) -> Objective:
        with arithmetic(self.objective.precision):  # a thread begins with JAX's default
            return self.objective.take(lambda term, _: self.epochs[term](step))


def mapped(objective: Objective) -> bool:
    """Return whether some rows are in a memory map."""
    terms = (term for term in objective.terms if isinstance(term, RowTerm))
    return any(is_mapped(leaf) for term in terms for leaf in jax.tree.leaves(term.rows))
