"""Laplace's approximation: standard deviations of many parameters from Hessian-vector products.

Near a minimum the posterior is a Gaussian whose precision is the Hessian H of the negative logarithm of the posterior,
in the coordinates z of the fit. Up to some thousand coordinates H is formed and inverted. Beyond, it has too many
entries. Data say much about a few directions, which Lanczos iterations find, and little about the others, where the
penalties (the prior) decide: with D the diagonal of the penalties' Hessian and M = H scaled by it,

    M⁻¹ ≈ B = U Λ⁻¹ Uᵀ + (1 - U Uᵀ) / c.

The diagonal of B is known exactly. What it leaves out, the diagonal of M⁻¹ - B, is estimated without bias from random
signs v as the mean of v · (M⁻¹v - Bv), with M⁻¹v by conjugate gradients; their scatter is the error of the estimate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core import reduce
from shardfit.core.current import at_work, working_on_it
from shardfit.core.errors import NonFiniteError
from shardfit.core.mesh import replicate
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.terms import Penalty

DENSE = 4096  # coordinates up to which the matrix is formed: exact, and sooner than probes are solved for
MOST_TIED = 1000  # numbers of a tie, whose standard deviations are found one by one
COLUMNS = 16  # of the Hessian at once: more would hold as many copies of an evaluation's memory
RANK = 300  # directions found by Lanczos iterations, beyond
LOOKS = 50  # products with the inverse that find the least curvature
DIAGONAL_PROBES = 64  # penalties couple near neighbours only, so few signs suffice
FLOOR = 1e-3  # of the median: a scaled Hessian needs no better than the order of magnitude


class NoMinimum(ValueError):
    """Parameters are not where an objective is lowest, so its curvature there says nothing about their errors."""


@dataclass(frozen=True, eq=False)
class Laplace:
    """A Gaussian around the answer.

    sd: standard deviation of every parameter, a pytree like params, in the parameters' own units; sd_log: the same for
    the coordinates of the fit (for a positive image, of its logarithm). uncertainty: typical relative error of sd
    itself, from its random probes; 0 where there were none. lowest: least curvature found, of the Hessian scaled by its
    diagonal, or by that of the penalties'; rank: number of directions held exactly.
    """

    sd: Any
    sd_log: Any
    uncertainty: float
    lowest: float
    rank: int
    _solve: Callable[[np.ndarray], np.ndarray]
    _problem: Problem
    _params: Any

    def sd_of(self, fn: Callable[[Any], Any]) -> float:
        """Return the standard deviation of one number computed from the parameters, correlations included.

        Example: `posterior.sd_of(lambda p: p["I"].sum())`.
        """
        space = self._problem.space
        with at_work(self._problem):
            slope = np.asarray(jax.grad(lambda z: fn(space.unpack(z)))(space.pack(self._params)))
            return float(np.sqrt(slope @ self._solve(slope)))


@working_on_it
def laplace(
    problem: Problem,
    params: Any,
    *,
    scale: float = 1.0,
    rank: int | None = None,
    probes: int = 100,
    seed: int = 0,
    mesh: Any = None,
) -> Laplace:
    """Return standard deviations at a minimum of a problem.

    params: the answer of a fit that converged. scale: what the objective is multiplied with to be the negative
    logarithm of the posterior (1 for ½Σr² with residuals in units of their errors). rank: directions found by Lanczos
    iterations; probes: random vectors for the rest. More of both, less `uncertainty`. Without a rank up to 4,096
    coordinates have the whole matrix, others 300 directions. mesh: devices to split rows over.

    Example: `laplace(problem, fit(problem).params).sd`.
    """
    for name, value, least in (("rank", RANK if rank is None else rank, 1), ("probes", probes, 2)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"laplace: {name}={value!r} must be a whole number, at least {least}.")
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"laplace: scale={scale!r} must be a positive number.")
    space = problem.space
    if space.shapes != space.inner_shapes:
        raise ValueError("laplace: a transform mixes parameters (Simplex). Standard deviations need one number each.")
    if problem.objective.stochastic:
        raise ValueError("laplace: the objective is stochastic. Fix it with objective.freeze(key) first.")
    z = replicate(space.pack(params), mesh)
    if problem.box is not None and np.any((z <= problem.box[0]) | (z >= problem.box[1])):
        raise ValueError("laplace: a parameter is at its bound, where the posterior is not a Gaussian.")
    placed = problem.objective.place(mesh)
    if rank is None and space.size <= DENSE:
        around = _exact(scale * np.asarray(hessian_matrix(space, placed, z), np.float64))
    else:
        held = min(RANK if rank is None else rank, space.size)
        around = _by_probes(space, placed, z, scale, jax.random.key(seed), held, probes)
    spread = jnp.sqrt(jnp.asarray(around.variance, z.dtype))
    slope = jax.jvp(space.unpack, (z,), (jnp.ones_like(z),))[1]
    plain = space.spread_out(spread)
    sd = jax.tree.map(lambda s, d: np.asarray(jnp.abs(d) * s), plain, slope)
    if space.ties:
        sd = _with_tied(space, z, sd, around.solve)
    return Laplace(
        sd=sd,
        sd_log=jax.tree.map(np.asarray, plain),
        uncertainty=around.uncertainty,
        lowest=around.lowest,
        rank=around.rank,
        _solve=around.solve,
        _problem=problem,
        _params=params,
    )


class _Around(NamedTuple):
    """The inverse Hessian: its diagonal, known how well, the least curvature, and its product with a vector."""

    variance: Any
    uncertainty: float
    lowest: float
    rank: int
    solve: Callable[[np.ndarray], np.ndarray]


def _with_tied(space: Space, z: jax.Array, sd: Any, solve: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return standard deviations with those of numbers that follow others, each from a product with the inverse."""
    leaves, tree = jax.tree.flatten(sd)
    leaves = [np.array(leaf) for leaf in leaves]
    for tie in space.ties:
        there = leaves[tie.leaf][tie.index]
        if there.size > MOST_TIED:
            raise ValueError(
                f"laplace: {tie.name} is {there.size:,} tied numbers, each of which takes a solve. Take sd_of what you "
                "need of them, of a problem without the tie."
            )
        slopes = jax.jacrev(lambda z, tie=tie: jnp.ravel(jax.tree.leaves(space.unpack(z))[tie.leaf][tie.index]))(z)
        spread = [np.sqrt(slope @ solve(slope)) for slope in np.asarray(slopes)]
        leaves[tie.leaf][tie.index] = np.reshape(spread, there.shape)
    return tree.unflatten(leaves)


