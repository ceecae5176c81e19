"""survey: run every point of a design once, keep what it finds, and go on after any crash."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.check.digests import digest
from shardfit.check.identity import identity, of_value
from shardfit.core.mesh import spans_processes
from shardfit.core.params import label_of
from shardfit.core.precision import PRECISIONS, in_its_precision
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.io.compile_cache import use_compile_cache
from shardfit.io.lock import only_writer
from shardfit.solve.capabilities import require
from shardfit.solve.registry import as_solver
from shardfit.solve.step import StepSolver
from shardfit.surveys.axes import Axis
from shardfit.surveys.designs import Design, grid
from shardfit.surveys.engine import Engine, Finished, Point, Tally
from shardfit.surveys.halving import Halving
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.picture import Picture
from shardfit.surveys.progress import SurveyProgress
from shardfit.surveys.reading import Survey
from shardfit.surveys.record import STOPPED, Record
from shardfit.surveys.sizing import choose_slots, measure_slots
from shardfit.surveys.variants import Variants, variants


def survey(
    problem: Problem,
    axes: Mapping[str, Axis],
    *,
    run_dir: str | Path,
    design: Design | None = None,
    solver: Any = "lbfgs",
    slots: int | str | None = None,
    mesh: Any = None,
    seed: int = 0,
    picture: Picture | None = None,
    halving: Halving | None = None,
    retry: bool = False,
    limit: int | None = None,
    progress: bool | None = None,
    on_points: Callable[[list[Record]], Any] | None = None,
    **options: Any,
) -> Survey:
    """Fit one problem at every point of a design, many at a time, and return the table of what was found.

    axes: what varies, by name; design: which points (default: every combination). solver, options: any solver of one
    evaluation per step, 'lbfgs' unless said otherwise. slots: fits that share a batch (None: chosen by memory,
    'measure': tried out). mesh: slots are split over its axis `runs`, rows over `rows`. run_dir: holds the ledger; the
    same call goes on where an earlier one stopped, with any number of slots and devices. picture: what of the
    parameters is an image. halving: give up hopeless points early. retry: run failed points again. limit: at most so
    many points in this call. on_points(records) is called after every write.

    Example: `survey(problem, {"tv": weight_axis("reg.tv", (0, 1, 10))}, run_dir="runs/tv", maxiter=100)`.
    """
    use_compile_cache()
    check_slots(slots, mesh)
    asked = {"design": design, "solver": solver, "seed": seed, "mesh": mesh, "picture": picture, "halving": halving}
    ready = Prepared.make(problem, axes, **asked, **options)
    if limit is not None and (limit < 1 or halving is not None):
        raise ValueError(f"survey: limit={limit} must be at least 1, and None with halving, which ranks all points.")
    with only_writer(run_dir), Ledger.create(run_dir, ready.heading) as ledger:
        ledger.gather()
        ledger.drop_parts()
        tried = ledger.attempts() if retry else {}
        show = SurveyProgress(problem.name, ledger, progress)
        run_points(ready, ledger, ready.missing(ledger, tried)[:limit], slots, tried, [show, on_points])
        show.close()
    return Survey(run_dir)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A survey before it runs: variants, design, solver, and the heading of its ledger."""

    variants: Variants
    design: Design
    solver: StepSolver
    seed: int
    mesh: Any
    picture: Picture | None
    halving: Halving | None
    heading: Heading

    @classmethod
    def make(
        cls,
        problem: Problem,
        axes: Mapping[str, Axis],
        *,
        design: Design | None = None,
        solver: Any = "lbfgs",
        seed: int = 0,
        mesh: Any = None,
        picture: Picture | None = None,
        halving: Halving | None = None,
        **options: Any,
    ) -> "Prepared":
        """Check everything and return what can run; the arguments are those of `survey`."""
        chosen = as_solver(solver, **options)
        require(problem, chosen, "survey")
        assert isinstance(chosen, StepSolver)  # what slots declare
        if spans_processes(mesh):
            raise ValueError("survey: the mesh spans several processes. Give each its own points: survey_parts.")
        made = variants(problem, axes, mesh)
        design = grid(axes) if design is None else design
        if set(design.names) != set(axes):
            raise ValueError(f"survey: the design is of {design.names}, the axes are {tuple(axes)}. Make them agree.")
        heading = _heading(made, design, chosen, seed, picture, halving)
        if halving is not None:
            halving.check(heading.parts)
        return cls(made, design, chosen, seed, mesh, picture, halving, heading)

    def missing(self, ledger: Ledger, tried: Mapping[int, int]) -> list[int]:
        """Return the numbers of the points to run; tried: failed ones to run again, and how often they were tried."""
        failed = ledger.attempts()
        there = {i for i in ledger.ids() if i not in tried or failed.get(i, np.inf) > tried[i]}
        return [i for i in range(len(self.design)) if i not in there]

    def point(self, number: int, z: np.ndarray | None = None) -> Point:
        """Return a point to run."""
        return Point(number, self.design[number], z)

    def record(self, done: Finished, attempt: int) -> Record:
        """Return a finished point as the ledger keeps it."""
        dtype = PRECISIONS[self.variants.problem.precision]
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(done.params)]).astype(dtype)
        drawn = None
        if self.picture is not None and self.picture.draw is not None:
            drawn = np.asarray(self.picture.draw(done.params), np.float32)
        bad = done.status is Status.NONFINITE or not np.isfinite(done.value)
        return Record(
            id=done.point,
            axes=self.design[done.point],
            status=(Status.NONFINITE if bad else done.status).name,
            value=done.value,
            parts=done.parts,
            steps=done.steps,
            evaluations=done.evaluations,
            seconds=done.seconds,
            reason=f"{Status.NONFINITE.message}. {Status.NONFINITE.remedy}" if bad else "",
            attempt=attempt,
            params=flat.tobytes(),
            picture=drawn,
        )


