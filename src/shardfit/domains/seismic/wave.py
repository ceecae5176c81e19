"""One time step of the acoustic wave equation in JAX, for one shot.

    u[n+1] = 2 u[n] - u[n-1] + (v dt)² (L[n] + s[n]),    sample n of a receiver is u[n]

The Laplacian is one expression of slices of a padded field, and the absorbing terms are added to strips along the
edges. A step is linear in state and signature, which the adjoint relies on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from shardfit.domains.seismic.boundary import profiles
from shardfit.domains.seismic.geometry import Points
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.stencil import FIRST, SECOND


class State(NamedTuple):
    """Fields that a step carries: u[n], u[n-1] (nz, nx), and (ψ, ζ) of each absorbing edge (W, length)."""

    u: jax.Array
    previous: jax.Array
    layers: tuple[tuple[jax.Array, jax.Array], ...]


class Strip(NamedTuple):
    """One absorbing edge: axis, whether it is the far one, width in cells, and a, b, b' (W + M, 1)."""

    axis: int
    far: bool
    width: int
    a: jax.Array
    b: jax.Array
    slope: jax.Array

    def place(self, sim: Simulation) -> tuple[slice, slice]:
        """Return where on the padded grid these cells are."""
        n, reach = sim.padded[self.axis], self.width + sim.half
        cells = slice(n - reach, n) if self.far else slice(reach)
        return (cells, slice(None)) if self.axis == 0 else (slice(None), cells)


class Medium(NamedTuple):
    """What a step needs besides the state; kappa is (v dt)² on the padded grid."""

    kappa: jax.Array
    sources: Points
    receivers: Points


def padded_kappa(sim: Simulation, velocity: jax.Array) -> jax.Array:
    """Return (v dt)² on the padded grid, edge cells repeated outwards."""
    top, bottom, left, right = sim.widths
    return jnp.pad((velocity * sim.dt) ** 2, ((top, bottom), (left, right)), mode="edge")


def strips(sim: Simulation, dtype: Any) -> tuple[Strip, ...]:
    """Return the absorbing edges in the order top, bottom, left, right, those of width 0 left out."""
    found = []
    for axis, profile in enumerate(profiles(sim)):
        for far in (False, True):
            width = sim.widths[2 * axis + far]
            if width:
                reach = slice(-width - sim.half, None) if far else slice(width + sim.half)
                # arrays of JAX: a loop must not close over NumPy arrays, see core.precision.jit
                a, b, slope = (jnp.asarray(p[reach], dtype)[:, None] for p in profile)
                found.append(Strip(axis, far, width, a, b, slope / sim.dh[axis]))
    return tuple(found)


def start(sim: Simulation, dtype: Any) -> State:
    """Return the state at rest."""
    nz, nx = sim.padded
    top, bottom, left, right = sim.widths
    shapes = [(w, nx) for w in (top, bottom) if w] + [(w, nz) for w in (left, right) if w]
    field = jnp.zeros((nz, nx), dtype)
    return State(field, field, tuple((jnp.zeros(s, dtype), jnp.zeros(s, dtype)) for s in shapes))


def stepper(sim: Simulation, dtype: Any) -> Callable:
    """Return step(medium, state, signature (n_sources,)) → state, sample (n_receivers,), L + s (nz, nx)."""
    return partial(_step, sim, strips(sim, dtype))


def _step(sim: Simulation, edges: tuple, medium: Medium, state: State, signature: jax.Array) -> tuple:
    u, kappa = state.u, medium.kappa
    around = _with_halo(sim, u)
    laplacian = _laplacian(sim, around)
    # one pass over the grid, then small additions in place
    following = 2 * u - state.previous + kappa * laplacian
    layers = []
    for edge, (psi, zeta) in zip(edges, state.layers, strict=True):
        extra, *layer = _absorb(sim, edge, around, psi, zeta)
        where = edge.place(sim)
        following = _overwrite(following, following[where] + kappa[where] * extra, where)
        laplacian = _overwrite(laplacian, laplacian[where] + extra, where)
        layers.append(tuple(layer))
    spread = medium.sources.weights * signature[:, None]
    if sim.scaling == "physical":
        following = add(following, medium.sources, spread * kappa.reshape(-1)[medium.sources.cells])
        laplacian = add(laplacian, medium.sources, spread)
    else:
        following = add(following, medium.sources, spread)
    if sim.free_surface:
        following = following.at[0].set(0)
    # the last is computed only by those who use it
    return State(following, u, tuple(layers)), read(u, medium.receivers), laplacian


def plain_step(sim: Simulation, medium: Medium, u: jax.Array, previous: jax.Array, signature: jax.Array) -> jax.Array:
    """Return the next field where no absorbing layer is near; with u[n+1] for previous it goes back in time."""
    laplacian = _laplacian(sim, _with_halo(sim, u))
    following = 2 * u - previous + medium.kappa * laplacian + raw_source(sim, medium, u, signature)
    if sim.scaling == "physical":
        following = add(following, medium.sources, _at_sources(medium) * signature[:, None])
    return following.at[0].set(0) if sim.free_surface else following


