"""The one device loop: a step solver runs in segments of a while_loop, and the host looks in between them.

How a run is cut into segments never changes its numbers: the loop body is compiled once and the limits are data. So a
run that was interrupted and resumed equals one that was not, to the bit.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.fast_compile import FEW, elements_in_call, fast_compile_jit
from shardfit.core.mesh import everywhere, first_says, replicate, spans_processes
from shardfit.core.objective import Objective
from shardfit.core.recent import Recent, structure
from shardfit.core.status import Status
from shardfit.solve.base import Finish, Task, evaluate_parts
from shardfit.solve.batches import Batches
from shardfit.solve.monitor import Snapshot, Trace

if TYPE_CHECKING:
    from shardfit.solve.step import StepSolver

SEGMENT = 512  # ticks a segment can record
LONGEST = 1 << 20  # ticks of a segment that records none
LITTLE = {"gram": 1 << 26}  # numbers computed in a tick: runs on normal equations have tens of ticks
LITTLE_OTHERWISE = 1 << 24  # others have hundreds
FIRST = 32  # ticks of a first segment where they take no time
SEGMENT_SECONDS = 0.25  # how long the host leaves the device alone: progress, Ctrl-C and callbacks wait this long
LARGE = 1 << 24  # bytes of a run: a segment copies it, which takes as long as some ticks where it is large
HANDED = 4  # times as long as that copy is a segment at least


class Run(NamedTuple):
    """All that a step solver's run is; this is what a checkpoint holds."""

    state: Any
    best_z: jax.Array
    best_value: jax.Array
    ticks: jax.Array
    parts: Any = None  # unweighted losses at state.x, one after the other, where they come with evaluations


class Record(NamedTuple):
    """What one segment writes down, one entry per tick."""

    value: jax.Array
    gradient: jax.Array
    step: jax.Array
    more: dict[str, Any]  # what the solver wants kept


@partial(jax.jit, static_argnums=0)
def start(solver: "StepSolver", z0: jax.Array, lower: Any, upper: Any, key: jax.Array, given: Any) -> Run:
    """Return a run before its first evaluation. key: of all that the solver draws; given: for its `begin`."""
    state = solver.begin(solver.init(z0, lower, upper), key, given)
    return Run(state, z0, jnp.full((), jnp.inf, z0.dtype), jnp.zeros((), jnp.int32))


@partial(fast_compile_jit, static_argnums=0)
def _start(solver: "StepSolver", z0: jax.Array, lower: Any, upper: Any, seed: Any, given: Any) -> Run:
    return start(solver, z0, lower, upper, jax.random.key(seed), given)  # a solver that draws nothing makes no key


def tick_once(solver: "StepSolver", space: Any, objective: Any, run: Run, key: Any) -> Run:
    """Return the run after one evaluation."""
    told = []

    def look(z):
        if run.parts is None:
            return solver.evaluate(space, objective, z, key)
        evaluation, parts = evaluate_parts(space, objective, z, key)
        if not told:  # later ones may be inside a line search's own loop and derivative, which numbers must not leave
            told.append((evaluation.value, jnp.stack([*parts.values()])))
        return evaluation

    state = solver.step(look, run.state)
    after = run._replace(state=state, ticks=run.ticks + 1)
    for value, parts in told:
        after = after._replace(parts=jnp.where(state.value == value, parts, after.parts))
    if not solver.minimises:
        return after
    better = jnp.isfinite(state.value) & (state.value < run.best_value)
    best_z, best_value = jnp.where(better, state.x, run.best_z), jnp.where(better, state.value, run.best_value)
    return after._replace(best_z=best_z, best_value=best_value)


def maintained(solver: "StepSolver", run: Run, many: bool = False) -> Run:
    """Return the run, or many runs along a leading axis, after the rare work that some are due for.

    One condition for all of them: mapped over runs, each would pay for the work at every tick.
    """
    each = jax.vmap if many else lambda fn: fn
    if jax.eval_shape(each(lambda state: solver.needs_maintenance(state)), run.state) is None:
        return run

    def work(state):
        due = each(solver.needs_maintenance)(state)

        def where_due(new, old):
            return jnp.where(due.reshape(due.shape + (1,) * (new.ndim - due.ndim)), new, old)

        return jax.tree.map(where_due, each(solver.maintain)(state), state)

    state = jax.lax.cond(jnp.any(each(solver.needs_maintenance)(run.state)), work, lambda state: state, run.state)
    return run._replace(state=state)


