"""fit: one call from a problem to a result."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.check.certificate import certify as make_certificate
from shardfit.check.identity import fingerprint, probe_digest, settings
from shardfit.core.errors import NonFiniteError
from shardfit.core.mesh import layout, leads, spans_processes
from shardfit.core.objective import Objective, named_parts
from shardfit.core.params import label_of
from shardfit.core.precision import problem_scope
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.core.terms import Penalty
from shardfit.distributed.exchange import meet, require_same, share
from shardfit.io.progress import Progress
from shardfit.io.results import load_result, save_result
from shardfit.io.run_dir import RunDir
from shardfit.solve.base import HostSolver, Solver, StepSolver
from shardfit.solve.covariance import standard_errors
from shardfit.solve.host import run_host
from shardfit.solve.lm import LM
from shardfit.solve.loop import Finish, run_steps
from shardfit.solve.monitor import Monitor, Snapshot
from shardfit.solve.optimistix_adapter import Optimistix
from shardfit.solve.polish import polish
from shardfit.solve.registry import as_solver
from shardfit.solve.swarm import Swarm


def fit(
    problem: Problem,
    solver: Any = None,
    *,
    mesh: Any = None,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    callback: Callable[[Snapshot], Any] | None = None,
    every: int = 10,
    seed: int = 0,
    certify: bool = True,
    progress: bool | None = None,
    **options: Any,
) -> Result:
    """Minimise a problem's objective.

    solver: None (scipy L-BFGS-B), a name ('lbfgsb', 'lbfgs', 'lbfgs-bt', 'adam', 'adamw', 'sgd', 'rmsprop', 'lm',
    'swarm') with its options as keywords, a Solver object, any optax transformation, any optimistix solver, or a
    callable.
    mesh: devices to split the rows over, from `shardfit.mesh`; the answer does not depend on it.
    run_dir: folder for checkpoints and the result; resume: 'auto' goes on where an earlier call stopped, 'must' insists
    on it, 'never' starts anew. callback(snapshot) is called every `every` steps; returning True ends the fit.
    certify: check gradient and sharding on a few rows first. progress: None shows it on a terminal or for long runs.

    Example: `fit(problem, "lbfgs", maxiter=200, mesh=shardfit.mesh(rows=4))`.
    """
    began = time.perf_counter()
    solver = as_solver(solver, **options)
    require_compatible(problem, solver, callback, run_dir)
    if every < 1:
        raise ValueError(f"every={every} must be at least 1 step.")
    store = _open(run_dir)
    mesh = _common_mesh(problem, mesh)
    with problem_scope(problem.precision):
        _require_agreement(problem, solver, mesh, seed)
        if store is not None:
            known = store.open(fingerprint(problem, _identity(solver), seed), resume, mesh)
            finished = _finished(store, solver) if known else None
            if finished is not None:
                return finished
            store.event("started", mesh=layout(mesh))
        z0 = problem.z0()
        certificate = _certificate(problem, z0, mesh, seed) if certify and _differentiates(solver) else None
        certified = time.perf_counter()
        leader = leads(mesh)
        shown = Progress(problem.name, solver.maxiter) if progress is not False and leader else None
        monitor = Monitor(callback if leader else None, every if callback else None, shown, store)
        try:
            finish, placed = _run(problem, solver, z0, mesh, seed, monitor)
        finally:
            if shown is not None:
                shown.close()
        result = _result(problem, solver, placed, finish, monitor, mesh)
    timings = {"certificate": certified - began, "compile": finish.compile_seconds}
    timings["total"] = time.perf_counter() - began
    timings["solve"] = timings["total"] - timings["certificate"] - timings["compile"]
    result = replace(result, timings=timings, certificate=certificate and certificate.to_dict())
    if spans_processes(mesh):
        result = _with_times_of_first(result)
    if store is not None and store.writes:
        save_result(result, store.path)
        store.event("finished", status=result.status.name, value=result.value)
    return result


def least_squares(problem: Problem, **options: Any) -> Result:
    """Fit by Levenberg–Marquardt on streamed normal equations; the result has covariance and standard errors."""
    return fit(problem, "lm", **options)


def require_compatible(problem: Problem, solver: Solver, callback: Any, run_dir: Any) -> None:
    """Raise, before any work, for what cannot be combined."""
    if not isinstance(problem, Problem):
        raise TypeError(f"fit needs a Problem, not {type(problem).__name__}: Problem(objective, x0).")
    if problem.box is not None and not solver.bounded:
        raise ValueError(
            f"solver {solver.name!r} does not know bounds. Use 'lbfgsb', 'lm' or 'adam', or give the parameters a "
            "transform instead: transforms={'name': shardfit.Interval(lower, upper)}."
        )
    if isinstance(solver, Optimistix) and (callback or run_dir):
        raise ValueError("an optimistix solver runs as one compiled call: it has no callback and no run_dir.")
    _require_objective(problem, solver)
    solver.check(problem)
    if isinstance(solver, Swarm) and solver.polish is not None:
        second = as_solver(solver.polish)
        if getattr(second, "batch", None) or isinstance(second, Swarm):
            raise ValueError(f"swarm: polish={second.name!r} must descend on all rows: no mini-batches, no swarm.")
        _require_objective(problem, second)


def _require_objective(problem, solver):
    if problem.objective.stochastic and not solver.stochastic:
        names = ", ".join(map(repr, problem.objective.stochastic))
        raise ValueError(
            f"{names} draws new random numbers at every step, which solver {solver.name!r} cannot follow. Use 'adam' "
            "or another optax solver, or objective.freeze(key) for one fixed realisation."
        )
    if solver.needs == "gram" or (isinstance(solver, Optimistix) and solver.least_squares):
        problem.objective.require_least_squares(f"solver {solver.name!r}")
    batch = getattr(solver, "batch", None)
    for name, n in problem.objective.n_rows.items():
        if batch is not None and not 1 <= batch <= n:
            raise ValueError(f"batch={batch} must be between 1 and the {n} rows of term {name!r}.")


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


def _require_agreement(problem, solver, mesh, seed):
    """Raise where processes are about to fit different things together: that would end in nonsense or a deadlock."""
    if not spans_processes(mesh):
        return
    meet()
    facts = settings(problem, _identity(solver), seed) | {"mesh": dict(mesh.shape)}
    if problem.objective.mesh is None:
        facts["rows"] = probe_digest(problem)
    require_same("fit", facts)


def _with_times_of_first(result: Result) -> Result:
    """Return the result with rank 0's times, so that all processes have the same to the bit."""
    times = share({"history": result.history["seconds"], "timings": np.array(list(result.timings.values()))})
    timings = dict(zip(result.timings, times["timings"].tolist(), strict=True))
    return replace(result, history=result.history | {"seconds": times["history"]}, timings=timings)


