"""Robust losses of linear terms, as weights: a datum far from the model gets a larger standard deviation.

With residuals r in units of scale · sigma and s = |r|², a robust fit minimises ½ scale² Σρ(s). Where its derivatives
vanish, so do those of the least-squares problem in which every sigma is divided by √ρ'(s): weights and fit in turn lead
there, and as ρ is concave in s, every turn lowers the robust cost.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.objective import replace_terms
from shardfit.core.problem import Problem
from shardfit.core.rows import take
from shardfit.stats.eliminated import coefficients
from shardfit.stats.linear import LinearTerm


def linear_terms(problem: Problem, where: str) -> dict[str, LinearTerm]:
    """Return the problem's linear terms, or raise where weights in their sigma would not be seen."""
    terms = {name: term for name, term in problem.objective.items() if isinstance(term, LinearTerm)}
    if not terms:
        raise ValueError(
            f"{where}: the problem has no linear term. For other models use residual_term(..., loss='cauchy')."
        )
    for name, term in terms.items():
        if term.equations is not None:
            raise ValueError(
                f"{where}: term {name!r} brings its own normal equations, which may not read sigma. Leave gram= out."
            )
        if term.marginal:
            raise ValueError(
                f"{where}: the coefficients of term {name!r} are integrated out. Use marginalised(problem, False)."
            )
    return terms


def with_deviations(problem: Problem, deviations: dict[str, np.ndarray], x0: Any = None) -> Problem:
    """Return the problem with other standard deviations of its linear terms' data, and another start."""
    terms = [
        replace(term, rows={**term.rows, "sigma": deviations[name]}) if isinstance(term, LinearTerm) else term
        for name, term in problem.objective.items()
    ]
    return problem.replace(objective=replace_terms(problem.objective, terms), x0=problem.x0 if x0 is None else x0)


def deviations_of(problem: Problem) -> dict[str, np.ndarray]:
    """Return the standard deviations of every datum of the linear terms, in the shapes of the data."""
    spread = {}
    for name, term in linear_terms(problem, "robust_fit").items():
        y, sigma = term.rows["y"], np.asarray(term.rows.get("sigma", np.ones(1)))
        sigma = sigma.reshape(sigma.shape + (1,) * (y.ndim - sigma.ndim))
        spread[name] = np.broadcast_to(sigma, y.shape).astype(np.real(np.zeros(0, y.dtype)).dtype)
    return spread


def distances(problem: Problem, params: Any) -> dict[str, np.ndarray]:
    """Return |y - model| of every datum of the linear terms at their best coefficients, a chunk of rows at a time."""
    away = {}
    for name, term in linear_terms(problem, "robust_fit").items():
        best = coefficients(problem, params, name).value
        size, n = term.chunk or term.n_rows, term.n_rows
        with at_work(problem):
            blocks = (take(term.rows, np.arange(i, min(n, i + size)), term.counts) for i in range(0, n, size))
            away[name] = np.concatenate(
                [np.asarray(_distance(replace(term, rows=b, counts=None), params, best)) for b in blocks]
            )
    return away


@jax.jit
def _distance(term: LinearTerm, params: Any, best: jax.Array) -> jax.Array:
    basis = term.contributions(params, term.rows, None)
    return jnp.abs(term.rows["y"] - jnp.sum(basis * term.own(best, term.rows), axis=-1))
