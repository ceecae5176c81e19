"""Host solvers: a function of NumPy vectors, with the best finite point, a history, and a journal for resuming.

A host solver keeps its state to itself, so a resumed run replays the journal of its evaluations: the solver takes the
same path without evaluating anything, then goes on.

On a mesh of several processes the first of them runs the solver and says where to evaluate; the others follow. So the
solver's own arithmetic, which may differ between machines, happens once.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.errors import CheckpointError, LeaderFailedError, NonFiniteError
from shardfit.core.mesh import first_says, leads, ranks_of, spans_processes
from shardfit.core.status import Status
from shardfit.distributed.exchange import share
from shardfit.solve.base import Finish, Solver, Task, evaluate_parts
from shardfit.solve.monitor import Monitor, Snapshot

EVALUATE, DIAGNOSE, END, FAIL = range(4)  # what the first process says to the others


class Outcome(NamedTuple):
    """What a host solver hands back."""

    z: np.ndarray
    status: Status
    steps: int
    note: str = ""


class HostSolver(Solver):
    """A solver with a loop of its own on the host."""

    def solve(self, task: Task) -> Finish:
        """Run to the end and keep the best finite point whatever happens."""
        return run_host(self, task)

    def vectors(self) -> int:
        """Return about how many vectors as long as the parameters are kept, of 64 bits."""
        return 10

    def minimise(self, function: Any, z0: np.ndarray, lower: Any, upper: Any) -> Outcome:
        """Minimise function(z) -> (value, gradient), calling function.step(z, value) after each iteration."""
        raise TypeError(f"{type(self).__name__} must define minimise")


class Stop(Exception):
    """Ends a host solver from within its function."""


class HostFunction:
    """value_and_grad on float64 NumPy vectors, as scipy and its like expect."""

    def __init__(self, space: Any, objective: Any, z0: np.ndarray, maxiter: int, monitor: Monitor, earlier=(0, 0)):
        self.space, self.objective, self.dtype = space, objective, z0.dtype
        self.maxiter, self.monitor = maxiter, monitor
        self.best_z, self.best_value = np.array(z0), np.inf
        self.worst_value = -np.inf
        self.steps, self.evaluations = earlier
        self.earlier, self.saw_nonfinite = self.steps, False
        self.last_gradient = np.nan
        self.unit = 1.0  # largest gradient component at the start
        self.journal = monitor.store.journal(z0) if monitor.store else None
        self.followed = spans_processes(objective.mesh)

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient (n,) as float64."""
        z = np.asarray(z, self.dtype)
        recorded = self.journal.replay(z) if self.journal else None
        if recorded is None:
            self.say(EVALUATE, z)
            point, _ = evaluate_parts(self.space, self.objective, z, None)
            value, gradient = float(point.value), np.asarray(point.gradient)
            if self.journal:
                self.journal.append(z, value, gradient)
        else:
            value, gradient = recorded
        self.evaluations += 1
        finite = np.isfinite(value) and bool(np.isfinite(gradient).all())
        if len(self.monitor.trace) == 0 and not finite and self.monitor.diagnose:
            self.say(DIAGNOSE, z)
            self.monitor.diagnose()
        if finite and value < self.best_value:
            self.best_z, self.best_value = z.copy(), value
        self.last_gradient = float(np.max(np.abs(gradient)))
        self.monitor.trace.extend(value, self.last_gradient, self.steps)
        if not finite:
            # line searches go astray on NaN; a moderately high value makes them come back
            self.saw_nonfinite = True
            return self.worst_value + abs(self.worst_value) + 1.0, np.zeros(z.shape)
        self.worst_value = max(self.worst_value, value)
        return value, np.asarray(gradient, np.float64)

    def say(self, what: int, z: np.ndarray) -> None:
        """Tell the other processes, if there are any, what comes next."""
        if self.followed:
            first_says(np.append(z, z.dtype.type(what)), self.objective.mesh)

    def step(self, z: np.ndarray | None = None) -> None:
        """Count an iteration, show it, and end the solver when the limit is reached or the user asks."""
        self.steps += 1
        replaying = self.journal is not None and self.journal.position < self.journal.size
        if not replaying and self.monitor.look(self._snapshot):
            raise Stop
        if self.steps >= self.maxiter:
            raise Stop

    def _snapshot(self):
        return Snapshot(
            self.steps,
            self.evaluations,
            self.best_value,
            self.last_gradient,
            self.monitor.trace.seconds(),
            self.best_z,
            self.space,
        )


