"""The data term: residuals of every data product from one set of model visibilities.

Closures are linear in the phases and logarithmic amplitudes of a row's visibilities, so one small signed matrix per
row makes them, and its transpose is their derivative. All residuals are scaled such that ½Σ|r|² is the product's χ²
(1/(2N) Σ for complex quantities, 1/N Σ for real ones, N the true number of measurements).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.vlbi import transforms
from shardfit.domains.vlbi.arrays import Array, Complex, Float, Inexact
from shardfit.domains.vlbi.best_gains import Sets, best_gains, cost
from shardfit.domains.vlbi.forward import Nufft, visibilities
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.transforms import embed

Model = Mapping[str, Inexact[Array, "*v"]]  # by Stokes parameter; amplitude, its logarithm, phase
Row = Mapping[str, Inexact[Array | np.ndarray, "rows ..."]]
Residuals = Inexact[Array, "rows ..."]

FLOOR = 1e-36  # Jy²: below, a visibility counts as zero, whose phase and logarithm have no derivative
NEEDS = {"pvis": "QU", "m": "IQU", "vvis": "V", "v": "IV"}  # Stokes parameters; all other products need I


def stokes_needed(products: Any) -> tuple[str, ...]:
    """Stokes parameters that the named products are made of, in the order I, Q, U, V."""
    needed = set("".join(NEEDS.get(name, "I") for name in products))
    return tuple(s for s in "IQUV" if s in needed)


@dataclass(frozen=True)
class DataModel:
    """Function of a data term: (params, rows, fixed) → residuals per product, each (n_rows, ...).

    rows: from packing.pack; where they hold 'log_ratio', every row has an image of its own; where they hold 'late',
    maps are (frames, n) and every row is between two of them. fixed: {'kept': maps not solved, 'index': mask or None}.
    note: says how the operator was chosen; equal models share their compiled code
    whatever it says.
    """

    grid: Grid
    operator: str | Nufft
    products: tuple[str, ...]
    fraction: str = "odds"
    note: str = field(default="", compare=False)

    def __call__(self, params: Mapping[str, jax.Array], rows: dict, fixed: dict) -> dict[str, jax.Array]:
        """Residuals of every product."""
        maps = transforms.physical(params, fixed["kept"])
        if "late" in rows:
            model = self._between_frames(maps, rows, fixed["index"])
        else:
            if "log_ratio" in rows:
                maps = transforms.at_frequency(maps, rows["log_ratio"][:, None], self.fraction)
                maps["I"] = jnp.broadcast_to(maps["I"], (len(rows["log_ratio"]), maps["I"].shape[-1]))
            model = self._seen(maps, rows, fixed["index"])
        model = {**model, **polar(model["I"], self.products)} if "I" in model else model
        return {name: RESIDUALS[name](model, rows[name]) for name in self.products}

    def _seen(self, maps: Mapping[str, Any], rows: dict, index: Any) -> dict[str, jax.Array]:
        image = embed(self.grid, transforms.stokes(maps, stokes_needed(self.products)), index)
        return self.visibilities(image, rows["operator"])

    def _between_frames(self, maps: Mapping[str, Any], rows: dict, index: Any) -> dict[str, jax.Array]:
        """Model of a movie: linear between the frame before and the one after, whose maps are rows of (frames, n)."""
        before, after = (
            self._seen({name: values[rows["channel"] + k] for name, values in maps.items()}, rows, index)
            for k in (0, 1)
        )
        return {name: value + rows["late"]["share"] * (after[name] - value) for name, value in before.items()}

    def visibilities(self, image: jax.Array, rows: dict) -> dict[str, jax.Array]:
        """Complex model visibilities by Stokes parameter, each (n_rows, ...) like the rows.

        image: (stokes, ny, nx), or (stokes, n_rows, ny, nx) where every row has its own.
        """
        places = next(iter(rows.values())).shape[: image.ndim - 1]
        flat = {k: a.reshape(*places[:-2], -1, *a.shape[len(places) :]) for k, a in rows.items()}
        transform = partial(visibilities, self.operator)
        if image.ndim == 4:
            transform = jax.vmap(transform, in_axes=(1, 0), out_axes=1)
        planes = transform(image, flat).reshape(len(image), *places)
        return dict(zip(stokes_needed(self.products), planes, strict=True))


def polar(vis: Complex[Array, "*v"], products: tuple[str, ...]) -> dict[str, Float[Array, "*v"]]:
    """Amplitude, its logarithm and phase, as far as needed, with zero derivative at a visibility of zero."""
    square = vis.real**2 + vis.imag**2
    real = square > FLOOR
    safe = jnp.where(real, square, 1.0)
    out = {}
    if "amp" in products:
        out["amp"] = jnp.where(real, jnp.sqrt(safe), 0.0)
    if any(name in products for name in ("logamp", "bs", "camp", "logcamp", "logcamp_cov")):
        out["log"] = 0.5 * jnp.where(real, jnp.log(safe), jnp.log(FLOOR))
    if any(name in products for name in ("bs", "cphase", "cphase_cov")):
        out["phase"] = jnp.arctan2(jnp.where(real, vis.imag, 0.0), jnp.where(real, vis.real, 1.0))
    return out


def _closed(design: Float[Array | np.ndarray, "*rows c v"], values: Float[Array, "*rows v"]) -> Float[Array, "*rows c"]:
    """(..., closures, visibilities) times (..., visibilities)."""
    return jnp.einsum("...cv,...v->...c", design, values)


def vis(model: Model, row: Row) -> Residuals:
    """V - V_obs. (..., visibilities), complex."""
    return (model["I"] - row["value"]) * row["weight"]


def calvis(model: Model, row: Row) -> Residuals:
    """Root of the cost that is left with the gains that suit best, of which alone the derivative is known. (..., 1)."""
    names = "value", "weight", "first", "second", "held"
    value, weight, first, second, held = (jnp.asarray(row[name]) for name in names)
    sets = Sets(value, model["I"], weight, first, second, held)
    left = cost(best_gains(sets), sets)[..., None]
    found = left > 0
    return jnp.where(found, jnp.sqrt(jnp.where(found, left, 1.0)), 0.0)


def amp(model: Model, row: Row) -> Residuals:
    """|V| - A_obs."""
    return (model["amp"] - row["value"]) * row["weight"]


def logamp(model: Model, row: Row) -> Residuals:
    """ln|V| - ln A_obs; the weight holds A_obs/σ."""
    return (model["log"] - row["value"]) * row["weight"]


def bs(model: Model, row: Row) -> Residuals:
    """V₁₂ V₂₃ V₃₁ - B_obs. (..., triangles), complex."""
    size = jnp.exp(_closed(jnp.abs(row["design"]), model["log"]))
    phase = _closed(row["design"], model["phase"])
    return (jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase)) - row["value"]) * row["weight"]


def cphase(model: Model, row: Row) -> Residuals:
    """2 sin(Δ/2), whose square is 2 (1 - cos Δ) and does not care about turns. (..., triangles)."""
    return 2 * jnp.sin(0.5 * (_closed(row["design"], model["phase"]) - row["value"])) * row["weight"]


def camp(model: Model, row: Row) -> Residuals:
    """|V₁₂ V₃₄ / (V₁₄ V₂₃)| - C_obs. (..., quadrangles)."""
    # limited where a visibility is zero, so that the square stays a number in float32
    log = jnp.clip(_closed(row["design"], model["log"]), -30.0, 30.0)
    return (jnp.exp(log) - row["value"]) * row["weight"]


def logcamp(model: Model, row: Row) -> Residuals:
    """Difference of ln C from ln C_obs. (..., quadrangles)."""
    return (_closed(row["design"], model["log"]) - row["value"]) * row["weight"]


def cphase_cov(model: Model, row: Row) -> Residuals:
    """Closure phase differences wrapped to (-π, π], made independent by their covariance."""
    difference = _closed(row["design"], model["phase"]) - row["value"]
    wrapped = difference - 2 * jnp.pi * jax.lax.stop_gradient(jnp.round(difference / (2 * jnp.pi)))
    return jnp.einsum("...kc,...c->...k", row["whiten"], wrapped)


def logcamp_cov(model: Model, row: Row) -> Residuals:
    """Log closure amplitude differences, made independent by their covariance."""
    return jnp.einsum("...kc,...c->...k", row["whiten"], _closed(row["design"], model["log"]) - row["value"])


def _both_ways(model: Model) -> Complex[Array, "*v 2"]:
    """P(u) = Q + iU and P(-u) = Q* + iU*, last axis 2."""
    return jnp.stack([model["Q"] + 1j * model["U"], jnp.conj(model["Q"] - 1j * model["U"])], -1)


def pvis(model: Model, row: Row) -> Residuals:
    """P - P_obs for both orientations. (..., visibilities, 2), complex."""
    return (_both_ways(model) - row["value"]) * row["weight"]


def _ratio(part: Complex[Array, "*v"], total: Complex[Array, "*v"]) -> Complex[Array, "*v"]:
    """part/total, zero with zero derivative where the total is zero."""
    real = total.real**2 + total.imag**2 > FLOOR
    return jnp.where(real, part, 0.0) / jnp.where(real, total, 1.0)


def m(model: Model, row: Row) -> Residuals:
    """P/I - m_obs for both orientations."""
    total = jnp.stack([model["I"], jnp.conj(model["I"])], -1)
    return (_ratio(_both_ways(model), total) - row["value"]) * row["weight"]


def vvis(model: Model, row: Row) -> Residuals:
    """Stokes V visibility minus the observed one, complex."""
    return (model["V"] - row["value"]) * row["weight"]


def v(model: Model, row: Row) -> Residuals:
    """V/I - v_obs, complex."""
    return (_ratio(model["V"], model["I"]) - row["value"]) * row["weight"]


RESIDUALS: dict[str, Callable] = {
    f.__name__: f
    for f in (vis, calvis, amp, logamp, bs, cphase, camp, logcamp, cphase_cov, logcamp_cov, pvis, m, vvis, v)
}
