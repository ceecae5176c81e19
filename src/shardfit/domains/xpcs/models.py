"""Models of the two-time correlation: c2 = offset + contrast · f, and f of pairs of frames and angles is computed here.

Contrast and offset enter linearly, so a fit needs of every angle only the Gram matrix of the columns [f, 1, y, ∂f]. A
model computes them by forward derivatives, unless it knows better: in `Homodyne` the derivatives of all angles share
their factors, and the sums become a few matrix products.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_static

from shardfit.domains.xpcs.forward import (
    FLOOR,
    Ahead,
    Geometry,
    averaged,
    cumulate,
    distance,
    integrate,
    moments_of_frames,
)
from shardfit.domains.xpcs.rates import PHI0, Parameter, PowerLaw, Rate
from shardfit.domains.xpcs.sinc import sinc_and_slope

CONVENTIONS = ("compat", "theory")


class Grams(NamedTuple):
    """Gram matrices (n, 3 + p, 3 + p) of [f, 1, y, ∂f] of the bins, complete, in units of the noise."""

    matrices: jax.Array


class Model:
    """A curve f of named parameters; see `Homodyne` for one with fast sums."""

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name, in the order of the values."""
        raise TypeError(f"{type(self).__name__} must define table")

    def curve(self, values: Any, geometry: Geometry, pairs: Any) -> jax.Array:
        """Return f, 1 at equal times and falling: values (p,), pairs Grid | Ahead | Points | Bins → in their shape."""
        raise TypeError(f"{type(self).__name__} must define curve")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.table)

    def values(self, params: dict) -> jax.Array:
        """Return the model's parameters (p,) out of a dict that may hold more."""
        return jnp.stack([jnp.asarray(params[name]) for name in self.names])

    def of_bin(self, k: int, values: Any) -> tuple["Model", Any, np.ndarray]:
        """Return the model of bin k alone, its values, and where these are among all."""
        return self, values, np.arange(len(self.names))

    def sums(self, values: jax.Array, geometry: Geometry, pairs: Any, y: jax.Array, weight: jax.Array) -> Any:
        """Return what the Gram matrices need of a tile: y (n, m), weight (m,) or (n, m) → a pytree to be summed."""
        f, slopes = with_slopes(lambda v: averaged(self.curve(v, geometry, pairs), pairs), values)
        columns = jnp.concatenate([jnp.stack([f, jnp.ones_like(f), y]), slopes])
        weighted = columns * jnp.broadcast_to(weight, y.shape)
        return jnp.einsum("akm,bkm->kab", weighted, columns)

    def grams(self, sums: Any, values: jax.Array, geometry: Geometry) -> jax.Array:
        """Return the Gram matrices (n, 3 + p, 3 + p) of [f, 1, y, ∂f] from the summed tiles."""
        return sums

    def factorises(self, pairs: Any) -> bool:
        """Whether the model has `slope_sums` and `scale_slopes`, which need factors common to all angles."""
        return False


