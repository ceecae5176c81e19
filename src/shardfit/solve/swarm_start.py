"""Where a swarm starts: a Latin hypercube in the box, feasible points only, or the particles of an earlier swarm."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.params import Space
from shardfit.stats.latin import latin_hypercube

TRIES = 1000  # draws for a start point before giving up
CARRIED = (
    *("x", "value", "position", "velocity", "best_x", "best_loss", "guide_x", "guide_loss"),
    *("drawn", "stale", "fresh"),
)


def require_box(space: Space, box: Any) -> None:
    """Raise, naming the parameters, unless all coordinates have finite bounds."""
    free = np.ones(space.size, bool) if box is None else ~(np.isfinite(box[0]) & np.isfinite(box[1]))
    if free.any():
        names = [name for name, is_free in zip(space.coordinate_labels(), free, strict=True) if is_free]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise ValueError(
            f"a swarm searches a box, but {shown} has no finite bounds. Give both, as in Problem(..., "
            "bounds={'name': (lower, upper)}); with a log transform both must be positive, and Interval or Simplex "
            "must be replaced by bounds."
        )


def population(swarm: Any, space: Space, lower: np.ndarray, upper: np.ndarray, rng: Any) -> tuple:
    """Return positions and velocities (particles, n) drawn from rng."""
    width = upper - lower
    n = swarm.particles
    # not spread out further: that takes as long as a hundred steps and finds no more minima
    position = lower + width * latin_hypercube(n, len(lower), rng, even=False).astype(lower.dtype)
    speed = rng.uniform(-1 if swarm.symmetric else 0, 1, (n, len(lower))).astype(lower.dtype)
    if swarm.constraint is not None:
        position = np.stack([_feasible(swarm.constraint, space, z, lower, width, rng) for z in position])
    return np.clip(position, lower, upper), swarm.velocity_cap * width * speed


def _feasible(constraint, space, z, lower, width, rng):
    for _ in range(TRIES):
        if bool(constraint(space.host_params(z))):
            return z
        z = (lower + width * rng.random(len(lower))).astype(lower.dtype)
    raise ValueError(
        f"swarm: the constraint refused {TRIES} points drawn from the box. Make the box smaller, so that a fair share "
        "of it is allowed, or check that constraint(params) returns True there."
    )


def carried(source: Any) -> dict[str, np.ndarray]:
    """Return what a swarm hands on, from a Result, its `state`, or a device state."""
    state = getattr(source, "state", source)
    state = state._asdict() if hasattr(state, "_asdict") else state
    if not isinstance(state, dict) or any(name not in state for name in CARRIED):
        raise TypeError("swarm: start must be the Result of an earlier swarm, or its `state`.")
    return {name: np.asarray(state[name]) for name in CARRIED}


def restored(state: Any, source: Any) -> Any:
    """Return the state with the particles of an earlier swarm, so that it goes on as if it had not ended."""
    earlier = carried(source)
    for name, leaf in earlier.items():
        wanted = getattr(state, name)
        if leaf.shape != wanted.shape:
            raise ValueError(
                f"swarm: start has {name} of shape {leaf.shape}, but this swarm's is {wanted.shape}. Use the same "
                "number of particles and the same parameters."
            )
    arrays = {name: jnp.asarray(leaf, getattr(state, name).dtype) for name, leaf in earlier.items()}
    return state._replace(**arrays, counting=jnp.ones((), jnp.int32))