def run_points(
    ready: Prepared,
    ledger: Ledger,
    numbers: list[int],
    slots: int | str | None,
    tried: Mapping[int, int],
    listeners: Iterable[Callable | None],
) -> Tally:
    """Run these points into a ledger; tried: how often some of them have failed before."""
    if not numbers:
        return Tally()
    engine = Engine(ready.variants, ready.solver, 1, ready.mesh, ready.seed)
    engine.slots, why = _slots(engine, slots, [ready.point(i) for i in numbers])
    ledger.note("slots", why)
    began = time.time()

    def write(records: list[Record]) -> None:
        ledger.write(records)
        for listener in listeners:
            if listener is not None:
                listener(records)

    if ready.halving is not None:
        _run_rungs(ready, ready.halving, engine, ledger, numbers, tried, write)
    else:
        with closing(engine.run(ready.point(i) for i in numbers)) as batches:
            for finished in batches:
                write([ready.record(done, 1 + tried.get(done.point, 0)) for done in finished])
    about = {"began": began, "seconds": engine.tally.seconds, "compile_seconds": engine.tally.compile_seconds}
    about |= {"useful": engine.tally.useful, "total": engine.tally.total, "slots": engine.slots}
    ledger.note("last run", json.dumps(about))
    return engine.tally


def _run_rungs(ready: Prepared, halving: Halving, engine: Engine, ledger: Ledger, numbers, tried, write) -> None:
    """Run points rung by rung; those that wait at the end of one are kept with their coordinates.

    Every rung is decided among all points that ever reached its end, so that a survey that was interrupted decides as
    one that was not.
    """
    rungs = halving.rungs(ready.solver.maxiter)
    dtype = PRECISIONS[ready.variants.problem.precision]
    alive = set(numbers)
    for level, steps in enumerate(rungs):
        before = ledger.rung(level - 1) if level else {}
        todo = sorted(alive - set(ledger.rung(level)))
        points = (ready.point(i, np.frombuffer(before[i][1], dtype) if level else None) for i in todo)
        engine.solver = replace(ready.solver, maxiter=steps)
        with closing(engine.run(points)) as batches:
            for finished in batches:
                ended, go_on = [], []
                for done in finished:
                    record = replace(ready.record(done, 1 + tried.get(done.point, 0)), rung=level)
                    if level:
                        record = _summed(record, before[done.point][0])
                    last = level == len(rungs) - 1 or done.status is not Status.MAX_STEPS
                    ended.append(record) if last else go_on.append((record, done.z))
                ledger.write_rung(level, go_on)
                write(ended)
        waiting = ledger.rung(level)
        scores = {i: halving.score_of(record.value, record.parts) for i, (record, _) in waiting.items()}
        rank = {i: n for n, i in enumerate(halving.ranked(scores), start=1)}
        survivors, left = halving.survivors(scores), set(ready.missing(ledger, tried))
        write(
            [
                replace(record, status=STOPPED, reason=f"rank {rank[i]} of {len(scores)} after {record.steps} steps")
                for i, (record, _) in waiting.items()
                if i in left and i not in survivors
            ]
        )
        alive = left & survivors


