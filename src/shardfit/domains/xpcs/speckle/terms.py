"""The data term of measured speckle: squared residuals of two-time maps, whitened on both sides.

With L Lᵀ = K₀ the covariance of a pixel's intensities, the residuals of a bin are L⁻¹ [seen ∘ (S − K(x))] L⁻ᵀ: nearly
independent numbers of equal variance. A row is a bin. As for single points, all that a fit needs of a bin is the Gram
matrix of the columns [f, 1, y, ∂f], here whitened, so scales are eliminated in the same way.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.equations import NormalEquations
from shardfit.core.fast_compile import fast_compile_jit
from shardfit.core.term_makers import statistic_term
from shardfit.core.terms import StatisticTerm
from shardfit.domains.xpcs.forward import Geometry, averaged
from shardfit.domains.xpcs.models import Grams, Model, with_slopes
from shardfit.domains.xpcs.scaling import Design
from shardfit.domains.xpcs.speckle.blocks import Maps, Pairs
from shardfit.domains.xpcs.terms import (
    marginal_value,
    n_residuals_of,
    projected_equations,
    projected_value,
    scales_of,
)


def whitened_rows(maps: Maps, roots: np.ndarray, level: float, model: Model, geometry: Geometry) -> dict[str, Any]:
    """Return a row for every bin. roots: L⁻¹ (n, N, N), or one for all; y: the whitened data, less level."""
    n = len(maps.y)
    roots = np.broadcast_to(roots, maps.y.shape).copy()
    seen, across = maps.seen.astype(float), np.ascontiguousarray(np.swapaxes(roots, 1, 2))
    places = [model.of_bin(k, jnp.zeros(len(model.names)))[2] for k in range(n)]
    return {
        "y": roots @ (seen * (maps.y - level)) @ across,
        "one": roots @ seen @ across,
        "seen": seen,
        "root": roots,
        "phi": np.asarray(geometry.phi, float),
        "q": np.broadcast_to(np.asarray(geometry.q, float), n).copy(),
        "bin": np.arange(n, dtype=np.int32),
        "places": np.stack(places).astype(np.int32),
    }


def whitened_term(rows: Any, pairs: Pairs, *args: Any) -> StatisticTerm:
    """Return the term whose scales are eliminated; args: model, geometry, design; value: ½Σr² in units of the noise."""
    equations = NormalEquations(_block_grams, projected_equations, n_residuals_of)
    how = {"chunk": 1, "checked": True, "gram": equations}
    return statistic_term(_products, rows, *args, pairs, loss=projected_value, **how)


def whitened_sampling_term(rows: Any, *args: Any, joint: bool = False) -> StatisticTerm:
    """Return the term for sampling: scales are integrated out under flat priors, or with joint sampled as well.

    args: those of the fitted term.
    """
    if joint:
        return statistic_term(_joint_values, rows, *args, chunk=1, checked=True)
    return statistic_term(_products, rows, *args, loss=marginal_value, chunk=1, checked=True)


def _joint_values(params: Any, rows: Any, model: Model, geometry: Geometry, design: Design, pairs: Pairs) -> jax.Array:
    contrast, offset = scales_of(params, design)
    ff, f, fy, one, y, yy = jnp.moveaxis(_products(params, rows, model, geometry, design, pairs), 2, 0)
    squares = contrast**2 * ff + offset**2 * one + yy + 2 * (contrast * offset * f - contrast * fy - offset * y)
    return 0.5 * jnp.sum(squares, axis=1)


def _values(params: Any, row: Any, model: Model, geometry: Geometry) -> tuple[Model, jax.Array, Geometry]:
    """Return the model of one bin, its values and its geometry. The model of all bins is the same."""
    values = model.values(params)
    inner, _, _ = model.of_bin(0, values)
    here = Geometry(geometry.t, row["phi"][None], row["q"], geometry.gap, geometry.dt)
    return inner, values[row["places"]], here


def _of_pairs(f: jax.Array, row: Any, pairs: Pairs) -> jax.Array:
    """Return values of pairs (..., m) as whitened matrices (..., N, N) of what was measured."""
    return row["root"] @ (row["seen"] * f[..., pairs.where]) @ row["root"].T


def _products(params: Any, rows: Any, model: Model, geometry: Geometry, design: Design, pairs: Pairs) -> jax.Array:
    """Return the products (T, n, 6) of [f, 1, y] with each other, those of a row in the place of its bin."""

    def of_bin(row):
        inner, values, here = _values(params, row, model, geometry)
        f = _of_pairs(averaged(inner.curve(values, here, pairs.bins), pairs.bins)[0], row, pairs)
        columns = f, row["one"], row["y"]
        products = [jnp.sum(columns[a] * columns[b]) for a, b in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))]
        return _in_place(jnp.stack(products), row, design)

    return jax.vmap(of_bin)(rows)


def _in_place(own: jax.Array, row: Any, design: Design) -> jax.Array:
    """Return numbers (...) of one bin as those of all (n, ...), zero elsewhere, in units of the noise."""
    weight = jax.nn.one_hot(row["bin"], design.precision.shape[0], dtype=own.dtype) * design.precision
    return weight.reshape(-1, *[1] * own.ndim) * own


def row_grams(params: Any, rows: Any, model: Model, geometry: Geometry, design: Design, pairs: Pairs) -> Grams:
    """Return the Gram matrices (T, n, 3 + p, 3 + p) of [f, 1, y, ∂f], those of a row in the place of its bin."""
    size = 3 + len(model.names)

    def of_bin(row):
        inner, values, here = _values(params, row, model, geometry)
        f, slopes = with_slopes(lambda v: averaged(inner.curve(v, here, pairs.bins), pairs.bins)[0], values)
        bent = _of_pairs(jnp.concatenate([f[None], slopes]), row, pairs)
        columns = jnp.concatenate([bent[:1], row["one"][None], row["y"][None], bent[1:]]).reshape(3 + len(values), -1)
        at = jnp.concatenate([jnp.arange(3), 3 + row["places"]])
        own = jnp.zeros((size, size)).at[at[:, None], at[None, :]].set(columns @ columns.T)
        return _in_place(own, row, design)

    return Grams(jax.vmap(of_bin)(rows))


def _block_grams(params: Any, rows: Any, real: jax.Array, *args: Any) -> Grams:
    return jax.tree.map(lambda leaf: jnp.tensordot(real, leaf, axes=1), row_grams(params, rows, *args))


def answer_grams(params: Any, rows: Any, *args: Any) -> tuple[Grams, Grams]:
    """Return what an answer is judged by: the Gram matrices, plain and as the loss weights them, which are the same."""
    grams = row_grams(params, rows, *args)
    return grams, grams


@fast_compile_jit
def bin_columns(params: Any, row: Any, model: Model, geometry: Geometry, pairs: Pairs) -> jax.Array:
    """Return f and its derivatives by the values of the bin's model, as matrices (1 + p, N, N) of pairs of blocks."""
    inner, values, here = _values(params, row, model, geometry)
    f, slopes = with_slopes(lambda v: averaged(inner.curve(v, here, pairs.bins), pairs.bins)[0], values)
    return jnp.concatenate([f[None], slopes])[..., pairs.where]
