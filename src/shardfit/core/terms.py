"""Terms: what an objective is a weighted sum of.

A row term owns rows and a function from a block of rows to one contribution per row; a penalty has no rows. A term's
loss may be one number or a dict of named numbers (the χ² of several data products computed from one forward model);
its weight is then one number for all or a dict of the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.equations import Equations
from shardfit.core.errors import suggestion
from shardfit.core.recent import shapes_of
from shardfit.core.rows import leading, masked, shapes_of_rows
from shardfit.core.rules import called


def static() -> Any:
    """Return a dataclass field that is compared, not traced."""
    return field(metadata={"static": True})


def half_square(residual: Any) -> Any:
    """Return ½Σ|r|² over all leaves but keep one number per entry when residual is a dict."""
    if isinstance(residual, dict):
        return {name: half_square(r) for name, r in residual.items()}
    return sum(0.5 * jnp.sum(_square(r)) for r in jax.tree.leaves(residual))


def _square(r: jax.Array) -> jax.Array:
    # not abs(r) ** 2: its second derivative is lost where r is zero
    return r.real**2 + r.imag**2 if jnp.iscomplexobj(r) else r * r


def total(statistic: Any, *_: Any) -> Any:
    """Loss of a plain sum: the summed contributions themselves."""
    return statistic


@register_dataclass
@dataclass(frozen=True)
class RowTerm:
    """Rows, the function of a block of rows, and everything it needs; see `term_makers`."""

    rows: Any
    counts: Any  # (n_shards,) real rows of each shard; None: all are
    args: tuple
    weight: Any
    scale: Any  # all rows / rows present: 1, or more for a mini-batch
    key: Any  # fixes a stochastic term, see freeze
    fn: Callable = static()
    chunk: int | None = static()
    auto: bool = static()  # where chunk is None: rows of a block are chosen by what fn computes, see blocks.py
    stochastic: bool = static()
    per_row_keys: bool = static()  # rows are `Numbered`, and fn gets one more argument: a random key for each row
    equations: Equations | None = static()  # the term's own normal equations

    @property
    def n_rows(self) -> int:
        """Number of real rows."""
        return leading(self.rows) if self.counts is None else int(np.sum(np.asarray(self.counts)))

    def contributions(self, params: Any, rows: Any, key: Any) -> Any:
        """Call the user's function on a block of rows."""
        if self.per_row_keys:
            return called(self.fn, params, rows.rows, *self.args, key, row_keys(key, rows.number))
        return called(self.fn, params, rows, *self.args, *((key,) if self.stochastic else ()))

    @property
    def sums_blocks(self) -> bool:
        """Whether the user's function returns sums over its block, and not one contribution per row."""
        return False

    @property
    def linear(self) -> bool:
        """Whether the loss is a plain sum over rows."""
        raise NotImplementedError

    @property
    def shardable(self) -> bool:
        """Whether the losses of shards may be added in place of the loss of all rows, exactly or nearly."""
        return self.linear

    @property
    def strata(self) -> str | None:
        """Name of an entry of rows of which every shard needs its share, None if there is none."""
        return None

    @property
    def least_squares(self) -> bool:
        """Whether the term has normal equations."""
        return self.equations is not None or self.generic_equations is not None

    @property
    def generic_equations(self) -> Equations | None:
        """Normal equations that this kind of term has without the user's help, other than those of residuals."""
        return None

    @property
    def counted(self) -> bool:
        """Whether it is known how many residuals the term stands for."""
        return getattr(self.equations, "n_residuals", None) is not None

    def n_residuals(self, params: Any) -> Any:
        """Return how many residuals the term stands for, less parameters that it eliminates."""
        known = getattr(self.equations, "n_residuals", None) or 0
        return called(known, *self.args) if callable(known) else known

    def check_shapes(self, name: str, contributions: Any) -> None:  # noqa: B027 (most kinds take any shape)
        """Raise where contributions, given as shapes with some number of rows, do not fit this kind of term."""

    def centre_of(self, totals: Any) -> Any:
        """Return what a field `centre` of the term should be near these totals, to gain digits; None if it has none."""
        return None

    def sampled(self) -> "RowTerm":
        """Return the term so that it can be examined on a few of its rows."""
        return self

    def statistics(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return what a block adds to the totals."""
        raise NotImplementedError

    def losses(self, totals: Any, key: Any) -> Any:
        """Return the term's losses, before its weight, from the totals over all rows."""
        raise NotImplementedError

    def shown(self, totals: Any) -> Any:
        """Return totals in the form in which users read them."""
        return totals


@register_dataclass
@dataclass(frozen=True)
class ResidualTerm(RowTerm):
    """A row gives residuals; the value is ½Σ|r|², so least squares is possible."""

    @property
    def least_squares(self) -> bool:
        """Residuals have normal equations."""
        return True

    @property
    def counted(self) -> bool:
        """Residuals can be counted."""
        return True

    def n_residuals(self, params: Any) -> Any:
        """Return how many real numbers the residuals are; copies that pad a shard are not counted."""
        one = shapes_of(_contributions, params, with_shapes(self, 1))
        return numbers_in(one) * (leading(self.rows) if self.counts is None else jnp.sum(self.counts))

    @property
    def linear(self) -> bool:
        """½Σ|r|² is a plain sum."""
        return True

    def statistics(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return ½Σ|r|² of a block, per named product."""
        return half_square(self.masked_residuals(params, rows, mask, key))

    def masked_residuals(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return residuals of a block, zero where masked."""
        return jax.tree.map(lambda r: masked(mask, r), self.contributions(params, rows, key))

    def losses(self, totals: Any, key: Any) -> Any:
        """Return the sums themselves."""
        return totals


@register_dataclass
@dataclass(frozen=True)
class StatisticTerm(RowTerm):
    """A row gives statistics; the value is a loss of their totals."""

    loss: Callable = static()
    slopes: Callable | None = static()  # a block's sums with their derivatives

    @property
    def linear(self) -> bool:
        """Whether the loss is a plain sum over rows."""
        return self.loss is total

    @property
    def shardable(self) -> bool:
        """Whether the loss is a plain sum, or declares itself `shardable`: parameters integrated out by the shard."""
        return self.linear or bool(getattr(self.loss, "shardable", False))

    def statistics(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return the masked sum of a block's contributions."""
        contributions = self.contributions(params, rows, key)
        return jax.tree.map(lambda c: masked(mask, c * 1.0).sum(0), contributions)  # 1.0: counts may be integers

    def losses(self, totals: Any, key: Any) -> Any:
        """Return the user's loss of the totals."""
        return called(self.loss, totals, *self.args, *((key,) if self.stochastic else ()))


@register_dataclass
@dataclass(frozen=True)
class Penalty:
    """A term without rows, evaluated once. prior: it is a negative log density, and no mere regulariser."""

    args: tuple
    weight: Any
    fn: Callable = static()
    prior: bool = field(default=False, metadata={"static": True}, kw_only=True)

    @property
    def least_squares(self) -> bool:
        """Whether the term has normal equations."""
        return isinstance(self, ResidualPenalty)

    def losses(self, params: Any) -> Any:
        """Return the user's penalty."""
        return called(self.fn, params, *self.args)


@register_dataclass
@dataclass(frozen=True)
class ResidualPenalty(Penalty):
    """A term without rows whose function returns residuals; the value is ½Σ|r|²."""

    def losses(self, params: Any) -> Any:
        """Return ½Σ|r|²."""
        return half_square(called(self.fn, params, *self.args))


Term = RowTerm | Penalty


def row_keys(key: Any, number: jax.Array) -> jax.Array:
    """Return a random key for each row (n,), from the common key and the rows' numbers."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(number)


def _contributions(params: Any, term: RowTerm) -> Any:
    return term.contributions(params, term.rows, None)


def with_shapes(term: RowTerm, n: int) -> RowTerm:
    """Return the term with the shapes of n rows instead of its rows."""
    return replace(term, rows=shapes_of_rows(term.rows, n), counts=None)


def numbers_in(residuals: Any) -> int:
    """Return how many real numbers a pytree of residuals, or of their shapes, has."""
    return sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(residuals))


def weighted_sum(weight: Any, losses: Any, where: str = "term") -> Any:
    """Return Σ weight * loss for one number or for a dict of named numbers."""
    if not isinstance(losses, dict):
        if isinstance(weight, dict):
            raise ValueError(f"{where}: weight is a dict, but the loss is one number. Give one number as weight.")
        return weight * losses
    if isinstance(weight, dict) and set(weight) != set(losses):
        unknown, missing = sorted(set(weight) - set(losses)), sorted(set(losses) - set(weight))
        odd = f"no part {unknown[0]!r}" if unknown else f"no weight for part {missing[0]!r}"
        raise ValueError(f"{where}: {odd}.{suggestion(unknown[0] if unknown else '', losses)} Give each a weight.")
    return sum((weight[k] if isinstance(weight, dict) else weight) * losses[k] for k in losses)


def with_weight(term: Term, weight: Any) -> Term:
    """Return the term with another weight; a dict updates the named parts only."""
    if isinstance(weight, dict) and isinstance(term.weight, dict):
        odd = set(weight) - set(term.weight)
        if odd:
            raise ValueError(f"no part {min(odd)!r} in this term.{suggestion(min(odd), term.weight)}")
        weight = {**term.weight, **weight}
    return replace(term, weight=weight)
