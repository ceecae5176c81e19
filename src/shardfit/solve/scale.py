"""Scale-free coordinates: what lies between parameters, in whatever units, and solvers, to which 1 is a natural length.

A solver moves u, and z = scale · u. Nothing else knows of it: what a solver hands out is in z again. Tolerances and
first steps are then the same for a fit in metres and in nanometres.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.gram import Gram, gram
from shardfit.core.params import Space, broadcast_prefix, element_label
from shardfit.core.problem import Problem
from shardfit.core.transforms import Identity
from shardfit.solve.base import Finish, Solver, Task, value_and_grad_parts

OWN = 32  # numbers of a leaf up to which each has a scale of its own: a larger leaf holds numbers of one kind
ALIKE = 100  # ratio up to which numbers of a leaf are of one kind: that one of them is small says nothing then
CURVED = 16  # coordinates up to which curvatures are computed for want of anything better
DIGITS = 1 << 20  # to which scales from derivatives are rounded, so that they are the same on every layout
JAC = "jac"


@partial(register_dataclass, data_fields=("space", "scale", "lower", "upper"), meta_fields=())
@dataclass(frozen=True, eq=False)
class Scaled:
    """A space seen in coordinates u = z / scale. lower, upper: bounds of z, or None."""

    space: Space
    scale: Any  # (n,)
    lower: Any
    upper: Any

    def unpack(self, u: jax.Array) -> Any:
        """Return the parameters."""
        return self.space.unpack(self.coordinates(u))

    def coordinates(self, u: jax.Array) -> jax.Array:
        """Return the coordinates z (n,)."""
        return self.scale * u if self.lower is None else _within(u, self.scale, self.lower, self.upper)

    def z(self, u: Any) -> np.ndarray:
        """Return the coordinates z (..., n) as NumPy arrays."""
        z = np.asarray(self.scale) * np.asarray(u)
        return z if self.lower is None else np.clip(z, np.asarray(self.lower), np.asarray(self.upper))

    def host_params(self, u: Any) -> Any:
        """Return the parameters as NumPy arrays."""
        return self.space.host_params(self.z(u))


@jax.custom_jvp
def _within(u, scale, lower, upper):
    """Return z, its bounds met to the bit; its slope is that of the product, at the bounds too."""
    return jnp.clip(scale * u, lower, upper)


@_within.defjvp
def _within_jvp(primals, tangents):
    return _within(*primals), primals[1] * tangents[0]


def scaled_solve(solver: Solver, task: Task, scale: np.ndarray | None) -> Finish:
    """Run a solver in coordinates z / scale (None: in z itself) and return its finish in z."""
    if scale is None:
        return solver.solve(task)
    lower, upper = (None, None) if task.box is None else (np.asarray(end, scale.dtype) for end in task.box)
    space = Scaled(task.space, scale, lower, upper)
    box = None if lower is None else (lower / scale, upper / scale)
    u0 = task.z0 / scale
    u0 = u0 if box is None else np.clip(u0, *box)
    trace = task.monitor.trace
    before = trace.count("x")
    finish = solver.solve(replace(task, space=space, z0=u0.astype(scale.dtype), box=box))
    trace.change("x", space.z, before)
    # normal equations in u are made again in z, where they are asked for
    return finish._replace(z=space.z(finish.z).astype(task.z0.dtype), equations=None)


def starting_scale(solver: Solver, task: Task, x_scale: Any) -> np.ndarray | None:
    """Return the scale (n,) of the coordinates z, or None where the solver works in z.

    x_scale: of the parameters, like x0; 'jac' for the length that changes the residuals as much in every coordinate;
    None for the start's own size, where the solver asks for it.
    """
    if x_scale is None and not solver.scaled:
        return None
    if solver.needs == "value":
        raise ValueError(f"x_scale: solver {solver.name!r} measures steps by the box that it searches. Leave it out.")
    if isinstance(x_scale, str):
        if x_scale != JAC:
            raise ValueError(f"x_scale={x_scale!r} is not known. Give 'jac', numbers like the parameters, or None.")
        scale = _by_residuals(solver, task)
    else:
        scale = natural(task, task.z0) if x_scale is None else _given(task.problem, x_scale)
    scale = scale.astype(task.z0.dtype)
    usable = np.isfinite(scale) & (scale > np.finfo(scale.dtype).tiny)
    scale = np.where(usable, scale, 1).astype(task.z0.dtype)
    return None if (scale == 1).all() else scale


def _given(problem: Problem, x_scale: Any) -> np.ndarray:
    """Return the scale (n,) from what the user says of parameters."""
    pieces, space = [], problem.space
    leaves = jax.tree.leaves(problem.x0)
    for i, (leaf, entry) in enumerate(zip(leaves, broadcast_prefix("x_scale", x_scale, problem.x0), strict=True)):
        label, plain = space.labels[i], isinstance(space.transforms[i], Identity)
        if entry is not None and not plain and isinstance(x_scale, int | float):
            entry = None  # one number for all is about those that have units
        if entry is None:
            pieces.append(np.ones(space.leaf_sizes()[i]))
            continue
        if not plain:
            raise ValueError(f"x_scale of {label}: it has a transform, whose coordinates have no unit. Leave it out.")
        try:
            scale = np.broadcast_to(np.asarray(entry, float), np.shape(leaf))
        except (TypeError, ValueError):
            raise ValueError(
                f"x_scale of {label} is {entry!r}, which does not fit its shape {np.shape(leaf)}."
            ) from None
        wrong = ~(np.isfinite(scale) & (scale > 0))
        if wrong.any():
            at = np.argwhere(wrong)[0]
            raise ValueError(f"x_scale of {element_label(label, at)} is {scale[tuple(at)]:g}. Scales are positive.")
        pieces.append(np.ravel(scale)[~space.held_at(i).ravel()])
    return np.concatenate(pieces)


def natural(task: Task, z: np.ndarray, before: Any = None) -> np.ndarray:
    """Return how large each coordinate is at z, or was before: one that has come near zero is no smaller for it.

    Coordinates of a transform have no unit. One that starts at zero says nothing: the box does, or else derivatives.
    """
    space = task.space
    scale = np.abs(np.asarray(z, float))
    stops = np.cumsum(space.leaf_sizes())[:-1]
    for piece, transform in zip(np.split(scale, stops), space.transforms, strict=True):
        if not isinstance(transform, Identity):
            piece[:] = 1
        elif piece.size > OWN:
            piece[:] = np.sqrt(np.mean(piece**2))
        elif piece.any() and np.max(piece) <= ALIKE * np.min(piece[piece > 0]):
            piece[piece > 0] = np.sqrt(np.mean(piece[piece > 0] ** 2))
    if task.box is not None:
        width = np.asarray(task.box[1], float) - np.asarray(task.box[0], float)
        scale = np.where(np.isfinite(width), np.where(scale > 0, np.minimum(scale, width), width), scale)
    if before is not None:
        scale = np.maximum(scale, before)
    unknown = np.flatnonzero(scale == 0)
    if unknown.size and task.placed is not None:
        scale[unknown] = _by_derivatives(task, z, scale, unknown)
    usable = np.isfinite(scale) & (scale > np.finfo(z.dtype).tiny)
    return np.where(usable, scale, 1).astype(z.dtype)


def _by_derivatives(task: Task, z: np.ndarray, scale: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Return lengths of the coordinates that are zero: to where each alone would bring the value to its minimum.

    What they can gain together is shared by curvature, so that all count alike; of many coordinates, and of models
    without second derivatives, only the gradient is known. scale: of the other coordinates.
    """
    key = jax.random.key(task.seed) if task.objective.stochastic else None
    rows: Any = None  # of the Hessian; many would not fit into memory
    if unknown.size <= CURVED:
        try:
            value, gradient, rows = _curvatures(task.space, task.objective, z, unknown, key)
        except Exception:  # no forward derivatives of a gradient, which JAX says in several ways
            value, gradient = _slopes(task.space, task.objective, z, key)
    else:
        value, gradient = _slopes(task.space, task.objective, z, key)
    value, gradient, rows = abs(float(value)), np.abs(np.asarray(gradient, float))[unknown], rows
    finite = np.isfinite(value) and np.isfinite(gradient).all()
    if finite and rows is None:
        return _rounded(np.nan_to_num(_lengths(value, gradient, np.zeros(unknown.size)), nan=1.0))
    rows = np.abs(np.asarray(rows, float))
    if not (finite and np.isfinite(rows).all()):
        return np.ones(unknown.size)
    lengths = _lengths(value, gradient, rows[np.arange(unknown.size), unknown])
    # one that acts through others alone, such as the rate of what has no amplitude yet
    known = scale.copy()
    known[unknown] = np.nan_to_num(lengths)
    mixed = np.max(rows * known, axis=1)
    through = np.isnan(lengths) & (mixed > 0) & (value > 0)
    lengths[through] = 2 * value / mixed[through]
    return _rounded(np.nan_to_num(lengths, nan=1.0))


