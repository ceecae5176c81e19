"""Residuals and their normal equations, summed over rows block by block: least squares on every layout.

Derivatives of a block are taken forward where the model has them. A model with reverse derivatives only (custom_vjp, an
adjoint solver) gives the rows of the Jacobian one by one instead: every residual is differentiated with its own row
alone, so that a block costs as many backward passes as a row has residuals.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.reduce import on_shards, term_key
from shardfit.core.rows import real_rows, sum_blocks
from shardfit.core.terms import ResidualPenalty, ResidualTerm, Term

GRAM_BLOCK = 1 << 16  # numbers in one block of the Jacobian: half a megabyte in float64 stays in a core's own cache


class Gram(NamedTuple):
    """Normal equations at a point: value ½Σr², gradient Jᵀr (n,), matrix JᵀJ (n, n), for coordinates or parameters."""

    value: jax.Array
    gradient: jax.Array
    matrix: jax.Array


def _real(residual: jax.Array) -> jax.Array:
    flat = residual.reshape(-1)
    return jnp.concatenate([flat.real, flat.imag]) if jnp.iscomplexobj(flat) else flat


def _scaled_residuals(term: Term, residuals: Any) -> jax.Array:
    """Flatten residuals, complex ones as real and imaginary parts, scaled so that ½Σr² is the weighted value."""
    named = residuals if isinstance(residuals, dict) else {"": residuals}
    pieces = []
    for name, residual in named.items():
        weight = term.weight[name] if isinstance(term.weight, dict) else term.weight
        factor = jnp.sqrt(jnp.asarray(weight) * getattr(term, "scale", 1.0))
        flat = [_real(leaf) for leaf in jax.tree.leaves(residual)]
        pieces += [leaf * factor.astype(leaf.dtype) for leaf in flat]
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
    pieces += [_scaled_residuals(t, t.fn(params, *t.args)) for t in terms if isinstance(t, ResidualPenalty)]
    return jnp.concatenate(pieces)


def gram(objective: Any, space: Any, z: jax.Array, key: Any) -> Gram:
    """Return the normal equations in coordinates z of a space, so that no Jacobian exists whole."""
    names = objective.names

    def local(shard, terms, space, z, key):
        z = shard.vary(z)
        pieces = []
        for i, term in enumerate(terms):
            if isinstance(term, ResidualTerm):
                model = _Model(names[i], term, space, term_key(term, key, i))
                pieces.append(sum_blocks(partial(_block_gram, model, z), term.rows, term.counts, _chunk(model, z)))
        return shard.sum(pieces)

    pieces = on_shards(objective.mesh, local, objective.terms, space, z, key)
    for name, term in objective.items():
        if isinstance(term, ResidualPenalty):
            residual = partial(_penalty_residual, term, space)
            jacobian = _either(name, partial(_forward, residual), partial(_reverse, residual), residual, z)
            pieces.append(_product(*jacobian))
    return jax.tree.map(lambda *leaves: sum(leaves), *pieces)


class _Model(NamedTuple):
    """A residual term and what it is evaluated with."""

    name: str
    term: ResidualTerm
    space: Any
    key: Any

    def residuals(self, rows: Any, mask: Any, z: jax.Array) -> jax.Array:
        return _scaled_residuals(self.term, self.term.masked_residuals(self.space.unpack(z), rows, mask, self.key))


def _penalty_residual(term, space, z):
    return _scaled_residuals(term, term.fn(space.unpack(z), *term.args))


def _block_gram(model, z, rows, mask):
    residual = partial(model.residuals, rows, mask)
    return _product(
        *_either(model.name, partial(_forward, residual), partial(_reverse_by_row, model, rows, mask), residual, z)
    )


def _product(jacobian, residual):
    """Return the normal equations of one block.

    Rows stay the long axis, and residuals are one more column of the Jacobian, so that one product gives all: three to
    four times faster on a CPU than products of the transposed Jacobian.
    """
    columns = jnp.concatenate([jacobian, residual[:, None]], axis=1)
    product = columns.T @ columns
    return Gram(0.5 * product[-1, -1], product[:-1, -1], product[:-1, :-1])


def _either(name, forward, reverse, residual, z):
    """Return Jacobian and residuals by forward derivatives, or by reverse ones where the model has no others.

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


def _forward(residual, z):
    r, push = jax.linearize(residual, z)
    if r.size >= z.size:
        return jax.vmap(push, out_axes=1)(jnp.eye(z.size, dtype=z.dtype)), r
    return _reverse(residual, z)


def _reverse(residual, z):
    r, pull = jax.vjp(residual, z)
    return jax.vmap(pull)(jnp.eye(r.size, dtype=r.dtype))[0], r


def _reverse_by_row(model, rows, mask, z):
    def one(row, real):
        alone = jax.tree.map(lambda leaf: leaf[None], (row, real))
        return _reverse(partial(model.residuals, *alone), z)

    jacobian, r = jax.vmap(one)(rows, mask)
    return jacobian.reshape(-1, z.size), r.reshape(-1)


def _chunk(model, z):
    """Bound the block of the Jacobian by cache size, and by the term's own chunk."""
    term = model.term
    one = jax.eval_shape(
        lambda rows: term.contributions(model.space.unpack(z), rows, model.key),
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), term.rows),
    )
    per_row = max(1, sum(leaf.size for leaf in jax.tree.leaves(one)))
    fits = max(1, GRAM_BLOCK // (per_row * max(1, z.size)))
    return fits if term.chunk is None else min(fits, term.chunk)