def _open(run_dir):
    return run_dir if run_dir is None or isinstance(run_dir, RunDir) else RunDir(run_dir)


def _identity(solver):
    """Return the solver's description without its step limit: a run may be continued to a higher one."""
    return solver.describe().replace(f"maxiter={solver.maxiter!r}", "maxiter=...")


def _finished(store, solver):
    """Return the stored result when there is nothing left to do."""
    if not (store.path / "result.json").exists():
        return None
    try:
        result = load_result(store.path)
    except ValueError:
        return None  # torn while it was written; the checkpoint is whole
    more = result.status.name == "INTERRUPTED" or (result.status.name == "MAX_STEPS" and result.steps < solver.maxiter)
    return None if more else result


def _certificate(problem, z0, mesh, seed):
    return make_certificate(
        problem.objective, problem.space, z0, mesh=mesh, box=problem.box, precision=problem.precision, seed=seed
    )


def _run(problem, solver, z0, mesh, seed, monitor) -> tuple[Finish, Any]:
    space = problem.space
    if getattr(solver, "batch", None):
        data = partial(_batch, problem.objective, solver.batch, seed, mesh)
        return run_steps(solver, space, data, z0, problem.box, seed, monitor), None
    placed = problem.objective.place(mesh)
    monitor.diagnose = partial(_diagnose, problem, placed)
    minimise = partial(_minimise, placed, seed)
    finish = minimise(solver, space, z0, problem.box, monitor)
    if isinstance(solver, Swarm) and solver.polish is not None and finish.status is not Status.INTERRUPTED:
        finish = polish(solver, problem, placed, finish, minimise, monitor)
    return finish, placed


