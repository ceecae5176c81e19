"""Residuals whose scale is a parameter: half their squares lack its logarithm, and so are no likelihood.

A parameter is the scale of residuals if changing it multiplies them by numbers that do not depend on the data. Which
rows are data nobody says, but only these take residuals through zero when they alone are made larger or smaller.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.robust_terms import RobustTerm
from shardfit.core.rows import leading
from shardfit.core.terms import ResidualTerm, RowTerm

ROWS = 16  # that are looked at
LARGEST_LEAF, MOST = 32, 64  # numbers of a parameter that may be scales, and of all: images and fields are none
FACTORS = (1.0, 1e-3, 0.1, 0.5, 0.9, 1.1, 2.0, 10.0, 1e3)  # by which data are multiplied
STEP, NUDGE = 0.1, 0.03  # of a coordinate
ALIKE = 1e5  # units of rounding within which products of residuals are the same
LEAST = 1e-3  # by which a scale changes residuals
BROUGHT = (0.5, 2.0)  # what another term must add, in units of the logarithm that is missing


def require_fixed_scales(problem: Problem, use: str) -> None:
    """Raise for residuals that a parameter scales, unless other terms bring the logarithm of the scale."""
    for name, term in problem.objective.items():
        if not isinstance(term, ResidualTerm | RobustTerm) or term.stochastic:
            continue
        for label, step, missing in _scales(problem, term):
            share = _others(problem, name, step) / missing
            if not BROUGHT[0] < share < BROUGHT[1]:
                squares, written = "Half their squares lack", "0.5 * ((y - model) / sigma) ** 2"
                if isinstance(term, RobustTerm):
                    squares, written = "Their loss lacks", f"the loss of (y - model) / sigma ({term.robust!r})"
                raise ValueError(
                    f"{use}: {label} scales the residuals of term {name!r}. {squares} the logarithm of the scale, "
                    f"without which {label} runs away. Write this likelihood as a statistic_term of "
                    f"{written} + jnp.log(sigma)."
                )


def _scales(problem: Problem, term: RowTerm) -> list[tuple[str, np.ndarray, float]]:
    """Return coordinates that scale residuals: name, a step along it, and by how much the missing term would grow."""
    own, z0 = _small(problem.space), problem.z0()
    few = jax.tree.map(lambda leaf: np.asarray(leaf[:: max(1, leading(term.rows) // ROWS)][:ROWS]), term.rows)
    columns = tuple(i for i, leaf in enumerate(jax.tree.leaves(few)) if np.issubdtype(leaf.dtype, np.inexact))
    if not own.size or not columns:
        return []
    steps = np.zeros((own.size + 1, z0.size), z0.dtype)
    steps[np.arange(1, own.size + 1), own] = STEP * np.maximum(np.abs(z0[own]), 1.0)
    # beside the start, at which amplitudes may be zero and residuals nothing but data
    beside = z0 + NUDGE * np.maximum(np.abs(z0), 1.0) * np.random.default_rng(0).standard_normal(z0.size)
    points = jnp.asarray((beside + steps).astype(z0.dtype))
    tables = _residuals(columns, problem.space, replace(term, rows=few, counts=None), points)
    labels, found = problem.space.coordinate_labels(), {}
    for table in map(np.asarray, tables):
        ratios = _ratios(table)
        for j in np.flatnonzero(np.isfinite(ratios)):
            count = table.shape[2] * term.n_rows / leading(few)
            found[j] = (labels[own[j]], steps[j + 1], -float(ratios[j]) * count)
    return list(found.values())


def _small(space: Space) -> np.ndarray:
    """Return the coordinates of small parameters."""
    sizes = space.leaf_sizes()
    first = np.cumsum([0, *sizes])
    at = [np.arange(a, a + size) for a, size in zip(first, sizes, strict=False) if size <= LARGEST_LEAF]
    return np.concatenate([np.zeros(0, int), *at])[:MOST]


@partial(jax.jit, static_argnums=0)
def _residuals(columns: tuple[int, ...], space: Space, term: RowTerm, points: jax.Array) -> list[jax.Array]:
    """Return residuals (points, factors, numbers) for each column of the rows that is multiplied."""
    leaves, treedef = jax.tree.flatten(term.rows)

    def at(z: jax.Array, column: int, factor: jax.Array) -> jax.Array:
        leaf = jnp.asarray(leaves[column])
        rows = treedef.unflatten([*leaves[:column], leaf * factor.astype(leaf.dtype), *leaves[column + 1 :]])
        found = jax.tree.leaves(term.contributions(space.unpack(z), rows, None))
        return jnp.concatenate([jnp.ravel(one) for one in found])

    factors = jnp.asarray(FACTORS)
    return [jax.vmap(lambda z, c=c: jax.vmap(lambda f: at(z, c, f))(factors))(points) for c in columns]


def _ratios(table: np.ndarray) -> np.ndarray:
    """Return for every point but the first the mean logarithm by which it scales residuals; NaN where it does not.

    table: (points, factors, numbers); numbers that are no finite residuals at all factors are left out.
    """
    table = table[:, :, np.isfinite(table).all((0, 1)) & (table[0] != 0).all(0)]
    base, rounding = table[0], ALIKE * np.finfo(table.dtype).eps
    crosses = np.real(base * np.conj(base[:1])) < 0
    if not table.shape[2] or not crosses.any():
        return np.full(len(table) - 1, np.nan)
    found = np.full(len(table) - 1, np.nan)
    for j, there in enumerate(table[1:]):
        one, other = there * base[:1], there[:1] * base
        same = np.abs(one - other) <= rounding * (np.abs(one) + np.abs(other))
        ratio = np.abs(there[0] / base[0])
        moved = np.abs(ratio - 1) > LEAST
        if same.all() and moved.any() and crosses[:, moved].any() and (ratio > 0).all():
            found[j] = np.mean(np.log(ratio))
    return found


def _others(problem: Problem, name: str, step: np.ndarray) -> float:
    """Return by how much all other terms grow along a step."""

    def total(z: np.ndarray) -> float:
        parts = problem.objective.parts(problem.space.host_params(z))
        return sum(float(part) for other, part in parts.items() if other.split(".")[0] != name)

    return total(problem.z0() + step) - total(problem.z0())
