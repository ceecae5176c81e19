"""Residuals with a loss that lets outliers count less: their term, its normal equations, and what errors need.

The loss bends away from a parabola, so steps take Triggs' curvature of every residual, ρ' + 2sρ'', which makes them
Newton's as far as the model is linear. It is negative for outliers: a tenth of the weight ρ' stands in its place then.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass

from shardfit.core.equations import Equations, Gram, Place
from shardfit.core.gram import block_rows, flat, jacobian_of, row_residuals
from shardfit.core.losses import LOSSES
from shardfit.core.reduce import on_shards
from shardfit.core.rows import sum_blocks
from shardfit.core.rules import called
from shardfit.core.terms import ResidualPenalty, ResidualTerm, RowTerm, static

__all__ = ["RobustTerm", "is_robust", "n_robust", "scores", "with_whole_curvature"]

LEAST = 0.1  # of a residual's weight, that its curvature counts at least in steps


@register_dataclass
@dataclass(frozen=True)
class RobustTerm(RowTerm):
    """A row gives residuals r; the value is ½C²Σρ(|r|²/C²) of a loss ρ and a scale C."""

    f_scale: Any = field(kw_only=True)
    robust: str = static()

    @property
    def generic_equations(self) -> "RobustEquations":
        """Normal equations in which every residual counts by its loss."""
        return RobustEquations()

    @property
    def linear(self) -> bool:
        """The loss is a plain sum over rows."""
        return True

    def residuals(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return residuals of a block, zero where masked."""
        return ResidualTerm.masked_residuals(self, params, rows, mask, key)  # pyright: ignore[reportArgumentType]

    def statistics(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> Any:
        """Return the loss of a block, per named product."""
        found = self.residuals(params, rows, mask, key)
        return {name: self.cost(r) for name, r in found.items()} if isinstance(found, dict) else self.cost(found)

    def losses(self, totals: Any, key: Any) -> Any:
        """Return the sums themselves."""
        return totals

    def squares(self, residual: jax.Array) -> jax.Array:
        """Return |r|² in units of the scale."""
        size = residual.real**2 + residual.imag**2 if jnp.iscomplexobj(residual) else residual**2
        return size / jnp.asarray(self.f_scale, size.dtype) ** 2

    def cost(self, residuals: Any) -> Any:
        """Return the loss of residuals."""
        rho = LOSSES[self.robust].rho
        costs = [jnp.sum(rho(self.squares(leaf))) for leaf in jax.tree.leaves(residuals)]
        return sum(0.5 * cost * jnp.asarray(self.f_scale, cost.dtype) ** 2 for cost in costs)


@dataclass(frozen=True)
class RobustEquations(Equations):
    """Normal equations of a robust term: gradient Jᵀρ'r, matrix JᵀcJ with every residual's curvature c.

    whole: curvatures as they are, of outliers negative, which errors are made of; steps want none below zero.
    """

    of_derivatives: ClassVar[bool] = True
    whole: bool = False

    def sums(self, place: Place, rows: Any, mask: jax.Array | None) -> Gram:
        """Return the normal equations of a block."""
        term, params = place.term, place.space.unpack(place.z)
        value = term.statistics(params, rows, mask, place.key)
        jacobian, residual, slope, curvature = _block(place, rows, mask)
        if not self.whole:
            curvature = jnp.maximum(curvature, LEAST * slope)
        columns = jnp.concatenate([jacobian * curvature[:, None], (slope * residual)[:, None]], axis=1)
        product = columns.T @ jacobian
        return Gram(jnp.sum(jnp.stack(jax.tree.leaves(value))), product[-1], product[:-1])

    def gram(self, place: Place, totals: Gram) -> Gram:
        """Return the sums themselves."""
        return totals

    def block_rows(self, place: Place) -> int | None:
        """Return how many rows a block of the Jacobian may have."""
        return block_rows(place)


def _block(place: Place, rows: Any, mask: jax.Array | None) -> tuple[jax.Array, ...]:
    """Return Jacobian, residuals, and their losses' slopes and curvatures, of a block of a robust term."""
    term = place.term
    found = term.residuals(place.space.unpack(place.z), rows, mask, place.key)
    jacobian, residual = jacobian_of(place, partial(_flat_residuals, place, rows, mask), rows, mask)
    loss = LOSSES[term.robust]

    def both(fn):
        def of_leaf(r):
            factor = fn(term.squares(r))
            return factor + 1j * factor if jnp.iscomplexobj(r) else factor

        return flat(jax.tree.map(of_leaf, found)).astype(residual.dtype)

    curved = both(lambda s: loss.slope(s) + 2 * s * loss.bend(s))
    if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(found)):
        curved = both(loss.slope)  # a complex residual curves in two directions: its weight is more than either
    return jacobian, residual, both(loss.slope), curved


def _flat_residuals(place: Place, rows: Any, mask: jax.Array | None, z: jax.Array) -> jax.Array:
    return flat(place.term.residuals(place.space.unpack(z), rows, mask, place.key))


def is_robust(objective: Any) -> bool:
    """Return whether a term's loss is a robust one."""
    return any(isinstance(term, RobustTerm) for term in objective.terms)


def n_robust(objective: Any, params: Any) -> Any:
    """Return how many real numbers the residuals of all rows are."""
    count = ResidualTerm.n_residuals
    return sum(count(t, params) for t in objective.terms if isinstance(t, RowTerm))  # pyright: ignore[reportArgumentType]


def with_whole_curvature(objective: Any) -> Any:
    """Return the objective with normal equations that errors are made of."""
    equations = RobustEquations(whole=True)
    terms = [replace(t, equations=equations) if isinstance(t, RobustTerm) else t for t in objective.terms]
    return replace(objective, terms=tuple(terms))


def scores(objective: Any, space: Any, z: jax.Array) -> jax.Array:
    """Return ΣggT (n, n) over residuals, g the gradient of a residual's loss: how data scatter the total gradient.

    A penalty made of residuals speaks for itself: it adds the matrix of its normal equations, as a prior does.
    """

    def local(shard, terms, space, z):
        total = jnp.zeros((z.size, z.size), z.dtype)
        for name, term in zip(objective.names, terms, strict=True):
            if isinstance(term, RowTerm):
                place = Place(name, term, space, shard.vary(z), None)
                total += sum_blocks(partial(_block_scores, place), term.rows, term.counts, block_rows(place))
        return shard.sum(total)

    total = on_shards(objective.mesh, local, objective.terms, space, z)
    for term in objective.terms:
        if isinstance(term, ResidualPenalty):
            jacobian = jax.jacrev(lambda z, t=term: flat(called(t.fn, space.unpack(z), *t.args)))(z)
            total += jnp.asarray(term.weight, z.dtype) * jacobian.T @ jacobian
    return total


def _block_scores(place: Place, rows: Any, mask: jax.Array | None) -> jax.Array:
    if isinstance(place.term, RobustTerm):
        jacobian, residual, slope, _ = _block(place, rows, mask)
        gradient = jacobian * (slope * residual * jnp.asarray(place.term.weight, residual.dtype))[:, None]
    else:
        jacobian, residual = jacobian_of(place, partial(row_residuals, place, rows, mask), rows, mask)
        gradient = jacobian * residual[:, None]
    return gradient.T @ gradient
