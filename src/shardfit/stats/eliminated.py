"""The linear coefficients that a linear term eliminated: their best values with errors, or draws of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.centring import centred
from shardfit.core.current import at_work
from shardfit.core.errors import suggestion
from shardfit.core.gram import row_sums
from shardfit.core.objective import Objective, normalised, replace_terms
from shardfit.core.params import make_space
from shardfit.core.problem import Problem
from shardfit.core.reduce import scaled, totals
from shardfit.core.result import Result
from shardfit.stats.groups import SHOWN
from shardfit.stats.linear import LinearTerm, Projected
from shardfit.stats.projection import ranks


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Linear coefficients at given parameters, for G groups of K.

    value, stderr: (G, K). covariance: (G, K, K) of each group's coefficients, and cross: (G, K, p) with the p other
    parameters, in the order of `jax.tree.leaves`. Where the parameters' errors are not known, covariance is that at
    fixed parameters and cross is zero. Coefficients that are not determined have an infinite standard error; rank (G,)
    says how many are.
    """

    value: np.ndarray
    stderr: np.ndarray
    covariance: np.ndarray
    cross: np.ndarray
    rank: np.ndarray
    conditional: np.ndarray  # (G, K, K) at fixed parameters
    parameters: np.ndarray  # (p, p) covariance of the other parameters, zero if not known

    def joint(self) -> np.ndarray:
        """Return the covariance (p + G·K, p + G·K) of the other parameters and then all coefficients, as a joint fit's.

        Of many groups it is large; `covariance` and `cross` say the same.
        """
        g, k, p = self.cross.shape
        # c follows the parameters by cross · parameters⁻¹: with the pseudo-inverse, held ones do not matter
        follow = self.cross.reshape(g * k, p)
        whole = follow @ np.linalg.pinv(self.parameters, hermitian=True) @ follow.T
        for i, block in enumerate(self.conditional):
            whole[i * k : (i + 1) * k, i * k : (i + 1) * k] += block
        return np.block([[self.parameters, follow.T], [follow, whole]])


class _Solved(NamedTuple):
    value: jax.Array
    matrix: jax.Array
    slopes: jax.Array


def coefficients(
    problem: Problem, at: Any, term: str | None = None, *, absolute_sigma: bool | None = None
) -> Coefficients:
    """Return the best linear coefficients of a problem's linear term at a fit's Result, or at given parameters.

    With a Result that has a covariance (from `least_squares`) errors are those of a joint fit of all parameters.
    term: its name, where the problem has several. absolute_sigma: as for `LM`, the same as in the fit; None takes
    residuals as normalised if every data term has an entry `sigma`, and scales errors by the reduced χ² if not.

    Example: `coefficients(problem, least_squares(problem)).value`.
    """
    name = _linear_name(problem, term, "coefficients")
    params = at.params if isinstance(at, Result) else at
    known = at.covariance if isinstance(at, Result) else None
    with at_work(problem):
        alone = _without_own_equations(problem.objective.only(name))
        solved = jax.device_get(_solved(alone, make_space(params), params))
    conditional, rank = _inverse(solved.matrix)
    if not (normalised(problem.objective) if absolute_sigma is None else absolute_sigma):
        conditional = conditional * (at.reduced_chi2 or np.nan if isinstance(at, Result) else 1.0)
    p = solved.slopes.shape[-1]
    parameters = np.zeros((p, p)) if known is None else np.where(np.isfinite(known), known, 0.0)
    cross = solved.slopes @ parameters
    covariance = conditional + cross @ np.swapaxes(solved.slopes, 1, 2)
    stderr = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    unknown = np.zeros(p, bool) if known is None else ~np.isfinite(np.diag(known))
    stderr = np.where(np.any(solved.slopes[..., unknown] != 0, axis=-1), np.inf, stderr)
    return Coefficients(solved.value, stderr, covariance, cross, rank, conditional, parameters)


def recover(problem: Problem, draws: Any, key: jax.Array, term: str | None = None) -> np.ndarray:
    """Return draws (*leading, G, K) of the linear coefficients, one for each draw of the other parameters.

    draws: a pytree like x0 whose leaves have the same leading axes, such as (chains, draws). Together with them the
    coefficients are draws of the joint posterior: those given the parameters are Gaussian, group by group.

    Example: `recover(problem, posterior.draws, jax.random.key(0)).mean((0, 1))`.
    """
    name = _linear_name(problem, term, "recover")
    leaves, like = jax.tree.leaves(draws), jax.tree.leaves(problem.x0)
    if jax.tree.structure(draws) != jax.tree.structure(problem.x0):
        raise ValueError("recover: draws have another structure than the problem's x0.")
    n_leading = {leaf.ndim - np.ndim(x) for leaf, x in zip(leaves, like, strict=True)}
    leading = leaves[0].shape[: n_leading.copy().pop()]
    if len(n_leading) > 1 or any(leaf.shape != leading + np.shape(x) for leaf, x in zip(leaves, like, strict=True)):
        raise ValueError("recover: all leaves of draws need the same leading axes, then the shapes of x0.")
    flat = jax.tree.map(lambda leaf, x: np.reshape(leaf, (-1, *np.shape(x))), draws, problem.x0)
    with at_work(problem):
        objective = problem.objective.only(name)
        drawn = jax.device_get(_drawn(objective, flat, key))
    return drawn.reshape(*leading, *drawn.shape[1:])