def answer(run: Run, noisy: bool) -> tuple[jax.Array, jax.Array]:
    """Return the point that a run has reached, and the solver's value there."""
    return _reached((run.state.x, run.state.value), (run.best_z, run.best_value), noisy, jnp)


def _reached(last: tuple, best: tuple, noisy: bool, numpy: Any) -> tuple[Any, Any]:
    """Return the last point and its value, or the best; numpy: jnp, or np for arrays on the host.

    The last one stands if it is as good as the best to rounding (a solver near convergence judges by gradients), or if
    values are noisy and say little about a single point.
    """
    as_good = last[1] - best[1] <= numpy.finfo(best[0].dtype).eps ** (2 / 3) * numpy.abs(best[1])
    stands = numpy.isfinite(last[1]) & numpy.all(numpy.isfinite(last[0])) & (noisy | as_good)
    return numpy.where(stands, last[0], best[0]), numpy.where(stands, last[1], best[1])


def _advance(
    solver: "StepSolver", space: Any, objective: Any, run: Run, key: Any, max_ticks: Any, stop_step: Any
) -> tuple[Run, Record | None]:
    """Run until the solver stops, max_ticks evaluations were made, or stop_step steps were taken."""
    key_of = partial(jax.random.fold_in, key) if objective.stochastic else lambda step: None
    limit = jnp.minimum(max_ticks, segment(solver))
    rare = jax.eval_shape(solver.needs_maintenance, run.state) is not None

    def go_on(carry):
        i, run, _ = carry
        return (i < limit) & (run.state.status == Status.RUNNING.code) & (run.state.steps < stop_step)

    def tick(carry):
        i, run, record = carry
        run = tick_once(solver, space, objective, run, key_of(run.ticks))
        if record is not None:
            state = run.state
            entry = Record(state.value, _largest(state.gradient), state.steps, solver.record(state))
            record = jax.tree.map(lambda column, new: column.at[i].set(new), record, entry)
        return i + 1, run, record

    def until_due(carry):
        # rare work lies outside of the loop over ticks: within, every tick would copy what the work may change
        began = carry[0]
        i, run, record = jax.lax.while_loop(
            lambda now: go_on(now) & ((now[0] == began) | ~solver.needs_maintenance(now[1].state)), tick, carry
        )
        return i, maintained(solver, run), record

    first = (jnp.zeros((), jnp.int32), run, _empty(solver, run) if solver.minimises else None)
    _, run, record = jax.lax.while_loop(go_on, until_due if rare else tick, first)
    return everywhere((run, record), objective.mesh)


advance = jax.jit(_advance, static_argnums=0)
_quick_advance = fast_compile_jit(_advance, static_argnums=0)


class _Program(NamedTuple):
    """A compiled `advance`, and how many ticks it takes at first: one to see how long that is, or some if little."""

    advance: Callable
    first: int


_ready = Recent()  # programs that are compiled, by the structure of a call


def _compiled(*call: Any) -> _Program:
    """Return `advance`, or what is compiled in half the time where runs are short and a tick computes little.

    How much is computed decides, not how long it takes here: a run is the same wherever it is resumed.
    """
    kind = structure(call)
    known = _ready.get(kind)
    if known is not None:
        return known
    solver = call[0]
    computed = elements_in_call(advance, *call) if solver.short_runs else np.inf
    quick = computed <= LITTLE.get(solver.needs, LITTLE_OTHERWISE)
    program = _Program(_quick_advance if quick else advance, FIRST if computed <= FEW else 1)
    jax.block_until_ready(program.advance(*call))
    return _ready.put(kind, program)