def _triangle(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row and column of every entry of an upper triangle, and where an entry (i, j) of the whole is in it."""
    rows, columns = np.triu_indices(size)
    where = np.zeros((size, size), int)
    where[rows, columns] = where[columns, rows] = np.arange(len(rows))
    return rows, columns, where


@register_static
@dataclass(frozen=True)
class Homodyne(Model):
    """Diffusion with the transport coefficient J(t), and shear S(t) across the gap if given.

    convention: 'compat' g1 carries sinc² of qLΓcosφ/2π, so f carries sinc⁴, the numbers of the package homodyne;
    'theory': f carries sinc² of qLΓcosφ/2. Near zero shear they agree when rates of compat are π/√2 times larger.

    Example: `Homodyne(PowerLaw("D"), PowerLaw("gamma_dot"))` is laminar flow.
    """

    diffusion: Rate = field(default_factory=PowerLaw)
    shear: Rate | None = None
    convention: str = "compat"

    def __post_init__(self):
        if self.convention not in CONVENTIONS:
            raise ValueError(f"shear convention {self.convention!r}: use 'compat' or 'theory'.")
        _ = self.table  # a rate that is not well made says so here

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        sheared = {} if self.shear is None else {**self.shear.table, "phi0": PHI0}
        return {**self.diffusion.table, **sheared}

    @property
    def n_diffusion(self) -> int:
        """Number of parameters of J."""
        return len(self.diffusion.table)

    def by_rate(self, values: Any) -> list[tuple[Rate, Any]]:
        """Return J, and with shear S, each with its own values."""
        own = [(self.diffusion, values[: self.n_diffusion])]
        return own if self.shear is None else [*own, (self.shear, values[self.n_diffusion : -1])]

    def rates(self, values: Any, t: jax.Array) -> dict[str, jax.Array]:
        """Return J (nt,) and, with shear, S (nt,) at the frames."""
        t = moments_of_frames(t)
        found = {name: rate(own, t) for name, (rate, own) in zip("JS", self.by_rate(values), strict=False)}
        return {name: jnp.where(rate > FLOOR, rate, FLOOR) for name, rate in found.items()}

    def curve(self, values: Any, geometry: Geometry, pairs: Any) -> jax.Array:
        """Return f = g1²."""
        q = geometry.q if jnp.ndim(geometry.q) == 0 else pairs.per_angle(geometry.q)
        path = _path(self.diffusion, geometry, pairs, values[: self.n_diffusion])
        g1 = jnp.exp(jnp.clip(-0.5 * q * q * geometry.dt * path, -700.0, 0.0))
        if self.shear is None:
            g1 = g1 * jnp.ones_like(pairs.per_angle(geometry.phi))
        else:
            path = _path(self.shear, geometry, pairs, values[self.n_diffusion : -1])
            s, _ = sinc_and_slope(pairs.per_angle(self._shear_scales(values, geometry)[0]) * path)
            if self.convention == "theory":
                return _floored(g1 * g1 * s * s)
            g1 = g1 * s * s
        g1 = jnp.where(g1 > FLOOR, g1, FLOOR)
        return g1 * g1

    def _shear_scales(self, values: Any, geometry: Geometry) -> tuple[jax.Array, jax.Array]:
        """Return sinc's argument per unit of the integral of S, (n,), and its derivative by phi0 in degrees."""
        turn = jnp.deg2rad(values[-1] - geometry.phi)
        unit = geometry.q * geometry.gap * geometry.dt / (2.0 if self.convention == "theory" else 2 * jnp.pi)
        return unit * jnp.cos(turn), -unit * jnp.sin(turn) * (jnp.pi / 180)

    def sums(self, values: jax.Array, geometry: Geometry, pairs: Any, y: jax.Array, weight: jax.Array) -> Any:
        """Return the sums over one tile: ∂f = f·a for J and h·b for S, with a and b common to all angles."""
        if not self.factorises(pairs):
            return super().sums(values, geometry, pairs, y, weight)
        f, h, along_j, along_s = self._factors(values, geometry, pairs, y.shape)
        one = jnp.ones_like(along_j[:1])
        # weights common to all angles go with the common factors, others with the factors of each angle
        common, own = (weight, 1.0) if weight.ndim == 1 else (1.0, weight)
        rows, columns, _ = _triangle(len(along_j))
        sides = {"f": along_j * common, "ff": along_j[rows] * along_j[columns] * common, "one": one * common}
        f_own = f * own
        left = {"f": ("f", f_own), "fy": ("f", f_own * y), "ff": ("ff", f_own * f), "y": ("one", y * own)}
        left |= {"yy": ("one", y * y * own), "n": ("one", jnp.broadcast_to(own * one, y.shape))}
        if h is not None:
            rows, columns, _ = _triangle(len(along_s))
            sides["h"] = along_s * common
            sides["hh"] = along_s[rows] * along_s[columns] * common
            sides["fh"] = (sides["f"][:, None] * along_s).reshape(-1, y.shape[1])
            h_own = h * own
            left |= {"h": ("h", h_own), "hy": ("h", h_own * y), "fh": ("fh", f_own * h), "hh": ("hh", h_own * h)}
        return {name: per_angle @ sides[side].T for name, (side, per_angle) in left.items()}

    def factorises(self, pairs: Any) -> bool:
        """Whether derivatives at these pairs have factors common to all angles: means over bins have none."""
        return isinstance(pairs, Ahead)

    def _factors(self, values: jax.Array, geometry: Geometry, pairs: Ahead, shape: tuple) -> tuple:
        """Return f (n, m) and h (n, m), and the factors along_j (1 + J, m) and along_s (S + 1, m) of ∂f.

        Up to numbers of each angle ∂f is f·along_j[1:] by the parameters of J, h·along_s[:-1] by those of S, and
        h·along_s[-1] by phi0; without shear h and along_s are None.
        """
        split = self.n_diffusion
        path, slopes = with_slopes(partial(_path, self.diffusion, geometry, pairs), values[:split])
        q = geometry.q if jnp.ndim(geometry.q) == 0 else geometry.q[:, None]
        decay = jnp.exp(-q * q * geometry.dt * path)
        along_j = jnp.concatenate([jnp.ones_like(path)[None], -geometry.dt * slopes])
        if self.shear is None:
            return _floored(jnp.broadcast_to(decay, shape)), None, along_j, None
        path, slopes = with_slopes(partial(_path, self.shear, geometry, pairs), values[split:-1])
        s, slope = sinc_and_slope(self._shear_scales(values, geometry)[0][:, None] * path)
        power = s if self.convention == "theory" else s * s * s
        h = (2.0 if self.convention == "theory" else 4.0) * decay * power * slope
        return _floored(decay * power * s), h, along_j, jnp.concatenate([slopes, path[None]])

    def slope_sums(self, values: jax.Array, geometry: Geometry, pairs: Ahead, y: jax.Array, weight: jax.Array) -> Any:
        """Return the sums of a tile that `scale_slopes` needs: of f, f·y and f² along their derivatives."""
        f, h, along_j, along_s = self._factors(values, geometry, pairs, y.shape)
        common, own = (weight, 1.0) if weight.ndim == 1 else (1.0, weight)
        sums = {"j": [(own * x) @ (along_j * common).T for x in (f, f * y, f * f)]}
        if h is not None:
            sums["s"] = [(own * x) @ (along_s * common).T for x in (h, h * y, f * h)]
        return sums

    def scale_slopes(self, sums: Any, values: jax.Array, geometry: Geometry) -> tuple[list, list]:
        """Return the totals (n,) of f, f·y, f², and for each its derivatives (n, p) by the values."""
        squared = jnp.broadcast_to(geometry.q**2, geometry.phi.shape)[:, None]
        slopes = [squared * along[:, 1:] for along in sums["j"]]
        if self.shear is not None:
            scales = [scale[:, None] for scale in self._shear_scales(values, geometry)]
            by_shear = [jnp.concatenate([a[:, :-1] * scales[0], a[:, -1:] * scales[1]], 1) for a in sums["s"]]
            slopes = [jnp.concatenate(pair, axis=1) for pair in zip(slopes, by_shear, strict=True)]
        return [along[:, 0] for along in sums["j"]], [slopes[0], slopes[1], 2 * slopes[2]]

    def grams(self, sums: Any, values: jax.Array, geometry: Geometry) -> jax.Array:
        """Return the Gram matrices (n, 3 + p, 3 + p) of [f, 1, y, ∂f]."""
        if not isinstance(sums, dict):
            return sums
        split, n = self.n_diffusion, sums["f"].shape[0]
        by_j = jnp.broadcast_to((geometry.q**2)[..., None], (n, split))
        scales = [jnp.ones((n, 1)), by_j]
        blocks = [[sums["ff"][:, _triangle(split + 1)[2]], sums["f"][..., None], sums["fy"][..., None]]]
        if self.shear is not None:
            size = sums["h"].shape[1]
            per_s, per_phi0 = self._shear_scales(values, geometry)
            scales += [jnp.broadcast_to(per_s[:, None], (n, size - 1)), per_phi0[:, None]]
            mixed = sums["fh"].reshape(n, split + 1, size)
            blocks[0].insert(1, mixed)
            among_s = sums["hh"][:, _triangle(size)[2]]
            blocks.append([jnp.swapaxes(mixed, 1, 2), among_s, sums["h"][..., None], sums["hy"][..., None]])
        scale = jnp.concatenate(scales, axis=1)
        inner = jnp.concatenate([jnp.concatenate(row[:-2], axis=2) for row in blocks], axis=1)
        inner = inner * scale[:, :, None] * scale[:, None, :]
        edges = jnp.concatenate([jnp.concatenate(row[-2:], axis=2) for row in blocks], axis=1) * scale[:, :, None]
        corner = jnp.concatenate([sums["n"], sums["y"], sums["y"], sums["yy"]], axis=1).reshape(n, 2, 2)
        whole = jnp.concatenate(
            [jnp.concatenate([inner, edges], axis=2), jnp.concatenate([jnp.swapaxes(edges, 1, 2), corner], axis=2)], 1
        )
        p = inner.shape[1]
        order = np.array([0, p, p + 1, *range(1, p)])
        return whole[:, order][:, :, order]


def _path(rate: Rate, geometry: Geometry, pairs: Any, values: Any) -> jax.Array:
    """Return the integral of a rate between the frames of every pair, in units of frames."""
    return distance(*pairs.ends(integrate(rate(values, moments_of_frames(geometry.t)))))


def with_slopes(fn: Callable, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return fn(values) and its derivatives by every value, stacked in front."""
    out, push = jax.linearize(fn, values)
    return out, jax.vmap(push)(jnp.eye(values.shape[0], dtype=values.dtype))


def _floored(f: jax.Array) -> jax.Array:
    return jnp.where(f > FLOOR * FLOOR, f, FLOOR * FLOOR)


FRACTION = ("f0", "f1", "f2", "f3")


@register_static
@dataclass(frozen=True)
class TwoComponent(Model):
    """A moving sample in a still reference (heterodyne): two transport coefficients, a velocity, a sample fraction.

    fraction(t) = f0·exp(f1·(t − f2)) + f3, kept between 0 and 1. The velocity v0·t^v_beta + v_offset may be negative.
    """

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        law = PowerLaw("D").table
        two = {f"{name}_{part}": law[name] for part in ("ref", "sample") for name in law}
        speed = Parameter(-1e5, 1e5, 0.0, "Å/s")
        flow = {"v0": speed._replace(start=1.0), "v_beta": law["alpha"]._replace(start=0.0), "v_offset": speed}
        share = Parameter(0.0, 1.0, 0.5)
        fraction = {"f0": share, "f1": Parameter(-10.0, 10.0, 0.0, "1/s"), "f2": Parameter(-1e4, 1e4, 0.0, "s")}
        return {**two, **flow, **fraction, "f3": share._replace(start=0.0), "phi0": PHI0}

    def curve(self, values: Any, geometry: Geometry, pairs: Any) -> jax.Array:
        """Return the normalised sum of both intensities and their interference."""
        law, t = PowerLaw("D"), moments_of_frames(geometry.t)
        q = geometry.q if jnp.ndim(geometry.q) == 0 else pairs.per_angle(geometry.q)
        paths = [distance(*pairs.ends(integrate(law(values[i : i + 3], t)))) for i in (0, 3)]
        still, moving = (jnp.exp(jnp.clip(-0.5 * q * q * geometry.dt * path, -700.0, 0.0)) for path in paths)
        start, stop = pairs.ends(cumulate(law(values[6:9], t)))
        turn = jnp.deg2rad(pairs.per_angle(geometry.phi) + values[13])
        phase = q * jnp.cos(turn) * geometry.dt * (stop - start)
        share = _between(values[9] * jnp.exp(values[10] * (geometry.t - values[11])) + values[12])
        (f_i, f_j), (r_i, r_j) = pairs.ends(share), pairs.ends(1 - share)
        mixed = 2 * (r_i * f_i) * (r_j * f_j) * still * moving * jnp.cos(phase)
        intensity = (r_i * r_j * still) ** 2 + (f_i * f_j * moving) ** 2 + mixed
        norm = (f_i**2 + r_i**2) * (f_j**2 + r_j**2)
        return intensity / jnp.where(norm > FLOOR, norm, FLOOR)


def _between(x: jax.Array, soft: float = 1e-6) -> jax.Array:
    """Return x kept between 0 and 1, smoothly over about a thousandth."""
    return 0.5 * (jnp.sqrt(x * x + soft) - jnp.sqrt((x - 1) ** 2 + soft) + 1)


def static(convention: str = "compat") -> Homodyne:
    """Return diffusion alone: D0, alpha, D_offset."""
    return Homodyne(PowerLaw("D"), None, convention)


def laminar_flow(convention: str = "compat") -> Homodyne:
    """Return diffusion under shear: D0, alpha, D_offset, gamma_dot_t0, beta, gamma_dot_t_offset, phi0."""
    return Homodyne(PowerLaw("D"), PowerLaw("gamma_dot"), convention)
