"""What a certificate evaluates: one compiled program for all terms of an objective.

It only evaluates: comparing is for the host (`comparisons.py`), for every reduction more would be compiled for each new
model. Of a term, on a probe of its rows: value and gradient backwards, contributions of the rows whole, the same in two
unequal blocks in another order with their forward derivatives, and contributions at steps along a direction.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.check.probe import Setting, small_block
from shardfit.core import reduce
from shardfit.core.fast_compile import unoptimised_jit
from shardfit.core.gram import gram
from shardfit.core.objective import Objective
from shardfit.core.rules import called
from shardfit.core.terms import ResidualPenalty, RowTerm, half_square, weighted_sum

FILLING = 3  # rows that do not count in a block of a function that sums them
FORWARD_ERRORS = (TypeError, ValueError, NotImplementedError)


class Evaluations(NamedTuple):
    """A term at a point; tables are real and have one line per row, or per number where `lines_are_rows` is False."""

    values: Any  # (2,) at the given point and near it
    gradients: Any  # (2, n_parameters)
    outputs: Any  # (n, k) near it, whole
    weights: Any  # (n, k) derivative of the value by these
    blocks: Any  # (n, k) in two blocks, in the setting's order
    rates: Any  # (n, k) in the same order, forward derivatives along the direction; None where there are none
    block_gradient: Any  # (n_parameters,) of the blocks, where rates is None
    steps: Any  # (n_steps, n, k) at steps along the direction
    loss_rate: Any  # derivative of a loss as its totals change; None for plain sums
    loss_steps: Any  # (n_steps,) the loss at the same steps of that change
    gram: Any  # (3,) value, slope and curvature by the normal equations of the small block; (2, 3) own and expected


@partial(unoptimised_jit, static_argnums=0)
def evaluate_terms(with_gram: bool, objective, space, setting: Setting, first, key) -> dict[str, Evaluations]:
    """Return the evaluations of every term, by name; first: 0, or 1 to leave out the given point itself."""
    evaluations = {}
    for i, (name, term) in enumerate(objective.items()):
        own_key, order = reduce.term_key(term, key, i), setting.orders[i]
        try:
            evaluations[name] = _evaluate(space, with_gram, term, setting, first, own_key, order)
        except FORWARD_ERRORS as error:
            error.add_note(f"raised by the derivatives of term {name!r}, before any step was taken.{_remedy(error)}")
            raise
    return evaluations


def _remedy(error: Exception) -> str:
    if "callback" not in str(error):
        return ""
    return (
        " A function called on the host has none: give it a rule (jax.custom_jvp, jax.custom_vjp); wrap what it is "
        "given in jax.lax.stop_gradient if it only looks on; or use a solver without derivatives: 'swarm', 'cmaes'."
    )


@jax.jit
def pulled_back(space, term, z, key, cotangents):
    """Return the gradient of Σ cotangents · table of a term's outputs."""
    return jax.grad(lambda z: jnp.sum(cotangents * _table(term, _outputs(space, term, key, z))))(z)


def _evaluate(space, with_gram, term, setting: Setting, first, key, order) -> Evaluations:
    z, u = setting.points[1], setting.direction
    whole = partial(_outputs, space, term, key)
    values, gradients, outputs, pulled = _whole(whole, partial(_head, term, key), setting.points, first)
    blocks = whole if order is None else partial(_in_blocks, space, term, key, order)
    if _has_forward(whole, z):
        other, rates = jax.jvp(blocks, (z,), (u,))
        rates, block_gradient = _table(term, rates), None
    else:
        (other, pull), rates = jax.vjp(blocks, z), None
        reordered = order is not None and lines_are_rows(term)
        block_gradient = pull(jax.tree.map(lambda leaf: leaf[order], pulled) if reordered else pulled)[0]
    loss_rate, loss_steps = _loss(term, key, outputs, pulled, setting.steps)
    return Evaluations(
        values,
        gradients,
        _table(term, outputs),
        _table(term, jax.tree.map(jnp.conj, pulled)),
        _table(term, other),
        rates,
        block_gradient,
        jax.lax.map(lambda step: _table(term, whole(z + step * u)), setting.steps),
        loss_rate,
        loss_steps,
        _gram(space, term, key, order, (z, u, values[1], gradients[1])) if with_gram else None,
    )


def _has_forward(fn, z) -> bool:
    """Return whether fn has forward derivatives: not so with a custom_vjp, nor with most foreign functions."""
    if any(name.startswith("custom_vjp") for name in _primitives(jax.make_jaxpr(fn)(z).jaxpr)):
        return False  # jax would say so only when it compiles
    try:
        jax.eval_shape(lambda z: jax.jvp(fn, (z,), (z,)), z)
    except FORWARD_ERRORS:
        return False
    return True


def _primitives(jaxpr):
    """Yield the names of all operations of a traced program, those of its inner programs too."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)


@jax.jit
def _outputs(space, term, key, z):
    """Return what a term's function gives at z: contributions of rows, sums, residuals, losses, all floating."""
    params = space.unpack(z)
    if not isinstance(term, RowTerm):
        given = called(term.fn, params, *term.args)
    elif term.sums_blocks:
        given = term.statistics(params, term.rows, None, key)
    else:
        given = term.contributions(params, term.rows, key)
    return jax.tree.map(lambda leaf: leaf * 1.0, given)


