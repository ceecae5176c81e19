"""The data term of a fit, in two forms over the same rows.

Projected: contrast and offset take their best values at every point of the search, exactly (variable projection), so
only the model's parameters are left. Joint: contrast and offset are parameters too, which robust losses, held scales
and ranges of scales need. Both are sums of Gram matrices per angle.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.equations import Gram, NormalEquations
from shardfit.core.term_makers import statistic_term
from shardfit.core.terms import StatisticTerm
from shardfit.domains.xpcs.forward import Ahead, Geometry, averaged
from shardfit.domains.xpcs.layout import tiles_at_once
from shardfit.domains.xpcs.losses import LOSSES, SLOPES
from shardfit.domains.xpcs.models import Grams, Model
from shardfit.domains.xpcs.scaling import Design, best_scales, solve

SCALES = ("contrast", "offset")


def projected_term(rows: Any, model: Model, geometry: Geometry, design: Design) -> StatisticTerm:
    """Return the term whose scales are eliminated. rows: as `layout.tiles` makes them; value: ½Σr² in units of σ."""
    equations = NormalEquations(block_sums, projected_equations, n_residuals_of)
    args = (model, geometry, design)
    how = {"chunk": tiles_at_once(rows), "checked": True, "gram": equations}
    return statistic_term(_scale_sums, rows, *args, loss=projected_value, **how)


def joint_term(rows: Any, model: Model, geometry: Geometry, design: Design, loss: str = "linear") -> StatisticTerm:
    """Return the term with parameters contrast and offset, coefficients of the design's columns."""
    value, sums = _JOINT[loss]
    equations = NormalEquations(sums, _joint_equations, n_residuals_of)
    how = {"chunk": tiles_at_once(rows), "checked": True, "gram": equations}
    return statistic_term(value, rows, model, geometry, design, **how)


def n_residuals_of(model: Model, geometry: Geometry, design: Design, *_: Any) -> Any:
    """Return how many residuals a term stands for, which is data: files of a size share programs."""
    return design.n_residuals


def block_sums(params: Any, rows: Any, real: jax.Array, model: Model, geometry: Geometry, design: Design) -> Any:
    """Return the sums of a block of tiles that the Gram matrices are made from."""
    values = model.values(params)
    sums = jax.vmap(partial(_sums, model, values, geometry))(rows["pairs"], rows["y"], rows["w"])
    return jax.tree.map(lambda leaf: jnp.tensordot(real, leaf, axes=1), sums)


# compiled functions of their own: programs that use them on tiles of one shape trace them once for all
@jax.jit
def _sums(model: Model, values: jax.Array, geometry: Geometry, pairs: Any, y: jax.Array, w: jax.Array) -> Any:
    return model.sums(values, geometry, pairs, y, w)


@jax.jit
def _curve(model: Model, values: jax.Array, geometry: Geometry, pairs: Any) -> jax.Array:
    return averaged(model.curve(values, geometry, pairs), pairs)


def weighted_grams(totals: Any, params: Any, model: Model, geometry: Geometry, design: Design, *_: Any) -> jax.Array:
    """Return the Gram matrices (n, 3 + p, 3 + p) of [f, 1, y, ∂f] in units of the noise."""
    if isinstance(totals, Grams):
        return totals.matrices
    return model.grams(totals, model.values(params), geometry) * design.precision[:, None, None]


def normal_equations(grams: jax.Array, design: Design, contrast: jax.Array, offset: jax.Array) -> Gram:
    """Return the normal equations over [a, b, parameters of the model (p,)] at scales of the angles (n,).

    offset is less the design's level. The value is ½Σr², whatever loss the weights in the Gram matrices come from.
    """
    columns = design.columns
    mix = jnp.stack([contrast, offset, -jnp.ones_like(contrast)], axis=1)
    slopes = jnp.einsum("ka,kab->kb", mix, grams[:, :3])
    value = 0.5 * jnp.sum(slopes[:, :3] * mix)
    by_scale = jnp.einsum("kai,ka->i", columns, slopes[:, :2])
    gradient = jnp.concatenate([by_scale, contrast @ slopes[:, 3:]])
    among = jnp.einsum("kai,kab,kbj->ij", columns, grams[:, :2, :2], columns)
    across = jnp.einsum("kai,kap,k->ip", columns, grams[:, :2, 3:], contrast)
    inner = jnp.einsum("kpq,k->pq", grams[:, 3:, 3:], contrast**2)
    matrix = jnp.concatenate([jnp.concatenate([among, across], 1), jnp.concatenate([across.T, inner], 1)])
    return Gram(value, gradient, matrix)


