"""solution: the answer of a fit as a function of its data, with derivatives by the implicit function theorem."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import register_static

from shardfit.core import reduce
from shardfit.core.current import at_work
from shardfit.core.errors import NotConvergedError
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.precision import cast
from shardfit.core.problem import Problem
from shardfit.fitting import fit
from shardfit.solve.covariance import at_bound
from shardfit.stats.laplace import hessian_matrix

MOST = 500  # coordinates: the Hessian is formed


def solution(problem: Problem, objective: Objective | None = None, solver: Any = "lm", **options: Any) -> Any:
    """Return the parameters that fit an objective, such that `jax.grad` sees how they follow data, args and weights.

    objective: the problem's with other rows, args or weights, which may be what a gradient is taken by; None: the
    problem's own. solver, options: as for `fit`.

    The value is that of a fit. The derivative is that of the minimum: -H⁻¹ ∂²L/∂z∂θ with the exact Hessian H among the
    coordinates that are not at a bound; what is at a bound, or held, stays there. It is one of reverse mode and first
    order (`jax.grad`, `jax.vjp`, `jax.jacrev`), and the fit runs on the host: not inside of `jax.jit` or `jax.vmap`.

    RuntimeError where the fit met no tolerance, ValueError where the data do not determine the answer, which then has
    no derivative.

    Example: `jax.grad(lambda y: solution(problem, problem.objective.with_rows(data=rows | {"y": y}))["tau"])(y)`.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"solution needs a Problem, not {type(problem).__name__}: Problem(objective, x0).")
    given = problem.objective if objective is None else objective
    if jax.tree.structure(given) != jax.tree.structure(problem.objective):
        raise ValueError(
            "solution: the objective has other terms, functions or layout than the problem's. Make it from that one: "
            "problem.objective.with_rows(...), with_args(...) or with_weights(...)."
        )
    if problem.objective.stochastic:
        raise ValueError("solution: the objective is stochastic. Fix it with objective.freeze(key) first.")
    if problem.space.size > MOST:
        raise ValueError(f"solution: {problem.space.size} free parameters; the Hessian is formed for at most {MOST}.")
    return _solution(_How(problem, solver, tuple(options.items())), given)


@dataclass(frozen=True, eq=False)
class _How:
    """What a derivative is not taken by."""

    problem: Problem
    solver: Any
    options: tuple


@register_static
@dataclass(frozen=True, eq=False)
class _Minimum:
    """Where a fit ended, and the inverse Hessian among coordinates that may move.

    Static: JAX would round what it keeps itself to the precision of the caller, which may be less than the problem's.
    """

    objective: Objective
    z: np.ndarray
    inverse: np.ndarray


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solution(how: _How, objective: Objective) -> Any:
    return _fitted(how, objective)[0]


def _fitted(how: _How, objective: Objective) -> tuple[Any, np.ndarray, Problem]:
    """Return parameters, coordinates and the problem of the objective."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(objective)):
        raise TypeError(
            "solution: a fit runs on the host, so it cannot be part of jax.jit, jax.vmap or a second derivative. Leave "
            "it outside of jit, and jit what comes before and after; many data sets at once: fit_many."
        )
    problem = how.problem
    problem = problem.with_checked(cast(jax.tree.map(np.asarray, objective), problem.precision))
    result = fit(problem, how.solver, progress=False, **dict(how.options))
    if not result.status.converged:
        raise NotConvergedError(f"solution: {result.message}", result)
    return jax.tree.map(jnp.asarray, result.params), problem.space.host_z(result.params), problem


def _forward(how: _How, objective: Objective) -> tuple[Any, _Minimum]:
    params, z, problem = _fitted(how, objective)
    with at_work(problem):
        moves = ~at_bound(problem, z)
        inverse = _inverse(np.asarray(hessian_matrix(problem.space, problem.objective, jnp.asarray(z))), moves, problem)
    return params, _Minimum(objective, z, inverse)


def _inverse(hessian: np.ndarray, moves: np.ndarray, problem: Problem) -> np.ndarray:
    """Return the inverse of a Hessian among some coordinates, zero for the others; raise where it has none."""
    inner = hessian[np.ix_(moves, moves)]
    lengths = np.sqrt(np.abs(np.diag(inner)))
    unit = np.where(lengths > 0, lengths, 1)
    sizes, directions = np.linalg.eigh(inner / np.outer(unit, unit))
    if len(sizes) and not sizes[0] > len(sizes) * np.finfo(hessian.dtype).eps * sizes[-1]:
        labels = np.array(problem.space.coordinate_labels())[moves]
        flat = ", ".join(labels[np.abs(directions[:, 0]) > 0.1])
        raise ValueError(
            f"solution: the data do not determine {flat} at the answer, or it is no minimum, so it has no derivative. "
            "Fix some of these parameters, or add a penalty."
        )
    whole = np.zeros_like(hessian)
    whole[np.ix_(moves, moves)] = (directions / sizes) @ directions.T / np.outer(unit, unit)
    return whole


def _backward(how: _How, minimum: _Minimum, cotangent: Any) -> tuple[Objective]:
    problem = how.problem
    with at_work(problem):
        objective = cast(jax.tree.map(np.asarray, minimum.objective), problem.precision)
        slopes = _slopes(problem.space, objective, minimum.z, minimum.inverse, cast(cotangent, problem.precision))
    # as JAX sees what was given, in the precision of the caller
    return (jax.tree.map(_as_given, slopes, minimum.objective),)


@jax.jit
def _slopes(space: Space, objective: Objective, z: Any, inverse: Any, cotangent: Any) -> Objective:
    pulled = jax.vjp(space.unpack, z)[1](cotangent)[0]
    direction = inverse @ pulled

    def slope(objective):
        return jax.jvp(lambda z: reduce.value(objective, space.unpack(z), None), (z,), (-direction,))[1]

    return jax.grad(slope, allow_int=True)(objective)


def _as_given(slope: Any, leaf: Any) -> Any:
    """Return a slope in the type of what it belongs to; whole numbers have none."""
    kind = jax.typeof(leaf).dtype
    return slope if slope.dtype == jax.dtypes.float0 else slope.astype(kind)


_solution.defvjp(_forward, _backward)
