"""What is done to a gradient between the sum over devices and the optimiser.

In this order: division by illumination and curvature, depth weight, mask, Gaussian smoothing, mask again, clip. A
weight that never changes is invisible to Adam, which normalises every cell; with smoothing after it, with plain
descent, or as the inverse Hessian that L-BFGS and Gauss-Newton begin with, it matters.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.signal import convolve

from shardfit.core.errors import suggestion
from shardfit.core.extras import require_extra
from shardfit.domains.seismic.arrays import Velocity
from shardfit.domains.seismic.geometry import Points, Shots
from shardfit.domains.seismic.simulation import Simulation
from shardfit.options.declared import Options, option

FIRST_ORDER = ("adam", "adamw", "sgd", "rmsprop")


@dataclass(frozen=True)
class Conditioning(Options):
    """How gradients are treated; the default does nothing."""

    rows: int = option(0, "rows from the top, such as water, where the gradient is zero", least=0)
    near: float = option(0.0, "distance from sources and receivers within which it is faded out", unit="cells", least=0)
    illumination: float = option(0.0, "power of the division by the source wavefield's energy, 0 for none", least=0)
    curvature: float | None = option(
        None,
        """power of the division by the diagonal of the Gauss-Newton Hessian
        0 for none, 1 as Newton would; left out it is 1 for 'plbfgs' and 'gauss-newton', 0 for others""",
        least=0,
        example=1.0,
    )
    floor: float = option(
        1e-2, "share of the largest energy, or root of the curvature, that is added before dividing", above=0, below=1
    )
    depth: float = option(0.0, "power of the depth by which it is multiplied", least=0)
    smoothing: float = option(0.0, "standard deviation of its smoothing", unit="cells", least=0)
    clip: float | None = option(
        None, "percentile of |gradient| above which it is cut off", above=0, below=100, example=99.0
    )

    @property
    def idle(self) -> bool:
        """Whether nothing is done."""
        return self == replace(Conditioning(), floor=self.floor)


def mask(sim: Simulation, shots: Shots, how: Conditioning) -> np.ndarray:
    """Return factors (nz, nx): 0 in the top rows and within near / 2 of sources and receivers, 1 beyond near."""
    from scipy.ndimage import distance_transform_edt

    factors = np.ones(sim.shape)
    if how.near:
        away = np.ones(sim.shape, bool)
        for points in shots:
            away[_nearest_cells(sim, points)] = False
        distance: Any = distance_transform_edt(away)
        factors = np.sin(0.5 * np.pi * np.clip(2 * distance / how.near - 1, 0, 1)) ** 2
    factors[: how.rows] = 0
    return factors


def weights(sim: Simulation, how: Conditioning, energy: Any = None, curvature: Any = None) -> np.ndarray:
    """Return factors (nz, nx) of illumination, curvature and depth.

    energy: from `illumination`, where its power is not 0; curvature: (nz, nx), or (fields, nz, nx), likewise, from
    `curvature.diagonal`.
    """
    depth = np.arange(1, sim.shape[0] + 1) / sim.shape[0]
    factors = np.broadcast_to((depth**how.depth).reshape(-1, *(1,) * (len(sim.shape) - 1)), sim.shape)
    if how.illumination:
        if energy is None:
            raise ValueError("division by illumination needs the energy, see `illumination`.")
        factors = factors / (energy / energy.max() + how.floor) ** how.illumination
    if how.curvature:
        if curvature is None:
            raise ValueError("division by curvature needs the Hessian's diagonal, see `curvature.diagonal`.")
        factors = factors / (curvature / curvature.max() + how.floor**2) ** how.curvature
    return factors


def condition(gradient: Velocity, mask: Velocity, weights: Velocity, how: Conditioning) -> Velocity:
    """Return the gradient (nz, nx), conditioned."""
    gradient = gradient * weights * mask
    if how.smoothing:
        gradient = smooth(gradient, how.smoothing) * mask
    if how.clip is not None:
        limit = jnp.percentile(jnp.abs(gradient), how.clip)
        gradient = jnp.clip(gradient, -limit, limit)
    return gradient


def smooth(field: Velocity, sigma: float) -> Velocity:
    """Return a field (nz, nx) convolved with a Gaussian; edges are mirrored."""
    radius = max(1, round(4 * sigma))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    kernel = jnp.asarray(kernel / kernel.sum(), field.dtype)
    for axis in range(field.ndim):
        pad = [(radius, radius) if i == axis else (0, 0) for i in range(field.ndim)]
        line = kernel.reshape([-1 if i == axis else 1 for i in range(field.ndim)])
        field = convolve(jnp.pad(field, pad, mode="symmetric"), line, mode="valid", method="direct")
    return field


def optimiser(name: str, learning_rate: float, how: Conditioning, mask: Any, weights: Any, **options: float) -> Any:
    """Return an optax transformation of flat gradients: conditioning, scaling, then the named method.

    mask: (nz, nx); weights: (nz, nx), or (fields, nz, nx) where the fields of a medium differ. Equal arguments
    give the same object, so that a solver made of it is compiled once.
    """
    if name not in FIRST_ORDER:
        raise ValueError(f"no first-order method {name!r}.{suggestion(name, FIRST_ORDER)}")
    mask, weights = (np.asarray(array, np.float64) for array in (mask, weights))
    raw = mask.tobytes(), weights.tobytes()
    return _optimiser(name, learning_rate, how, mask.shape, *raw, tuple(sorted(options.items())))


@lru_cache(maxsize=16)
def _optimiser(name, rate, how, shape, mask, weights, options) -> Any:
    with require_extra("a first-order solver of seismic inversion", "seismic"):
        import optax

    mask, weights = np.frombuffer(mask).reshape(shape), np.frombuffer(weights).reshape(-1, *shape)

    def update(updates: Any, state, params=None):
        fields = updates.reshape(-1, *shape)  # a medium may have several
        own = partial(jnp.asarray, dtype=fields.dtype)
        each = np.broadcast_to(weights, fields.shape)
        found = [condition(field, own(mask), own(w), how) for field, w in zip(fields, each, strict=True)]
        return jnp.stack(found).ravel(), state

    conditioning = optax.GradientTransformation(lambda params: optax.EmptyState(), update)
    return optax.chain(conditioning, relative_to_first(), getattr(optax, name)(rate, **dict(options)))


def relative_to_first() -> Any:
    """Return the optax transformation that divides gradients by the largest component of the first one.

    A misfit changes by 1e-8 or less per m/s in a cell. Adam squares that, and float32 ends at 1e-38: where a square
    underflows and eps is smaller still, its step explodes. Relative gradients keep both far from that end.
    """
    with require_extra("a first-order solver of seismic inversion", "seismic"):
        import optax

    def init(params: Any):
        return jnp.zeros((), params.dtype)

    def update(updates: Any, state: Any, params=None):
        first = jnp.where(state > 0, state, jnp.max(jnp.abs(updates)))
        return updates / jnp.where(first > 0, first, 1), first

    return optax.GradientTransformation(init, update)


def _nearest_cells(sim: Simulation, points: Points) -> tuple[np.ndarray, ...]:
    """Return the index of the model cells that points are closest to."""
    cells, weights = (np.asarray(leaf).reshape(-1, leaf.shape[-1]) for leaf in points)
    chosen = np.take_along_axis(cells, np.abs(weights).argmax(-1)[:, None], 1)[:, 0][weights.any(-1)]
    index = np.unravel_index(np.unique(chosen), sim.padded)
    return tuple(along - low for along, low in zip(index, sim.widths[::2], strict=True))
