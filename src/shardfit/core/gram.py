"""Residuals and their normal equations, summed over rows block by block: least squares on every layout.

Derivatives of a block are taken forward where the model has them. A model with reverse derivatives only (custom_vjp, an
adjoint solver) gives the rows of the Jacobian one by one instead: every residual is differentiated with its own row
alone, so that a block costs as many backward passes as a row has residuals.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from shardfit.core.equations import Equations, Gram, Place
from shardfit.core.recent import shapes_of
from shardfit.core.reduce import local_sums, on_shards, scaled, term_key
from shardfit.core.rows import real_rows, shapes_of_rows, sum_blocks
from shardfit.core.rules import called
from shardfit.core.terms import ResidualPenalty, ResidualTerm, RowTerm, Term

__all__ = [
    "Gram",
    "block_rows",
    "either",
    "flat",
    "gram",
    "jacobian_of",
    "of_derivatives",
    "penalty_residuals",
    "residuals",
    "row_residuals",
    "row_sums",
    "rows_at_once",
]

GRAM_BLOCK = 1 << 16  # numbers in one block of the Jacobian: half a megabyte in float64 stays in a core's own cache


def _real(residual: jax.Array) -> jax.Array:
    flat = residual.reshape(-1)
    return jnp.concatenate([flat.real, flat.imag]) if jnp.iscomplexobj(flat) else flat


def _scaled_residuals(term: Term, residuals: Any) -> jax.Array:
    """Flatten residuals, complex ones as real and imaginary parts, scaled so that ½Σr² is the weighted value."""
    named = residuals if isinstance(residuals, dict) else {"": residuals}
    weights = {name: term.weight[name] if isinstance(term.weight, dict) else term.weight for name in named}
    scaled = getattr(term, "scale", 1.0)
    return flat(residuals, {name: jnp.sqrt(jnp.asarray(weight) * scaled) for name, weight in weights.items()})


def flat(residuals: Any, factors: dict[str, jax.Array] | None = None) -> jax.Array:
    """Flatten residuals, complex ones as real and imaginary parts; factors: of each named product, '' if unnamed."""
    named = residuals if isinstance(residuals, dict) else {"": residuals}
    pieces = []
    for name, residual in named.items():
        parts = [_real(leaf) for leaf in jax.tree.leaves(residual)]
        pieces += parts if factors is None else [part * factors[name].astype(part.dtype) for part in parts]
    return jnp.concatenate(pieces)


def residuals(mesh, terms: tuple, params: Any, key: Any) -> jax.Array:
    """Return all residuals as one real vector (masked rows give zeros), weights included."""

    def local(shard, terms, params, key):
        out = []
        for i, term in enumerate(terms):
            if isinstance(term, ResidualTerm):
                mask = real_rows(term.rows, term.counts)
                own = term.masked_residuals(params, term.rows, mask, term_key(term, key, i))
                out.append(_scaled_residuals(term, own))
        return out

    pieces = on_shards(mesh, local, terms, params, key, gather=True)
    pieces += [_scaled_residuals(t, called(t.fn, params, *t.args)) for t in terms if isinstance(t, ResidualPenalty)]
    return jnp.concatenate(pieces)


def gram(objective: Any, space: Any, z: jax.Array, key: Any, directions: jax.Array | None = None) -> Gram:
    """Return the normal equations in coordinates z of a space, so that no Jacobian exists whole.

    directions (n, n): columns to differentiate along in place of the coordinates, for an objective `of_derivatives`.
    """
    pieces = [_weighted(place, totals) for place, totals in row_sums(objective, space, z, key, directions)]
    for name, term in objective.items():
        if isinstance(term, ResidualPenalty):
            residual = partial(penalty_residuals, term, space)
            ways = partial(_forward, residual, directions), partial(_reverse, residual, directions)
            pieces.append(_product(*either(name, *ways, residual, z)))
    return jax.tree.map(lambda *leaves: sum(leaves), *pieces)


def of_derivatives(objective: Any) -> bool:
    """Return whether no term brings normal equations of its own: all are made of derivatives of residuals."""
    ways = [_equations(term) for term in objective.terms if isinstance(term, RowTerm)]
    return all(way is None or way.of_derivatives for way in ways)


def row_sums(objective: Any, space: Any, z: jax.Array, key: Any, directions: Any = None) -> list[tuple[Place, Any]]:
    """Return what the normal equations of every row term are made from: the term in its place, and its totals."""

    def places(terms, space, z, key, directions):
        named = enumerate(zip(objective.names, terms, strict=True))
        each = [Place(name, term, space, z, term_key(term, key, i), None, directions) for i, (name, term) in named]
        return [place for place in each if isinstance(place.term, RowTerm)]

    def local(shard, terms, space, z, key, directions):
        here = places(terms, space, shard.vary(z), key, directions)
        first = shard.sum([_first_walk(place) for place in here])
        known = [_start(place, totals) for place, totals in zip(here, first, strict=True)]
        here = [place._replace(known=k) for place, k in zip(here, known, strict=True)]
        return known, shard.sum([_walk(place) for place in here])

    known, totals = on_shards(objective.mesh, local, objective.terms, space, z, key, directions)
    here = places(objective.terms, space, z, key, directions)
    here = [p._replace(known=k) for p, k in zip(here, known, strict=True)]
    return list(zip(here, totals, strict=True))


def _equations(term: RowTerm) -> Equations | None:
    """Return how a term makes its normal equations: None for the derivatives of its residuals."""
    return term.equations or term.generic_equations


def _first_walk(place: Place) -> Any:
    equations = _equations(place.term)
    if equations is None or not equations.two_walks:
        return None
    return local_sums(place.term, place.space.unpack(place.z), place.key)


def _start(place: Place, totals: Any) -> Any:
    equations = _equations(place.term)
    return None if equations is None or totals is None else equations.start(place, scaled(place.term, totals))


def _walk(place: Place) -> Any:
    term, equations = place.term, _equations(place.term)
    sums = partial(_block_gram, place) if equations is None else partial(equations.sums, place)
    return sum_blocks(sums, term.rows, term.counts, rows_at_once(place))


def rows_at_once(place: Place) -> int | None:
    """Return how many rows a term's normal equations are summed over at once; None for all."""
    equations = _equations(place.term)
    return block_rows(place) if equations is None else equations.block_rows(place)


