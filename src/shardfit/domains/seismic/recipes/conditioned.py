"""What the solvers with a preconditioner share: held cells, bounds, and the operator that conditioning becomes.

The gradient stays the misfit's own. What `Conditioning` does to it for first-order methods is here the operator
P = D G D, an inverse Hessian to begin with: D holds mask and the root of the weights, G smooths. Where D is zero
nothing ever moves; cells that press against a bound are left out of a step.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.status import Status
from shardfit.domains.seismic.conditioning import Conditioning, smooth
from shardfit.solve.step import StepSolver

DECREASE = 1e-4  # share of the promised decrease that a step must bring
SHORTEST = 1e-3  # of a step, before the search along it is given up


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

    def ended(self, state: Any, value: Any, gradient: jax.Array, free: jax.Array, events: tuple) -> jax.Array:
        """Return the status after an evaluation: what it says of the point that was accepted.

        events: it was the first of all; it was the first of its rows; it lowered the misfit enough; nothing does.
        """
        start, fresh, enough, stalled = events
        if self.batch:  # a batch says nothing about the whole
            return jnp.where(fresh & ~jnp.isfinite(value), Status.NONFINITE.code, Status.RUNNING.code).astype(jnp.int32)
        flat = jnp.max(jnp.where(free, jnp.abs(gradient), 0)) <= self.gtol
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
