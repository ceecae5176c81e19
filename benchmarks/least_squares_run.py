"""Run one solver through a least-squares suite; {"suite", "solver", "quick"} come in as JSON, the records go out.

This file runs in the peers' environment too: nothing of shardfit is imported unless it is the solver asked for.
"""

import json
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.problems.suites import MAX_EVALUATIONS, Run, runs
from benchmarks.timing import warm

TOLERANCE = 1e-10  # ours, in standard errors
OPTIMISTIX_TOLERANCE = 1e-12  # relative and absolute: the tightest at which it still ends by itself
SCIPY_TOLERANCE = 1e-15  # least_squares refuses less


class Found(NamedTuple):
    """What a solver hands back. residuals, jacobians: how many of each were evaluated, together or apart."""

    params: np.ndarray
    residuals: int
    jacobians: int
    wall: float
    cpu: float


def main() -> None:
    """Print one record per run, as a JSON list."""
    asked = json.load(sys.stdin)
    solve = SOLVERS[asked["solver"]]
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflow on the way is the suite's intention
        records = [_record(run, solve) for run in runs(asked["suite"], asked["quick"])]
    print(json.dumps([{k: _rounded(v) for k, v in record.items()} for record in records]))


def _rounded(value):
    """Return a float with six digits: more is noise, and the records are kept. What is not finite becomes None."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _record(run: Run, solve: Callable[[Run], Found]) -> dict:
    record = {"problem": run.problem, "start": run.start}
    try:
        found = solve(run)
    except Exception as error:  # a peer that raises has not solved the run; which error it was is kept
        failure = f"{type(error).__name__}: {error}"[:200]
        return record | {"quality": 0.0, "residuals": 0, "jacobians": 0, "wall": 0.0, "cpu": 0.0, "error": failure}
    residual = np.asarray(_residual(run.residual)(found.params, dict(run.rows)))
    rss = float(residual @ residual)
    figures = {key: getattr(found, key) for key in ("residuals", "jacobians", "wall", "cpu")}
    return record | {"quality": run.quality(found.params, rss), "rss": rss} | figures


@lru_cache(None)
def _residual(residual):
    return jax.jit(residual)


@lru_cache(None)
def _jacobian(residual):
    return jax.jit(jax.jacfwd(residual))


@lru_cache(None)
def _half_square(residual):
    return jax.jit(jax.value_and_grad(lambda x, rows: 0.5 * jnp.sum(residual(x, rows) ** 2)))


def shardfit_solver(name: str, run: Run) -> Found:
    """Ours: the whole call of fit, compiled before. Every evaluation is of value and derivatives."""
    from benchmarks.ours import prepared

    result, wall, cpu = warm(prepared(name, run, TOLERANCE))
    return Found(np.asarray(result.params), result.evaluations, result.evaluations, wall, cpu)


def optimistix_solver(name: str, run: Run) -> Found:
    """Each of its steps evaluates and linearises the residual once."""
    solve = _optimistix(name, run.residual)
    (params, steps), wall, cpu = warm(lambda: jax.block_until_ready(solve(jnp.asarray(run.x0), dict(run.rows))))
    return Found(np.asarray(params), int(steps), int(steps), wall, cpu)


@lru_cache(None)
def _optimistix(name, residual):
    import optimistix

    solver = getattr(optimistix, name)(rtol=OPTIMISTIX_TOLERANCE, atol=OPTIMISTIX_TOLERANCE)

    @jax.jit
    def solve(x0, rows):
        found = optimistix.least_squares(residual, solver, x0, args=rows, max_steps=MAX_EVALUATIONS, throw=False)
        return found.value, found.stats["num_steps"]

    return solve


def scipy_least_squares(method: str, run: Run) -> Found:
    """Jacobians are evaluated at accepted points only."""
    from scipy.optimize import least_squares

    rows = jax.tree.map(jnp.asarray, dict(run.rows))
    fun, jac = ((lambda x, f=f: np.asarray(f(x, rows))) for f in (_residual(run.residual), _jacobian(run.residual)))
    tolerances = dict.fromkeys(("ftol", "xtol", "gtol"), SCIPY_TOLERANCE)
    call = partial(least_squares, fun, run.x0, jac, method=method, max_nfev=MAX_EVALUATIONS, **tolerances)
    found, wall, cpu = warm(call)
    return Found(found.x, int(found.nfev), int(found.njev), wall, cpu)


def scipy_lbfgsb(run: Run) -> Found:
    """L-BFGS-B on ½Σr², for what is gained by knowing that it is a sum of squares."""
    from scipy.optimize import minimize

    rows = jax.tree.map(jnp.asarray, dict(run.rows))
    fun = lambda x: tuple(np.asarray(part) for part in _half_square(run.residual)(x, rows))  # noqa: E731
    options = {"maxfun": MAX_EVALUATIONS, "maxiter": MAX_EVALUATIONS, "ftol": 0.0, "gtol": 1e-12}
    found, wall, cpu = warm(lambda: minimize(fun, run.x0, jac=True, method="L-BFGS-B", options=options))
    return Found(found.x, int(found.nfev), int(found.nfev), wall, cpu)


def optax_lbfgs(run: Run) -> Found:
    """L-BFGS with optax's default zoom line search on ½Σr²."""
    (params, evaluations), wall, cpu = warm(
        lambda: jax.block_until_ready(_optax(run.residual)(jnp.asarray(run.x0), dict(run.rows)))
    )
    return Found(np.asarray(params), int(evaluations), int(evaluations), wall, cpu)


@lru_cache(None)
def _optax(residual):
    import optax

    @jax.jit
    def solve(x0, rows):
        fn = lambda x: 0.5 * jnp.sum(residual(x, rows) ** 2)  # noqa: E731
        solver = optax.lbfgs()
        value_and_grad = optax.value_and_grad_from_state(fn)

        def step(carry):
            x, state, evaluations, _ = carry
            value, gradient = value_and_grad(x, state=state)
            updates, state = solver.update(gradient, state, x, value=value, grad=gradient, value_fn=fn)
            trials = optax.tree.get(state, "num_linesearch_steps")
            moves = jnp.any(updates != 0) & (jnp.max(jnp.abs(gradient)) > 1e-12)
            return optax.apply_updates(x, updates), state, evaluations + trials.astype(jnp.int32), moves

        carry: Any = (x0, solver.init(x0), jnp.ones((), jnp.int32), jnp.ones((), bool))
        x, _, evaluations, _ = jax.lax.while_loop(lambda c: c[3] & (c[2] < MAX_EVALUATIONS), step, carry)
        return x, evaluations

    return solve


SOLVERS: dict[str, Callable[[Run], Found]] = {
    **{f"shardfit {name}": partial(shardfit_solver, name) for name in ("lm", "lbfgsb", "lbfgs")},
    "optimistix LevenbergMarquardt": partial(optimistix_solver, "LevenbergMarquardt"),
    "optimistix Dogleg": partial(optimistix_solver, "Dogleg"),
    "scipy lm": partial(scipy_least_squares, "lm"),
    "scipy trf": partial(scipy_least_squares, "trf"),
    "scipy L-BFGS-B": scipy_lbfgsb,
    "optax lbfgs": optax_lbfgs,
}

if __name__ == "__main__":
    main()
