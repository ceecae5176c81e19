"""Why a term depends on its blocks, as far as its function tells, and what to do about it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.check.random_draws import drawn_by_block
from shardfit.core.precision import arithmetic
from shardfit.core.terms import RowTerm

ALMOST = 0.99  # of the same sums of all rows: what stays of them where no row counts


def depends_on_blocks(term: Any, params: Any, name: str, how: str) -> str:
    """Return what to say of a term whose rows or sums are others in other blocks. how: what differs by how much."""
    if drawn_by_block(term, params):
        return _draws(name, how)
    if isinstance(term, RowTerm) and term.sums_blocks:
        return _sums(name, how, _of_no_rows(term, params))
    return _mixes(name, how)


def _of_no_rows(term: Any, params: Any) -> np.ndarray:
    """Return the sums of a block none of whose rows counts, over those of the same rows if all count."""
    key = jax.random.key(0) if term.key is None else term.key
    with arithmetic("float64"):
        n = jax.tree.leaves(term.rows)[0].shape[0]
        none, every = (term.statistics(params, term.rows, jnp.full(n, real), key) for real in (False, True))
    flat = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(sums)]) for sums in (none, every)]
    with np.errstate(all="ignore"):
        return np.where(flat[0] == 0, 0, np.abs(flat[0] / flat[1]))


def _sums(name: str, how: str, of_no_rows: np.ndarray) -> str:
    if not np.isfinite(of_no_rows).all():
        why = (
            "A block without rows that count gives sums that are not finite: the function divides by the weights of "
            "its block, or takes their logarithm. Return numerator and denominator as two sums, and divide in the loss."
        )
    elif np.any(of_no_rows > ALMOST):
        why = (
            "Rows of weight 0 count as much as others: the function does not use its weights. Multiply what it adds up "
            "by them, `.at[i].add(weights * x)`, `jnp.sum(weights * x)`, or say block_statistic(fn, weighted=False)."
        )
    elif np.any(of_no_rows):
        why = (
            "A block without rows that count does not give 0: something is added for every block, or for rows of "
            "weight 0. What is added once (a floor, a background) belongs in the loss."
        )
    else:
        why = (
            "Sums of two blocks do not add up to those of both: the function normalises by its block (a mean, a "
            "fraction, a division by the number of rows), or takes a maximum, rank, cumulative sum or root over it. "
            "Return plain sums, as many as it takes, and leave what is made of them to the loss."
        )
    return f"term {name!r} is no sum over rows: taken whole and in two blocks, {how} (relative). {why}"


def _draws(name: str, how: str) -> str:
    return (
        f"term {name!r} draws random numbers in the shape of its block, such as jax.random.normal(key, (n, 2)): taken "
        f"whole and in two blocks, {how} (relative). Draws start again in every block, so the value depends on chunk "
        "and devices. Ask for a key for each row, statistic_term(fn, rows, stochastic='rows'): fn then gets keys "
        "(n,) as its last argument, to be used as jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys)."
    )


def _mixes(name: str, how: str) -> str:
    return (
        f"term {name!r} depends on which rows share a block: taken whole and in two blocks, {how} (relative). The "
        "function sees some of the rows at a time, so each row's contribution must not depend on the others. The usual "
        "reasons: a mean, sort, rank, cumulative sum or count over the block; a solver with one step size for all. "
        "Compute the mean or rank of the data beforehand and pass it in rows or args; make what depends on all rows a "
        "loss of their totals, statistic_term(fn, rows, loss=...); for draws that differ by row, ask for a key for "
        "each, statistic_term(fn, rows, stochastic='rows')."
    )
