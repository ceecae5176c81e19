"""A fit in legs: where a success is not confirmed, the solver goes on from the better point, with scale taken anew."""

from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.status import Status
from shardfit.core.success import listed
from shardfit.solve.base import Finish, Solver, Task
from shardfit.solve.confirm import Finding, confirm
from shardfit.solve.scale import natural, scaled_solve, starting_scale

LEGS = 20
SAME = 1e-3  # relative difference of values beyond which they are not of the same objective
CLAIMED = (Status.CONVERGED_GRADIENT, Status.CONVERGED_VALUE, Status.CONVERGED_STEP)
UNSEEN = "The tolerances were met at the start: nothing was fitted, and whether it is a minimum was not looked at."
UNCLEAR = (
    "The slope at the answer promises a lower value, but no step along it gave one: a valley so narrow that rounding "
    "hides its direction. Other parameters, or solver 'lm', may see it."
)


def solve_in_legs(solver: Solver, task: Task, x_scale: Any) -> Finish:
    """Run a solver, and again from its answer for as long as that is no success that stands."""
    scale = start = starting_scale(solver, task, x_scale)
    trace, first = task.monitor.trace, len(task.monitor.trace)
    finish = scaled_solve(solver, task, scale)
    for leg in range(2, LEGS + 2):
        if not _is_judged(solver, task, finish, onward=leg > 2):
            break
        found = _looked(solver, task, finish, leg, start, trace.value(first), x_scale is not None)
        finish = finish._replace(evaluations=finish.evaluations + found.evaluations)
        seen = found.value + found.gain
        if finish.value is not None and not np.isclose(finish.value, seen, rtol=SAME, atol=found.allowed):
            return finish  # the value is not the objective's, which is another error
        if found.confirmed:
            vanished = found.value <= np.finfo(task.z0.dtype).eps ** 2 * abs(trace.value(0))
            return _confirmed(task, finish, found._replace(unclear=found.unclear and not vanished))
        if not solver.scaled and finish.status is Status.STALLED:
            return finish  # nothing was claimed, and somebody else's solver may have reasons for what it leaves
        note = (
            f"From the answer of leg {leg - 1} ({finish.status.name}), {found.evaluations} evaluations lowered the "
            f"value by {found.gain:.3g}: it went on from there."
        )
        searched = solver.needs == "value"
        spent = finish.steps >= solver.maxiter and not searched
        if leg > LEGS or spent:
            return _moved(finish, found, Status.MAX_STEPS if spent else Status.STALLED, note)
        if searched:
            # a search would begin anew in the whole box: looks go on by themselves
            finish = _moved(finish, found, finish.status, note)
            continue
        lengths = found.lengths
        scale = None if scale is None else scale if x_scale is not None or lengths is None else lengths
        scale = None if scale is None else scale.astype(task.z0.dtype)
        onward = replace(task, z0=found.z, earlier=(finish.steps, finish.evaluations))
        if task.monitor.store:
            task.monitor.store.leg = leg
        first = len(trace)
        after = scaled_solve(solver, onward, scale)
        if after.value is not None and not after.value <= found.value:
            after = _moved(after, found, after.status, after.note)
        finish = after._replace(compile_seconds=finish.compile_seconds + after.compile_seconds, note=after.note)
    if finish.status.converged and finish.steps == 0 and solver.needs == "value_and_grad":
        return finish._replace(note=" ".join(filter(None, (finish.note, UNSEEN))))
    return finish


def _is_judged(solver: Solver, task: Task, finish: Finish, onward: bool) -> bool:
    """Return whether an end can be looked at: of an objective that is the same at every evaluation.

    onward: an earlier leg has claimed success: steps of a length of their own then run out where nothing is to gain.
    """
    able = solver.confirmed and not finish.stands and task.placed is not None and not task.objective.stochastic
    # of a search that has stalled nothing is expected
    without_claim = (Status.STALLED, Status.MAX_STEPS) if onward and solver.slow else (Status.STALLED,)
    return able and (finish.status in CLAIMED or (solver.needs != "value" and finish.status in without_claim))


def _looked(solver: Solver, task: Task, finish: Finish, leg: int, start: Any, began: float, given: bool) -> Finding:
    store = task.monitor.store
    earlier = store.load_leg(leg) if store else None
    if earlier is not None:
        return Finding.of(earlier)
    found = confirm(solver, task, finish.z, _scale(solver, task, finish.z, start, given), began)
    if store and not found.confirmed:
        store.save_leg(leg, found._asdict())
    return found


def _scale(solver: Solver, task: Task, z: np.ndarray, start: Any, given: bool) -> np.ndarray:
    """Return the scale of the first evaluations: the widths of the box for what searches in one."""
    if solver.needs == "value" and task.box is not None:
        lower, upper = (np.asarray(end, z.dtype) for end in task.box)
        return np.where(upper > lower, upper - lower, 1).astype(z.dtype)
    if start is None:
        return natural(task, z, natural(task, task.z0))
    return start if given else natural(task, z, start)


def _confirmed(task: Task, finish: Finish, found: Finding) -> Finish:
    """Return the finish of an answer that stands: a run that could not go lower had arrived."""
    finish = finish._replace(stands=True)
    if finish.status in (Status.STALLED, Status.MAX_STEPS):
        finish = finish._replace(status=Status.CONVERGED_VALUE)
    if found.unclear:
        finish = finish._replace(doubts=(UNCLEAR,))
    if not len(found.flat):
        return finish
    labels = task.space.coordinate_labels()
    names = listed([labels[i] for i in found.flat])
    return finish._replace(
        doubts=(
            *finish.doubts,
            f"At the answer the value does not depend on {names}.",
        )
    )


def _moved(finish: Finish, found: Finding, status: Status, note: str) -> Finish:
    note = " ".join(filter(None, (finish.note, note)))
    return finish._replace(z=found.z, value=found.value, status=status, note=note, parts=None, equations=None)
