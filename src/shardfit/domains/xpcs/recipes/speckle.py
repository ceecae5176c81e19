"""Fits by the likelihood of speckle: weights that follow from the answer, and errors from the scatter they predict."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.precision import arithmetic
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.core.terms import RowTerm
from shardfit.domains.xpcs.forward import Points
from shardfit.domains.xpcs.problem import FitOptions, Setup, rewhitened
from shardfit.domains.xpcs.problem import setup as setup_of
from shardfit.domains.xpcs.recipes.answer import CorrelationFit, curve_at
from shardfit.domains.xpcs.recipes.sandwich import normal_inverse, with_spread
from shardfit.domains.xpcs.speckle.blocks import MOST, Maps, averaged_maps
from shardfit.domains.xpcs.speckle.noise import Bin, measured_noise
from shardfit.domains.xpcs.speckle.structure import Sums
from shardfit.domains.xpcs.speckle.terms import bin_columns
from shardfit.domains.xpcs.speckle.weights import whitening

ROUNDS = 8  # of weights, at most
SAME = 5e-4  # change of f below which weights stand still


@arithmetic("float64")
def by_pace(ready: Setup, params: dict[str, float]) -> Setup:
    """Return the same problem with blocks of frames that are short where the model at these parameters is fast."""
    data, model = ready.data, ready.model
    if ready.maps is None or data.n_frames <= MOST:
        return ready
    steps = jnp.arange(data.n_frames)
    numbers = {name: np.float64(value) for name, value in params.items()}
    f = np.asarray(curve_at(model, numbers, ready.geometry, Points(steps[:-1], steps[1:])))
    pace = np.r_[0.0, np.cumsum(-np.log(np.clip(f.mean(axis=1), 1e-3, 1.0)))]
    return rewhitened(ready, averaged_maps(data, pace), None)


def in_rounds(ready: Setup, first: Result, search: Callable[[Setup, dict], Result]) -> tuple[Setup, list[Result]]:
    """Return the problem with weights that stand still, and the answers of the searches whose weights were those of the
    answer before.

    first: an answer by least squares. search: (problem, start) → its answer.
    """
    results, before = [first], None
    for _ in range(ROUNDS):
        params = parameters(ready, results[-1])
        ready, f = reweighted(ready, params)
        if before is not None and np.max(np.abs(f - before)) < SAME:
            break
        before = f
        results.append(search(ready, params))
        if results[-1].status is Status.INTERRUPTED:
            break
    return ready, results[1:]


def parameters(ready: Setup, result: Result) -> dict[str, float]:
    """Return the model's parameters of an answer, which a search in other coordinates has among derived quantities."""
    found = {**result.params, **result.derived}
    return {name: float(found[name]) for name in ready.model.names}


@arithmetic("float64")
def reweighted(ready: Setup, params: dict[str, float]) -> tuple[Setup, np.ndarray]:
    """Return the problem with the weights of the model at these parameters, and its curve f (n, N, N)."""
    maps, rows = _maps(ready), _rows(ready)
    f = columns_of(ready, params)[:, 0]
    across = np.swapaxes(rows["root"], 1, 2)
    white = np.stack([rows["root"] @ (rows["seen"] * f) @ across, rows["one"], rows["y"]], axis=1)
    grams = np.einsum("k,kaij,kbij->kab", ready.design.precision, white, white, optimize=True)
    columns = ready.design.columns
    matrix = np.einsum("kai,kab,kbj->ij", columns, grams[:, :2, :2], columns)
    scales = np.linalg.lstsq(matrix, np.einsum("kai,ka->i", columns, grams[:, :2, 2]), rcond=None)[0]
    contrast, offset = (columns @ scales).T
    return rewhitened(ready, maps, whitening(maps, f, contrast, offset + float(ready.design.level))), f