def _minimise(placed, seed, solver, space, z0, box, monitor) -> Finish:
    if isinstance(solver, StepSolver):
        return run_steps(solver, space, lambda step: placed, z0, box, seed, monitor)
    if isinstance(solver, HostSolver):
        return run_host(solver, space, placed, z0, box, monitor)
    return solver.solve(space, placed, z0, monitor)


def _differentiates(solver):
    """Return whether any part of a fit needs the gradient that a certificate vouches for."""
    return solver.needs != "value" or getattr(solver, "polish", None) is not None


def _batch(objective: Objective, size: int, seed: int, mesh: Any, step: int) -> Objective:
    """Return the mini-batch of a step: a function of seed and step alone, so a resumed run draws the same."""
    return objective.take(
        lambda term, n: np.random.default_rng([seed, step, term]).choice(n, size, replace=False)
    ).place(mesh)


def _diagnose(problem, placed):
    """Raise an error that says which term, or which parameter's gradient, is not finite at x0."""
    key = jax.random.key(0)
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


def _streamed_parts(objective: Objective, params: Any, size: int, mesh: Any) -> dict[str, float]:
    """Return all terms' losses over all rows, the rows passing through the devices `size` at a time."""
    losses = []
    for name, term in objective.items():
        if isinstance(term, Penalty):
            losses.append(term.losses(params))
            continue
        alone, n = objective.only(name), term.n_rows
        total = None
        for start in range(0, n, size):
            rows = np.arange(start, min(n, start + size))
            block = alone.take(lambda _, n, rows=rows: rows).place(mesh).totals(params)[name]
            total = block if total is None else jax.tree.map(np.add, total, block)
        losses.append(term.losses(total, None))
    return named_parts(objective.names, tuple(losses))


def _result(problem, solver, placed, finish: Finish, monitor, mesh) -> Result:
    space = problem.space
    params = space.host_params(finish.z)
    objective = problem.objective
    if placed is None:
        parts = _streamed_parts(objective, params, solver.batch, mesh)
    else:
        parts = placed.parts(params, jax.random.key(0) if objective.stochastic else None)
    parts = {name: float(part) for name, part in parts.items()}
    value = sum(_weight(objective, name) * part for name, part in parts.items())
    errors, note = ({}, "")
    if isinstance(solver, LM) and placed is not None:
        errors, note = standard_errors(problem, placed, params, finish.z, solver.absolute_sigma)
    note = " ".join(text for text in (finish.note, monitor.stopped_by, note) if text)
    return Result(
        params=params,
        value=float(value),
        parts=parts,
        status=finish.status,
        solver=solver.describe(),
        steps=finish.steps,
        evaluations=finish.evaluations,
        history=monitor.trace.arrays(),
        timings={},
        layout=layout(mesh),
        problem=problem.name,
        precision=problem.precision,
        note=note,
        units=dict(zip(space.labels, problem.unit_labels(), strict=True)),
        derived={} if problem.decode is None else problem.decode(params),
        state=finish.leaves or {},
        **errors,
    )


def _weight(objective, name):
    term_name, _, part = name.partition(".")
    weight = dict(objective.items())[term_name].weight
    return float(weight[part] if isinstance(weight, dict) else weight)
