"""fit: one call from a problem to a result."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.check.agreement import require_same_value
from shardfit.check.certificate import Certificate, certify_answer, compile_ahead
from shardfit.check.certificate import certify as certify_start
from shardfit.check.identity import identity, of_value, probe_digest, settings
from shardfit.core.centring import centred
from shardfit.core.current import at_work, outside
from shardfit.core.errors import NonFiniteError, ParityError
from shardfit.core.evaluations import named_parts
from shardfit.core.functions import shared_problem
from shardfit.core.loaded_programs import release_compiled_programs
from shardfit.core.mesh import layout, leads, ranks_of, spans_processes
from shardfit.core.objective import Objective
from shardfit.core.params import label_of
from shardfit.core.precision import in_caller_precision
from shardfit.core.problem import Problem
from shardfit.core.reduce import scaled_losses
from shardfit.core.result import Result
from shardfit.core.rules import called
from shardfit.core.status import Status
from shardfit.core.terms import Penalty
from shardfit.distributed.exchange import meet, require_same, share
from shardfit.io.compile_cache import not_kept, programs_kept
from shardfit.io.progress import FitLive, Progress
from shardfit.io.run_dir import RunDir, opened
from shardfit.solve.base import Finish, Solver, Task
from shardfit.solve.capabilities import require
from shardfit.solve.legs import solve_in_legs
from shardfit.solve.monitor import Monitor, Snapshot
from shardfit.solve.registry import as_solver
from shardfit.solve.scrutiny import scrutiny

ANEW = "Programs are traced anew at every fit, because it cannot be known what has changed: {}."


@programs_kept()
def fit(
    problem: Problem,
    solver: Any = None,
    *,
    mesh: Any = None,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    x_scale: Any = None,
    callback: Callable[[Snapshot], Any] | None = None,
    every: int = 10,
    seed: int = 0,
    certify: bool = True,
    progress: bool | None = None,
    **options: Any,
) -> Result:
    """Minimise a problem's objective.

    solver: None (scipy L-BFGS-B), a name ('lbfgsb', 'lbfgs', 'lbfgs-bt', 'adam', 'adamw', 'sgd', 'rmsprop', 'lm',
    'lm-cg', 'swarm') with its options as keywords, a Solver object, any optax transformation, any optimistix solver, or
    a callable.
    mesh: devices to split the rows over, from `shardfit.mesh`; the answer does not depend on it.
    x_scale: what a change of 1 is to the solver, as in scipy: numbers like x0 (1.0: parameters as they are), or 'jac'
    for lengths that change the residuals as much in every parameter. None: the start's own size, to the solvers
    named 'lbfgsb', 'lbfgs', 'lbfgs-bt', 'adam', 'adamw', 'sgd' and 'rmsprop'; 'lm' is scale-free by itself.
    run_dir: folder for checkpoints and the result; resume: 'auto' continues an earlier call if there is one, 'must'
    fails if there is none, 'never' starts over. callback(snapshot) is called every `every` steps; returning True ends
    the fit.
    certify: check gradient, blocks and sharding on some of the rows, before the fit and at its answer.
    progress: None shows it on a terminal or for long runs.

    Example: `fit(problem, "lbfgs", maxiter=200, mesh=shardfit.mesh(rows=4))`.
    """
    began = time.perf_counter()
    release_compiled_programs()
    solver = as_solver(solver, **options)
    require(problem, solver, callback=callback is not None, run_dir=run_dir is not None)
    if every < 1:
        raise ValueError(f"every={every} must be at least 1 step.")
    callback = callback and not_kept(outside(in_caller_precision(callback)))
    mesh, problem = _common_mesh(problem, mesh), shared_problem(problem)
    with opened(run_dir) as store, at_work(problem, solver) as unread:
        _require_agreement(problem, solver, mesh, seed, x_scale)
        known = _identity(problem, solver, seed, x_scale)
        earlier = store and _earlier(store, problem, solver, known, resume, mesh)
        if earlier is not None:
            return earlier
        z0, start = problem.z0(), _Start(problem, solver, mesh, seed, certify)
        with _monitor(problem, solver, mesh, store, progress) as monitor:
            monitor.callback, monitor.every = callback if leads(mesh) else None, every if callback else None
            placed = None if solver.batch else centred(problem.objective.place(mesh), problem.x0)
            monitor.diagnose = partial(_diagnose, problem, placed)
            about = {"trusted": not certify, "ready": start.certified}
            task = Task(problem, problem.space, z0, problem.box, placed, mesh, seed, monitor, **about)
            finish = solve_in_legs(solver, task, x_scale) if z0.size else _nothing_to_fit(task)
        result = _result(task, solver, finish)
        certificate = start.certified()
        solved = time.perf_counter()
        certificate = _judged(task, finish, result, certificate)
        checking = start.seconds + time.perf_counter() - solved
        result = _noted(result, certificate, unread)
        result = replace(result, timings=_timings(time.perf_counter() - began, checking, finish.compile_seconds))
        if spans_processes(mesh):
            result = _with_times_of_first(result, mesh)
        return result if store is None else store.finish(result)


def _earlier(store: RunDir, problem: Problem, solver: Solver, identity: Any, resume: str, mesh: Any) -> Result | None:
    """Take the folder for this fit; return the result of an earlier call that has nothing left to do."""
    earlier = store.earlier_result(problem) if store.begin(problem, identity, resume, mesh) else None
    if earlier is not None and not is_resumable(earlier, solver):
        return earlier
    store.event("started", mesh=layout(mesh))
    return None


@contextlib.contextmanager
def _monitor(
    problem: Problem, solver: Solver, mesh: Any, store: RunDir | None, progress: bool | None
) -> Iterator[Monitor]:
    """Give what shows and keeps a fit while it runs; its displays end with it."""
    whole = len(ranks_of(mesh)) == jax.process_count()
    shown = Progress(problem.name, solver.maxiter, alone=whole) if progress is not False and leads(mesh) else None
    live = FitLive(store.path, problem.name, solver.maxiter) if store is not None and store.writes else None
    try:
        yield Monitor(progress=shown, store=store, live=live)
    finally:
        for display in (shown, live):
            if display is not None:
                display.close()


def _timings(total: float, checking: float, compiling: float) -> dict[str, float]:
    return {"certificate": checking, "compile": compiling, "total": total, "solve": total - checking - compiling}


def _noted(result: Result, certificate: Certificate | None, unread: Sequence[str]) -> Result:
    """Return the result with its certificate, and with notes on that and on what cannot be followed."""
    notes = [result.note, "" if certificate is None else certificate.note]
    notes += [ANEW.format("; ".join(unread))] if unread else []
    known = None if certificate is None else certificate.to_dict()
    return replace(result, certificate=known, note=" ".join(filter(None, notes)))


class _Start:
    """The certificate at the start: compiled while the solver's own programs are, asked before anything is searched."""

    def __init__(self, problem: Problem, solver: Solver, mesh: Any, seed: int, wanted: bool):
        began = time.perf_counter()
        self.wanted, self.certificate = wanted and solver.differentiates and problem.space.size > 0, None
        self.call = partial(certify_start, problem, mesh=mesh, seed=seed, gram=solver.needs == "gram")
        if self.wanted and spans_processes(mesh):  # all of them do everything in one order
            self.certificate = self.call()
        elif self.wanted:
            self.ahead = compile_ahead(*self.call.args, **self.call.keywords)
        self.seconds = time.perf_counter() - began

    def certified(self) -> Certificate | None:
        """Return the certificate; raise where there is none to be had."""
        if self.wanted and self.certificate is None:
            began = time.perf_counter()
            self.ahead.wait()
            self.certificate = self.call()
            self.seconds += time.perf_counter() - began
        return self.certificate


