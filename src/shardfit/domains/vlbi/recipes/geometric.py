"""Geometric models: a few parameters of a simple shape, fitted to the same data products as images, with error bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.success import listed
from shardfit.core.term_makers import residual_term
from shardfit.core.transforms import Log
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.packing import HALF, pack
from shardfit.domains.vlbi.products import RESIDUALS, polar
from shardfit.domains.vlbi.recipes.preparation import compact_flux
from shardfit.domains.vlbi.recipes.quality import chi2_doubts, with_doubts
from shardfit.domains.vlbi.shapes import SHAPES, UNITS, parameters
from shardfit.domains.vlbi.tables import data_set
from shardfit.series import FitSeries

SIZES = (0.5, 0.9, 1.3, 1.7, 2.1, 2.6)  # of first guesses, in nominal resolutions
POSITIVE = ("flux", "diameter", "width")
CLOSED = ("cphase", "logcamp", "bs", "camp", "cphase_cov", "logcamp_cov")


@dataclass(frozen=True)
class ShapeModel:
    """Function of the data term: (params, rows, factors) → real residuals (n_rows, k), whose ½Σr² is -ln likelihood."""

    shape: str
    products: tuple[str, ...]

    def __call__(self, params: Mapping[str, jax.Array], rows: dict, factors: Mapping[str, float]) -> jax.Array:
        """Residuals of all products of every row."""
        u, v = rows["operator"]["u"], rows["operator"]["v"]
        vis = SHAPES[self.shape](params, u, v)
        if "x" in params:
            vis = vis * jnp.exp(2j * np.pi * UAS * (u * params["x"] + v * params["y"]))
        model = {"I": vis, **polar(vis, self.products)}
        found = []
        for name in self.products:
            residual = (RESIDUALS[name](model, rows[name]) * factors[name]).reshape(len(u), -1)
            found += [residual.real, residual.imag] if jnp.iscomplexobj(residual) else [residual]
        return jnp.concatenate(found, 1)


@dataclass(frozen=True, eq=False)
class ShapeFit:
    """A fitted shape.

    values, errors: by parameter, in Jy and µas; chi2: by product; doubts: reasons not to believe it.
    """

    shape: str
    values: Mapping[str, float]
    errors: Mapping[str, float]
    chi2: Mapping[str, float]
    result: Result
    problem: Problem
    doubts: tuple[str, ...] = ()


def fit_shape(
    obs: Observation,
    shape: str = "mring",
    *,
    products: Sequence[str] = ("amp", "cphase"),
    modes: int = 1,
    start: Mapping[str, float] | None = None,
    fixed: Mapping[str, float] | None = None,
    **settings: Any,
) -> ShapeFit:
    """Fit a geometric model to an observation as it is (see `prepare`), with error bars from the curvature.

    shape
        'gaussian', 'ellipse', 'disk', 'ring' or 'mring' (with `modes` Fourier modes of brightness); see `shapes`.
    products
        of independent errors: 'vis' of calibrated data, which also has a position x, y; amplitudes and closure phases;
        or closures alone, for which the flux is kept.
    start, fixed
        values by parameter to begin with, or to keep; without a start several sizes are tried and the best kept.
    settings
        of `data_set`: systematic, cp_uv_min, count.

    Example: `fit_shape(prepare(obs), "mring", modes=2).values["diameter"]`.
    """
    if shape not in SHAPES:
        raise ValueError(f"fit_shape: unknown shape {shape!r}.{suggestion(str(shape), SHAPES)}")
    names = (*parameters(shape, modes), *(("x", "y") if "vis" in products else ()))
    held = dict(fixed or {})
    if all(name in CLOSED for name in products):
        held.setdefault("flux", compact_flux(obs))
    for name in (*held, *(start or {})):
        if name not in names:
            raise ValueError(f"fit_shape: {shape!r} has no parameter {name!r}.{suggestion(name, names)}")
    measured = data_set(obs, products, **settings)
    rows = pack(measured, Grid(2, 2, UAS), "points")
    counts = {name: measured.products[name].n for name in products}
    factors = {name: float(np.sqrt(n / (1.0 if name in HALF else 2.0))) for name, n in counts.items()}
    model = ShapeModel(shape, tuple(products))
    objective = Objective({"data": residual_term(model, rows, factors)})
    guesses = _guesses(obs, names, {**(start or {}), **held}, start is not None)
    problems = [
        Problem(
            objective,
            guess,
            transforms={name: Log() for name in POSITIVE if name in guess},
            fixed=list(held) or None,
            units={name: UNITS.get(name, "") for name in names},
            name=f"{shape} of {obs.source or 'a source'}",
        )
        for guess in guesses
    ]
    series = FitSeries(solver="lm", maxiter=200, progress=False)
    for problem in problems:
        series.fit(problem)
        if series.interrupted:
            break
    best = series.best()
    chi2 = _chi2(model, series.results[best].params, rows, counts)
    doubts = chi2_doubts(chi2, measured, what="shape")
    return _judged(shape, names, chi2, series.answer(), problems[best], doubts)


def _judged(
    shape: str, names: Sequence[str], chi2: Mapping[str, float], result: Result, problem: Problem, doubts: Sequence[str]
) -> ShapeFit:
    """Return a fit as values and errors by name, with what else speaks against it."""
    doubts = [*doubts]
    if not result.status.converged:
        doubts.append(f"the fit did not converge: {result.status.message}.")
    values = {name: float(np.asarray(result.params[name])) for name in names}
    spread = result.stderr or {}
    errors = {name: float(np.asarray(spread[name])) if name in spread else float("nan") for name in names}
    unknown = [name for name, error in errors.items() if np.isnan(error)]
    if unknown:
        doubts.append(f"there are no standard errors of {listed(unknown)}: the fit is at no minimum.")
    return ShapeFit(shape, values, errors, chi2, with_doubts(result, doubts), problem, tuple(doubts))


def _guesses(obs: Observation, names: Sequence[str], given: Mapping[str, float], single: bool) -> list[dict]:
    width = obs.nominal_resolution / UAS
    usual = {"flux": compact_flux(obs), "c1": 0.1, "s1": 0.1, "e_plus": 0.1, "e_cross": 0.1}
    guesses = []
    for size in SIZES[2:3] if single else SIZES:
        sizes = {"diameter": size * width, "width": 0.4 * width if "diameter" in names else size * width}
        guesses.append({name: np.float64(given.get(name, {**usual, **sizes}.get(name, 0.0))) for name in names})
    return guesses


def _chi2(model: ShapeModel, params: Any, rows: dict, counts: Mapping[str, int]) -> dict[str, float]:
    """Return χ² per measurement by product."""
    found = {}
    with arithmetic("float64"):
        for name in model.products:
            alone = ShapeModel(model.shape, (name,))(params, rows, {name: 1.0})
            found[name] = float(0.5 * np.sum(np.asarray(alone) ** 2))
    return found
