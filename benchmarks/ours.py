"""Our side of the least-squares suites."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.problems.suites import MAX_EVALUATIONS
from benchmarks.timing import warm
from shardfit.core.reduce import Gram
from shardfit.solve.lm import LM


def least_squares(residual, rows, x0, *, tol: float) -> tuple[np.ndarray, float, int, float, float, int]:
    """Return (params, value, evaluations, wall seconds, CPU seconds, status) of a compiled fit in float64.

    tol: distance to the answer, in standard errors, at which to stop.
    """
    solver = LM(maxiter=MAX_EVALUATIONS, ftol=tol**2, gtol=tol**1.5, xtol=tol**1.5)
    with jax.enable_x64(True):
        arguments = jnp.asarray(x0), jax.tree.map(jnp.asarray, dict(rows))
        (state, ticks), wall, cpu = warm(lambda: jax.block_until_ready(_solve(solver, residual, *arguments)))
    return np.asarray(state.x), float(state.value), int(ticks), wall, cpu, int(state.status)


@partial(jax.jit, static_argnums=(0, 1))
def _solve(solver, residual, x0, rows):
    def gram(x):
        r, jacobian = residual(x, rows), jax.jacfwd(residual)(x, rows)
        return Gram(0.5 * r @ r, jacobian.T @ r, jacobian.T @ jacobian)

    def tick(carry):
        state, ticks = carry
        return solver.tell(state, gram(solver.ask(state))), ticks + 1

    def running(carry):
        return (carry[0].status == 0) & (carry[1] < MAX_EVALUATIONS)

    return jax.lax.while_loop(running, tick, (solver.init(x0, None, None), jnp.zeros((), jnp.int32)))