def _weighted(place: Place, totals: Any) -> Gram:
    equations = _equations(place.term)
    if equations is None:
        return totals  # weight and scale are in the residuals
    solved = equations.gram(place, scaled(place.term, totals))
    return Gram(*(part * jnp.asarray(place.term.weight, part.dtype) for part in solved))


def row_residuals(place: Place, rows: Any, mask: Any, z: jax.Array) -> jax.Array:
    """Return the residuals of a block of rows at coordinates z of the place's space; masked rows give zeros."""
    return _scaled_residuals(place.term, place.term.masked_residuals(place.space.unpack(z), rows, mask, place.key))


def penalty_residuals(term: Term, space: Any, z: jax.Array) -> jax.Array:
    """Return the residuals of a penalty at coordinates z of a space."""
    return _scaled_residuals(term, called(term.fn, space.unpack(z), *term.args))


def _block_gram(place, rows, mask):
    return _product(*jacobian_of(place, partial(row_residuals, place, rows, mask), rows, mask))


def jacobian_of(place: Place, residual: Callable, rows: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
    """Return Jacobian (m, n) and residuals (m,) of a block: residual(z) as a vector."""
    by_row = partial(_reverse_by_row, place, rows, mask)
    return either(place.name, partial(_forward, residual, place.directions), by_row, residual, place.z)


def _product(jacobian, residual):
    """Return the normal equations of one block.

    Rows stay the long axis, and residuals are one more column of the Jacobian, so that one product gives all: three to
    four times faster on a CPU than products of the transposed Jacobian.
    """
    columns = jnp.concatenate([jacobian, residual[:, None]], axis=1)
    product = columns.T @ columns
    return Gram(0.5 * product[-1, -1], product[:-1, -1], product[:-1, :-1])


def either(name: str, forward: Callable, reverse: Callable, residual: Callable, z: jax.Array) -> Any:
    """Return what forward derivatives give, or reverse ones where the model has no others.

    Which it has shows when it is traced: JAX refuses, in several ways, before anything is computed.
    """
    try:
        return forward(z)
    except Exception as no_forward:
        jax.eval_shape(residual, z)  # a mistake in the model itself is raised as it is
        try:
            return reverse(z)
        except Exception as no_reverse:
            raise TypeError(
                f"term {name!r}: its residuals cannot be differentiated, neither forward ({_line(no_forward)}) nor row "
                f"by row in reverse ({_line(no_reverse)}). Write the model in jax.numpy, or give foreign code a "
                "custom_vjp that vmap can batch. Solvers that work on values need reverse derivatives only: 'lbfgsb', "
                "'lbfgs', 'adam'."
            ) from no_forward


def _line(error):
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}" if str(error).strip() else repr(error)


def _forward(residual, directions, z):
    r, push = jax.linearize(residual, z)
    if r.size >= z.size:
        along = jnp.eye(z.size, dtype=z.dtype) if directions is None else directions
        return jax.vmap(push, in_axes=1, out_axes=1)(along), r
    return _reverse(residual, directions, z)


def _reverse(residual, directions, z):
    r, pull = jax.vjp(residual, z)
    jacobian = jax.vmap(pull)(jnp.eye(r.size, dtype=r.dtype))[0]
    return (jacobian if directions is None else jacobian @ directions), r


def _reverse_by_row(place, rows, mask, z):
    def one(row, real):
        alone = jax.tree.map(lambda leaf: leaf[None], (row, real))
        return _reverse(partial(row_residuals, place, *alone), place.directions, z)

    jacobian, r = jax.vmap(one)(rows, mask)
    return jacobian.reshape(-1, z.size), r.reshape(-1)


@jax.jit  # one function for all calls: JAX traces the user's once, not at every fit
def _contributions(term: RowTerm, space: Any, z: Any, rows: Any, key: Any) -> Any:
    return term.contributions(space.unpack(z), rows, key)


def block_rows(place: Place) -> int:
    """Return how many rows a block of the Jacobian may have: bounded by cache size, and by the term's own chunk."""
    term, z = place.term, place.z
    one = shapes_of(_contributions, term, place.space, z, shapes_of_rows(term.rows, 1), place.key)
    per_row = max(1, sum(leaf.size for leaf in jax.tree.leaves(one)))
    fits = max(1, GRAM_BLOCK // (per_row * max(1, z.size)))
    return fits if term.chunk is None else min(fits, term.chunk)
