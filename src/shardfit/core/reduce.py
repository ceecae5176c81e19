"""The one place where sums cross devices.

Every quantity is a sum over rows: each shard sums its own rows, `psum` adds the shards, and what is small (totals,
gradients, normal equations) is all that travels. The gradient is two-phase: totals go forward, the loss is
differentiated at the totals, and its cotangent is pulled back on each shard before one last sum. Parameters are cast
to varying first: without it the pull-back would contain a sum of its own.

Without a mesh, or with one shard, the same code runs with the sum over shards left out.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

from shardfit.core.blocks import with_resolved_chunk
from shardfit.core.layout import rows_quickest
from shardfit.core.mesh import ROWS, n_shards
from shardfit.core.rows import leading, sum_blocks
from shardfit.core.rules import called, our_rules
from shardfit.core.terms import Penalty, RowTerm, StatisticTerm, Term, weighted_sum

SMALL = 1 << 13  # numbers: copying more takes as long as a message of their own


class Shard(NamedTuple):
    """What a function that runs on every shard is given besides its arguments."""

    index: Any
    sum: Callable[[Any], Any]
    vary: Callable[[Any], Any]


def on_shards(mesh, fn: Callable, terms: tuple, *replicated: Any, gather: bool = False) -> Any:
    """Run fn(shard, terms, *replicated) on every shard; its result is replicated, or with gather one per shard."""
    if n_shards(mesh) == 1:
        return fn(Shard(jnp.zeros((), jnp.int32), lambda x: x, lambda x: x), terms, *replicated)

    def local(terms, replicated):
        shard = Shard(
            jax.lax.axis_index(ROWS),
            _sum_over_shards,
            lambda x: jax.tree.map(lambda leaf: jax.lax.pcast(leaf, ROWS, to="varying"), x),
        )
        return fn(shard, tuple(_own_count(t, shard.index) for t in terms), *replicated)

    specs = (tuple(_specs(t) for t in terms), P())
    run = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=specs,
        out_specs=P(ROWS) if gather else P(),
        # other axes of one device too: a function called on the host (jax.pure_callback) needs all of them
        axis_names={ROWS, *(name for name, size in mesh.shape.items() if size == 1)},
        check_vma=False,  # True refuses every user scan that starts from zeros
    )
    return run(terms, replicated)


def _sum_over_shards(tree: Any) -> Any:
    """Add a tree over shards. Small arrays of one type travel as one, for each that travels waits for all shards."""
    leaves, structure = jax.tree.flatten(tree)
    together = defaultdict(list)
    for place, leaf in enumerate(leaves):
        together[jnp.result_type(leaf) if jnp.size(leaf) <= SMALL else place].append(place)
    for places in together.values():
        flat, back = ravel_pytree([leaves[place] for place in places])
        for place, total in zip(places, back(jax.lax.psum(flat, ROWS)), strict=True):
            leaves[place] = total
    return structure.unflatten(leaves)


def _specs(term: Term) -> Term:
    data = [f.name for f in fields(term) if not f.metadata.get("static")]
    return replace(term, **{name: P(ROWS) if name == "rows" else P() for name in data})


def _own_count(term: Term, index: Any) -> Term:
    # every process knows all counts, for the host asks how many rows there are
    if not isinstance(term, RowTerm) or term.counts is None:
        return term
    return replace(term, counts=term.counts[index][None])


def term_key(term: Term, key: Any, position: int) -> Any:
    """Return the key a stochastic term uses: its own if frozen, else one folded from the caller's."""
    if isinstance(term, Penalty) or not term.stochastic:
        return None
    if term.key is not None:
        return term.key
    if key is None:
        raise ValueError(
            "this objective has a stochastic term: pass key=jax.random.key(seed), "
            "or objective.freeze(key) for one fixed realisation."
        )
    return jax.random.fold_in(key, position)


def local_sums(term: Term, params: Any, key: Any) -> Any:
    """Sum a row term's statistics over this shard's rows."""
    if isinstance(term, Penalty):
        return None
    term = with_resolved_chunk(term, params, key)

    def block(rows, mask):
        return _block_sums(term, params, rows, mask, key)

    return sum_blocks(block, term.rows, term.counts, term.chunk)


def _block_sums(term: RowTerm, params: Any, rows: Any, mask: Any, key: Any) -> Any:
    """Return what a block of rows adds to the totals; statistics (rows, bins) are held as (bins, rows)."""

    def sums(params, rows, mask, args, key):
        return replace(term, args=args).statistics(params, rows, mask, key)

    evaluate = rows_quickest(sums, leading(rows)) if isinstance(term, StatisticTerm) else sums
    return evaluate(params, rows, mask, term.args, key)


def _chunked(term: RowTerm) -> bool:
    return term.chunk is not None and term.chunk < leading(term.rows)