def marginalised(problem: Problem, marginal: bool = True) -> Problem:
    """Return the problem with the coefficients of all its linear terms integrated out, or with False at their best.

    The first is for sampling, the second for fits. Raises where a group's coefficients are not determined at x0: a flat
    prior would then leave a density that cannot be normalised.
    """
    if not any(isinstance(term, LinearTerm) for term in problem.objective.terms):
        raise ValueError("marginalised: the problem has no linear term.")
    if marginal:
        require_determined(problem)
    objective = centred(problem.objective, problem.x0)
    changed = [t.with_marginal(marginal) if isinstance(t, LinearTerm) else t for t in objective.terms]
    return problem.replace(objective=replace_terms(objective, changed))


def require_integrated(problem: Problem, use: str) -> None:
    """Raise for linear terms that have no posterior: coefficients at their best, or not determined at x0."""
    linear = {name: term for name, term in problem.objective.items() if isinstance(term, LinearTerm)}
    for name, term in linear.items():
        if not term.marginal:
            raise ValueError(
                f"{use}: the linear coefficients of term {name!r} are at their best values, which is for fits. For a "
                "posterior they must be integrated out: pass marginalised(problem)."
            )
    if linear:
        require_determined(problem)


def require_determined(problem: Problem) -> None:
    """Raise where data and prior leave linear coefficients undetermined at x0, naming term and groups."""
    with at_work(problem):
        for name, term in problem.objective.items():
            if not isinstance(term, LinearTerm):
                continue
            matrix = np.asarray(_matrices(problem.objective.only(name), problem.x0))
            lost = np.flatnonzero(ranks(matrix) < matrix.shape[-1])
            if lost.size:
                which = ", ".join(map(str, lost[:SHOWN])) + (" ..." if lost.size > SHOWN else "")
                raise ValueError(
                    f"term {name!r}: at x0 the data do not determine all {matrix.shape[-1]} linear coefficients of "
                    f"{lost.size} of {len(matrix)} groups (group {which}): basis functions are zero or proportional to "
                    "each other there. Give the coefficients a prior, merge groups, or leave a basis function out."
                )


def _linear_name(problem: Problem, term: str | None, where: str) -> str:
    names = [name for name, t in problem.objective.items() if isinstance(t, LinearTerm)]
    if term is None and len(names) == 1:
        return names[0]
    if term not in names:
        said = f"no linear term {term!r}.{suggestion(term, names)}" if term else f"say which term: {', '.join(names)}."
        raise ValueError(f"{where}: {said if names else 'the problem has no linear term.'}")
    return term


def _without_own_equations(objective: Objective) -> Objective:
    """Return the objective of one linear term with the generic normal equations, which know the coefficients."""
    (term,) = objective.terms
    assert isinstance(term, LinearTerm)
    return replace_terms(objective, [term.with_marginal(False, equations=None)])


@jax.jit
def _solved(objective, space, params) -> _Solved:
    """Return the coefficients, their matrices A, and the slopes dc/dparameters (G, K, p)."""
    ((place, sums),) = row_sums(objective, space, space.pack(params), None)
    best, first = place.known
    cross = Projected().slopes(place, scaled(place.term, sums))
    solved = place.term.normal(first)
    moved = solved.unwhiten(solved.whiten(cross))
    return _Solved(best - moved[..., -1], solved.matrix, -moved[..., :-1])


@jax.jit
def _matrices(objective, params):
    return _normal_at(objective, params).matrix


def _normal_at(objective, params):
    (sums,), (term,) = totals(objective.mesh, objective.terms, params, None), objective.terms
    return term.normal(scaled(term, sums))


@jax.jit
def _drawn(objective, draws, key):
    n = jax.tree.leaves(draws)[0].shape[0]

    def one(draw, number):
        solved = _normal_at(objective, draw)
        noise = jax.random.normal(jax.random.fold_in(key, number), solved.vector.shape, solved.vector.dtype)
        return solved.best + solved.unwhiten(noise[..., None])[..., 0]

    return jax.lax.map(lambda pair: one(*pair), (draws, jnp.arange(n)))


def _inverse(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return inverses of (G, K, K), with infinite variances where a coefficient is not determined, and the ranks."""
    k, rank = matrix.shape[-1], ranks(matrix)
    inverse = np.zeros_like(matrix)
    whole = rank == k
    size = np.sqrt(np.diagonal(matrix, axis1=1, axis2=2))
    unit = np.where(size > 0, size, 1)
    pairs = unit[:, :, None] * unit[:, None, :]
    inverse[whole] = np.linalg.inv(matrix[whole] / pairs[whole]) / pairs[whole]
    for g in np.flatnonzero(~whole):
        values, vectors = np.linalg.eigh(matrix[g] / pairs[g])
        known = np.arange(k) >= k - rank[g]
        lost = np.sum(vectors[:, ~known] ** 2, axis=1) > np.sqrt(np.finfo(matrix.dtype).eps)
        part = (vectors[:, known] / values[known]) @ vectors[:, known].T / pairs[g]
        inverse[g] = np.where(lost[:, None] | lost, np.diag(np.where(lost, np.inf, 0)), part)
    return inverse, rank