def run_host(solver: HostSolver, task: Task) -> Finish:
    """Run a host solver to its end and keep the best finite point whatever happens."""
    space, objective, z0, monitor = task.space, task.objective, task.z0, task.monitor
    # a call outside the solver, so that compile time is known; it is not counted
    began = monitor.trace.seconds()
    start, _ = jax.block_until_ready(evaluate_parts(space, objective, np.asarray(z0), None))
    compile_seconds = monitor.trace.seconds() - began
    task.ready()
    if not leads(objective.mesh):
        return _follow(space, objective, z0, monitor)
    function = HostFunction(space, objective, z0, solver.maxiter, monitor, task.earlier)
    function.unit = float(np.max(np.abs(start.gradient), initial=0.0)) or 1.0
    said = FAIL
    try:
        finish = _minimise(solver, function, z0, task.box, monitor)._replace(compile_seconds=compile_seconds)
        said = END
    finally:
        function.say(said, z0)
        if function.journal:
            function.journal.close()
    if function.followed:
        share(_packed(finish, monitor), objective.mesh)
    return finish


def _minimise(solver, function, z0, box, monitor) -> Finish:
    lower, upper = box if box is not None else (None, None)
    note = ""
    try:
        outcome = solver.minimise(function, np.asarray(z0, np.float64), lower, upper)
        status, note = outcome.status, outcome.note
        function.steps = max(function.steps, function.earlier + outcome.steps)
    except Stop:
        status = Status.INTERRUPTED if monitor.stopped_by else Status.MAX_STEPS
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if not np.isfinite(function.best_value):
        raise CheckpointError("no evaluation gave a finite value; nothing can be returned.")
    if not status.converged and status is not Status.MAX_STEPS and function.saw_nonfinite:
        status = Status.NONFINITE if status is not Status.INTERRUPTED else status
    return Finish(function.best_z, function.best_value, status, function.steps, function.evaluations, note=note)


def _follow(space, objective, z0, monitor) -> Finish:
    """Evaluate where the first process says until it ends; return what it found."""
    leader = ranks_of(objective.mesh)[0]
    reason: Exception = LeaderFailedError(f"the solver failed in rank {leader}; its message says why.")
    while True:
        said = first_says(np.append(z0, z0.dtype.type(0)), objective.mesh)
        z, what = said[:-1], int(said[-1])
        if what == EVALUATE:
            jax.block_until_ready(evaluate_parts(space, objective, z, None))
        elif what == DIAGNOSE:
            try:
                monitor.diagnose()
            except NonFiniteError as error:
                reason = error  # the first process has found the same and is about to say that it fails
        elif what == FAIL:
            raise reason
        else:
            return _unpacked(share({}, objective.mesh), monitor)


def _packed(finish: Finish, monitor: Monitor) -> dict[str, np.ndarray]:
    numbers = np.array([finish.status.code, finish.steps, finish.evaluations])
    texts = np.array([finish.note, monitor.stopped_by])
    history = {f"history_{name}": column for name, column in monitor.trace.arrays().items()}
    parts = {f"part_{name}": np.array(part) for name, part in (finish.parts or {}).items()}
    return {
        "z": finish.z,
        "value": np.array(finish.value),
        "numbers": numbers,
        "texts": texts,
        "seconds": np.array(finish.compile_seconds),
        **parts,
        **history,
    }


def _unpacked(arrays: dict[str, np.ndarray], monitor: Monitor) -> Finish:
    monitor.trace.restore(_named("history_", arrays))
    parts = {name: float(part) for name, part in _named("part_", arrays).items()}
    code, steps, evaluations = (int(number) for number in arrays["numbers"])
    note, monitor.stopped_by = map(str, arrays["texts"])
    return Finish(
        arrays["z"],
        float(arrays["value"]),
        Status.of(code),
        steps,
        evaluations,
        float(arrays["seconds"]),
        note,
        parts=parts or None,
    )


def _named(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