def _check(lowest: float) -> None:
    if not np.isfinite(lowest):
        raise NonFiniteError("laplace: the Hessian is not finite at these parameters. Check that the fit succeeded.")
    if lowest <= 0:
        raise NoMinimum(
            f"laplace: the objective curves downwards at these parameters (lowest scaled curvature {lowest:.2g}), so "
            "they are no minimum. Fit again with smaller tolerances or more iterations."
        )


def _exact(matrix: np.ndarray) -> _Around:
    """Return the inverse of a Hessian (n, n), scaled to a unit diagonal on the way: parameters differ in size."""
    from scipy.linalg import eigvalsh, get_blas_funcs, get_lapack_funcs  # fits without error bars start sooner

    size = np.abs(np.diagonal(matrix))
    if not np.isfinite(matrix).all():
        _check(np.nan)
    root = np.sqrt(np.where(size > 0, size, 1.0))
    matrix = np.asfortranarray(matrix / root / root[:, None])
    potrf, potri, potrs = get_lapack_funcs(("potrf", "potri", "potrs"), (matrix,))
    symv: Any = get_blas_funcs("symv", (matrix,))
    factor, failed = potrf(matrix, lower=1)
    if failed:
        _check(min(0.0, float(eigvalsh(matrix, subset_by_index=[0, 0])[0])))
    inverse, _ = potri(factor, lower=1)
    vector = np.random.default_rng(0).normal(size=len(root))
    for _ in range(LOOKS):
        vector = symv(1.0, inverse, vector / np.linalg.norm(vector), lower=1)
    lowest = 1 / float(np.linalg.norm(vector))
    _check(lowest)

    def solve(vector: np.ndarray) -> np.ndarray:
        return potrs(factor, np.asarray(vector, float) / root, lower=1)[0] / root

    return _Around(np.diagonal(inverse) / root**2, 0.0, lowest, len(root), solve)


def _by_probes(space, placed, z, scale, key, rank, probes) -> _Around:
    """Return what iterations and random probes tell of the inverse, without a matrix."""
    found = _approximate(space, placed, z, jnp.asarray(scale, z.dtype), key, rank, probes)
    _check(float(found["lowest"]))
    if not bool(jnp.all(found["variance"] > 0)):
        raise ValueError("laplace: too few probes for a positive variance everywhere. Raise probes or rank.")

    def solve(vector: np.ndarray) -> np.ndarray:
        return np.asarray(_solve(space, placed, z, scale, found["diagonal"], found["basis"], jnp.asarray(vector)))

    uncertainty = float(jnp.median(found["error"] / (2 * found["variance"])))
    return _Around(found["variance"], uncertainty, float(found["lowest"]), rank, solve)


def hessian_product(space: Space, objective: Objective, z: jax.Array, vector: jax.Array) -> jax.Array:
    """Return the Hessian in coordinates z (n,) times a vector (n,), forward over reverse."""

    def gradient(z):
        params, pull = jax.vjp(space.unpack, z)
        return pull(reduce.value_grad_losses(objective.mesh, objective.terms, params, None)[1])[0]

    return jax.jvp(gradient, (z,), (vector,))[1]


