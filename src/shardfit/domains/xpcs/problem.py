"""The problem of a fit: data, model and what is known of the parameters become one objective."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.domains.xpcs.bins import Binned, grid_points
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.forward import Geometry
from shardfit.domains.xpcs.layout import room_for_frames, tiles
from shardfit.domains.xpcs.models import Homodyne, Model
from shardfit.domains.xpcs.options import HELD, LEFT_OUT, FitOptions
from shardfit.domains.xpcs.rates import CurvedPower, Parameter, PowerLaw
from shardfit.domains.xpcs.scaling import (
    CONTRAST,
    OFFSET,
    Design,
    coefficients_of,
    quantile_scales,
    scale_basis,
    shear_weights,
)
from shardfit.domains.xpcs.speckle.blocks import Maps, averaged_maps, shows_shot_noise
from shardfit.domains.xpcs.speckle.terms import whitened_rows, whitened_term
from shardfit.domains.xpcs.speckle.weights import Whitening, plain_roots
from shardfit.domains.xpcs.terms import SCALES, joint_term, projected_term

TERM = "c2"


@dataclass(frozen=True, eq=False)
class Setup:
    """A problem with what its answer is read with."""

    problem: Problem
    data: Correlation
    model: Model
    options: FitOptions
    design: Design
    counts: np.ndarray  # points of each angle
    n_missing: int
    maps: Maps | None = None  # with the likelihood of speckle: what is fitted, and what whitens it
    whitening: Whitening | None = None

    @property
    def n_points(self) -> int:
        """Number of points."""
        return int(self.counts.sum())

    @property
    def geometry(self) -> Geometry:
        """Times, angles and lengths of the data, padded as the rows are."""
        return geometry_of(self.data, self.model)


def geometry_of(data: Correlation, model: Model) -> Geometry:
    """Return the geometry of data for a model, padded with copies of the last time; one q where all bins have it."""
    if getattr(model, "shear", None) is not None and data.gap is None:
        raise ValueError("a model with shear needs the gap of the cell in Å: --gap 2e6, or read(..., gap=2e6).")
    q = data.q[0] if np.all(data.q == data.q[0]) else data.q
    t = np.append(data.t, np.full(room_for_frames(data.n_frames) - data.n_frames, data.t[-1]))
    return Geometry(t, data.phi, np.asarray(q), np.asarray(data.gap or 1.0, float), np.asarray(data.dt))


def curved(model: Model, data: Correlation) -> Model:
    """Return the model with its power laws in coordinates without a ridge, around the middle of the data's times.

    Its parameters are D_ref, alpha, D_slope (and gamma_dot_ref, beta, gamma_dot_slope): the rate at t_ref, the power
    of two nearest to the geometric mean of first and last time, and its logarithmic slope there.
    """
    if not isinstance(model, Homodyne):
        raise TypeError(f"curved: {type(model).__name__} has no power laws to put into other coordinates.")
    # a program has t_ref in it: data of about one length share it
    t_ref = float(2.0 ** np.round(np.log2(data.dt * np.sqrt(data.n_frames - 1))))
    return with_rates(model, lambda r: CurvedPower(t_ref, r.stem) if isinstance(r, PowerLaw) else r)


def straight(model: Model) -> Model:
    """Return the model with its curved rates as power laws."""
    return with_rates(model, lambda r: PowerLaw(r.stem) if isinstance(r, CurvedPower) else r)


def with_rates(model: Model, change: Callable) -> Model:
    """Return the model with every rate changed."""
    if not isinstance(model, Homodyne):
        return model
    return replace(model, diffusion=change(model.diffusion), shear=model.shear and change(model.shear))


def converted(source: Model, target: Model, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of one model as those of another with the same rates, curved or straight."""
    if not (isinstance(source, Homodyne) and isinstance(target, Homodyne)):
        return dict(params)
    values, found = [params[name] for name in source.names], []
    for (rate, own), (other, _) in zip(source.by_rate(values), target.by_rate(values), strict=True):
        if isinstance(rate, CurvedPower) and isinstance(other, PowerLaw):
            own = rate.power_law(own)
        elif isinstance(rate, PowerLaw) and isinstance(other, CurvedPower):
            own = other.from_power_law(own)
        found += own
    return dict(zip(target.names, [*found, *values[len(found) :]], strict=True))


def power_laws(model: Model) -> dict[str, PowerLaw]:
    """Return those of a model's rates, 'J' and 'S', that are power laws with offset."""
    rates = model.by_rate(model.names) if isinstance(model, Homodyne) else []
    return {name: rate for name, (rate, _) in zip("JS", rates, strict=False) if isinstance(rate, PowerLaw)}