def scaled_losses(term: RowTerm, sums: Any, key: Any) -> Any:
    """Return a row term's losses from its totals, scaled up to all rows when only some are present."""
    return term.losses(scaled(term, sums), key)


def scaled(term: RowTerm, sums: Any) -> Any:
    """Return totals as they are of all rows, when only some are present."""
    return jax.tree.map(lambda s: s * jnp.asarray(term.scale, jnp.real(s).dtype), sums)


def totals(mesh, terms: tuple, params: Any, key: Any) -> list:
    """Return the summed statistics of every row term (None for a penalty)."""

    def local(shard, terms, params, key):
        keys = (term_key(t, key, i) for i, t in enumerate(terms))
        return shard.sum([local_sums(t, params, k) for t, k in zip(terms, keys, strict=True)])

    return on_shards(mesh, local, terms, params, key)


def losses(mesh, terms: tuple, params: Any, key: Any) -> tuple:
    """Return the unweighted losses of every term, without derivatives."""
    sums = totals(mesh, terms, params, key)
    return tuple(
        t.losses(params) if isinstance(t, Penalty) else scaled_losses(t, s, term_key(t, key, i))
        for i, (t, s) in enumerate(zip(terms, sums, strict=True))
    )


def value_grad_losses(mesh, terms: tuple, params: Any, key: Any) -> tuple[jax.Array, Any, tuple]:
    """Return value, gradient and unweighted losses at one forward and one backward pass over the rows."""
    result, gradient, _, unweighted = _gradients(mesh, terms, params, key, ((),) * len(terms))
    return result, gradient, unweighted


def _gradients(mesh, terms: tuple, params: Any, key: Any, moves: tuple) -> tuple[jax.Array, Any, list, tuple]:
    """Return value, gradient, the gradients of each term's moving leaves, and the unweighted losses.

    moves says for every term which leaves of its args and weight are differentiated as well; () means none.
    """

    def local(shard, terms, params, key):
        params = shard.vary(params)
        keys = [term_key(t, key, i) for i, t in enumerate(terms)]
        inputs = [(params, shard.vary(_moving(t, m))) for t, m in zip(terms, moves, strict=True)]
        walks = (_sums_and_pull(*each) for each in zip(terms, moves, inputs, keys, strict=True))
        sums, pulls = zip(*walks, strict=True)
        sums = shard.sum(list(sums))
        unweighted, gradients, direct = [], [], []
        for term, move, total, pull, k in zip(terms, moves, sums, pulls, keys, strict=True):
            if total is None:
                loss, pulled, through_loss = None, (None, []), []
            else:
                loss, cotangent, through_loss = _loss_and_cotangents(term, move, total, k)
                pulled = pull(shard.vary(cotangent))
            unweighted.append(loss)
            gradients.append(pulled)
            direct.append(through_loss)
        gradient = shard.sum(_add_trees(params, [g for g, _ in gradients if g is not None]))
        through_rows = shard.sum([leaves for _, leaves in gradients])
        return tuple(unweighted), gradient, jax.tree.map(jnp.add, through_rows, direct)

    row_losses, gradient, of_leaves = on_shards(mesh, local, terms, params, key)
    unweighted = []
    for i, (term, loss) in enumerate(zip(terms, row_losses, strict=True)):
        if isinstance(term, Penalty):
            penalty = jax.grad(partial(_weighted_penalty, term, moves[i]), (0, 1), has_aux=True)
            (extra, of_leaves[i]), loss = penalty(params, _moving(term, moves[i]))
            gradient = jax.tree.map(jnp.add, gradient, extra)
        unweighted.append(loss)
    unweighted = tuple(unweighted)
    return _weigh(terms, unweighted), gradient, of_leaves, unweighted


def _moving(term: Term, moves: tuple) -> list:
    return [leaf for leaf, moving in zip(jax.tree.leaves((term.args, term.weight)), moves, strict=False) if moving]


def _moved(term: Any, moves: tuple, leaves: list) -> Any:
    """Return the term with these leaves in the places that move."""
    if not leaves:
        return term
    every, tree = jax.tree.flatten((term.args, term.weight))
    fresh = iter(leaves)
    args, weight = tree.unflatten([next(fresh) if m else leaf for leaf, m in zip(every, moves, strict=True)])
    return replace(term, args=args, weight=weight)


def _weighted_penalty(term, moves, params, leaves):
    term = _moved(term, moves, leaves)
    loss = term.losses(params)
    return weighted_sum(term.weight, loss), loss


def _weigh(terms, unweighted) -> Any:
    return sum(weighted_sum(t.weight, loss) for t, loss in zip(terms, unweighted, strict=True))


def _add_trees(like, trees):
    zero = jax.tree.map(jnp.zeros_like, like)
    return jax.tree.map(lambda *leaves: sum(leaves), zero, *trees)