def columns_of(ready: Setup, params: dict[str, float]) -> np.ndarray:
    """Return f and its derivatives by the values of a bin's model, of every bin: (n, 1 + p, N, N)."""
    rows, pairs = _rows(ready), _maps(ready).pairs
    wanted = {name: rows[name] for name in ("phi", "q", "places")}
    found = [
        bin_columns(
            {n: np.float64(v) for n, v in params.items()},
            jax.tree.map(lambda leaf, k=k: leaf[k], wanted),
            ready.model,
            ready.geometry,
            pairs,
        )
        for k in range(len(rows["phi"]))
    ]
    return np.stack(jax.device_get(found))


def _maps(ready: Setup) -> Maps:
    assert ready.maps is not None
    return ready.maps


def _rows(ready: Setup) -> Any:
    term = ready.problem.objective.terms[0]
    assert isinstance(term, RowTerm)
    return term.rows


@arithmetic("float64")
def errors_by_speckle(fit: CorrelationFit, whole: CorrelationFit | None = None) -> CorrelationFit:
    """Return an answer with covariance, errors and bands by the scatter that speckle, pixels and counts make.

    whole: the fit of the law that this is a simpler case of, whose noise and structure hold for it too. A fit of points
    has the same theory: its gradient is another weighted sum of the same residuals.
    """
    inverse, free = normal_inverse(fit)
    setup = fit.setup if fit.setup.maps is not None else _as_maps(fit)
    bins = bins_of(fit, setup)
    noise = measured_noise(bins) if whole is None else whole.noise
    assert noise is not None
    design, precision = fit.setup.design, np.asarray(fit.setup.design.precision)
    if fit.setup.maps is None:  # weights of points; every pair counts once, a matrix has it twice
        bins, precision = [each._replace(root=np.diag(np.sqrt(each.widths))) for each in bins], 0.5 * precision
    sums, n_free = Sums(len(inverse), bands=whole is None), int(free.sum())
    for k, (each, places) in enumerate(zip(bins, _rows(setup)["places"], strict=True)):
        m = design.basis.shape[1], design.n_scales
        to_whole = np.zeros((len(inverse), len(each.columns)))
        to_whole[: m[0], 0], to_whole[m[0] : m[1], 1] = design.basis[k], design.offsets[k]
        to_whole[m[1] + places, 2 + np.arange(len(places))] = 1.0
        sums.add(each, precision[k], noise, k, to_whole, setup.data.phi[k])
    meat = np.where(np.outer(free, free), sums.meat, 0.0)
    scatter = float(np.trace(inverse @ meat)) / (n_free * fit.variance)
    structure = sums.structure(inverse) if whole is None else whole.structure
    return with_spread(fit, inverse @ meat @ inverse, noise=noise, scatter=scatter, structure=structure)


def _as_maps(fit: CorrelationFit) -> Setup:
    """Return the problem of the maps that a fit of points was made to, whitened at its answer."""
    options = FitOptions(scaling=fit.setup.options.scaling, fixed=fit.setup.options.fixed, likelihood="speckle")
    return reweighted(by_pace(setup_of(fit.setup.data, fit.setup.model, options), fit.params), fit.params)[0]


def bins_of(fit: CorrelationFit, setup: Setup) -> list[Bin]:
    """Return what the noise of every bin is measured and its gradient's covariance computed from."""
    maps, found, columns = _maps(setup), setup.whitening, columns_of(setup, fit.params)
    assert found is not None
    bins = []
    for k, (f, *slopes) in enumerate(columns):
        residual = np.where(maps.seen[k], maps.y[k] - fit.contrast[k] * f - fit.offset[k], 0.0)
        contrast, shot = found.contrast[k], found.shot[k] / maps.widths
        own = np.stack([f, np.ones_like(f), *(fit.contrast[k] * slope for slope in slopes)])
        measured = maps.seen[k].any(axis=1)
        square = np.ix_(measured, measured)
        seen, root, left = (each[square] for each in (maps.seen[k], found.roots[k], residual))
        blocks, own = (shot[measured], maps.widths[measured]), own[:, measured][:, :, measured]
        bins.append(Bin(f[square], contrast, *blocks, seen, root, left, own))
    return bins