def left_out(rate: PowerLaw, law: str) -> dict[str, float]:
    """Return what a law of a rate does without, at its value of zero."""
    names = list(rate.table)
    return dict.fromkeys(names[len(names) - LEFT_OUT[law] :], 0.0)


def with_law(model: Model, options: FitOptions) -> FitOptions:
    """Return options that hold what their law does without, if they name one."""
    if options.law in ("auto", "full"):
        return options
    rates = power_laws(model)
    if not rates:
        raise ValueError(f"law {options.law!r}: this model has no power law with offset. Leave law out.")
    held = {name: value for rate in rates.values() for name, value in left_out(rate, options.law).items()}
    others = {**options.start, **options.bounds, **{n: v for n, v in options.fixed.items() if n in held and v != 0}}
    if clash := [name for name in held if name in others]:
        raise ValueError(
            f"law {options.law!r} has {', '.join(clash)} at 0. Leave out the law, or what is said of them."
        )
    return replace(options, fixed={**options.fixed, **held})


def parameter_table(model: Model, options: FitOptions) -> dict[str, Parameter]:
    """Return the model's parameters with the ranges and starts that the options give them."""
    table = dict(model.table)
    for what in ("start", "bounds", "fixed"):
        for name in getattr(options, what):
            if name not in table:
                raise ValueError(f"{what}: the model has no parameter {name!r}.{suggestion(name, table)}")
    for name, limits in options.bounds.items():
        known = table[name].lower, table[name].upper
        low, high = (k if limit is None else float(limit) for k, limit in zip(known, limits, strict=True))
        if not low < high:
            raise ValueError(f"bounds of {name}: {low:g} is not below {high:g}. To hold it, use fixed.")
        table[name] = table[name]._replace(lower=low, upper=high)
    for name, start in {**options.start, **options.fixed}.items():
        if not np.isfinite(start):
            raise ValueError(f"{name} = {start} is not a finite number.")
        table[name] = table[name]._replace(start=float(start))
    return {name: p._replace(start=float(np.clip(p.start, p.lower, p.upper))) for name, p in table.items()}


def setup(data: Correlation, model: Model, options: FitOptions | None = None) -> Setup:
    """Return the problem of fitting a model to data.

    Example: `fit(setup(data, laminar_flow()).problem, "lm")`.
    """
    options = with_law(model, options or FitOptions())
    if options.compat == "grid":
        data, options = grid_points(data), replace(options, compat=None, loss="soft_l1", scaling="individual")
    for name in ("likelihood", "errors"):
        if getattr(options, name) in ("frames", "speckle") and isinstance(data, Binned):
            raise ValueError(
                f"{name} {getattr(options, name)!r} needs whole two-time maps: means over bins do not show single "
                "frames."
            )
    if options.errors == "speckle" and (clash := options.of_points or "σ of single points" * (np.ndim(data.sigma) > 1)):
        raise ValueError(f"errors 'speckle' are of plain least squares: {clash} does not go with it. Leave one out.")
    table = parameter_table(model, options)
    geometry = geometry_of(data, model)
    level = float(np.mean(data.c2))
    level = level if np.isfinite(level) else float(np.mean(data.c2, where=np.isfinite(data.c2)))
    basis = scale_basis(options.scaling, data.phi, options.fourier_order, options.shared_from)
    if takes_speckle(data, options):
        return _of_speckle(data, model, options, basis, level)
    rows, precision, counts = tiles(data, level)
    n_points = _enough(counts, table, options, 0 if options.scaling in HELD else 2 * basis.shape[1])
    n_missing = len(data.phi) * data.n_pairs - n_points
    if options.shear_weighted:
        precision = precision * shear_weights(data.phi, table["phi0"].start if "phi0" in table else 0.0)
    if options.triangle == "both":
        counts, n_points = 2 * counts, 2 * n_points
    n_residuals = np.asarray(n_points - (0 if options.joint else 2 * basis.shape[1]), float)
    apart = np.array_equal(basis, np.eye(len(basis)))
    design = Design(basis, basis, precision, np.asarray(level), n_residuals, apart)
    repeats = 2.0 if options.triangle == "both" else 1.0
    x0, fixed = {name: p.start for name, p in table.items()}, dict(options.fixed)
    bounds = {name: (p.lower, p.upper) for name, p in table.items() if name not in fixed}
    if options.joint:
        term = joint_term(rows, model, geometry, design, options.loss)
        scales = dict(zip(SCALES, _first_scales(data, options, basis), strict=True))
        x0, bounds = {**x0, **scales}, {**bounds, **_scale_bounds(basis)}
        fixed = {**fixed, **(scales if options.scaling in HELD else {})}
    else:
        term = projected_term(rows, model, geometry, design)
    objective = Objective({TERM: term}).with_weights(**{TERM: repeats})
    problem = _problem(objective, data, table, x0, bounds, fixed)
    return Setup(problem, data, model, options, design, counts, n_missing)


