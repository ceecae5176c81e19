"""The host's side of a survey: keeps slots filled from a queue and hands over points as they end.

While the device works on the next ticks the host writes what the last ones gave, so neither waits for the other.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.fast_compile import elements_in_call
from shardfit.core.mesh import replicate
from shardfit.core.precision import PRECISIONS, in_caller_precision
from shardfit.core.status import Status
from shardfit.solve.base import Task
from shardfit.solve.monitor import Monitor
from shardfit.solve.scale import natural
from shardfit.solve.step import StepSolver
from shardfit.surveys.axes import CannotMake
from shardfit.surveys.picture import Picture
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.slots import EMPTY, BatchSpec, Shared, Slots, advance, empty_slots, load, take
from shardfit.surveys.sweep import Wait
from shardfit.surveys.variants import Family, bind

DISPATCH_SECONDS = 0.5  # longest time the device is left alone: progress, writing and Ctrl-C wait this long
SHARE = 16  # one slot in so many may wait, ended, for the host: more often costs dispatches, less often evaluations
SHARE_OF_CHEAP = 4  # where a dispatch costs more than many evaluations
CHEAP = 1 << 22  # numbers computed by a tick of all slots, up to which it is so: a millisecond or two


@dataclass
class Tally:
    """Counts of a run: evaluations made for points, and all that the device did; compile and running seconds."""

    useful: int = 0
    total: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    slots: int = 0

    @property
    def efficiency(self) -> float:
        """Useful evaluations over all."""
        return self.useful / self.total if self.total else 1.0


@dataclass(eq=False)
class Engine:
    """Runs points of one problem in slots. picture: drawn of every point, where it is not one of the parameters.

    given: arrays that every run's solver begins with. look: called whenever the device has handed back its work, twice
    a second or so. scaled: each run is in scale-free coordinates of its own start, as a fit is.

    Example: `for finished in Engine(variants(problem, axes), LBFGS(), 64).run(points): ...`.
    """

    variants: Family
    solver: StepSolver
    slots: int
    mesh: Any = None
    seed: int = 0
    picture: Picture | None = None
    given: Any = None
    look: Callable[[], Any] | None = None
    scaled: bool = False
    tally: Tally = field(default_factory=Tally)

    @property
    def precision(self) -> str:
        """The problem's."""
        return self.variants.precision

    def run(self, points: Iterable[SurveyPoint | Wait]) -> Generator[list[SurveyPoint], None, None]:
        """Yield the points, filled in, list by list, in the order in which they end. Close it if it is left early.

        points: WAIT among them means that there are more once some of those that run have ended.
        """
        queue = iter(points)
        work = self._run(iter(in_caller_precision(lambda: next(queue, None)), None))
        try:
            while True:
                with at_work(self.variants.problem, self.solver):  # not held while the caller has what has ended
                    finished = next(work, None)
                if finished is None:
                    return
                yield finished
        finally:
            work.close()

    def _run(self, queue: Iterator[SurveyPoint | Wait]) -> Generator[list[SurveyPoint], None, None]:
        began = time.perf_counter()
        work = _Work(self)
        slots = work.fill(queue)
        finished = work.refused()
        if not work.busy and not finished:
            return
        slots, _ = jax.block_until_ready(work.advance(slots, 0))  # no ticks: this call only compiles
        started = time.perf_counter()
        self.tally.slots, self.tally.compile_seconds = self.slots, self.tally.compile_seconds + started - began
        earlier = self.tally.seconds
        work.loaded_at[:] = started
        ticks = 1
        while work.busy or finished:
            launched, count = time.perf_counter(), 0
            if work.busy:
                slots, count = work.advance(slots, ticks)
            if finished:
                yield finished  # written while the device works
            done = work.ended(slots)
            if self.look is not None:
                self.look()
            self.tally.total += int(count) * self.slots * self.solver.points
            ticks = _next_ticks(ticks, time.perf_counter() - launched)
            finished = []
            for some in work.blocks(done):
                finished += work.take(slots, some)
                slots = work.load(slots, some, work.next_points(queue, len(some)))
            slots = work.load_empty(slots, queue)
            finished += work.refused()
            self.tally.useful += sum(one.evaluations for one in finished)
            self.tally.seconds = earlier + time.perf_counter() - started