def traced_loop(solver: "StepSolver", space: Any, objective: Objective, z: Any, box: Any, key: Any) -> Any:
    """Return the loop of a fit, traced on shapes: what it will hold can be asked before there is anything."""
    lower, upper = (None, None) if box is None else (z, z)
    names = jax.eval_shape(evaluate_parts, space, objective, z, key)[1] if solver.tells_parts else []
    program = solver.program()
    run = jax.eval_shape(partial(start, program), z, lower, upper, jax.random.key(0), None)
    run = run._replace(parts=jax.ShapeDtypeStruct((len(names),), z.dtype) if names else None)
    run = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=z.sharding), run)
    return advance.trace(program, space, objective, run, key, 0, 0)


def loop_of(solver: "StepSolver", problem: Any, objective: Objective, key: Any) -> tuple[Run, Callable]:
    """Return a run at its beginning and a function (run, ticks) that takes it on, for whoever times the loop."""
    z0, program = problem.z0(), solver.program()
    lower, upper = (None, None) if problem.box is None else (np.asarray(end, z0.dtype) for end in problem.box)
    run = _start(program, z0, lower, upper, np.int64(0), None)
    run = run._replace(state=solver.populate(run.state, problem.space, 0))

    def go_on(run, ticks):
        return advance(program, problem.space, objective, run, key, ticks, LONGEST)[0]

    return run, go_on


def _empty(solver: "StepSolver", run: Run) -> Record:
    dtype = run.best_value.dtype
    more = jax.tree.map(lambda leaf: jnp.zeros((SEGMENT, *leaf.shape), leaf.dtype), solver.record(run.state))
    return Record(jnp.zeros(SEGMENT, dtype), jnp.zeros(SEGMENT, dtype), jnp.zeros(SEGMENT, jnp.int32), more)


