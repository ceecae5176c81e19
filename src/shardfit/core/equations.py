"""Normal equations that a term brings of its own.

Least squares on a residual term needs no help: `gram.py` differentiates the residuals block by block. A term whose sums
can be made faster than that (a model that is a product of factors), or that has no residuals at all because some
parameters have been eliminated, says itself what to sum over its rows and what the normal equations are, given the
totals. The library masks, chunks and adds over devices as for every other sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.rules import called


class Gram(NamedTuple):
    """Normal equations at a point: value ½Σr², gradient Jᵀr (n,), matrix JᵀJ (n, n), for coordinates or parameters."""

    value: jax.Array
    gradient: jax.Array
    matrix: jax.Array


class Place(NamedTuple):
    """A term and the coordinates z (n,) of a space at which its normal equations are wanted.

    known: what `Equations.start` made of the term's totals; None where one walk over the rows is enough. directions
    (n, n): columns that residuals are differentiated along; None for the coordinates themselves.
    """

    name: str
    term: Any
    space: Any
    z: jax.Array
    key: Any
    known: Any = None
    directions: Any = None


@dataclass(frozen=True)
class Equations:
    """How a term makes its normal equations from sums over rows."""

    two_walks: ClassVar[bool] = False  # the term's totals are needed before the sums can be made
    of_derivatives: ClassVar[bool] = False  # they are made of residuals, differentiated along a place's directions

    def start(self, place: Place, totals: Any) -> Any:
        """Return what the sums need to know of the term's totals, those of its value."""
        raise NotImplementedError

    def sums(self, place: Place, rows: Any, mask: jax.Array | None) -> Any:
        """Return what a block of rows adds to the totals; mask (n,): which rows are real, None where all are."""
        raise NotImplementedError

    def gram(self, place: Place, totals: Any) -> Gram:
        """Return the normal equations in coordinates, before the term's weight."""
        raise NotImplementedError

    def block_rows(self, place: Place) -> int | None:
        """Return how many rows may be summed at once; None for all."""
        return place.term.chunk


@dataclass(frozen=True)
class NormalEquations(Equations):
    """Normal equations by two functions of your own, given to a term as `gram=NormalEquations(block_sums, solve)`.

    block_sums(params, rows, real, *args): what a block of n rows adds to the totals, any pytree of arrays. real (n,) is
    1 for rows that count and 0 for copies that fill a block: their shares must vanish, so multiply by it.
    solve(totals, params, *args): `Gram(value, gradient, matrix)` of the term before its weight, in terms of the p
    parameters, in the order of `jax.tree.leaves`: value ½Σr² as the term gives it, gradient (p,), matrix (p, p) JᵀJ
    (the Gauss–Newton matrix; where linear parameters are eliminated, that of the projected residuals). Transforms and
    held parameters are the library's business: it chains the derivatives.
    n_residuals: how many residuals the totals stand for, less the parameters that were eliminated, or a function of the
    term's args that says it; needed only for standard errors that are scaled by the reduced χ² of a term that is not
    made of residuals.

    A certificate compares them with value and gradient of the term, and with the generic normal equations if it has
    any, on some of the rows.

    Example: `NormalEquations(lambda p, r, real: {"xx": real @ r["x"] ** 2, "xy": real @ (r["x"] * r["y"]), "yy": real @
    r["y"] ** 2}, lambda t, p: (0.5 * (t["yy"] - 2 * p * t["xy"] + p**2 * t["xx"]), [p * t["xx"] - t["xy"]],
    [[t["xx"]]]))` for the line through the origin.
    """

    block_sums: Callable
    solve: Callable
    n_residuals: int | Callable | None = None

    def __post_init__(self):
        for name in ("block_sums", "solve"):
            if not callable(getattr(self, name)):
                raise TypeError(f"NormalEquations: {name} is {type(getattr(self, name)).__name__}, not a function.")

    def sums(self, place: Place, rows: Any, mask: jax.Array | None) -> Any:
        """Return the user's sums of a block."""
        n = jax.tree.leaves(rows)[0].shape[0]
        real = jnp.ones(n, place.z.dtype) if mask is None else mask.astype(place.z.dtype)
        return called(self.block_sums, place.space.unpack(place.z), rows, real, *place.term.args)

    def gram(self, place: Place, totals: Any) -> Gram:
        """Return the user's equations, chained from parameters to coordinates."""
        slope = parameter_slopes(place.space, place.z)
        solved = called(self.solve, totals, place.space.unpack(place.z), *place.term.args)
        value, gradient, matrix = (jnp.asarray(part, place.z.dtype) for part in solved)
        p = slope.shape[0]
        if (value.shape, gradient.shape, matrix.shape) != ((), (p,), (p, p)):
            raise ValueError(
                f"term {place.name!r}: solve of gram= returned {value.shape}, {gradient.shape}, {matrix.shape} for {p} "
                f"parameters. Return Gram(value (), gradient ({p},), matrix ({p}, {p})) over all parameters, held "
                "ones too, in the order of jax.tree.leaves(params)."
            )
        return Gram(value, slope.T @ gradient, slope.T @ matrix @ slope)


def parameter_slopes(space: Any, z: jax.Array) -> jax.Array:
    """Return the derivatives (p, n) of all parameters by coordinates: the unit matrix if nothing is transformed."""

    def flat(z):
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(space.unpack(z))])

    return jnp.eye(z.size, dtype=z.dtype) if space.plain else jax.jacfwd(flat)(z)