def _loss_and_cotangents(term, moves, total, key):
    """Return a row term's losses, and the cotangents of its total and of the moving leaves, which losses use too."""

    def weighted(total, leaves):
        own = _moved(term, moves, leaves)
        loss = scaled_losses(own, total, key)
        return weighted_sum(own.weight, loss), loss

    value, pull, loss = jax.vjp(weighted, total, _moving(term, moves), has_aux=True)
    return loss, *pull(jnp.ones_like(value))


def _sums_and_pull(term, moves, inputs, key):
    """Return a row term's local sums and the function from their cotangent to a gradient.

    inputs: parameters, and the leaves that move. Chunked rows are walked a second time to pull back, block by block, so
    that nothing of the first walk is kept. A plain sum knows its cotangent before its totals, so one walk does both
    while a block is in cache.
    """
    if isinstance(term, Penalty):
        return None, None
    term = with_resolved_chunk(term, inputs[0], key)
    if isinstance(term, StatisticTerm) and term.slopes is not None and not inputs[1]:
        sums, slopes = _sums_and_slopes(term, term.slopes, inputs[0])
        return sums, lambda cotangent: (_pulled(slopes, cotangent, inputs[0]), [])
    if not _chunked(term):
        return jax.vjp(lambda p, leaves: local_sums(_moved(term, moves, leaves), p, key), *inputs)

    def block(cotangent, rows, mask):
        sums, pull = jax.vjp(lambda p, leaves: _block_sums(_moved(term, moves, leaves), p, rows, mask, key), *inputs)
        return sums, pull(cotangent(sums))

    def walk(cotangent):
        return sum_blocks(partial(block, cotangent), term.rows, term.counts, term.chunk)

    if term.linear:
        sums, gradient = walk(lambda s: _loss_and_cotangents(term, moves, jax.tree.map(jnp.zeros_like, s), key)[1])
        return sums, lambda cotangent: gradient
    return local_sums(term, inputs[0], key), lambda cotangent: walk(lambda sums: cotangent)[1]


def _sums_and_slopes(term: StatisticTerm, slopes: Callable, params: Any) -> tuple[Any, Any]:
    """Return a term's local sums and their derivatives, which it knows itself, at one walk over the rows."""

    def block(rows, mask):
        real = jnp.ones(leading(rows)) if mask is None else mask.astype(float)
        return called(slopes, params, rows, real, *term.args)

    return sum_blocks(block, term.rows, term.counts, term.chunk)


def _pulled(slopes: Any, cotangent: Any, params: Any) -> Any:
    """Return the gradient from derivatives of sums, as `jax.jacfwd` gives them, and the cotangent of the sums."""
    cotangents, tree = jax.tree.flatten(cotangent)
    parts = [
        jax.tree.map(lambda p, slope, c=c: jnp.tensordot(c, slope, axes=c.ndim).astype(p.dtype), params, own)
        for c, own in zip(cotangents, tree.flatten_up_to(slopes), strict=True)
    ]
    return _add_trees(params, parts)


@jax.custom_jvp
def value(objective: Any, params: Any, key: Any) -> jax.Array:
    """Return the weighted sum of all losses; its derivative is the two-phase one on every layout.

    It is differentiated with respect to parameters, and to args and weights of terms.
    """
    return _weigh(objective.terms, losses(objective.mesh, objective.terms, params, key))


@partial(value.defjvp, symbolic_zeros=True)
@our_rules()  # a caller's transformation may come to it after we have returned
def _value_jvp(primals, tangents):
    objective, params, key = primals
    terms = tangents[0].terms
    leaves = [jax.tree.leaves((t.args, t.weight)) for t in terms]
    moves = tuple(tuple(map(_moves, of_term)) for of_term in leaves)
    if sum(map(_moves, jax.tree.leaves(terms))) > sum(map(sum, moves)):
        raise TypeError(
            "an objective is differentiated with respect to parameters, args and weights, not to its rows. Make the "
            "quantity an argument or a parameter, or use finite differences."
        )
    result, gradient, of_leaves, _ = _gradients(objective.mesh, objective.terms, params, key, moves)
    slopes = jax.tree.leaves((gradient, of_leaves))
    steps = jax.tree.leaves(tangents[1]) + [t for of_term in leaves for t in of_term if _moves(t)]
    pairs = zip(slopes, steps, strict=True)
    # a slope of a complex leaf is already conjugate: the real part of the plain product
    return result, sum((jnp.sum(g * t).real for g, t in pairs if _moves(t)), jnp.zeros_like(result))


def _moves(tangent) -> bool:
    return not isinstance(tangent, jax.custom_derivatives.SymbolicZero)


def map_shards(mesh, terms: tuple, fn: Callable) -> Any:
    """Return fn(terms of one shard, shard index) for every shard, stacked along a new leading axis."""

    def local(shard, terms):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], fn(terms, shard.index))

    # outside jit a shard_map over one axis of two is refused
    return jax.jit(lambda terms: on_shards(mesh, local, terms, gather=True))(terms)
