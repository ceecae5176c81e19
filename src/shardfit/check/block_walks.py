"""Sums over blocks as long as a fit's against sums over short ones: how a certificate sees programs that are wrong.

A call is what is evaluated, the pair of objectives, and where: its two programs can be compiled before they are wanted.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.check.block_consistency import block_pair, equation_block_pair
from shardfit.check.probe import Setting
from shardfit.core import reduce
from shardfit.core.current import at_work
from shardfit.core.fast_compile import fast_compile_jit
from shardfit.core.gram import gram as normal_equations
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.core.terms import RowTerm


def key_of(objective: Any, seed: int) -> Any:
    """Return the random key that stochastic terms are examined with."""
    return jax.random.key(seed) if objective.stochastic else None


def walk(problem: Problem, setting: Setting, shards: int, seed: int) -> dict[str, float] | None:
    """Return the differences between blocks as a fit has them and smaller ones, by term; None where there are none."""
    with at_work(problem):
        call = walk_call(problem, setting, shards, seed)
        if call is None:
            return None
        as_run, smaller = _both(*call)
    apart = apart_by_term(as_run, smaller, setting.scale)
    # a loss need not be defined for the totals of two blocks
    return {name: error for name, error in apart.items() if np.isfinite(float(smaller[0][name]))}


def equations_walk(problem: Problem, z: Any, scale: np.ndarray, shards: int) -> dict[str, float] | None:
    """Return the same of the normal equations, which are walked over in blocks of their own, at coordinates z (n,)."""
    with at_work(problem):
        call = equations_call(problem, z, scale, shards)
        if call is None:
            return None
        as_run, smaller = _both(*call)
    apart = apart_by_term(as_run, smaller, scale[:, None])
    return {name: error for name, error in apart.items() if np.isfinite(smaller[1][name]).all()}


def walk_call(problem: Problem, setting: Setting, shards: int, seed: int) -> tuple | None:
    """Return what is evaluated, both objectives, and where; None where there are no blocks."""
    with at_work(problem):
        objectives = block_pair(problem.objective, problem.x0, shards, key_of(problem.objective, seed))
        near = np.asarray(setting.points[1], PRECISIONS[problem.precision])
        return objectives and (gradients_of, objectives, problem.space, near, None)


def equations_call(problem: Problem, z: Any, scale: np.ndarray, shards: int) -> tuple | None:
    """Return the same of the normal equations."""
    with at_work(problem):
        near = np.asarray(z, PRECISIONS[problem.precision])
        objectives = equation_block_pair(problem.objective, problem.space, near, shards)
        return objectives and (_equations_of, objectives, problem.space, near, scale.astype(near.dtype))


def _both(evaluate: Any, objectives: tuple, *at: Any) -> tuple:
    """Return what is found on blocks as a fit has them, compiled as it is, and on smaller ones, compiled in less time.

    The second must be right, not quick.
    """
    as_run, smaller = objectives
    return as_a_fit(evaluate, as_run, *at), soon(evaluate, smaller, *at)


def _equations_of(objective, space, z, scale):
    """Return by term the value and, as one table (n, n + 1), gradient and matrix of the normal equations."""
    found = {name: normal_equations(objective.only(name), space, z, None) for name in objective.names}
    tables = {name: jnp.concatenate([g.gradient[:, None], g.matrix * scale], 1) for name, g in found.items()}
    return {name: g.value for name, g in found.items()}, tables


def gradients_of(objective: Any, space: Any, z: Any, key: Any) -> tuple[dict, dict]:
    """Return values and gradients by term."""
    values, gradients = {}, {}
    for i, (name, term) in enumerate(objective.items()):
        params, pull = jax.vjp(space.unpack, z)
        if isinstance(term, RowTerm):
            term = replace(term, key=reduce.term_key(term, key, i))
        value, gradient, _ = reduce.value_grad_losses(objective.mesh, (term,), params, None)
        values[name], gradients[name] = value, pull(gradient)[0]
    return values, gradients


gradients_of_terms = jax.jit(gradients_of)
as_a_fit = jax.jit(lambda evaluate, *given: evaluate(*given), static_argnums=0)
soon = fast_compile_jit(lambda evaluate, *given: evaluate(*given), static_argnums=0)


def apart_by_term(one, other, scale) -> dict[str, float]:
    """Return the largest relative difference of value and gradient, by term; parameters are measured in their scale."""
    result = {}
    for name in one[0]:
        v1, v2 = float(one[0][name]), float(other[0][name])
        g1, g2 = (scale * np.asarray(g[1][name], np.float64) for g in (one, other))
        value = abs(v1 - v2) / max(abs(v2), np.finfo(np.float32).tiny)
        # a gradient far below value / scale is rounding: a term may not depend on its parameters at all
        gradient = np.linalg.norm(g1 - g2) / max(np.linalg.norm(g2), 1e-4 * abs(v2), np.finfo(np.float32).tiny)
        result[name] = float(max(value, gradient)) if np.any(g2) or v2 else float(np.abs(v1) + np.linalg.norm(g1))
    return result