def _problem(
    objective: Objective, data: Correlation, table: Mapping[str, Parameter], x0: dict, bounds: dict, fixed: dict
) -> Problem:
    units = {name: p.unit for name, p in table.items()}
    name = data.source or "two-time correlation"
    return Problem(objective, x0, bounds=bounds, fixed=fixed or None, units=units, name=name)


def _enough(counts: np.ndarray, table: Mapping[str, Parameter], options: FitOptions, n_scales: int) -> int:
    """Return the number of points, or refuse too few."""
    n_points, n_free = int(counts.sum()), len(table) - len(options.fixed) + n_scales
    if n_points <= n_free:
        raise ValueError(
            f"{n_points} points do not determine {n_free} parameters. Use more frames or fewer parameters."
        )
    return n_points


def takes_speckle(data: Correlation, options: FitOptions) -> bool:
    """Whether the likelihood of speckle is taken, by the options or by what the data are."""
    if options.likelihood != "auto":
        return options.likelihood == "speckle"
    if isinstance(data, Binned) or options.of_points:
        return False
    return data.sigma is None or shows_shot_noise(data)


def _of_speckle(data: Correlation, model: Model, options: FitOptions, basis: np.ndarray, level: float) -> Setup:
    """Return the problem of whitened maps, which at first are weighted as least squares are."""
    table, geometry, n = parameter_table(model, options), geometry_of(data, model), len(data.phi)
    # maps are normalised by means that have errors of their own, so that each has an offset of its own
    apart = np.array_equal(basis, np.eye(n))
    maps, n_scales = averaged_maps(data), basis.shape[1] + n
    n_residuals = np.asarray(_enough(maps.counts, table, options, n_scales) - n_scales, float)
    design = Design(basis, np.eye(n), np.ones(n), np.asarray(level), n_residuals, apart)
    rows = whitened_rows(maps, plain_roots(maps), level, model, geometry)
    term = whitened_term(rows, maps.pairs, model, geometry, design)
    x0, fixed = {name: p.start for name, p in table.items()}, dict(options.fixed)
    bounds = {name: (p.lower, p.upper) for name, p in table.items() if name not in fixed}
    problem = _problem(Objective({TERM: term}), data, table, x0, bounds, fixed)
    n_missing = n * data.n_pairs - int(np.isfinite(data.c2[:, *np.triu_indices(data.n_frames, 1)]).sum())
    return Setup(problem, data, model, options, design, maps.counts, n_missing, maps)


def rewhitened(ready: Setup, maps: Maps, found: Whitening | None) -> Setup:
    """Return the same problem with other weights, None for those of least squares, and the blocks of these maps."""
    precision = np.ones(len(maps.y)) if found is None else found.precision
    roots = plain_roots(maps) if found is None else found.roots
    n_residuals = np.asarray(maps.counts.sum() - ready.design.n_scales, float)
    design = replace(ready.design, precision=precision, n_residuals=n_residuals)
    rows = whitened_rows(maps, roots, float(design.level), ready.model, ready.geometry)
    term = replace(ready.problem.objective.terms[0], rows=rows)
    args = {TERM: (ready.model, ready.geometry, design, maps.pairs)}
    problem = ready.problem.replace(objective=Objective({TERM: term}).with_args(**args))
    return replace(ready, problem=problem, design=design, counts=maps.counts, maps=maps, whitening=found)


def _first_scales(data: Correlation, options: FitOptions, basis: np.ndarray) -> list[np.ndarray]:
    scales = quantile_scales(data)
    if options.scaling == "constant_averaged":
        scales = [np.full_like(each, each.mean()) for each in scales]
    return [coefficients_of(basis, each) for each in scales]


def _scale_bounds(basis: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return ranges of the coefficients where these are scales themselves, not parts of a series."""
    plain = np.all((basis == 0) | (basis == 1)) and np.all(basis.sum(axis=1) == 1)
    return {"contrast": CONTRAST, "offset": OFFSET} if plain else {}