def raw_source(sim: Simulation, medium: Medium, like: jax.Array, signature: jax.Array) -> jax.Array | float:
    """Return what sources add to the next field without passing kappa: a field, or 0 for physical scaling."""
    if sim.scaling == "physical":
        return 0.0
    return add(jnp.zeros_like(like), medium.sources, medium.sources.weights * signature[:, None])


def _at_sources(medium: Medium) -> jax.Array:
    return medium.sources.weights * medium.kappa.reshape(-1)[medium.sources.cells]


def read(u: jax.Array, points: Points) -> jax.Array:
    """Return the field at points (n,)."""
    return jnp.sum(u.reshape(-1)[points.cells] * points.weights, axis=-1)


def add(u: jax.Array, points: Points, values: jax.Array) -> jax.Array:
    """Return the field with values (n, k) added at the points' cells, those named twice twice."""
    return u.reshape(-1).at[points.cells.reshape(-1)].add(values.reshape(-1)).reshape(u.shape)


def _overwrite(x: jax.Array, part: jax.Array, where: tuple[slice, slice]) -> jax.Array:
    # x.at[where].set(part) would be a scatter, which is several times slower
    return lax.dynamic_update_slice(x, part, tuple(cells.start or 0 for cells in where))


def _cut(x: jax.Array, axis: int, begin: int, end: int) -> jax.Array:
    return lax.slice_in_dim(x, begin, end, axis=axis)


def _difference(x: jax.Array, axis: int, coefficients: tuple, sign: int) -> jax.Array:
    """Σ_m c_m (x[i+m] + sign x[i-m]) for the cells that lie at least M from both ends of x."""
    m, n = len(coefficients), x.shape[axis]
    return sum(
        c * (_cut(x, axis, m + k, n - m + k) + sign * _cut(x, axis, m - k, n - m - k))
        for k, c in enumerate(coefficients, start=1)
    )  # pyright: ignore[reportReturnType]


def _first(sim: Simulation, x: jax.Array, along: int, axis: int) -> jax.Array:
    """First derivative along z or x (0, 1), which is that axis of the array."""
    return _difference(x, axis, tuple(d / sim.dh[along] for d in FIRST[sim.order]), -1)


def _second(sim: Simulation, x: jax.Array, along: int, axis: int) -> jax.Array:
    centre, *sides = (c / sim.dh[along] ** 2 for c in SECOND[sim.order])
    m = len(sides)
    return centre * _cut(x, axis, m, x.shape[axis] - m) + _difference(x, axis, tuple(sides), 1)


def _with_halo(sim: Simulation, u: jax.Array) -> jax.Array:
    """Return u with M cells around it: zeros, or the odd mirror above a free surface."""
    m = sim.half
    if not sim.free_surface:
        return jnp.pad(u, m)
    return jnp.pad(jnp.concatenate([-u[m:0:-1], u]), ((0, m), (m, m)))


def _along(sim: Simulation, around: jax.Array, axis: int) -> jax.Array:
    """Return a field that keeps its halo along one axis only."""
    return _cut(around, 1 - axis, sim.half, around.shape[1 - axis] - sim.half)


def _laplacian(sim: Simulation, around: jax.Array) -> jax.Array:
    return sum(_second(sim, _along(sim, around, axis), axis, axis) for axis in range(2))  # pyright: ignore[reportReturnType]


def _absorb(sim: Simulation, edge: Strip, around: jax.Array, psi: jax.Array, zeta: jax.Array) -> tuple:
    """What one edge adds to the Laplacian over its W + M cells, and the new ψ and ζ.

    The strips of the left and right edge lie on their side, so that loops run along their length.
    """
    m, axis, width, n = sim.half, edge.axis, edge.width, around.shape[edge.axis]
    reach, layer = width + 3 * m, slice(m, None) if edge.far else slice(width)
    near = _cut(_along(sim, around, axis), axis, *((n - reach, n) if edge.far else (0, reach)))
    near = lax.optimization_barrier(near.T if axis else near)  # else the halo is made anew for every use
    a, b = edge.a[layer], edge.b[layer]
    du, ddu = _first(sim, near, axis, 0), _second(sim, near, axis, 0)
    held = jnp.pad(a * psi, ((2 * m, m) if edge.far else (m, 2 * m), (0, 0)))
    t = (1 + edge.b) * ddu + edge.slope * du + _first(sim, held, axis, 0)
    kept = jnp.pad(a * zeta, ((m, 0) if edge.far else (0, m), (0, 0)))
    extra = (1 + edge.b) * t - ddu + kept
    return extra.T if axis else extra, b * du[layer] + a * psi, b * t[layer] + a * zeta
