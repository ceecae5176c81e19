"""Products of the Jacobian with vectors, summed over rows block by block: least squares without any matrix.

JᵀJ·v takes about as long as three evaluations of the residuals; Jᵀ of random signs, one for each residual, gives the
diagonal of JᵀJ on average. Signs are those of a row's number, so that they do not depend on blocks, devices or
processes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.blocks import with_resolved_chunk
from shardfit.core.equations import Place
from shardfit.core.gram import either, flat, penalty_residuals, row_residuals
from shardfit.core.reduce import on_shards
from shardfit.core.rows import leading, sum_blocks
from shardfit.core.terms import ResidualPenalty, ResidualTerm, row_keys

__all__ = ["normal_product", "of_signs"]


class _Residuals(NamedTuple):
    """The residuals of a term's rows, or of a penalty: function of coordinates, and random signs of them."""

    name: str
    fn: Callable[[jax.Array], jax.Array]
    signs: Callable[[jax.Array], jax.Array]


def normal_product(objective: Any, space: Any, z: jax.Array, v: jax.Array) -> jax.Array:
    """Return JᵀJ·v (n,) at coordinates z of a space: a Gauss–Newton product."""

    def product(residuals, z, v):
        ways = partial(_forward, residuals.fn, v), partial(_reverse, residuals.fn, v)
        return either(residuals.name, *ways, residuals.fn, z)

    return _summed(product, objective, space, z, v, jax.random.key(0))


def of_signs(objective: Any, space: Any, z: jax.Array, key: Any) -> jax.Array:
    """Return Jᵀ·u (n,) for a random sign u of every residual: its square is the diagonal of JᵀJ, on average."""

    def product(residuals, z, _):
        r, pull = jax.vjp(residuals.fn, z)
        return pull(residuals.signs(z).astype(r.dtype))[0]

    return _summed(product, objective, space, z, jnp.zeros_like(z), key)


def _forward(residuals, v, z):
    push = jax.linearize(residuals, z)[1]
    jax.eval_shape(jax.vmap(push), v[None])  # a model without forward derivatives refuses here; otherwise too late
    return jax.linear_transpose(push, z)(push(v))[0]


def _reverse(residuals, v, z):
    r, pull = jax.vjp(residuals, z)
    return pull(jax.linear_transpose(lambda u: pull(u)[0], r)(v)[0])[0]


def _summed(product: Callable, objective: Any, space: Any, z: jax.Array, v: jax.Array, key: Any) -> jax.Array:
    """Return the sum of product(residuals, z, v) over blocks of rows, shards and terms."""
    counts = [getattr(term, "counts", None) for term in objective.terms]  # of all shards: where a shard's rows begin

    def local(shard, terms, space, z, v, key, counts):
        z, v = shard.vary(z), shard.vary(v)
        total = jnp.zeros_like(z)
        for i, (name, term) in enumerate(zip(objective.names, terms, strict=True)):
            if isinstance(term, ResidualTerm):
                own = partial(_of_rows, Place(name, term, space, z, None), jax.random.fold_in(key, i))
                total += _over_blocks(lambda own, z=z, v=v: product(own, z, v), own, term, space, z, shard, counts[i])
        return shard.sum(total)

    total = on_shards(objective.mesh, local, objective.terms, space, z, v, key, counts)
    for i, (name, term) in enumerate(objective.items()):
        if isinstance(term, ResidualPenalty):
            fn = partial(penalty_residuals, term, space)
            signs = partial(_signs_of_penalty, fn, jax.random.fold_in(key, i))
            total += product(_Residuals(name, fn, signs), z, v)
    return total


def _over_blocks(product, of_rows, term, space, z, shard, counts):
    """Return the sum over one shard's rows, which are numbered as those of all shards are."""
    n = leading(term.rows)
    before = shard.index * n if counts is None else jnp.sum(jnp.where(jnp.arange(counts.size) < shard.index, counts, 0))

    def block(numbered, mask):
        return product(of_rows(*numbered, mask))

    chunk = with_resolved_chunk(term, space.unpack(z), None).chunk
    return sum_blocks(block, (term.rows, before + jnp.arange(n)), term.counts, chunk)


def _of_rows(place: Place, key: Any, rows: Any, number: jax.Array, mask: Any) -> _Residuals:
    term, space = place.term, place.space

    def signs(z):
        shapes = jax.eval_shape(lambda z: term.contributions(space.unpack(z), rows, None), z)
        leaves, tree = jax.tree.flatten(shapes)
        keys = row_keys(key, number)
        drawn = [jax.vmap(partial(_signs, i, leaf))(keys) for i, leaf in enumerate(leaves)]
        return flat(tree.unflatten(drawn))

    return _Residuals(place.name, partial(row_residuals, place, rows, mask), signs)


def _signs_of_penalty(residuals, key, z):
    return jax.random.rademacher(key, jax.eval_shape(residuals, z).shape)


def _signs(number, leaf, key):
    """Return random signs of one row's share of a leaf of residuals, for both parts of complex ones."""
    draw = partial(jax.random.rademacher, shape=leaf.shape[1:], dtype=jnp.real(jnp.zeros(0, leaf.dtype)).dtype)
    real, imaginary = (draw(jax.random.fold_in(key, 2 * number + part)) for part in (0, 1))
    return real + 1j * imaginary if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else real