def least_squares(problem: Problem, **options: Any) -> Result:
    """Fit by Levenberg–Marquardt on streamed normal equations; the result has covariance and standard errors."""
    return fit(problem, "lm", **options)


def _common_mesh(problem, mesh):
    """Return the mesh to work on; raise where processes would do the same work each on its own."""
    if mesh is None and spans_processes(problem.objective.mesh):
        return problem.objective.mesh
    if mesh is None and jax.process_count() > 1:
        raise ValueError(
            f"{jax.process_count()} processes run this fit, but it has no mesh: each would do all of it. Pass "
            "mesh=shardfit.mesh() to share the rows, or mesh=shardfit.mesh(local=True) for a fit of this process alone."
        )
    return mesh


def _identity(problem, solver, seed, x_scale):
    """Return what makes this fit the same fit."""
    known = identity(problem, solver, seed)
    return known if x_scale is None else replace(known, facts={**known.facts, **of_value("x_scale", x_scale).facts})


def _require_agreement(problem, solver, mesh, seed, x_scale):
    """Raise where processes are about to fit different things together: that would end in nonsense or a deadlock."""
    if not spans_processes(mesh):
        return
    meet(mesh)
    facts = dict(settings(problem, solver, seed).facts) | {"mesh": dict(mesh.shape), "x_scale": repr(x_scale)}
    if problem.objective.mesh is None:
        facts["rows"] = probe_digest(problem)
    require_same("fit", facts, mesh)


def _with_times_of_first(result: Result, mesh: Any) -> Result:
    """Return the result with the first process's times, so that all have the same to the bit."""
    timings = np.array(list(result.timings.values()))
    times = share({"history": result.history["seconds"], "timings": timings}, mesh)
    timings = dict(zip(result.timings, times["timings"].tolist(), strict=True))
    return replace(result, history=result.history | {"seconds": times["history"]}, timings=timings)


def is_resumable(result: Result, solver: Solver) -> bool:
    """Return whether a stored result was not the end: interrupted, or at a lower step limit."""
    stopped = result.status is Status.MAX_STEPS and result.steps < solver.maxiter
    return stopped or result.status is Status.INTERRUPTED