def _summed(record: Record, earlier: Record) -> Record:
    sums = {name: getattr(record, name) + getattr(earlier, name) for name in ("steps", "evaluations", "seconds")}
    return replace(record, **sums)


def _slots(engine: Engine, asked: int | str | None, points: list[Point]) -> tuple[int, str]:
    if asked == "measure":
        return measure_slots(engine, points)
    if asked is None:
        return choose_slots(engine, len(points))
    return int(asked), f"{asked} slots: as asked"


def check_slots(asked: int | str | None, mesh: Any) -> None:
    """Raise for a number of slots that cannot be."""
    if asked is None or asked == "measure":
        return
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise ValueError(f"survey: slots={asked!r} must be a number, at least 1, 'measure', or None to choose.")
    runs = 1 if mesh is None else mesh.shape.get("runs", 1)
    if asked % runs:
        raise ValueError(f"survey: {asked} slots cannot be split over {runs} devices. Use a multiple of {runs}.")


@in_its_precision
def _heading(made: Variants, design: Design, solver: StepSolver, seed: int, picture, halving) -> Heading:
    problem, made = made.problem, made.unplaced()
    parts = jax.eval_shape(lambda o, p, k: o.parts(p, k), problem.objective, problem.x0, jax.random.key(0))
    labels = [label_of(path) or "x" for path, _ in jax.tree_util.tree_flatten_with_path(problem.x0)[0]]
    shapes = [tuple(np.shape(leaf)) for leaf in jax.tree.leaves(problem.x0)]
    params = dict(zip(labels, shapes, strict=True))
    shown = {} if picture is None else picture.described(params, problem.x0)
    known, drawn = identity(problem, solver, seed), of_value("picture", picture)
    asked = {
        **known.facts,
        **drawn.facts,
        "solver's maxiter": solver.maxiter,  # a point that has ended is not continued
        "design": hashlib.sha256(repr((design.names, design.points)).encode()).hexdigest(),
        **{f"axis {name!r}": _axis_digest(made, name, axis) for name, axis in made.axes.items()},
        "halving": repr(halving),
    }
    return Heading(
        name=problem.name,
        total=len(design),
        axes={name: axis.unit for name, axis in made.axes.items()},
        parts=tuple(parts),
        params=params,
        dtype=np.dtype(PRECISIONS[problem.precision]).name,
        asked=asked,
        unidentified=known.unidentified + drawn.unidentified,
        **shown,
    )


def _axis_digest(made: Variants, name: str, axis: Axis) -> str:
    """Return a digest of what an axis does, so that a survey is not continued with another prior under an old name."""
    return digest([made.leaves_of({name: value}) for value in axis.values])