@jax.jit
def hessian_matrix(space: Space, objective: Objective, z: jax.Array) -> jax.Array:
    """Return the Hessian (n, n) in coordinates z (n,), some columns at a time."""
    blocks = -(-z.size // COLUMNS)
    unit = jnp.eye(blocks * COLUMNS, z.size, dtype=z.dtype).reshape(blocks, COLUMNS, z.size)
    product = jax.vmap(partial(hessian_product, space, objective, z))
    columns = jax.lax.map(product, unit).reshape(-1, z.size)[: z.size]
    return 0.5 * (columns + columns.T)


@partial(jax.jit, static_argnums=(5, 6))
def _approximate(space, objective, z, scale, key, rank, probes):
    """Return the diagonal of the inverse Hessian, its error, and what it was made of."""
    first, second, third = jax.random.split(key, 3)
    diagonal = _penalty_diagonal(space, objective, z, scale, first)
    root = jnp.sqrt(diagonal)

    def scaled(vector):
        return scale * hessian_product(space, objective, z, vector / root) / root

    vectors, sizes = _lanczos(scaled, jax.random.normal(second, z.shape, z.dtype), rank)
    lowest = sizes[0]
    basis = (vectors, jnp.maximum(sizes, jnp.finfo(z.dtype).eps * jnp.abs(sizes[-1])))
    signs = jax.random.rademacher(third, (probes, z.size), z.dtype)
    solved = jax.vmap(lambda v: _conjugate_gradients(scaled, v, basis))(signs)
    held = jnp.sum(vectors**2 / basis[1][:, None], 0)
    rest = 1 - jnp.sum(vectors**2, 0)
    inside = (signs @ vectors.T) / basis[1] @ vectors
    outside = signs - (signs @ vectors.T) @ vectors
    # 1/c: what the inverse does to directions outside the basis, on average
    level = jnp.sum(outside * solved) / jnp.maximum(jnp.sum(outside * signs), 1)
    left_out = signs * (solved - inside - level * outside)
    variance = (held + level * rest + left_out.mean(0)) / diagonal
    error = left_out.std(0, ddof=1) / jnp.sqrt(probes) / diagonal
    return {"variance": variance, "error": error, "lowest": lowest, "diagonal": diagonal, "basis": basis}


@jax.jit
def _solve(space, objective, z, scale, diagonal, basis, right):
    root = jnp.sqrt(diagonal)
    solution = _conjugate_gradients(
        lambda v: scale * hessian_product(space, objective, z, v / root) / root, right / root, basis, tol=1e-8
    )
    return solution / root


def _penalty_diagonal(space, objective, z, scale, key):
    """Estimate the diagonal of the penalties' Hessian; ones where there are no penalties."""
    terms = tuple(t for t in objective.terms if isinstance(t, Penalty))
    if not terms:
        return jnp.ones_like(z)
    prior = Objective(terms, tuple(f"penalty{i}" for i in range(len(terms))), objective.mesh)
    signs = jax.random.rademacher(key, (DIAGONAL_PROBES, z.size), z.dtype)
    diagonal = scale * jax.vmap(lambda v: v * hessian_product(space, prior, z, v))(signs).mean(0)
    size = jnp.abs(diagonal)
    typical = jnp.median(size)
    return jnp.where(typical > 0, jnp.maximum(size, FLOOR * typical), jnp.ones_like(z))


def _lanczos(operator, start, steps):
    """Return Ritz vectors (steps, n), orthonormal, and Ritz values in ascending order."""
    n = start.size

    def step(i, state):
        basis, alpha, beta = state
        product = operator(basis[i])
        alpha = alpha.at[i].set(basis[i] @ product)
        for _ in range(2):  # full orthogonalisation, twice: rounding would bring back directions already found
            product = product - basis.T @ (basis @ product)
        size = jnp.linalg.norm(product)
        beta = beta.at[i].set(size)
        follows = jnp.where(size > 0, product / jnp.where(size > 0, size, 1), 0)
        return basis.at[i + 1].set(follows), alpha, beta

    basis = jnp.zeros((steps + 1, n), start.dtype).at[0].set(start / jnp.linalg.norm(start))
    zeros = jnp.zeros(steps, start.dtype)
    basis, alpha, beta = jax.lax.fori_loop(0, steps, step, (basis, zeros, zeros))
    tridiagonal = jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1)
    sizes, turn = jnp.linalg.eigh(tridiagonal)
    return turn.T @ basis[:-1], sizes


def _conjugate_gradients(operator, right, basis, tol=1e-5):
    vectors, sizes = basis

    def precondition(v):
        share = vectors @ v
        return v + (share / sizes - share) @ vectors

    return jax.scipy.sparse.linalg.cg(operator, right, tol=tol, maxiter=10 * right.size, M=precondition)[0]