def _head(term, key, outputs):
    """Return the weighted loss of what a term's function gave."""
    if isinstance(term, RowTerm) and term.sums_blocks:
        losses = reduce.scaled_losses(term, outputs, key)
    elif isinstance(term, RowTerm):
        given = replace(term, fn=lambda outputs, *_: outputs)
        losses = reduce.scaled_losses(term, given.statistics(outputs, term.rows, None, key), key)
    else:
        losses = half_square(outputs) if isinstance(term, ResidualPenalty) else outputs
    return jnp.asarray(weighted_sum(term.weight, losses), float)


def _whole(outputs_at, head, points, first):
    """Return values and gradients at both points, and at the second what the function gave and its cotangent."""

    def at(z):
        outputs, pull = jax.vjp(outputs_at, z)
        value, pull_head = jax.vjp(head, outputs)
        pulled = pull_head(jnp.ones_like(value))[0]
        return value, pull(pulled)[0], outputs, pulled

    def visit(i, known):
        value, gradient, outputs, pulled = at(points[i])
        return known[0].at[i].set(value), known[1].at[i].set(gradient), outputs, pulled

    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(at, points[0]))
    return jax.lax.fori_loop(first, 2, visit, (jnp.zeros(2), jnp.zeros(points.shape), *zero[2:]))


def _in_blocks(space, term, key, order, z):
    """Return the outputs of all rows, taken in another order and in two unequal blocks."""
    n_small = small_block(order.shape[0])
    if term.sums_blocks:
        ends = order[:n_small], order[n_small:]
        pieces = [_filled_up(term, space.unpack(z), own, other, key) for own, other in (ends, ends[::-1])]
        return jax.tree.map(jnp.add, *pieces)
    pieces = [_outputs(space, _rows_of(term, index), key, z) for index in (order[:n_small], order[n_small:])]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pieces)


def _filled_up(term, params, own, other, key):
    """Return the sums of a block of rows that other rows, which do not count, fill up."""
    extra = other[:FILLING]
    mask = jnp.arange(len(own) + len(extra)) < len(own)
    return term.statistics(params, _rows_of(term, jnp.concatenate([own, extra])).rows, mask, key)


def _rows_of(term, index):
    return replace(term, rows=jax.tree.map(lambda leaf: leaf[index], term.rows))


def _table(term, outputs):
    """Return outputs as real numbers (n, k): a line per row, or per number where they are sums or there are no rows."""
    by_row, leaves = lines_are_rows(term), []
    for leaf in jax.tree.leaves(outputs):
        flat = leaf.reshape(leaf.shape[0], -1) if by_row else leaf.reshape(-1, 1)
        leaves += [flat.real, flat.imag] if jnp.iscomplexobj(flat) else [flat]
    return jnp.concatenate(leaves, axis=1 if by_row else 0)


def lines_are_rows(term) -> bool:
    """Return whether a line of a term's tables is a row, and not a number of its own."""
    return isinstance(term, RowTerm) and not term.sums_blocks


def _loss(term, key, outputs, pulled, steps):
    """Return rate and values of a loss of totals while every total changes by about itself; (None, None) for sums."""
    if not isinstance(term, RowTerm) or term.linear:
        return None, None

    first = 0 if term.sums_blocks else 1

    def share(leaf):  # another one for each total, so that they cannot cancel
        shape = leaf.shape[first:]
        return leaf * (1 + 0.5 * jnp.sin(1.0 + jnp.arange(math.prod(shape)))).reshape(shape)

    change = jax.tree.map(share, outputs)
    rate = sum(jnp.sum((c * p).real) for c, p in zip(jax.tree.leaves(change), jax.tree.leaves(pulled), strict=True))
    at = jax.lax.map(lambda step: _head(term, key, jax.tree.map(lambda o, c: o + step * c, outputs, change)), steps)
    return rate, at


def _gram(space, term, key, order, at):
    """Return value, slope and curvature along u by the normal equations of a few rows.

    For a term that brings its own they are those of all rows, with copies that do not count among them, and beside
    them what is expected: the generic ones if there are any, else value and gradient as they are.
    """
    z, u, value, gradient = at

    def along(term):
        equations = gram(Objective((term,), ("term",)), space, z, key)
        return jnp.stack([equations.value, jnp.vdot(equations.gradient, u), u @ equations.matrix @ u])

    if not isinstance(term, RowTerm) or (term.equations is None and term.generic_equations is None):
        return along(term if order is None else _rows_of(term, order[: small_block(order.shape[0])]))
    own = along(_padded(term))
    generic = replace(term, equations=None)
    if term.equations is not None and generic.least_squares:
        return jnp.stack([own, along(generic)])
    return jnp.stack([own, jnp.stack([value, jnp.vdot(gradient, u), own[2]])])


def _padded(term):
    """Return the term with copies of its last row that do not count, as on a mesh."""
    rows = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[-1:], leaf[-1:]]), term.rows)
    return replace(term, rows=rows, counts=jnp.array([jax.tree.leaves(term.rows)[0].shape[0]], jnp.int32))
