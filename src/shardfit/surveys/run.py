"""survey: run every point of a design once, keep the answers, and go on after any crash."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.current import as_they_are
from shardfit.core.loaded_programs import release_compiled_programs
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.io.compile_cache import not_kept, programs_kept
from shardfit.io.lock import only_writer
from shardfit.surveys.axes import Axis
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import Design
from shardfit.surveys.engine import Engine, Tally
from shardfit.surveys.halving import Halving
from shardfit.surveys.ledger import Ledger, require_begun
from shardfit.surveys.picture import Picture
from shardfit.surveys.point import STOPPED, SurveyPoint
from shardfit.surveys.prepared import Prepared, left_out_of
from shardfit.surveys.progress import SurveyProgress
from shardfit.surveys.reading import Survey
from shardfit.surveys.sizing import choose_slots, measure_slots
from shardfit.surveys.solvers import require_to_go_on
from shardfit.surveys.sweep import SweepQueue, turns_of


@programs_kept()
def survey(
    problem: Problem,
    axes: Mapping[str, Axis],
    *,
    run_dir: str | Path,
    design: Design | None = None,
    solver: Any = "lbfgs",
    mesh: Any = None,
    seed: int = 0,
    picture: Picture | None = None,
    halving: Halving | None = None,
    sweep: str | None = None,
    polish: int = 0,
    control: SurveyControl | None = None,
    **options: Any,
) -> Survey:
    """Fit one problem at every point of a design, many at a time, and return the table of all answers.

    Parameters
    ----------
    problem
        what is fitted.
    axes
        what varies, by name.
    run_dir
        holds the ledger; the same call continues an earlier one, with any number of slots and devices (unless
        control.resume says otherwise).
    design
        which points; None: every combination of the axes' values.
    solver, options
        any solver of one evaluation per step, and its options.
    mesh
        slots are split over its axis `runs`, rows over `rows`.
    seed
        of all random numbers.
    picture
        what of the parameters is an image.
    halving
        give up hopeless points early.
    sweep
        an axis along which each point starts where that with the next larger value ended; None: all have their own
        start. Which starts where is kept in the ledger, column `parent`, and does not depend on timing.
    polish
        most further steps in float64 for points that did not converge, when all that start from each other have
        ended; 0: none.
    control
        slots, limits and callbacks.

    Example: `survey(problem, {"tv": weight_axis("reg.tv", (0, 1, 10))}, run_dir="runs/tv", maxiter=100)`.

    """
    release_compiled_programs()
    control = control or SurveyControl()
    control.check(mesh)
    for name in options:
        if name in {field.name for field in fields(SurveyControl)}:
            raise TypeError(f"survey: {name} is one of control's: control=SurveyControl({name}=...).")
    choices = {"design": design, "solver": solver, "seed": seed, "mesh": mesh, "picture": picture, "halving": halving}
    choices |= {"sweep": sweep, "polish": polish}
    with as_they_are(problem, solver, picture, *axes.values()):
        return _survey(problem, axes, run_dir, control, choices | options)


def _survey(
    problem: Problem, axes: Mapping[str, Axis], run_dir: str | Path, control: SurveyControl, choices: dict
) -> Survey:
    left_out = left_out_of(run_dir) if control.resume != "never" else {}
    prepared, halving = Prepared.make(problem, axes, left_out=left_out, **choices), choices["halving"]
    require_to_go_on(prepared.solver, more=control.more)
    if control.limit is not None and halving is not None:
        raise ValueError(f"survey: limit={control.limit} does not go with halving, which ranks all points.")
    require_begun(run_dir, control.resume)
    with only_writer(run_dir), Ledger.begin(run_dir, prepared.heading, control.resume) as ledger:
        ledger.gather()
        ledger.drop_parts()
        tried = ledger.attempts() if control.retry else {}
        show = SurveyProgress(problem.name, ledger, control.progress)
        points = [prepared.point(i, tried) for i in prepared.missing(ledger, tried)[: control.limit]]
        told = control.on_points and not_kept(control.on_points)
        run_points(prepared, ledger, points, control.slots, [show, told])
        polish_points(prepared, ledger, control, [show, control.on_points])
        show.close()
    return Survey(run_dir)


def run_points(
    prepared: Prepared,
    ledger: Ledger,
    points: list[SurveyPoint],
    slots: int | str | None,
    listeners: Iterable[Callable | None] = (),
    starts: Mapping[int, np.ndarray | None] | None = None,
) -> Tally:
    """Run these points into a ledger; listeners are called with the points of every write.

    starts: where points begin whose parents this ledger does not have, by parent.
    """
    if not points:
        return Tally()
    began, tally = time.time(), Tally()

    def write(ended: list[SurveyPoint]) -> None:
        ledger.write(ended)
        for listener in listeners:
            if listener is not None:
                listener(ended)

    known = starts or {}
    for solver, some in prepared.solvers.groups(points):
        engine = prepared.engine(prepared.variants, solver)
        engine.tally = tally
        engine.slots, why = _slots(engine, slots, some)
        ledger.note("slots", why)
        if prepared.halving is not None:
            _run_rungs(prepared, prepared.halving, engine, ledger, some, write)
            continue
        queue = SweepQueue(
            some, prepared.parents, lambda i: known[i] if i in known else prepared.start_from(ledger.record(i))
        )
        with closing(engine.run(queue)) as batches:
            for ended in batches:
                write(ended)
                queue.ended(ended)
    counts = {"began": began, "seconds": tally.seconds, "compile_seconds": tally.compile_seconds}
    counts |= {"useful": tally.useful, "total": tally.total, "slots": tally.slots}
    ledger.note("last run", json.dumps(counts))
    return tally


def polish_points(
    prepared: Prepared, ledger: Ledger, control: SurveyControl, listeners: Iterable[Callable | None] = ()
) -> None:
    """Go on in float64 with points that met no tolerance, once all points that start from each other have ended.

    Not before: a point starts from what its parent found by itself, whenever it starts. Each is polished once; with
    control.more all that have still not converged go on, for so many steps.
    """
    turns, missing = turns_of(prepared.parents), prepared.missing(ledger, {})
    if missing and prepared.halving is not None:  # which ranks all points
        return
    begun = {turns[i][0] for i in missing}
    steps = control.more or prepared.polish
    chosen = [i for i, attempt in ledger.unconverged().items() if control.more or attempt == 1]
    chosen = [i for i in chosen if turns[i][0] not in begun]
    if not (steps and chosen):
        return
    double = prepared.in_double()
    for solver, some in prepared.solvers.groups(prepared.point(i, {}) for i in chosen):
        solver = replace(solver, maxiter=steps)
        engine = prepared.engine(double.variants, solver)
        engine.slots, _ = _slots(engine, control.slots, some)
        with closing(engine.run(_again(double, ledger, [point.id for point in some]))) as batches:
            for ended in batches:
                done = [_kept(point, prepared.heading.dtype).after(ledger.record(point.id)) for point in ended]
                ledger.write(done)
                for listener in listeners:
                    if listener is not None:
                        listener(done)


def _again(double: Prepared, ledger: Ledger, numbers: Iterable[int]) -> Iterator[SurveyPoint]:
    for number in numbers:
        record = ledger.record(number)
        z = double.start_from(record, lift=False)
        yield replace(double.point(number, {number: record.attempt}), z=z, parent=record.parent)


def _kept(point: SurveyPoint, dtype: str) -> SurveyPoint:
    """Return a point with its parameters as the ledger keeps them."""
    return replace(point, params=np.frombuffer(point.params, "float64").astype(dtype).tobytes())


def _run_rungs(prepared: Prepared, halving: Halving, engine: Engine, ledger: Ledger, points: list, write) -> None:
    """Run points rung by rung; those that wait at the end of one are kept with their coordinates.

    Every rung is decided among all points that ever reached its end, so that a survey that was interrupted decides as
    one that was not.
    """
    rungs = halving.rungs(prepared.solver.maxiter)
    tried = {point.id: point.attempt - 1 for point in points if point.attempt > 1}
    alive = {point.id: point for point in points}
    for level, steps in enumerate(rungs):
        before = ledger.rung(level - 1) if level else {}
        there = ledger.rung(level)
        todo = [replace(point, rung=level) for i, point in sorted(alive.items()) if i not in there]
        if level:
            todo = [replace(point, z=before[point.id].z) for point in todo]
        engine.solver = replace(prepared.solver, maxiter=steps)
        with closing(engine.run(todo)) as batches:
            for batch in batches:
                batch = [point.after(before[point.id]) if level else point for point in batch]
                goes_on = [level < len(rungs) - 1 and point.status == Status.MAX_STEPS.name for point in batch]
                ledger.write_rung(level, [point for point, more in zip(batch, goes_on, strict=True) if more])
                write([point for point, more in zip(batch, goes_on, strict=True) if not more])
        waiting = ledger.rung(level)
        scores = {i: halving.score_of(point.value, point.parts) for i, point in waiting.items()}
        rank = {i: n for n, i in enumerate(halving.ranked(scores), start=1)}
        survivors, left = halving.survivors(scores), set(prepared.missing(ledger, tried))
        write(
            [
                replace(point, status=STOPPED, reason=f"rank {rank[i]} of {len(scores)} after {point.steps} steps")
                for i, point in waiting.items()
                if i in left and i not in survivors
            ]
        )
        alive = {i: prepared.point(i, tried) for i in left & survivors}


def _slots(engine: Engine, slots: int | str | None, points: list[SurveyPoint]) -> tuple[int, str]:
    if slots == "measure":
        return measure_slots(engine, points)
    if slots is None:
        return choose_slots(engine, len(points))
    return int(slots), f"{slots} slots: as given"