def _in_tree_order(equations: Gram, params: Any, names: tuple[str, ...]) -> Gram:
    """Return equations over `names`, in their order, as equations over the leaves of params, which are sorted."""
    places, start = {}, 0
    for name in names:
        size = jnp.size(params[name])
        places[name] = range(start, start + size)
        start += size
    order = jnp.array([place for name in sorted(params) for place in places[name]], int)
    return Gram(equations.value, equations.gradient[order], equations.matrix[order][:, order])


# ---- scales eliminated ----------------------------------------------------------------------------------------------


def _scale_sums(params: Any, rows: Any, model: Model, geometry: Geometry, design: Design) -> jax.Array:
    """Return the products (T, n, 6) of [f, 1, y] with each other, all that the best scales depend on."""
    values = model.values(params)

    def tile(pairs, y, w):
        f = _curve(model, values, geometry, pairs)
        one = jnp.ones_like(f)
        products = (f * f, f, f * y) if "fixed" in rows else (f * f, f, f * y, one, y, y * y)
        return jnp.stack([jnp.sum(product * w, axis=1) for product in products], axis=1)

    sums = jax.vmap(tile)(rows["pairs"], rows["y"], rows["w"])
    sums = jnp.concatenate([sums, rows["fixed"]], axis=2) if "fixed" in rows else sums
    return sums * design.precision[:, None]


def _with_fixed_sums(rows: Any) -> Any:
    """Return rows with the sums (T, n, 3) of 1, y and y² over every tile, which no parameter changes."""
    y, w = np.asarray(rows["y"]), np.asarray(rows["w"])
    weights = "tkm" if w.ndim == 3 else "tm"
    one = np.broadcast_to(np.ones(1), y.shape)
    sums = [np.einsum(f"{weights},tkm,tkm->tk", w, a, b) for a, b in ((one, one), (one, y), (y, y))]
    return {**rows, "fixed": np.stack(sums, axis=2)}


def _scale_slopes(params: Any, rows: Any, real: jax.Array, model: Any, geometry: Geometry, design: Design) -> Any:
    """Return the sums (n, 6) of `_scale_sums` over a block, and their derivatives by the parameters, in one walk."""
    values, n = model.values(params), rows["y"].shape[1]
    # frames of all tiles are one long tile: few long products take less than many short ones
    pairs = Ahead(rows["pairs"].frames.reshape(-1))
    w = rows["w"] * real.reshape(-1, *(1,) * (rows["w"].ndim - 1))
    y, w = (jnp.swapaxes(part, 0, 1).reshape(n, -1) if part.ndim == 3 else part.reshape(-1) for part in (rows["y"], w))
    sums = model.slope_sums(values, geometry, pairs, y, w)
    (f, fy, ff), (f_slope, fy_slope, ff_slope) = model.scale_slopes(sums, values, geometry)
    fixed = jnp.tensordot(real, rows["fixed"], axes=1)
    totals = jnp.concatenate([jnp.stack([ff, f, fy], axis=1), fixed], axis=1) * design.precision[:, None]
    none = jnp.zeros_like(f)
    slopes = {
        name: jnp.stack([ff_slope[:, i], f_slope[:, i], fy_slope[:, i], none, none, none], 1)
        * design.precision[:, None]
        for i, name in enumerate(model.names)
    }
    return totals, slopes


_SYMMETRIC = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])  # where an entry of the Gram matrix is among the products


def projected_value(totals: jax.Array, model: Model, geometry: Geometry, design: Design, *_: Any) -> jax.Array:
    """Return ½Σr² at the best scales."""
    return best_scales(totals[:, _SYMMETRIC], design).value


def marginal_value(totals: jax.Array, model: Model, geometry: Geometry, design: Design, *_: Any) -> jax.Array:
    """Return −log of the integral of the likelihood over all scales, with flat priors, up to a constant."""
    best = best_scales(totals[:, _SYMMETRIC], design)
    return best.value + 0.5 * best.log_det


marginal_value.shardable = True  # each shard integrates over scales of its own; weights put that right


