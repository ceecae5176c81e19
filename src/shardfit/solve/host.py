"""Host solvers: a function of NumPy vectors, with the best finite point, a history, and a journal for resuming.

A host solver keeps its state to itself, so a resumed run replays the journal of its evaluations: the solver takes the
same path without evaluating anything, then goes on.
"""

from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.core.status import Status
from shardfit.solve.base import HostSolver, evaluate
from shardfit.solve.loop import Finish
from shardfit.solve.monitor import Monitor, Snapshot


class Stop(Exception):
    """Ends a host solver from within its function."""


class HostFunction:
    """value_and_grad on float64 NumPy vectors, as scipy and its like expect."""

    def __init__(self, space: Any, objective: Any, z0: np.ndarray, maxiter: int, monitor: Monitor):
        self.space, self.objective, self.dtype = space, objective, z0.dtype
        self.maxiter, self.monitor = maxiter, monitor
        self.best_z, self.best_value = np.array(z0), np.inf
        self.worst_value = -np.inf
        self.steps, self.evaluations, self.saw_nonfinite = 0, 0, False
        self.last_gradient = np.nan
        self.journal = monitor.store.journal(z0) if monitor.store else None

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient (n,) as float64."""
        z = np.asarray(z, self.dtype)
        found = self.journal.replay(z) if self.journal else None
        if found is None:
            point = evaluate("value_and_grad", self.space, self.objective, z, None)
            found = float(point.value), np.asarray(point.gradient)
            if self.journal:
                self.journal.append(z, *found)
        value, gradient = found
        self.evaluations += 1
        finite = np.isfinite(value) and bool(np.isfinite(gradient).all())
        if self.evaluations == 1 and not finite and self.monitor.diagnose:
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


def run_host(solver: HostSolver, space: Any, objective: Any, z0: np.ndarray, box: Any, monitor: Monitor) -> Finish:
    """Run a host solver to its end and keep the best finite point whatever happens."""
    function = HostFunction(space, objective, z0, solver.maxiter, monitor)
    # a call outside the solver, so that compile time is known; it is not counted
    began = monitor.trace.seconds()
    evaluate("value_and_grad", space, objective, np.asarray(z0), None)[0].block_until_ready()
    compile_seconds = monitor.trace.seconds() - began
    lower, upper = box if box is not None else (None, None)
    note = ""
    try:
        outcome = solver.minimise(function, np.asarray(z0, np.float64), lower, upper)
        status, note = outcome.status, outcome.note
        function.steps = max(function.steps, outcome.steps)
    except Stop:
        status = Status.INTERRUPTED if monitor.stopped_by else Status.MAX_STEPS
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    finally:
        if function.journal:
            function.journal.close()
    if not np.isfinite(function.best_value):
        raise CheckpointError("no evaluation gave a finite value; nothing can be returned.")
    if not status.converged and status is not Status.MAX_STEPS and function.saw_nonfinite:
        status = Status.NONFINITE if status is not Status.INTERRUPTED else status
    return Finish(function.best_z, status, function.steps, function.evaluations, compile_seconds, note)
