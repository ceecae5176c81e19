"""One time step of elastic waves in two dimensions on Virieux's staggered grid, for one shot.

    ρ ∂t vx = ∂x sxx + ∂z sxz + fx        ∂t sxx = (λ + 2μ) ∂x vx + λ ∂z vz - q
    ρ ∂t vz = ∂x sxz + ∂z szz + fz        ∂t szz = λ ∂x vx + (λ + 2μ) ∂z vz - q        ∂t sxz = μ (∂z vx + ∂x vz)

Normal stresses, and the model, are at the cells; vx is half a cell to the right, vz half a cell below, sxz both.
Stresses are known at n dt, velocities half a step before. In the absorbing layers every derivative D becomes D + ψ with
a memory field of its own, ψ <- a ψ + b D, a and b as in boundary.py, kept in strips.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardfit.domains.seismic.boundary import damping
from shardfit.domains.seismic.simulation import Simulation

Z, X = 0, 1
AT, BETWEEN = 0, 1  # where a derivative is wanted along its axis: at the cells, or half a cell on
OF_STRESS = (("sxx", X, BETWEEN), ("sxz", Z, AT), ("sxz", X, AT), ("szz", Z, BETWEEN))
OF_VELOCITY = (("vx", X, AT), ("vz", Z, AT), ("vx", Z, BETWEEN), ("vz", X, BETWEEN))


class Material(NamedTuple):
    """Factors of a time step on the padded grid: dt / ρ at vx and vz, dt (λ + μ), dt μ at the cells, dt μ at sxz."""

    light_x: jax.Array
    light_z: jax.Array
    bulk: jax.Array
    shear: jax.Array
    corner: jax.Array


class Waves(NamedTuple):
    """What one step hands to the next. memory: ψ of the derivatives, those of stress first, at both ends."""

    vx: jax.Array
    vz: jax.Array
    sxx: jax.Array
    szz: jax.Array
    sxz: jax.Array
    memory: tuple[tuple[jax.Array, ...], ...]


class Strip(NamedTuple):
    """An absorbing end of an axis: its cells, and a and b there."""

    cells: tuple[slice, ...]
    a: jax.Array
    b: jax.Array


class Scheme(NamedTuple):
    """A simulation and the strips of its derivatives, by (axis, place)."""

    sim: Simulation
    strips: dict[tuple[int, int], tuple[Strip, ...]]


def staggered(order: int) -> tuple[float, ...]:
    """Return c of the first derivative half-way between values, Σ_m c_m (u[i+m-½] - u[i-m+½]), for unit spacing."""
    odd = 2 * np.arange(order // 2) + 1
    # exact for odd powers below the order
    return tuple(np.linalg.solve(odd ** odd[:, None].astype(float), np.eye(len(odd))[0]).tolist())


def midway(order: int) -> tuple[float, ...]:
    """Return the weights of `order` equally spaced values for the value in their middle."""
    odd = 2 * np.arange(order // 2) + 1
    # exact for even powers below the order
    right = np.linalg.solve(odd ** (odd[:, None] - 1.0), np.eye(len(odd))[0]) / 2
    return (*right[::-1].tolist(), *right.tolist())


def material(sim: Simulation, medium: Mapping[str, jax.Array]) -> Material:
    """Return the factors; between cells ρ is the arithmetic mean and μ the harmonic, which is zero beside water."""
    vp, vs, rho = (jnp.pad(medium[name], sim.pairs, mode="edge") for name in ("vp", "vs", "rho"))
    mu = rho * vs**2
    solid = mu > 0
    inverse = _pairs(_pairs(1 / jnp.where(solid, mu, 1.0), Z), X)  # finite, and so are its derivatives
    corner = jnp.where(_pairs(_pairs(~solid, Z), X), 0.0, 4 / inverse)
    light_x, light_z = (2 * sim.dt / _pairs(rho, axis) for axis in (X, Z))
    return Material(light_x, light_z, *(sim.dt * modulus for modulus in (rho * vp**2 - mu, mu, corner)))


def surface_material(found: Material) -> Material:
    """Return the factors with those of row 0 under a free surface: szz is zero, sxx changes by 4 b s / (b + s) ∂x vx.

    It is what `strain` does there, said by equal factors b and s of half that size.
    """
    bulk, shear = found.bulk[0], found.shear[0]
    half = 2 * bulk * shear / (bulk + shear)
    return found._replace(bulk=found.bulk.at[0].set(half), shear=found.shear.at[0].set(half))


def _pairs(x: jax.Array, axis: int) -> jax.Array:
    """Add the next cell along an axis, to the last itself; of booleans: either."""
    n = x.shape[axis]
    return x + jnp.concatenate([lax.slice_in_dim(x, 1, n, axis=axis), lax.slice_in_dim(x, n - 1, n, axis=axis)], axis)


def scheme(sim: Simulation, dtype: Any) -> Scheme:
    """Return the scheme of a simulation."""
    return Scheme(sim, {(axis, place): _strips(sim, axis, place, dtype) for axis in (Z, X) for place in (AT, BETWEEN)})


def _strips(sim: Simulation, axis: int, place: int, dtype: Any) -> tuple[Strip, ...]:
    n, (low, high), found = sim.padded[axis], sim.pairs[axis], []
    coefficients = damping(sim, axis, np.arange(n) + place / 2)
    for width, cells in ((low, slice(0, low)), (high, slice(n - 1 - high, n))):
        if width:
            shape = (-1, 1) if axis == Z else (-1,)
            a, b = (jnp.asarray(c[cells].reshape(shape), dtype) for c in coefficients)
            found.append(Strip((cells,) if axis == Z else (slice(None), cells), a, b))
    return tuple(found)


def rest(of: Scheme, dtype: Any) -> Waves:
    """Return the state at rest."""
    field = jnp.zeros(of.sim.padded, dtype)
    memory = [tuple(jnp.zeros_like(field[s.cells]) for s in of.strips[d[1:]]) for d in OF_STRESS + OF_VELOCITY]
    return Waves(field, field, field, field, field, tuple(memory))


def accelerate(of: Scheme, material: Material, waves: Waves) -> Waves:
    """Return the waves with velocities one step on."""
    (xx, xz, zx, zz), memory = _derivatives(of, waves, OF_STRESS, waves.memory[:4])
    vx = waves.vx + material.light_x * (xx + xz)
    vz = waves.vz + material.light_z * (zx + zz)
    return waves._replace(vx=vx, vz=vz, memory=memory + waves.memory[4:])


def strain(of: Scheme, material: Material, waves: Waves) -> Waves:
    """Return the waves with stresses one step on."""
    (xx, zz, xz, zx), memory = _derivatives(of, waves, OF_VELOCITY, waves.memory[4:])
    if of.sim.free_surface:  # szz stays zero on row 0
        bulk, shear = material.bulk[0], material.shear[0]
        zz = zz.at[0].set((shear - bulk) / (shear + bulk) * xx[0])
    # a factor multiplies one field, which is then all that its derivative keeps
    mean, half = material.bulk * (xx + zz), material.shear * (xx - zz)
    sxx, szz = waves.sxx + (mean + half), waves.szz + (mean - half)
    sxz = waves.sxz + material.corner * (xz + zx)
    return waves._replace(sxx=sxx, szz=szz, sxz=sxz, memory=waves.memory[:4] + memory)


def _derivatives(of: Scheme, waves: Waves, which: tuple, memory: tuple) -> tuple[list[jax.Array], tuple]:
    found, kept = [], []
    for (name, axis, place), before in zip(which, memory, strict=True):
        sign = 1 if name in ("vx", "vz") else -1
        d, after = _difference(of.sim, getattr(waves, name), axis, place, sign), []
        for strip, psi in zip(of.strips[axis, place], before, strict=True):
            after.append(strip.a * psi + strip.b * d[strip.cells])
            d = d.at[strip.cells].add(after[-1])
        found.append(d)
        kept.append(tuple(after))
    return found, tuple(kept)


def _difference(sim: Simulation, x: jax.Array, axis: int, place: int, sign: int) -> jax.Array:
    """Return the first derivative; beyond the edges x is zero, above a free surface its image of the given sign.

    Stresses are odd about row 0, velocities even, so that one derivative is minus the other's transpose: no energy is
    made, whatever the order.
    """
    m, n = sim.half, x.shape[axis]
    if axis == Z and sim.free_surface:
        image = sign * lax.rev(x[place : place + m], (0,))
        x = jnp.concatenate([image, jnp.pad(x, ((0, m), (0, 0)))])
    else:
        x = jnp.pad(x, [(m, m) if k == axis else (0, 0) for k in (Z, X)])

    def shifted(by):
        return lax.slice_in_dim(x, m + place + by, m + place + by + n, axis=axis)

    pairs = enumerate(staggered(sim.order))
    return sum(c / sim.dh[axis] * (shifted(k) - shifted(-1 - k)) for k, c in pairs)  # pyright: ignore[reportReturnType]
