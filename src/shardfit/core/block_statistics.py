"""Statistics whose function sums its block itself: scatters into bins, segment sums, histograms, scans over sums.

One contribution per row would need an array (rows, bins) where a scatter touches one bin for each row. Such a function
is told which rows count, since blocks and shards are filled up with rows that do not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass

from shardfit.core.rows import Numbered, leading
from shardfit.core.rules import called
from shardfit.core.terms import StatisticTerm, row_keys, static


@dataclass(frozen=True)
class BlockStatistic:
    """A function that returns sums over its block of rows; see `block_statistic`."""

    fn: Callable
    weighted: bool = True
    has_aux: bool = False

    def __call__(self, *args: Any) -> Any:
        """Call the function as it is."""
        return self.fn(*args)


def block_statistic(fn: Callable, *, weighted: bool = True, has_aux: bool = False) -> BlockStatistic:
    """Mark a function for `statistic_term` as one that returns sums over its block, not one entry per row.

    fn(params, rows, weights, *args) takes a block of rows and a weight (n,) for each, 1, or 0 where a row only fills
    the block up, and returns sums over rows times weights, of any shapes: `.at[i].add(weights * x)`, `segment_sum`,
    weighted histograms, a scan that carries them. Sums of two blocks must add up: means and ratios belong in the loss.
    weighted: False for fn(params, rows, *args), which knows no weights; rows that fill a block up then repeat one row,
    whose sums are taken off again. has_aux: fn returns (sums, aux), and the loss gets aux after the totals: what every
    block finds alike, averaged over rows.

    Example: `statistic_term(block_statistic(lambda p, r, w: jnp.zeros(64).at[r["bin"]].add(w * r["x"] ** p)), rows)`.
    """
    if not callable(fn):
        raise TypeError(f"block_statistic: fn is {type(fn).__name__}, not a function. Pass the function itself first.")
    return BlockStatistic(fn, weighted, has_aux)


@register_dataclass
@dataclass(frozen=True)
class BlockStatisticTerm(StatisticTerm):
    """A block of rows gives sums of statistics; the value is a loss of their totals."""

    weighted: bool = static()
    has_aux: bool = static()

    @property
    def sums_blocks(self) -> bool:
        """Its function returns sums."""
        return True

    def contributions(self, params: Any, rows: Any, key: Any) -> Any:
        """Call the user's function on a block of rows that all count."""
        return self._called(params, rows, jnp.ones(leading(rows)), key)

    def _called(self, params: Any, rows: Any, weights: jax.Array, key: Any) -> Any:
        keys = (key,) if self.stochastic else ()
        if isinstance(rows, Numbered):
            rows, keys = rows.rows, (key, row_keys(key, rows.number))
        return called(self.fn, params, rows, *((weights,) if self.weighted else ()), *self.args, *keys)

    def statistics(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return a block's sums; with auxiliary outputs, these times the number of rows, and that number, besides."""
        if mask is None:
            return self._sums(params, rows, jnp.ones(leading(rows)), key)
        if self.weighted:
            return self._sums(params, rows, jnp.asarray(mask).astype(float), key)
        return self._without_copies(params, rows, jnp.asarray(mask), key)

    def _sums(self, params: Any, rows: Any, weights: jax.Array, key: Any) -> Any:
        given = self._called(params, rows, weights, key)
        if self.has_aux:
            sums, aux = given
            n = jnp.sum(weights)
            given = sums, jax.tree.map(lambda leaf: leaf * n, aux), n
        return jax.tree.map(lambda s: jnp.asarray(s) * 1.0, given)  # 1.0: counts may be integers

    def _without_copies(self, params: Any, rows: Any, mask: jax.Array, key: Any) -> Any:
        """Return the sums of a function without weights: rows that do not count repeat one, which is taken off."""
        one = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, jnp.argmax(mask), 1), rows)
        filled = jax.tree.map(lambda leaf, row: jnp.where(_beside(mask, leaf), leaf, row), rows, one)
        sums = self._sums(params, filled, jnp.ones(leading(rows)), key)
        copies, some = jnp.sum(~mask), jnp.any(mask)

        def real(of_all, of_one):
            return jnp.where(some, of_all - copies.astype(of_one.real.dtype) * of_one, 0)

        return jax.tree.map(real, sums, self._sums(params, one, jnp.ones(1), key))

    def check_shapes(self, name: str, contributions: Any) -> None:
        """Raise unless a function with auxiliary outputs returns them, as floating numbers that can be averaged."""
        if not self.has_aux:
            return
        where = f"term {name!r}: fn, a block_statistic with has_aux=True,"
        if not isinstance(contributions, tuple) or len(contributions) != 2:
            raise ValueError(f"{where} returned {type(contributions).__name__}. Return a pair: sums, and aux.")
        for leaf in jax.tree.leaves(contributions[1]):
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                raise TypeError(f"{where} returned aux of type {leaf.dtype}. Make it floating: blocks are averaged.")

    def losses(self, totals: Any, key: Any) -> Any:
        """Return the user's loss of the totals, and of the auxiliary outputs if there are any."""
        if not self.has_aux:
            return super().losses(totals, key)
        sums, aux = self.shown(totals)
        return called(self.loss, sums, aux, *self.args, *((key,) if self.stochastic else ()))

    def shown(self, totals: Any) -> Any:
        """Return totals; with auxiliary outputs the pair of both, as the function returns them."""
        if not self.has_aux:
            return totals
        sums, aux, n = totals
        return sums, jax.tree.map(lambda leaf: leaf / n.astype(leaf.dtype), aux)


def _beside(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(mask.shape + (1,) * (leaf.ndim - 1))


def check_sums(name: str, out: Any, n: int, shapes_for: Callable[[int], Any]) -> None:
    """Raise where what a function returned for n rows, given as shapes, cannot be sums over a block.

    shapes_for(m): shapes of what it returns for m rows.
    """
    where = f"term {name!r}: fn, a block_statistic,"
    if not jax.tree.leaves(out):
        raise ValueError(f"{where} returned nothing. Return sums over the rows of its block.")
    if n == 1:  # a function for one row at a time need not take two
        return
    try:
        fewer = shapes_for(n - 1)
    except Exception as error:
        raise ValueError(
            f"{where} takes {n} rows, but not {n - 1}: {error}. Blocks are of any length. Let it fill its rows up "
            "itself, with weights of 0 (jnp.pad)."
        ) from error
    for whole, part in zip(jax.tree.leaves(out), jax.tree.leaves(fewer), strict=True):
        if whole.shape != part.shape:
            raise ValueError(
                f"{where} returned shape {whole.shape} for {n} rows and {part.shape} for {n - 1}, so these are not "
                "sums over the block. Sum over the rows, each times its weight; a function that returns one entry per "
                "row goes to statistic_term as it is."
            )
