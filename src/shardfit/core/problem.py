"""Problem: an objective with what a fit needs to know about its parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from shardfit.core.bounds import box, by_name, pinned
from shardfit.core.errors import suggestion
from shardfit.core.fixed import hold
from shardfit.core.objective import Objective
from shardfit.core.params import Space, check_params, make_space, spread
from shardfit.core.precision import PRECISIONS, arithmetic, cast, in_its_precision, require_precision
from shardfit.core.rows import leading
from shardfit.core.terms import RowTerm, weighted_sum


@dataclass(frozen=True, eq=False)
class Problem:
    """Objective, start, and the parameters' bounds, transforms and units.

    bounds, transforms and units follow the structure of x0; names left out are free, untransformed, without unit.
    fixed: parameters that no fit moves, by name or path ('tau', 'stars.mass', 'w[2]', a list of them), with values to
    hold ({"tau": 0.3}; x0's unless given), or booleans like x0. Equal bounds mean the same. Fits of problems that
    differ in held values only share their compiled programs.
    precision: 'float64' (default) or 'float32'; arithmetic runs in it while this problem is worked on, nowhere else.
    decode: function from fitted parameters to physical quantities, shown beside them.

    Example: `Problem(objective, {"a": 1.0, "tau": 0.3}, bounds={"tau": (0, None)}, units={"tau": "s"})`.
    """

    objective: Objective
    x0: Any
    bounds: Any = None
    transforms: Any = None
    fixed: Any = None
    units: Any = None
    name: str = "problem"
    decode: Callable[[Any], dict] | None = None
    precision: str = "float64"
    space: Space = field(init=False, repr=False)
    box: tuple[np.ndarray, np.ndarray] | None = field(init=False, repr=False)

    def __post_init__(self):
        if not isinstance(self.objective, Objective):
            raise TypeError(f"Problem needs an Objective, not {type(self.objective).__name__}.")
        require_untraced("a Problem is made", self.objective, self.x0)
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}.{suggestion(self.precision, PRECISIONS)}")
        bounds = by_name(self.bounds, self.x0)
        held, x0 = hold(self.fixed, cast(check_params(self.x0), self.precision))
        held = [mask | pinned_here for mask, pinned_here in zip(held, pinned(x0, bounds), strict=True)]
        with arithmetic(self.precision):
            space = make_space(x0, self.transforms, held)
            ends = box(space, x0, bounds)
            _check_start(space, x0)
            objective = self.objective.with_precision(self.precision)
            check_terms(objective, x0, self.precision)
        spread("units", self.units, x0)
        settled = {"x0": x0, "bounds": bounds, "objective": objective, "space": space, "box": ends}
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @in_its_precision
    def z0(self) -> np.ndarray:
        """Return the start in solver coordinates, inside the box."""
        z0 = np.asarray(self.space.pack(self.x0))
        return z0 if self.box is None else np.clip(z0, *self.box).astype(z0.dtype)

    def unit_labels(self) -> list[str]:
        """Return the unit of every parameter leaf, '' where none was given."""
        return [unit or "" for unit in spread("units", self.units, self.x0)]

    def replace(self, **changes: Any) -> "Problem":
        """Return a copy with other fields."""
        return replace(self, **changes)


def _check_start(space, x0):
    z0 = np.asarray(space.pack(x0))
    if not np.isfinite(z0).all():
        bad = space.coordinate_labels()[int(np.argmin(np.isfinite(z0)))]
        raise ValueError(f"x0 of {bad} lies outside its transform's range. Start strictly inside.")


def check_terms(objective: Objective, params: Any, precision: str) -> None:
    """Trace every term without running it, and raise if what it returns does not fit the rows.

    What is traced are functions of this module with the term as argument: JAX traces them once for terms of equal
    structure, however often a problem is made anew; and rows in a closure would be worked on for real.
    """
    key = jax.random.key(0)
    for name, term in objective.items():
        try:
            if isinstance(term, RowTerm):
                n = leading(term.rows)
                out = jax.eval_shape(_contributions, params, term, key)
                _check_contributions(name, out, n)
                require_precision(f"what fn of term {name!r} returns", out, precision)
                sums = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), out)
                if term.linear and hasattr(term, "loss"):
                    _check_scalars(name, sums, "the summed statistic", "pass a loss that returns one number")
                losses = jax.eval_shape(_row_losses, params, term, key)
            else:
                losses = jax.eval_shape(_penalty_losses, params, term)
        except jax.errors.JAXTypeError as error:
            raise TypeError(f"term {name!r} {_concrete_use(error)}") from error
        except Exception as error:
            error.add_note(f"raised while checking term {name!r} of the objective, before any data were used")
            raise
        _check_scalars(name, losses, "the loss", "return one number, or a dict of named numbers")
        require_precision(f"the loss of term {name!r}", losses, precision)
        value = jax.eval_shape(lambda x, t, where=f"term {name!r}": weighted_sum(t.weight, x, where), losses, term)
        if value.shape:
            raise ValueError(f"term {name!r}: weight has shape {value.shape}. Give one number, or a dict of them.")


def _concrete_use(error: Exception) -> str:
    """Return what a function does that needs the value of a number that JAX is tracing, and what to do instead."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return "decides by the value of a parameter or row (if, while, and, or): use jnp.where or jax.lax.cond."
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            "uses NumPy functions on parameters or rows, which have no derivatives: use jax.numpy (import jax.numpy as "
            "jnp, jnp.exp for np.exp)."
        )
    return (
        "needs the value of a parameter or row as a Python number (float, int, range, an index): use jax.numpy and "
        "jax.lax, which work without it."
    )


def require_untraced(what: str, *trees: Any) -> None:
    """Raise where numbers are traced by jit, grad or vmap: a problem and its fit work on numbers that are known."""
    inside_jit = isinstance(jnp.zeros(()), Tracer)
    if inside_jit or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees)):
        raise TypeError(
            f"{what} inside a function that jit, grad or vmap traces: its numbers are not known there. Call it "
            "outside; Objective.value, value_and_grad, residuals and gram can be traced."
        )


def _contributions(params, term, key):
    return term.contributions(params, term.rows, key)


def _row_losses(params, term, key):
    mask = np.ones(leading(term.rows), bool)
    return term.losses(term.statistics(params, term.rows, mask, key), key)


def _penalty_losses(params, term):
    return term.losses(params)


def _check_contributions(name, out, n):
    leaves = jax.tree.leaves(out)
    if not leaves:
        raise ValueError(f"term {name!r}: fn returned nothing. Return one contribution per row.")
    for leaf in leaves:
        if leaf.ndim == 0 or leaf.shape[0] != n:
            got = "a single number" if leaf.ndim == 0 else f"{leaf.shape[0]} values"
            raise ValueError(
                f"term {name!r}: fn returned {got} for {n} rows. Return one per row, "
                "or use penalty() for a term without rows."
            )


def _check_scalars(name, losses, what, remedy):
    named = isinstance(losses, dict)
    numbers = list(losses.values()) if named else [losses]
    if not numbers or not jax.tree_util.all_leaves(numbers):
        kind = type(losses).__name__ if not named else "a nested dict" if numbers else "an empty dict"
        raise ValueError(f"term {name!r}: {what} is {kind}; {remedy}.")
    for leaf in numbers:
        if leaf.shape != () or not np.issubdtype(leaf.dtype, np.floating):
            raise ValueError(f"term {name!r}: {what} has shape {leaf.shape} and type {leaf.dtype}; {remedy}.")