def marginal_term(rows: Any, model: Model, geometry: Geometry, design: Design) -> StatisticTerm:
    """Return the term for sampling: scales are integrated out under flat priors."""
    slopes = _scale_slopes if model.factorises(rows["pairs"]) else None
    how = {"loss": marginal_value, "chunk": tiles_at_once(rows), "checked": True, "slopes": slopes}
    return statistic_term(_scale_sums, _with_fixed_sums(rows), model, geometry, design, **how)


def projected_equations(totals: Any, params: Any, model: Model, geometry: Geometry, design: Design, *_: Any) -> Gram:
    """Return the normal equations of what the best scales leave: the Schur complement of the joint ones."""
    grams = weighted_grams(totals, params, model, geometry, design)
    best = best_scales(grams, design)
    whole = normal_equations(grams, design, design.basis @ best.a, design.offsets @ best.b)
    m = design.n_scales
    among, across, inner = whole.matrix[:m, :m], whole.matrix[:m, m:], whole.matrix[m:, m:]
    projected = Gram(best.value, whole.gradient[m:], inner - across.T @ solve(among, across)[0])
    return _in_tree_order(projected, params, model.names)


# ---- scales as parameters -------------------------------------------------------------------------------------------


def scales_of(params: Any, design: Design) -> tuple[jax.Array, jax.Array]:
    """Return contrast and offset (n,) of the angles, the latter less the design's level."""
    return design.basis @ params["contrast"], design.offsets @ params["offset"] - design.level


def _squares(params, pairs, y, w, model, geometry, design):
    """Return squared residuals (n, m) in units of the noise."""
    contrast, offset = scales_of(params, design)
    f = _curve(model, model.values(params), geometry, pairs)
    return (offset[:, None] + contrast[:, None] * f - y) ** 2 * w * design.precision[:, None]


def _joint_value(loss: str, params: Any, rows: Any, model: Model, geometry: Geometry, design: Design) -> jax.Array:
    def tile(pairs, y, w):
        return 0.5 * jnp.sum(LOSSES[loss](_squares(params, pairs, y, w, model, geometry, design)))

    return jax.vmap(tile)(rows["pairs"], rows["y"], rows["w"])


def _joint_sums(loss: str, params: Any, rows: Any, real: jax.Array, model, geometry, design) -> Any:
    """Return value and sums of a block, every point weighted by the slope of its loss."""
    values = model.values(params)

    def tile(pairs, y, w):
        if loss == "linear":
            return jnp.zeros(()), _sums(model, values, geometry, pairs, y, w)
        squares = _squares(params, pairs, y, w, model, geometry, design)
        return 0.5 * jnp.sum(LOSSES[loss](squares)), _sums(model, values, geometry, pairs, y, w * SLOPES[loss](squares))

    sums = jax.vmap(tile)(rows["pairs"], rows["y"], rows["w"])
    sums = jax.tree.map(lambda leaf: jnp.tensordot(real, leaf, axes=1), sums)
    return {"robust": sums[0], "sums": sums[1]} if loss != "linear" else {"sums": sums[1]}


def _joint_equations(totals: Any, params: Any, model: Model, geometry: Geometry, design: Design) -> Gram:
    grams = weighted_grams(totals["sums"], params, model, geometry, design)
    whole = normal_equations(grams, design, *scales_of(params, design))
    whole = whole._replace(value=totals.get("robust", whole.value))
    return _in_tree_order(whole, params, (*SCALES, *model.names))


# one function object per loss: programs are kept by the identity of what they were made from
_JOINT = {loss: (partial(_joint_value, loss), partial(_joint_sums, loss)) for loss in LOSSES}


def _answer_sums(loss: str, params: Any, rows: Any, model: Model, geometry: Geometry, design: Design) -> Any:
    """Return what an answer is judged by, per tile: the sums with every point's own weight, and as the loss weights it.

    params holds contrast (n,) and offset (n,) of the angles.
    """
    values = model.values(params)
    each = jnp.eye(len(params["contrast"]))
    angles = replace(design, basis=each, offsets=each)

    def tile(pairs, y, w):
        plain = _sums(model, values, geometry, pairs, y, w)
        if loss == "linear":
            return plain, plain
        squares = _squares(params, pairs, y, w, model, geometry, angles)
        return plain, _sums(model, values, geometry, pairs, y, w * SLOPES[loss](squares))

    return jax.vmap(tile)(rows["pairs"], rows["y"], rows["w"])


ANSWER_SUMS = {loss: partial(_answer_sums, loss) for loss in LOSSES}
