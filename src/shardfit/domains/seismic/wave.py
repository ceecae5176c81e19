"""One time step of the acoustic wave equation in JAX, and its transpose, for a block of shots, over any axes.

    u[n+1] = 2 u[n] - u[n-1] + kappa (L[n] + s[n]),    kappa = (v dt)²,    sample n of a receiver is u[n]

With λ[n] the derivative with respect to u[n], μ = kappa λ obeys the same recursion back in time with L transposed,
which differs from L in the absorbing layers only. So one function does both, given the rule of the layers.

On a CPU the speed is that of the loops XLA makes. Fields keep a halo of M cells, so that no stencil needs a condition;
the grid is updated in blocks, inside and along the edges, so that each is one plain loop; and a loop writes where no
loop reads: into the fields of two steps ago, so that three sets of fields take turns. Arrays lead with the shots.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardfit.domains.seismic.boundary import profiles
from shardfit.domains.seismic.geometry import Points
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.stencil import FIRST, second_coefficients


class Medium(NamedTuple):
    """What a step needs besides the state; kappa is (v dt)² on the padded grid."""

    kappa: jax.Array
    sources: Points
    receivers: Points


class Fields(NamedTuple):
    """A wave with its halo, (ψ, ζ) of each absorbing edge on W + 4M cells, rows above a free surface (or nothing)."""

    u: jax.Array
    layers: tuple[tuple[jax.Array, jax.Array], ...]
    mirror: tuple[jax.Array, ...]


Turn = tuple[Fields, Fields, Fields]  # now, one step before, to be written


class State(NamedTuple):
    """What one step hands to the next: u[n], u[n-1] with their halo, and (ψ, ζ) of each absorbing edge."""

    u: jax.Array
    previous: jax.Array
    layers: tuple[tuple[jax.Array, jax.Array], ...]


class Edge(NamedTuple):
    """An absorbing edge: its axis, its first cell, and a, b, b' there, with M cells more at both ends.

    It consists of the layer and 2M cells beside it, as far as the layer's terms and their transpose reach.
    """

    axis: int
    begin: int
    a: jax.Array
    b: jax.Array
    slope: jax.Array


class Scheme(NamedTuple):
    """A simulation, its edges, and their rule(sim, edge, u, (ψ, ζ)) → share in L, new ψ and ζ."""

    sim: Simulation
    edges: tuple[Edge, ...]
    rule: Callable


def padded_kappa(sim: Simulation, velocity: jax.Array) -> jax.Array:
    """Return (v dt)² on the padded grid, edge cells repeated outwards."""
    return jnp.pad((velocity * sim.dt) ** 2, sim.pairs, mode="edge")


def forward(sim: Simulation, dtype: Any) -> Scheme:
    """Return the scheme of the wave itself."""
    return Scheme(sim, _edges(sim, dtype), _absorb)


def transposed(sim: Simulation, dtype: Any) -> Scheme:
    """Return the scheme of μ, back in time."""
    return Scheme(sim, _edges(sim, dtype), _absorb_transposed)


def _edges(sim: Simulation, dtype: Any) -> tuple[Edge, ...]:
    found, m = [], sim.half
    for axis, profile in enumerate(profiles(sim)):
        shape = [-1 if k == axis + 1 else 1 for k in range(len(sim.shape) + 1)]
        for far, width in enumerate(sim.pairs[axis]):
            if width:
                begin = sim.padded[axis] - width - 2 * m if far else 0
                a, b, slope = (np.pad(p, m)[begin:][: width + 4 * m].reshape(shape) for p in profile)
                found.append(Edge(axis, begin, *(jnp.asarray(c, dtype) for c in (a, b, slope / sim.dh[axis]))))
    return tuple(found)


def rest(sim: Simulation, shots: int, dtype: Any) -> State:
    """Return the state at rest."""
    u = jnp.zeros((shots, *(n + 2 * sim.half for n in sim.padded)), dtype)
    layers = []
    for axis, pair in enumerate(sim.pairs):
        for width in filter(None, pair):
            shape = [shots, *sim.padded]
            shape[axis + 1] = width + 4 * sim.half
            layers.append((jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)))
    return State(u, u, tuple(layers))


def unpack(sim: Simulation, state: State) -> Turn:
    """Return the fields that stand for a state."""
    mirror = (jnp.zeros_like(state.u[:, : sim.half + 2]),) if sim.free_surface else ()
    now = Fields(state.u, state.layers, mirror)
    blank = jax.tree.map(jnp.zeros_like, now)
    return now, blank._replace(u=state.previous), blank


def pack(fields: Turn) -> State:
    """Return the state that fields stand for."""
    now, before, _ = fields
    return State(now.u, before.u, now.layers)


def advance(scheme: Scheme, kappa: jax.Array, fields: Turn, cells: tuple, values: jax.Array, force: Any = None) -> Turn:
    """Return the fields one step on. values are added at cells (see `cells_of`), force (without halo) everywhere."""
    sim, (now, before, spare) = scheme.sim, fields
    found = [scheme.rule(sim, e, now.u, kept) for e, kept in zip(scheme.edges, now.layers, strict=True)]
    u, centre, earlier = spare.u, inside(sim, now.u), inside(sim, before.u)
    for block in itertools.product(*(_parts(scheme, axis) for axis in range(len(sim.shape)))):
        where = (slice(None), *(cells for cells, _ in block))
        shares = (_share(sim, now.u, found, block, axis) for axis in range(len(block)))
        new = 2 * centre[where] - earlier[where] + kappa[where[1:]] * sum(shares)
        new = new if force is None else new + force[where]
        u = lax.dynamic_update_slice(u, new, (0, *(cells.start + sim.half for cells, _ in block)))
    layers = []
    for edge, blank, (_, *new) in zip(scheme.edges, spare.layers, found, strict=True):
        start = [sim.half * (k == edge.axis + 1) for k in range(u.ndim)]
        layers.append(tuple(lax.dynamic_update_slice(*pair, start) for pair in zip(blank, new, strict=True)))
    u, mirror = _reflect(sim, add(u, cells, values), spare.mirror)
    return Fields(u, tuple(layers), mirror), now, before


def along_axes(scheme: Scheme, fields: list[jax.Array], layers: tuple) -> tuple[list[jax.Array], tuple]:
    """Return the part of L along every axis, each of a field (without halo) of its own, and the layers one step on."""
    sim, whole = scheme.sim, [(slice(0, n), None) for n in scheme.sim.padded]
    waves = [_with_halo(sim, u) for u in fields]
    found = [scheme.rule(sim, e, waves[e.axis], kept) for e, kept in zip(scheme.edges, layers, strict=True)]
    shares = []
    for axis, u in enumerate(waves):
        parts = sorted(_parts(scheme, axis), key=lambda part: part[0].start)
        blocks = [(*whole[:axis], part, *whole[axis + 1 :]) for part in parts]
        shares.append(jnp.concatenate([_share(sim, u, found, block, axis) for block in blocks], axis + 1))
    rims = [[(sim.half * (k == e.axis + 1),) * 2 for k in range(len(whole) + 1)] for e in scheme.edges]
    return shares, tuple(tuple(jnp.pad(x, rim) for x in new) for (_, *new), rim in zip(found, rims, strict=True))


def _with_halo(sim: Simulation, inner: jax.Array) -> jax.Array:
    u = jnp.pad(inner, ((0, 0), *((sim.half, sim.half),) * len(sim.shape)))
    return _reflect(sim, u, (jnp.zeros_like(u[:, : sim.half + 2]),))[0]


def _parts(scheme: Scheme, axis: int) -> list[tuple[slice, int | None]]:
    """Return how an axis is divided: cells, and which edge they are, if any."""
    n = scheme.sim.padded[axis]
    edges = {}
    for k, edge in enumerate(scheme.edges):
        if edge.axis == axis:
            edges[k] = slice(edge.begin, edge.begin + edge.a.size - 2 * scheme.sim.half)
    low = max((cells.stop for cells in edges.values() if cells.start == 0), default=0)
    high = min((cells.start for cells in edges.values() if cells.start > 0), default=n)
    return [*((cells, k) for k, cells in edges.items()), (slice(low, high), None)]


def _share(sim: Simulation, u: jax.Array, found: list, block: tuple, axis: int) -> jax.Array:
    """Return the part of L along one axis, in a block."""
    across = [slice(None), *(cells for cells, _ in block)]
    cells, edge = block[axis]
    if edge is not None:
        across[axis + 1] = slice(None)
        return found[edge][0][tuple(across)]
    across[axis + 1] = slice(cells.start, cells.stop + 2 * sim.half)
    return _second(sim, _along(sim, u, axis)[tuple(across)], axis)


def cells_of(sim: Simulation, points: Points) -> tuple[jax.Array, ...]:
    """Return the cells of points, (shots, n, k) each: shot, and place along every axis of a field with a halo."""
    shot = jnp.broadcast_to(jnp.arange(points.cells.shape[0], dtype=np.int32)[:, None, None], points.cells.shape)
    return shot, *(place + sim.half for place in jnp.unravel_index(points.cells, sim.padded))


def read(u: jax.Array, cells: tuple) -> jax.Array:
    """Return a field at cells."""
    return u.at[cells].get(mode="promise_in_bounds")


def add(u: jax.Array, cells: tuple, values: jax.Array) -> jax.Array:
    """Return a field with values added at cells, those named twice twice."""
    return u.at[cells].add(values, mode="promise_in_bounds")


def inside(sim: Simulation, u: jax.Array) -> jax.Array:
    """Return a field without its halo."""
    return u[(slice(None), *(slice(sim.half, n + sim.half) for n in sim.padded))]


def _cut(x: jax.Array, axis: int, begin: int, end: int) -> jax.Array:
    return lax.slice_in_dim(x, begin, end, axis=axis + 1)


def _along(sim: Simulation, u: jax.Array, axis: int) -> jax.Array:
    """Return a field that keeps its halo along one axis only."""
    for other, n in enumerate(sim.padded):
        u = u if other == axis else _cut(u, other, sim.half, n + sim.half)
    return u


def _difference(x: jax.Array, axis: int, coefficients: tuple, sign: int) -> jax.Array:
    """Σ_m c_m (x[i+m] + sign x[i-m]) for the cells that lie at least M from both ends of x."""
    m, n = len(coefficients), x.shape[axis + 1]
    return sum(
        c * (_cut(x, axis, m + k, n - m + k) + sign * _cut(x, axis, m - k, n - m - k))
        for k, c in enumerate(coefficients, start=1)
    )  # pyright: ignore[reportReturnType]


def _first(sim: Simulation, x: jax.Array, axis: int) -> jax.Array:
    return _difference(x, axis, tuple(d / sim.dh[axis] for d in FIRST[sim.order]), -1)


def _second(sim: Simulation, x: jax.Array, axis: int) -> jax.Array:
    centre, *sides = second_coefficients(sim.order, sim.dh, x.dtype)[axis]
    return centre * _cut(x, axis, sim.half, x.shape[axis + 1] - sim.half) + _difference(x, axis, tuple(sides), 1)


def _near(sim: Simulation, edge: Edge, u: jax.Array) -> jax.Array:
    return _cut(_along(sim, u, edge.axis), edge.axis, edge.begin, edge.begin + edge.a.size)


def _middle(sim: Simulation, edge: Edge, *fields: jax.Array) -> list[jax.Array]:
    return [_cut(x, edge.axis, sim.half, edge.a.size - sim.half) for x in fields]


def _absorb(sim: Simulation, edge: Edge, u: jax.Array, kept: tuple) -> tuple:
    """The terms of boundary.py."""
    near, axis = _near(sim, edge, u), edge.axis
    a, b, slope, psi, zeta = _middle(sim, edge, edge.a, edge.b, edge.slope, *kept)
    du = _first(sim, near, axis)
    t = (1 + b) * _second(sim, near, axis) + slope * du + _first(sim, edge.a * kept[0], axis)
    return (1 + b) * t + a * zeta, b * du + a * psi, b * t + a * zeta


def _absorb_transposed(sim: Simulation, edge: Edge, u: jax.Array, kept: tuple) -> tuple:
    """Their transpose: u is μ; ψ and ζ are the derivatives with respect to them."""
    near, axis, (psi, zeta) = _near(sim, edge, u), edge.axis, kept
    t = (1 + edge.b) * near + edge.b * zeta
    share = _second(sim, (1 + edge.b) * t, axis) - _first(sim, edge.slope * t + edge.b * psi, axis)
    a, centre, psi, zeta = _middle(sim, edge, edge.a, near, psi, zeta)
    return share, a * (psi - _first(sim, t, axis)), a * (centre + zeta)


def frame(sim: Simulation) -> list[tuple[slice, ...]]:
    """Return the parts of a field that the inside of the grid, free of absorbing terms, does not reach."""
    m = sim.half
    inner = [slice(w + m * bool(w), n - v - m * bool(v)) for n, (w, v) in zip(sim.padded, sim.pairs, strict=True)]
    slabs = []
    for axis, box in enumerate(inner):
        for cells in (slice(0, box.start), slice(box.stop, sim.padded[axis])):
            places = (*inner[:axis], cells, *(slice(0, n) for n in sim.padded[axis + 1 :]))
            slabs.append((slice(None), *(slice(p.start + m, p.stop + m) for p in places)))
    return [slab for slab in slabs if all(p.start is None or p.stop > p.start for p in slab)]


def reflected(sim: Simulation, state: State) -> State:
    """Return a state whose wave fulfils the condition at a free surface."""
    buffers = (jnp.zeros_like(state.u[:, : sim.half + 2]),) if sim.free_surface else ()
    return state._replace(u=_reflect(sim, state.u, buffers)[0])


def _reflect(sim: Simulation, u: jax.Array, buffers: tuple) -> tuple:
    """Make row 0 zero and the halo above it the odd mirror, if there is a free surface."""
    if not sim.free_surface:
        return u, ()
    m, corner = sim.half, (0,) * u.ndim
    rows = jnp.concatenate([-lax.rev(u[:, m + 1 : 2 * m + 1], (1,)), jnp.zeros_like(u[:, :1])], axis=1)
    mirror = lax.dynamic_update_slice(buffers[0], rows, corner)
    return lax.dynamic_update_slice(u, mirror[:, : m + 1], corner), (mirror,)
