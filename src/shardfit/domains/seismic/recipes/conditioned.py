"""What the solvers with a preconditioner share: held cells, bounds, and the operator that conditioning becomes.

The gradient stays the misfit's own. What `Conditioning` does to it for first-order methods is here the operator
P = D G D, an inverse Hessian to begin with: D holds mask and the root of the weights, G smooths. Where D is zero
nothing ever moves; cells that press against a bound are left out of a step.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.status import Status
from shardfit.domains.seismic.conditioning import Conditioning, smooth
from shardfit.solve.step import StepSolver

DECREASE = 1e-4  # share of the promised decrease that a step must bring
SHORTEST = 1e-3  # of a step, before the search along it is given up


class Judged(NamedTuple):
    """What an evaluation says of the step that led to it, and the point from which to go on."""

    start: jax.Array  # it was the first of all
    fresh: jax.Array  # it was the first of its rows: there is nothing to compare it with
    enough: jax.Array  # it lowered the misfit enough
    moves: jax.Array  # the step is taken
    taken: jax.Array  # the step
    length: jax.Array  # of the next step along it, where it is not taken
    change: jax.Array  # of the gradient, in units of `unit`
    x: jax.Array
    gradient: jax.Array  # at x, zero where the model is held
    free: jax.Array  # cells that may move from x
    unit: jax.Array  # largest component of the first gradient: squares of small ones vanish in float32

    @property
    def slope(self) -> jax.Array:
        """The gradient at x in units of `unit`."""
        return self.gradient / jnp.where(self.unit > 0, self.unit, 1)


@dataclass(frozen=True)
class Conditioned(StepSolver):
    """A solver with bounds and a fixed preconditioner.

    Attributes
    ----------
    scale
        (n,) D above, zero where the model is held; a state carries it as `scale`, beside `lower` and `upper`.
    shape, smoothing
        (fields, nz, nx), and the standard deviation in cells of G above, 0 for none.
    limit
        largest change of a cell in a step.
    batch
        shots of a mini-batch, None for all.
    label
        for the record.

    """

    # follows from the problem: a run that goes on takes it from its own state
    scale: Any = field(default=None, kw_only=True, repr=False, compare=False, metadata={"derived": True})
    shape: tuple[int, ...] = field(kw_only=True, repr=False)
    smoothing: float = field(default=0.0, kw_only=True, repr=False)
    limit: float = field(default=np.inf, kw_only=True)
    batch: int | None = field(default=None, kw_only=True)
    label: str = field(default="", kw_only=True, compare=False)
    bounded: ClassVar[bool] = True
    slots: ClassVar[bool] = False
    confirmed: ClassVar[bool] = False  # an evaluation walks all shots, and small steps in single cells say little here
    any_length: ClassVar[bool] = True

    @classmethod
    def of(cls, how: Conditioning, mask: np.ndarray, weights: np.ndarray, fields: int = 1, **options: Any) -> Any:
        """Return the solver that conditions as told.

        mask: (nz, nx); weights: (nz, nx), or (fields, nz, nx) where fields differ. options: of the solver.
        """
        scale = mask * np.sqrt(weights / weights.max())
        return cls(
            scale=np.broadcast_to(scale, (fields, *mask.shape)).ravel(),
            shape=(fields, *mask.shape),
            smoothing=how.smoothing,
            label=str(how),
            **options,
        )

    def populate(self, state, space, seed):
        """Return the initial state with the preconditioner."""
        return state._replace(scale=jnp.asarray(self.scale, state.x.dtype))

    def free(self, state: Any, x: jax.Array, gradient: jax.Array) -> jax.Array:
        """Return which cells may move."""
        free = state.scale > 0
        if state.lower is None:
            return free
        return free & ~((x <= state.lower) & (gradient > 0)) & ~((x >= state.upper) & (gradient < 0))

    def precondition(self, state: Any, vector: jax.Array, free: jax.Array) -> jax.Array:
        """Return P times a vector, among the cells that are free."""
        scaled = jnp.where(free, state.scale * vector, 0)
        if self.smoothing:
            scaled = jnp.stack([smooth(one, self.smoothing) for one in scaled.reshape(self.shape)]).ravel()
        return jnp.where(free, state.scale * scaled, 0)

    def judge(self, state: Any, value: Any, gradient: jax.Array, fresh: jax.Array) -> Judged:
        """Return what value and gradient at `state.ahead` say. fresh: the rows are others than those before."""
        start, taken = ~jnp.isfinite(state.value), state.ahead - state.x
        old, new = (jnp.where(state.scale > 0, g, 0) for g in (state.gradient, gradient))
        promised = jnp.vdot(old, taken)
        enough = (promised < 0) & (value <= state.value + DECREASE * promised)
        moves = fresh | enough
        unit = jnp.where(start, jnp.max(jnp.abs(new)), state.unit)
        length = jnp.where(moves, 1.0, state.length * shorter(value - state.value, promised)).astype(state.x.dtype)
        x, here = jnp.where(moves, state.ahead, state.x), jnp.where(moves, new, old)
        free, change = self.free(state, x, here), (new - old) * (1 / jnp.where(unit > 0, unit, 1))
        return Judged(start, fresh, enough, moves, taken, length, change, x, here, free, unit)

    def accepted(self, state: Any, value: Any, gradient: jax.Array, said: Judged, stalled: jax.Array) -> Any:
        """Return the state at the point from which to go on, with its status. stalled: no step lowers the misfit."""
        return state._replace(
            x=said.x,
            value=jnp.where(said.moves, value, state.value),
            gradient=jnp.where(said.moves, gradient, state.gradient),
            status=self.ended(state, value, said, stalled),
            steps=state.steps + (said.moves & ~said.start),
            length=said.length,
            unit=said.unit,
        )

    def ended(self, state: Any, value: Any, said: Judged, stalled: jax.Array) -> jax.Array:
        """Return the status after an evaluation: what it says of the point that was accepted."""
        if self.batch:  # a batch says nothing about the whole
            return jnp.where(said.fresh & ~jnp.isfinite(value), Status.NONFINITE.code, Status.RUNNING.code).astype(
                jnp.int32
            )
        start, enough = said.start, said.enough
        flat = jnp.max(jnp.where(said.free, jnp.abs(said.gradient), 0)) <= self.gtol
        small = state.value - value <= self.ftol * jnp.abs(value)
        cases = (
            (start & ~jnp.isfinite(value), Status.NONFINITE),
            ((start | enough) & flat, Status.CONVERGED_GRADIENT),
            (~start & enough & small & (self.ftol > 0), Status.CONVERGED_VALUE),
            (stalled, Status.STALLED),
        )
        return jnp.select([holds for holds, _ in cases], [s.code for _, s in cases], Status.RUNNING.code).astype(
            jnp.int32
        )

    def note(self, state):
        """Say what a stalled run means."""
        stalled = int(state.status) == Status.STALLED.code
        return "No step along the gradient lowers the misfit." if stalled else ""


def shorter(rise: Any, promised: Any) -> Any:
    """Return by what to shorten a step: the minimum of the parabola through values and slope, within reason."""
    bend = rise - promised
    known = jnp.isfinite(bend) & (bend > 0) & (promised < 0)
    return jnp.where(known, jnp.clip(-promised / (2 * jnp.where(known, bend, 1)), 0.1, 0.5), 0.25)


def clipped(state: Any, x: jax.Array) -> jax.Array:
    """Return a point within the bounds."""
    return x if state.lower is None else jnp.clip(x, state.lower, state.upper)