class Made(NamedTuple):
    """A point with its own leaves and start z (n,)."""

    point: SurveyPoint
    leaves: tuple[np.ndarray, ...]
    z0: np.ndarray


class _Work:
    """What one run of an engine keeps: shared arrays on the devices, and which slots are in use."""

    def __init__(self, engine: Engine):
        problem, mesh = engine.variants.problem, engine.mesh
        box = (None, None) if problem.box is None else problem.box
        leaves, z0 = engine.variants.leaves_of({})
        dtype = z0.dtype
        lower, upper = (None if b is None else replicate(jnp.asarray(b, dtype), mesh) for b in box)
        key = replicate(jax.random.key(engine.seed), mesh)
        placed = engine.variants.placed(mesh)
        self.kind = BatchSpec(engine.solver, problem.space, engine.variants.places(placed))
        given = engine.given
        if given is None:
            ends = None if problem.box is None else tuple(np.asarray(end, dtype) for end in problem.box)
            given = engine.solver.shared(problem.space, ends, engine.seed)
        self.shared = Shared(placed, lower, upper, key, replicate(given, mesh))
        self.task = Task(problem, problem.space, z0, problem.box, placed, mesh, engine.seed, Monitor())
        self.scaled = engine.scaled
        self.blank = leaves, z0, self._scale(leaves, z0)
        self.variants, self.slots = engine.variants, engine.slots
        self.size = 1  # slots taken and loaded by one call
        self.picture = engine.picture
        self.waiting = False  # whether the queue has points that cannot begin yet
        self.unmade: list[SurveyPoint] = []
        self.held: list[SurveyPoint | None] = [None] * engine.slots
        self.loaded_at = np.zeros(engine.slots)

    @property
    def busy(self) -> bool:
        """Whether a slot has a point in it."""
        return any(point is not None for point in self.held)

    def fill(self, queue: Iterator[SurveyPoint | Wait]) -> Slots:
        slots = empty_slots(self.kind, self.shared, *self.blank, self.slots)
        # by how much is computed, not how long it takes here: a survey is the same wherever it goes on
        cheap = elements_in_call(advance, self.kind, self.shared, slots, 0, 1) <= CHEAP
        self.size = max(1, self.slots // (SHARE_OF_CHEAP if cheap else SHARE))
        for some in self.blocks(np.arange(self.slots)):
            slots = self.load(slots, some, self.next_points(queue, len(some)))
        return slots

    def blocks(self, chosen: np.ndarray) -> Iterator[np.ndarray]:
        return (chosen[i : i + self.size] for i in range(0, len(chosen), self.size))

    def advance(self, slots: Slots, ticks: int) -> tuple[Slots, jax.Array]:
        return advance(self.kind, self.shared, slots, ticks, self.size)

    def ended(self, slots: Slots) -> np.ndarray:
        return np.flatnonzero(np.asarray(slots.idle) & (np.asarray(slots.point) != EMPTY))

    def load_empty(self, slots: Slots, queue: Iterator[SurveyPoint | Wait]) -> Slots:
        """Put points that had to wait into slots that were left empty."""
        empty = np.array([i for i, point in enumerate(self.held) if point is None], int)
        for some in self.blocks(empty) if self.waiting else ():
            points = self.next_points(queue, len(some))
            if points:
                slots = self.load(slots, some, points)
        return slots

    def next_points(self, queue: Iterator[SurveyPoint | Wait], most: int) -> list[Made]:
        """Return the next points that can begin; take note whether others wait for them, and which cannot be made."""
        points: list[Made] = []
        while len(points) < most:
            point = next(queue, None)
            if point is None or isinstance(point, Wait):
                self.waiting = point is not None
                break
            try:
                points.append(Made(point, *self.variants.leaves_of(point.axes)))
            except CannotMake as error:
                self.unmade.append(self._failed(point, str(error)))
        return points

    def refused(self) -> list[SurveyPoint]:
        """Return the points that could not be made, once each."""
        unmade, self.unmade = self.unmade, []
        return unmade

    def _failed(self, point: SurveyPoint, reason: str) -> SurveyPoint:
        """Return a point of which there is nothing to fit, with the start that all have in common."""
        problem = self.variants.problem
        key = jax.random.key(0)
        names = jax.eval_shape(lambda o, p: o.parts(p, key), problem.objective, problem.x0)
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(problem.x0)])
        return replace(
            point,
            status=Status.FAILED.name,
            reason=reason,
            parts=dict.fromkeys(names, float("nan")),
            params=flat.astype(PRECISIONS[self.variants.precision]).tobytes(),
            picture=self._drawn(problem.x0),
        )

    def load(self, slots: Slots, free: np.ndarray, made: list[Made]) -> Slots:
        """Put points into free slots; those for which there is none are left empty."""
        self.loaded_at[free] = time.perf_counter()
        points = [one.point for one in made]
        for each, point in zip_longest(free, points):
            self.held[each] = point
        starts: list[tuple] = [(one.leaves, one.z0) for one in made]
        starts += [self.blank] * (self.size - len(points))
        leaves = tuple(np.stack(leaf) for leaf in zip(*(one[0] for one in starts), strict=True))
        z0 = np.stack([one[1] for one in starts])
        for i, point in enumerate(points):
            if point.z is not None:
                z0[i] = point.z
        scale = np.stack([self._scale(one[0], z) for one, z in zip(starts, z0, strict=True)])
        numbers = [point.id for point in points] + [EMPTY] * (self.size - len(points))
        slot = np.full(self.size, self.slots, np.int32)
        slot[: len(free)] = free
        return load(self.kind, self.shared, slots, slot, np.array(numbers, np.int32), leaves, z0, scale)

    def _scale(self, leaves: tuple, z: np.ndarray) -> np.ndarray:
        """Return the scale (n,) of a run's coordinates from its start, or one number."""
        if not self.scaled:
            return np.ones((), z.dtype)
        own = bind(self.shared.objective, self.kind.places, leaves)
        return natural(replace(self.task, placed=own), z)

    def take(self, slots: Slots, some: np.ndarray) -> list[SurveyPoint]:
        """Return the points in these slots, which have ended."""
        now, slot = time.perf_counter(), np.zeros(self.size, np.int32)
        slot[: len(some)] = some
        taken = jax.tree.map(np.asarray, take(self.kind, self.shared, slots, slot))
        return [
            self._filled_in(
                self.held[each], jax.tree.map(lambda leaf, i=i: leaf[i], taken), float(now - self.loaded_at[each])
            )
            for i, each in enumerate(some)
        ]

    def _filled_in(self, point: SurveyPoint | None, taken: tuple, seconds: float) -> SurveyPoint:
        """Return a point with how it ended; its seconds are its share of the time, which all slots have in common."""
        assert point is not None  # a slot that has ended has a point
        ended, params, parts, value, payload = taken
        status = Status.of(int(ended.status)) if np.isfinite(value) else Status.NONFINITE
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
        return replace(
            point,
            status=status.name,
            value=float(value),
            parts={name: float(part) for name, part in parts.items()},
            steps=int(ended.steps),
            evaluations=int(ended.evaluations),
            seconds=seconds / self.slots,
            reason=_why_nonfinite(int(ended.steps)) if status is Status.NONFINITE else "",
            params=flat.astype(PRECISIONS[self.variants.precision]).tobytes(),
            picture=self._drawn(params),
            z=np.asarray(ended.z),
            payload=payload,
        )

    def _drawn(self, params: Any) -> np.ndarray | None:
        """Return the picture of parameters, where it is not one of them."""
        draw = None if self.picture is None else self.picture.draw
        return None if draw is None else np.asarray(in_caller_precision(draw)(params), np.float32)


def _why_nonfinite(steps: int) -> str:
    """Return what became NaN or infinite, and what to do about it."""
    status = Status.NONFINITE
    if steps:
        return f"{status.message}. {status.remedy}"
    return f"{status.message} at the start. Start where the model is defined, or bound or transform the parameters."


def _next_ticks(ticks: int, seconds: float) -> int:
    if seconds < DISPATCH_SECONDS / 2:
        return min(2 * ticks, 1 << 12)
    return max(1, ticks // 2) if seconds > 2 * DISPATCH_SECONDS else ticks