def _lengths(value: float, gradient: np.ndarray, bends: np.ndarray) -> np.ndarray:
    """Return a length for each coordinate from value, slopes and curvatures (k,); NaN where nothing is known."""
    lengths, curved = np.full(len(gradient), np.nan), bends > 0
    unit = np.sqrt(bends[curved])
    gain = np.sqrt(np.sum((gradient[curved] / unit) ** 2)) or np.sqrt(2 * value) or 1.0
    lengths[curved] = gain / unit
    straight = ~curved & (gradient > 0)
    if straight.any() and value > 0:
        # on a straight line to zero, each contributing as much
        many = straight.sum() > CURVED
        total = np.sum(gradient[straight]) if many else straight.sum() * gradient[straight]
        lengths[straight] = 2 * value / total
    return lengths


def _by_residuals(solver: Solver, task: Task) -> np.ndarray:
    if task.placed is None:
        raise ValueError(
            f"x_scale='jac' needs all rows at once, and solver {solver.name!r} draws batches. Give numbers."
        )
    task.objective.require_least_squares("x_scale='jac'")
    here = _equations(task.space, task.objective, task.z0)
    bends, gradient = np.diag(np.asarray(here.matrix, float)), np.abs(np.asarray(here.gradient, float))
    if not np.isfinite([float(here.value), *bends]).all():
        return np.ones(len(bends))  # the solver says what is not finite
    return _rounded(np.nan_to_num(_lengths(float(here.value), gradient, bends), nan=1.0))


def _rounded(lengths: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(lengths)
    return np.ldexp(np.round(mantissa * DIGITS) / DIGITS, exponent)


@jax.jit
def _equations(space: Any, objective: Any, z: Any) -> Gram:
    return gram(objective, space, z, None)


@jax.jit
def _slopes(space: Any, objective: Any, z: Any, key: Any) -> tuple:
    here = value_and_grad_parts(space, objective, z, key)[0]
    return here.value, here.gradient


@jax.jit
def _curvatures(space: Any, objective: Any, z: Any, chosen: Any, key: Any) -> tuple:
    """Return value, gradient, and the chosen rows of the Hessian, one after the other."""

    def gradient(z):
        return value_and_grad_parts(space, objective, z, key)[0].gradient

    def along(i):
        unit = jnp.zeros_like(z).at[i].set(1)
        return jax.jvp(gradient, (z,), (unit,))[1]

    here = value_and_grad_parts(space, objective, z, key)[0]
    return here.value, here.gradient, jax.lax.map(along, chosen)