def handing_seconds(idle: Callable[[], Any], run: Run, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long a segment takes by itself, before the first tick: `idle` is one without any."""
    if sum(leaf.nbytes for leaf in jax.tree.leaves(run)) < LARGE:
        return 0.0
    began = clock()
    jax.block_until_ready(idle())
    return clock() - began


def ticks_ahead(done: int, seconds: float, handing: float, most: int) -> int:
    """Return for how many ticks to leave the device alone, after so many took so many seconds."""
    each = max(seconds - handing, 0.1 * seconds) / max(1, done)
    return int(np.clip(max(SEGMENT_SECONDS, HANDED * handing) / each, 1, most))


def segment(solver: "StepSolver") -> int:
    """Return how many ticks the device may be left alone."""
    return SEGMENT if solver.minimises else LONGEST


def run_steps(solver: "StepSolver", task: Task) -> Finish:
    """Run a step solver to its end, on all rows or on mini-batches, each for as many ticks as the solver repeats."""
    if not solver.batch:
        return _run(solver, task, lambda tick: task.objective)
    with Batches(task, solver.batch) as batches:
        return _run(solver, task, lambda tick: batches.at(tick // solver.repeats))


def _run(solver: "StepSolver", task: Task, rows_of: Callable[[int], Objective]) -> Finish:
    space, monitor, program = task.space, task.monitor, solver.program()
    objective = rows_of(0)
    key = jax.random.key(task.seed) if objective.stochastic else None
    names = [*jax.eval_shape(evaluate_parts, space, objective, task.z0, key)[1]] if solver.tells_parts else []
    # where the loop leaves its state: a run placed otherwise would compile the loop a second time
    run = replicate(_begun(solver, task, len(names)), objective.mesh)
    began = time.perf_counter()
    # no ticks: this call only compiles; nothing keeps its arguments, for a state may be most of what a fit holds
    advance, ticks = _compiled(program, space, objective, run, key, 0, 0)
    compile_seconds = time.perf_counter() - began
    task.ready()

    if monitor.store is not None:
        run = replicate(monitor.restore(run), objective.mesh)
    handing = handing_seconds(lambda: advance(program, space, objective, run, key, 0, 0), run)
    noisy = bool(solver.batch) or bool(objective.stochastic)
    stopped = None
    try:
        while _running(run, solver):
            steps = int(run.state.steps)
            before = int(run.ticks)
            objective = rows_of(before)
            if solver.batch:
                ticks = solver.repeats - before % solver.repeats
            began = time.perf_counter()
            stop = min(solver.maxiter, monitor.next_stop(steps))
            run, record = advance(program, space, objective, run, key, ticks, stop)
            done = int(run.ticks) - before
            if record is not None:
                record = jax.tree.map(lambda column, done=done: np.asarray(column)[:done], record)
                more = _thinned(record, solver)
                if solver.points > 1:
                    more["evaluation"] = solver.points * np.arange(before + 1, before + done + 1)
                monitor.trace.extend(record.value, record.gradient, record.step, more)
            seconds = time.perf_counter() - began
            monitor.check_start(run.state)
            ticks = ticks_ahead(done, seconds, handing, segment(solver))
            leave = monitor.look(partial(_snapshot, solver, space, run, noisy, monitor.trace), run)
            if spans_processes(objective.mesh):  # clocks and callbacks may differ, what is done must not
                ticks, leave = (int(x) for x in first_says(np.array([ticks, leave]), objective.mesh))
            if leave:
                stopped = Status.INTERRUPTED
                break
    except KeyboardInterrupt:
        if spans_processes(objective.mesh):
            raise  # the others are not where this process is
        stopped = Status.INTERRUPTED
    monitor.save(run)
    finish = _finish(run, solver, stopped, noisy, compile_seconds)
    if not names or noisy or not task.trusted or not np.array_equal(finish.z, run.state.x):
        return finish
    return finish._replace(parts=dict(zip(names, np.asarray(run.parts, float).tolist(), strict=True)))


def _begun(solver: "StepSolver", task: Task, parts: int) -> Run:
    """Return the run before its first evaluation. parts: how many come with one."""
    z0 = task.z0
    lower, upper = (None, None) if task.box is None else (np.asarray(end, z0.dtype) for end in task.box)
    run = _start(solver.program(), z0, lower, upper, np.int64(task.seed), task.given)
    state = solver.populate(run.state, task.space, task.seed)
    if any(task.earlier):
        steps, evaluations = task.earlier
        change = state._replace if hasattr(state, "_replace") else partial(dataclasses.replace, state)
        run, state = run._replace(ticks=np.int32(evaluations // solver.points)), change(steps=np.int32(steps))
    return run._replace(state=state, parts=np.zeros(parts, z0.dtype) if parts else None)


def _running(run, solver):
    return int(run.state.status) == Status.RUNNING.code and int(run.state.steps) < solver.maxiter


def _largest(gradient):
    return jnp.array(jnp.nan) if gradient is None else jnp.max(jnp.abs(gradient), initial=0)


def _thinned(record: Record, solver: "StepSolver") -> dict[str, np.ndarray]:
    """Return the entries of every keep-th step."""
    chosen = solver.kept(np.asarray(record.step))
    return {name: column[chosen] for name, column in record.more.items()}


def _snapshot(solver, space, run, noisy, trace: Trace) -> Snapshot:
    z = run.state.x if noisy else run.best_z
    state, evaluations = run.state, int(run.ticks) * solver.points
    largest = np.nan if state.gradient is None else float(np.max(np.abs(np.asarray(state.gradient)), initial=0))
    return Snapshot(
        int(state.steps),
        evaluations,
        float(state.value),
        largest,
        trace.seconds(),
        z,
        space,
        slope=state.gradient,
        glance=solver.glance(state),
    )


def _finish(run, solver, stopped, noisy, compile_seconds):
    status = Status.of(run.state.status)
    if status is Status.RUNNING:
        status = stopped or Status.MAX_STEPS
    steps, evaluations = int(run.state.steps), int(run.ticks) * solver.points
    z, value = last = np.asarray(run.state.x), np.asarray(run.state.value)
    if solver.minimises:
        with np.errstate(invalid="ignore"):  # a run that met no finite value
            z, value = _reached(last, (np.asarray(run.best_z), np.asarray(run.best_value)), noisy, np)
    there = np.isfinite(value) and np.array_equal(z, last[0])
    return Finish(
        z,
        None if noisy else float(value),
        status,
        steps,
        evaluations,
        compile_seconds,
        note=solver.note(run.state),
        leaves=solver.leave(run.state),
        equations=solver.equations(run.state) if there else None,
    )