def _nothing_to_fit(task: Task) -> Finish:
    return Finish(task.z0, None, Status.COMPLETED, 0, 0, note="All parameters are fixed: the objective was evaluated.")


def _diagnose(problem, placed):
    """Raise an error that says which term, or which parameter's gradient, is not finite at x0."""
    key = jax.random.key(0)
    placed = problem.objective if placed is None else placed
    value, gradient, parts = placed.value_grad_parts(problem.x0, key)
    for name, part in parts.items():
        if not np.isfinite(float(part)):
            raise NonFiniteError(
                f"term {name!r} is {float(part)} at x0. Start where the model is defined, or bound the parameters."
            )
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        if not np.isfinite(np.asarray(leaf)).all():
            raise NonFiniteError(
                f"the gradient with respect to {label_of(path) or 'x'} is not finite at x0 although the value is. A "
                "square root, absolute value, power or division at zero inside the model is the usual cause."
            )


def _parts(task: Task, solver: Solver, params: Any) -> dict[str, float]:
    """Return all terms' unweighted losses over all rows; a stochastic term's in one fixed realisation."""
    objective = task.problem.objective
    if task.placed is not None:
        parts = task.placed.parts(params, jax.random.key(0) if objective.stochastic else None)
    else:
        parts = _streamed_parts(objective.freeze(jax.random.key(0)), params, solver.batch or 1, task.mesh)
    return {name: float(part) for name, part in parts.items()}


def _streamed_parts(objective: Objective, params: Any, size: int, mesh: Any) -> dict[str, Any]:
    """Return the losses over all rows, which pass through the devices `size` at a time."""
    losses = []
    for name, term in objective.items():
        if isinstance(term, Penalty):
            losses.append(term.losses(params))
            continue
        alone, n = objective.only(name), term.n_rows
        total = None
        for start in range(0, n, size):
            rows = np.arange(start, min(n, start + size))
            block = alone.take(lambda _, n, rows=rows: rows).place(mesh).sums(params)[name]
            total = block if total is None else jax.tree.map(np.add, total, block)
        losses.append(scaled_losses(term, total, term.key))
    return named_parts(objective.names, tuple(losses))


def _result(task: Task, solver: Solver, finish: Finish) -> Result:
    problem, space, monitor = task.problem, task.space, task.monitor
    params = space.host_params(finish.z)
    parts = _parts(task, solver, params) if finish.parts is None else finish.parts
    fields, note = solver.extras(task, params, finish)
    note = " ".join(text for text in (finish.note, monitor.stopped_by, note) if text)
    judged = scrutiny(problem, finish.z, params, parts, getattr(solver, "absolute_sigma", None))
    judged["doubts"] += finish.doubts
    return Result(
        params=params,
        value=float(sum(_shares(problem.objective, parts).values())),
        parts=parts,
        status=finish.status,
        solver=solver.describe(),
        steps=finish.steps,
        evaluations=finish.evaluations,
        history=monitor.trace.arrays(),
        timings={},
        layout=layout(task.mesh),
        problem=problem.name,
        precision=problem.precision,
        note=note,
        units=dict(zip(space.labels, problem.unit_labels(), strict=True)),
        derived={} if problem.decode is None else called(problem.decode, params),
        state=finish.leaves or {},
        **judged,
        **fields,
    )


def _judged(task: Task, finish: Finish, result: Result, certificate: Certificate | None) -> Certificate | None:
    """Compare the solver's value with the objective's, and certify the answer; an error keeps what was reached."""
    try:
        if finish.value is not None and np.isfinite(finish.value):  # a solver that met no finite value has none
            shares = _shares(task.problem.objective, result.parts)
            require_same_value(finish.value, shares, result.precision, partial(_values_nearby, task, finish.z))
        if certificate is None or finish.status is Status.INTERRUPTED:
            return certificate
        return certify_answer(task.problem, certificate, finish.z, mesh=task.mesh, seed=task.seed)
    except ParityError as error:
        error.result = replace(result, status=Status.FAILED, note=str(error))
        error.add_note("What the fit had reached is kept in the error: `except ParityError as error: error.result`.")
        raise


def _values_nearby(task: Task, z: np.ndarray) -> list[float]:
    """Return the value at coordinates that differ from z by rounding."""
    rng, eps = np.random.default_rng(task.seed), np.finfo(z.dtype).eps
    shifted = [z * (1 + 4 * eps * rng.uniform(-1, 1, z.shape)).astype(z.dtype) for _ in range(4)]
    return [float(task.objective.value(task.space.host_params(near))) for near in shifted]


def _shares(objective: Objective, parts: dict[str, float]) -> dict[str, float]:
    return {name: _weight(objective, name) * part for name, part in parts.items()}


def _weight(objective, name):
    term_name, _, part = name.partition(".")
    weight = dict(objective.items())[term_name].weight
    return float(weight[part] if isinstance(weight, dict) else weight)
