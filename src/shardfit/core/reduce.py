"""The one place where sums cross devices.

Every quantity is a sum over rows: each shard sums its own rows, `psum` adds the shards, and what is small (totals,
gradients, normal equations) is all that travels. The gradient is two-phase: totals go forward, the loss is
differentiated at the totals, and its cotangent is pulled back on each shard before one last sum. Parameters are cast
to varying first: without it the pull-back would contain a sum of its own.

Without a mesh, or with one shard, the same code runs with the sum over shards left out.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import ROWS, n_shards
from shardfit.core.rows import leading, sum_blocks
from shardfit.core.terms import Penalty, RowTerm, Term, weighted_sum


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
            lambda x: jax.lax.psum(x, ROWS),
            lambda x: jax.tree.map(lambda leaf: jax.lax.pcast(leaf, ROWS, to="varying"), x),
        )
        return fn(shard, tuple(_own_count(t, shard.index) for t in terms), *replicated)

    specs = (tuple(_specs(t) for t in terms), P())
    run = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=specs,
        out_specs=P(ROWS) if gather else P(),
        axis_names={ROWS},
        check_vma=False,  # True refuses every user scan that starts from zeros
    )
    return run(terms, replicated)


def _specs(term: Term) -> Term:
    everywhere = {name: P() for name in ("counts", "args", "weight", "scale", "key") if hasattr(term, name)}
    return replace(term, **everywhere, **({"rows": P(ROWS)} if isinstance(term, RowTerm) else {}))


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


def _sums(term: Term, params: Any, key: Any) -> Any:
    """Sum a row term's statistics over this shard's rows."""
    if isinstance(term, Penalty):
        return None

    def block(rows, mask):
        return term.statistics(params, rows, mask, key)

    return sum_blocks(block, term.rows, term.counts, term.chunk)


def _chunked(term: RowTerm) -> bool:
    return term.chunk is not None and term.chunk < leading(term.rows)


def scaled_losses(term: RowTerm, sums: Any, key: Any) -> Any:
    """Return a row term's losses from its totals, scaled up to all rows when only some are present."""
    return term.losses(jax.tree.map(lambda s: s * jnp.asarray(term.scale, jnp.real(s).dtype), sums), key)


def totals(mesh, terms: tuple, params: Any, key: Any) -> list:
    """Return the summed statistics of every row term (None for a penalty)."""

    def local(shard, terms, params, key):
        keys = (term_key(t, key, i) for i, t in enumerate(terms))
        return shard.sum([_sums(t, params, k) for t, k in zip(terms, keys, strict=True)])

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

    def local(shard, terms, params, key):
        params = shard.vary(params)
        keys = [term_key(t, key, i) for i, t in enumerate(terms)]
        sums, pulls = zip(*(_sums_and_pull(t, params, k) for t, k in zip(terms, keys, strict=True)), strict=True)
        sums = shard.sum(list(sums))
        found, gradients = [], []
        for term, total, pull, k in zip(terms, sums, pulls, keys, strict=True):
            if total is None:
                found.append(None)
                continue
            loss, cotangent = _loss_and_cotangent(term, total, k)
            found.append(loss)
            gradients.append(pull(shard.vary(cotangent)))
        return tuple(found), shard.sum(_add_trees(params, gradients))

    row_losses, gradient = on_shards(mesh, local, terms, params, key)
    found = []
    for term, loss in zip(terms, row_losses, strict=True):
        if isinstance(term, Penalty):
            extra, loss = jax.grad(partial(_weighted_penalty, term), has_aux=True)(params)
            gradient = jax.tree.map(jnp.add, gradient, extra)
        found.append(loss)
    found = tuple(found)
    return _weigh(terms, found), gradient, found


def _weighted_penalty(term, params):
    loss = term.losses(params)
    return weighted_sum(term.weight, loss), loss


def _weigh(terms, found) -> Any:
    return sum(weighted_sum(t.weight, loss) for t, loss in zip(terms, found, strict=True))


def _add_trees(like, trees):
    zero = jax.tree.map(jnp.zeros_like, like)
    return jax.tree.map(lambda *leaves: sum(leaves), zero, *trees)


def _loss_and_cotangent(term, total, key):
    def weighted(total):
        loss = scaled_losses(term, total, key)
        return weighted_sum(term.weight, loss), loss

    value, pull, loss = jax.vjp(weighted, total, has_aux=True)
    return loss, pull(jnp.ones_like(value))[0]


def _sums_and_pull(term, params, key):
    """Return a row term's local sums and the function from their cotangent to a gradient.

    Chunked rows are walked a second time to pull back, block by block, so that nothing of the first walk is kept. A
    plain sum knows its cotangent before its totals, so one walk does both while a block is in cache.
    """
    if isinstance(term, Penalty):
        return None, None
    if not _chunked(term):
        sums, pull = jax.vjp(lambda p: _sums(term, p, key), params)
        return sums, lambda cotangent: pull(cotangent)[0]

    def block(cotangent, rows, mask):
        sums, pull = jax.vjp(lambda p: term.statistics(p, rows, mask, key), params)
        return sums, pull(cotangent(sums))[0]

    def walk(cotangent):
        return sum_blocks(partial(block, cotangent), term.rows, term.counts, term.chunk)

    if term.linear:
        sums, gradient = walk(lambda sums: _loss_and_cotangent(term, jax.tree.map(jnp.zeros_like, sums), key)[1])
        return sums, lambda cotangent: gradient
    return _sums(term, params, key), lambda cotangent: walk(lambda sums: cotangent)[1]


@jax.custom_jvp
def value(objective: Any, params: Any, key: Any) -> jax.Array:
    """Return the weighted sum of all losses; its derivative is the two-phase one on every layout."""
    return _weigh(objective.terms, losses(objective.mesh, objective.terms, params, key))


@partial(value.defjvp, symbolic_zeros=True)
def _value_jvp(primals, tangents):
    objective, params, key = primals
    if any(not isinstance(t, jax.custom_derivatives.SymbolicZero) for t in jax.tree.leaves(tangents[0])):
        raise TypeError(
            "an objective is differentiated with respect to its parameters only, not its rows, args or weights. "
            "Make the quantity a parameter, or compute the derivative by finite differences."
        )
    result, gradient, _ = value_grad_losses(objective.mesh, objective.terms, params, key)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(tangents[1]), strict=True)
    tangent = sum(
        (jnp.vdot(g, t) for g, t in pairs if not isinstance(t, jax.custom_derivatives.SymbolicZero)),
        jnp.zeros_like(result),
    )
    return result, tangent


def map_shards(mesh, terms: tuple, fn: Callable) -> Any:
    """Return fn(terms of one shard, shard index) for every shard, stacked along a new leading axis."""

    def local(shard, terms):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], fn(terms, shard.index))

    # outside jit a shard_map over one axis of two is refused
    return jax.jit(lambda terms: on_shards(mesh, local, terms, gather=True))(terms)
