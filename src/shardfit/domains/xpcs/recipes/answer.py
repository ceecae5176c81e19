"""The answer of a fit: parameters and scales with errors, χ² by angle, rates with bands, and what to beware of."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2 as chi2_distribution

from shardfit.core.fast_compile import unoptimised_jit
from shardfit.core.mesh import everywhere
from shardfit.core.objective import Objective, replace_terms
from shardfit.core.precision import arithmetic
from shardfit.core.result import Result
from shardfit.core.success import chi2_doubt
from shardfit.core.terms import StatisticTerm, total
from shardfit.domains.xpcs.forward import Geometry, averaged
from shardfit.domains.xpcs.options import HELD
from shardfit.domains.xpcs.problem import TERM, Setup, converted, straight
from shardfit.domains.xpcs.recipes.bands import held_of, of_frames, rates_with_bands
from shardfit.domains.xpcs.scaling import CONTRAST, OFFSET, Design, best_scales
from shardfit.domains.xpcs.speckle.noise import Noise
from shardfit.domains.xpcs.speckle.structure import Structure
from shardfit.domains.xpcs.speckle.terms import answer_grams
from shardfit.domains.xpcs.terms import ANSWER_SUMS, SCALES, normal_equations, weighted_grams
from shardfit.report.values import number, pair
from shardfit.solve.covariance import covariance

RIDGE = 0.99  # correlation of an amplitude with its offset beyond which they are one number to the data
BENT = 0.2  # relative error of an amplitude beyond which the ridge is not straight over its error bar
COLLAPSE = 1e-5  # 1/s: a shear rate that is none
GOOD, MARGINAL = 1.5, 3.0  # of reduced χ²
ODD, MISFIT = 1e-2, 6.0  # chance of the structure of residuals that is odd; its χ² per number in a wrong model


@dataclass(frozen=True, eq=False)
class CorrelationFit:
    """A fitted model.

    Attributes
    ----------
    result
        of the search: status, evaluations, timings, certificate.
    setup
        problem, data, model and options.
    params, stderr
        the model's parameters by name, and their standard errors: 0 where held, NaN at a bound.
    contrast, offset
        (n,) of the angles, in the order of the data; contrast_stderr, offset_stderr (n,).
    covariance
        (2n + p, 2n + p) of [contrast, offset, parameters]. Errors by points are scaled by the reduced χ²: divide by
        `variance` for noise that is known to be right. Errors by frames are of `pieces` independent samples.
    chi2, dof
        Σr² in units of σ over n_points, and these less the free parameters; chi2_of_angle (n,) per point.
    rates
        J and S by frame: (nt, 2), value and standard error, NaN where the data do not determine it.
    warnings
        what the numbers do not say.
    pieces, scatter
        of errors by frames: independent samples, and how much more the gradient scatters than by independent points.
    noise
        of errors by speckle: the pixels that the scatter of each bin amounts to, and how far they share speckles.
    structure
        of errors by speckle: χ² of what residuals summed over bands of correlation, early and late, are left with.
    laws, unneeded
        the laws of the rates that were compared, and the parameters that the chosen one does without.

    """

    result: Result
    setup: Setup
    params: dict[str, float]
    stderr: dict[str, float]
    contrast: np.ndarray
    offset: np.ndarray
    contrast_stderr: np.ndarray
    offset_stderr: np.ndarray
    covariance: np.ndarray
    variance: float
    chi2: float
    dof: int
    chi2_of_angle: np.ndarray
    rates: dict[str, np.ndarray]
    warnings: tuple[str, ...]
    pieces: float | None = None
    scatter: float = 1.0
    noise: Noise | None = None
    structure: Structure | None = None
    laws: Any = None  # FitComparison
    unneeded: tuple[str, ...] = ()

    @property
    def reduced_chi2(self) -> float:
        """χ² over the degrees of freedom."""
        return self.chi2 / self.dof

    @property
    def quality(self) -> str:
        """'good', 'marginal' or 'poor' by the structure of residuals, or by reduced χ²; 'uncalibrated' where the noise
        was not known.
        """
        if self.structure is not None:
            if chi2_distribution.sf(*self.structure) > ODD:
                return "good"
            return "marginal" if self.structure.chi2 < MISFIT * self.structure.dof else "poor"
        if self.setup.data.sigma is None:
            return "uncalibrated"
        return "good" if self.reduced_chi2 < GOOD else "marginal" if self.reduced_chi2 < MARGINAL else "poor"

    @property
    def degeneracy(self) -> dict[str, float]:
        """How far parameters replace each other: the condition number of the correlations of all that is free, and the
        largest correlation of a scale with a parameter of the model.
        """
        free = np.isfinite(np.diag(self.covariance)) & (np.diag(self.covariance) > 0)
        n = len(self.contrast)
        for kind, columns in enumerate((self.setup.design.basis, self.setup.design.offsets)):
            if columns.shape[1] < n:  # scales that are tied to each other count once
                free[kind * n + 1 : (kind + 1) * n] = False
        sizes = np.sqrt(np.diag(self.covariance)[free])
        among = self.covariance[np.ix_(free, free)] / np.outer(sizes, sizes)
        scales = np.flatnonzero(free) < 2 * n
        across = np.abs(among[np.ix_(scales, ~scales)])
        return {"condition_number": float(np.linalg.cond(among)), "scale_correlation": float(across.max(initial=0.0))}

    @property
    def success(self) -> bool:
        """Whether the search met a tolerance, and nothing speaks against the answer; see `answer().verdict()`."""
        return self.answer().success

    def answer(self) -> Result:
        """Return the answer as a Result in the model's own parameters and scales: what a run directory holds.

        Its covariance, errors, doubts and notes are those of this fit, not those of the search.
        """
        n = len(self.contrast)
        where = {"contrast": np.arange(n), "offset": np.arange(n, 2 * n)}
        where |= {name: np.int64(2 * n + i) for i, name in enumerate(self.params)}
        order = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(where)])
        units = {name: p.unit for name, p in self.setup.model.table.items()}
        numbers = {name: np.float64(value) for name, value in self.params.items()}
        errors = {name: np.float64(value) for name, value in self.stderr.items()}
        scales = [name for name in self.result.at_bound if name.partition("[")[0] in SCALES]
        stopped = [*_at_bounds(self.setup, self.params), *scales]
        return replace(
            self.result,
            params={"contrast": self.contrast, "offset": self.offset, **numbers},
            stderr={"contrast": self.contrast_stderr, "offset": self.offset_stderr, **errors},
            covariance=self.covariance[np.ix_(order, order)],
            dof=self.dof,
            units={**dict.fromkeys(SCALES, ""), **units},
            derived={},
            at_bound=tuple(stopped),
            doubts=tuple(_doubts(self, stopped)),
            note=" ".join([f"Standard errors: {self.meaning}.", *self.warnings]),
        )

    @property
    def misfit(self) -> str:
        """What is odd about χ² by noise that is known; '' if nothing is, or a robust loss allows for outliers."""
        if self.structure is not None:
            found = self.structure
            odd = f"Residuals have a structure that noise does not have: χ² {found.chi2:.3g} of {found.dof} sums over "
            return odd + "bands of lag and age. The model does not hold." if self.quality == "poor" else ""
        known = self.setup.data.sigma is not None and self.setup.options.loss == "linear"
        return chi2_doubt(self.chi2, self.dof) if known else ""

    @property
    def meaning(self) -> str:
        """What standard errors assume."""
        if self.noise is not None:
            pixels, sharing = self.noise.pixels.sum(), self.noise.sharing
            shared = f" that share speckles {sharing:.1f} times" if sharing > 1.2 else ""
            return f"from the scatter of speckle in {pixels:,.0f} pixels{shared}"
        return "points are taken as independent" if self.pieces is None else "from the scatter of frames"

    @arithmetic("float64")
    def curve(self) -> np.ndarray:
        """Return the model without scales, in the shape of the data."""
        setup, values = self.setup, {name: np.float64(value) for name, value in self.params.items()}
        curve = np.array(curve_at(setup.model, values, setup.geometry, setup.data.pairs))
        nt = setup.data.n_frames
        return curve[:, :nt, :nt] if setup.data.c2.ndim == 3 else curve

    def fitted(self) -> np.ndarray:
        """Return the fitted correlations, in the shape of the data."""
        curve = self.curve()
        contrast, offset = (each.reshape(-1, *[1] * (curve.ndim - 1)) for each in (self.contrast, self.offset))
        return offset + contrast * curve

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (name, value, standard error, unit) of every parameter, as text."""
        units = {name: p.unit for name, p in self.setup.model.table.items()}
        words = {**dict.fromkeys(self.setup.options.fixed, "held"), **dict.fromkeys(self.unneeded, "not needed")}
        found = self.params.items()
        pairs = {n: (number(v), words[n]) if n in words else pair(v, self.stderr[n]) for n, v in found}
        return [(name, *texts, units[name]) for name, texts in pairs.items()]

    def __str__(self):
        noise = " (σ assumed, not calibrated)" if self.quality == "uncalibrated" else ""
        verdict = self.answer().verdict()
        head = f"{self.result.problem}: {self.result.status.message}. {self.quality} fit, reduced χ² "
        head += f"{self.reduced_chi2:.4g}{noise}, {self.setup.n_points:,} points, {self.result.evaluations} evaluations"
        lines = [f"  {n} = {v} ± {e} {u}".rstrip() for n, v, e, u in self.table()]
        lines.append(f"  standard errors: {self.meaning}")
        scales = f"  contrast {_range(self.contrast)}, offset {_range(self.offset)} ({self.setup.options.scaling})"
        told = [f"  note: {text}" for text in self.warnings if text not in verdict.reasons]
        told += [f"  doubtful: {text}" for text in verdict.reasons if self.result.status.message not in text]
        return "\n".join([head, *lines, scales, *told])


def _doubts(fit: CorrelationFit, stopped: list[str]) -> Iterator[str]:
    """Yield what speaks against a fit: χ² far from 1 by noise that is known, and ends of a range that nobody chose."""
    yield from filter(None, [fit.misfit])
    yield from (_stopped(fit, name) for name in stopped if name not in fit.setup.options.bounds)


def _stopped(fit: CorrelationFit, name: str) -> str:
    """Return in words that a bound stopped a parameter."""
    whose = "its bound" if name in fit.setup.options.bounds else "the end of the model's range"
    where = f" ({fit.params[name]:g})" if name in fit.params else ""
    return f"{name} is at {whose}{where}: widen it, or hold it."


def _range(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return f"{low:.4g}" if high - low < 1e-12 else f"{low:.4g} … {high:.4g}"


@arithmetic("float64")
def read_answer(setup: Setup, result: Result, mesh: Any = None) -> CorrelationFit:
    """Return the answer of a fit from one more walk over the rows, on the mesh that it ran on.

    A search in other coordinates has the model's parameters among its derived quantities.
    """
    found = {**result.params, **result.derived}
    params = {name: float(found[name]) for name in setup.model.names}
    free = _free(setup, params)
    term, design = setup.problem.objective.terms[0], setup.design
    assert isinstance(term, StatisticTerm)
    # what is summed does not depend on scales, unless a robust loss weights by them
    columns = design.basis, design.offsets
    scales = [result.params[name] for name in SCALES] if setup.options.joint else [np.ones(b.shape[1]) for b in columns]
    at = {**params, **{n: b @ np.asarray(each) for n, b, each in zip(SCALES, columns, scales, strict=True)}}
    sums = ANSWER_SUMS[setup.options.loss] if setup.maps is None else answer_grams
    judged = replace(term, fn=sums, loss=total, equations=None)
    objective = replace_terms(setup.problem.objective, [judged]).place(mesh)
    given = [np.asarray(each) for each in scales] if setup.options.joint else None
    contrast, offset, angle_chi2, spread, variance, rates = jax.device_get(
        _judged(objective, at, given, (free, held_of(setup)), setup.n_points - int(free.sum()))
    )
    n, rates = len(contrast), of_frames(rates, setup)
    errors = np.sqrt(np.diag(spread))
    stderr = dict(zip(params, errors[2 * n :].tolist(), strict=True))
    stderr = {name: float("nan") if name in _at_bounds(setup, params) else e for name, e in stderr.items()}
    answer = CorrelationFit(
        result=result,
        setup=setup,
        params=params,
        stderr=stderr,
        contrast=contrast,
        offset=offset,
        contrast_stderr=errors[:n],
        offset_stderr=errors[n : 2 * n],
        covariance=spread,
        variance=float(variance),
        chi2=float(angle_chi2.sum()),
        dof=setup.n_points - int(free.sum()),
        chi2_of_angle=angle_chi2 / np.maximum(setup.counts, 1),
        rates=rates,
        warnings=(),
    )
    return replace(answer, warnings=_warnings(answer))


@unoptimised_jit
def _judged(objective: Objective, at: Any, scales: Any, chosen: Any, dof: Any) -> Any:
    """Return contrast, offset, χ² of the angles (n,), their covariance with the parameters, variance and rates.

    One program does all of it. scales: coefficients of contrast and offset; None: those that fit best. chosen: which of
    [a, b, parameters] are free, and which parameters are held.
    """
    free, still = chosen
    term = objective.terms[0]
    model, geometry, design = term.args[:3]
    plain, weighted = (
        term.weight * weighted_grams(each, at, model, geometry, design) for each in objective.totals(at)[TERM]
    )
    if scales is None:
        best = best_scales(plain, design)
        contrast, offset = design.basis @ best.a, design.offsets @ best.b
    else:
        contrast, offset = design.basis @ scales[0], design.offsets @ scales[1] - design.level
    mix = jnp.stack([contrast, offset, -jnp.ones_like(contrast)], axis=1)
    angle_chi2 = jnp.einsum("ka,kab,kb->k", mix, plain[:, :3, :3], mix)
    equations = normal_equations(weighted, design, contrast, offset)
    held = jnp.diag(jnp.where(free, 0.0, 1.0))  # a unit of its own for what is not free: it takes no part
    known = covariance(jnp.where(free[:, None] & free, equations.matrix, held), dof, 0.5 * jnp.sum(angle_chi2), True)
    spread = _of_angles(jnp.where(free[:, None] & free, known.matrix, 0.0), design)
    inner = spread[2 * len(contrast) :, 2 * len(contrast) :]
    rates = rates_with_bands(model, geometry, model.values(at), inner, still)
    return everywhere((contrast, offset + design.level, angle_chi2, spread, known.variance, rates), objective.mesh)


def _at_bounds(setup: Setup, params: dict) -> list[str]:
    bounds = setup.problem.bounds or {}
    near = []
    for name, value in params.items():
        low, high = bounds.get(name) or (None, None)
        for bound in (low, high):
            if bound is not None and abs(value - bound) <= 1e-9 * (1 + abs(bound)):
                near.append(name)
    return near


def _free(setup: Setup, params: dict) -> np.ndarray:
    """Return which of [a, b, parameters] the fit was free to choose."""
    still = {*setup.options.fixed, *_at_bounds(setup, params)}
    scales = np.full(setup.design.n_scales, setup.options.scaling not in HELD)
    return np.concatenate([scales, [name not in still for name in setup.model.names]])


def _of_angles(inner: jax.Array, design: Design) -> jax.Array:
    """Return the covariance of [contrast (n,), offset (n,), parameters] from that of [a, b, parameters].

    What is not identified has an infinite variance and no covariances, and so has all that depends on it.
    """
    p = inner.shape[0] - design.n_scales
    to_angles = jax.scipy.linalg.block_diag(design.basis, design.offsets, jnp.eye(p))
    lost = jnp.isinf(jnp.diag(inner))
    unknown = jnp.any((to_angles != 0) & lost, axis=1)
    spread = to_angles @ jnp.where(jnp.isinf(inner), 0.0, inner) @ to_angles.T
    return jnp.where(unknown[:, None] & unknown, jnp.diag(jnp.where(unknown, jnp.inf, 0.0)), spread)


@partial(unoptimised_jit, static_argnums=0)
def curve_at(model: Any, params: Any, geometry: Geometry, pairs: Any) -> jax.Array:
    """Return f of pairs of frames, as the data have them."""
    return averaged(model.curve(model.values(params), geometry, pairs), pairs)


def _warnings(fit: CorrelationFit) -> tuple[str, ...]:
    setup, notes = fit.setup, [*fit.setup.data.notes]
    if setup.data.sigma is None and setup.maps is None:
        notes.append("σ was not given: 0.01 is assumed, χ² is not calibrated. estimate_noise measures it.")
    if setup.n_missing:
        notes.append(f"{setup.n_missing:,} points are missing (NaN or infinity) and are ignored.")
    notes += [_stopped(fit, name) for name in _at_bounds(setup, fit.params)]
    unknown = [name for name, error in fit.stderr.items() if np.isinf(error)]
    if unknown:
        notes.append(f"The data do not determine {', '.join(unknown)}.")
    for one, other in (("D0", "D_offset"), ("gamma_dot_t0", "gamma_dot_t_offset")):
        rho = correlation(fit, one, other)
        share = fit.stderr[one] / abs(fit.params[one]) if rho else 0.0
        if abs(rho) > RIDGE or share > BENT or {one, other} <= {*unknown}:
            known = f" (correlation {rho:.4f}, error {share:.0%})" if rho else ""
            notes.append(
                f"{one} and {other} are on a ridge{known}: the data determine the "
                "rate, but not how it divides between them, so their standard errors are only rough. Use the band of "
                f"the rate, fix {other}, or fit the model curved(model, data)."
            )
    if abs(fit.params.get("gamma_dot_t0", 1.0)) < COLLAPSE:
        notes.append("The shear rate has collapsed to zero: compare with the static model.")
    for name, values, (low, high) in (("contrast", fit.contrast, CONTRAST), ("offset", fit.offset, OFFSET)):
        outside = np.flatnonzero((values < low) | (values > high))
        if outside.size:
            angles = ", ".join(f"{a:g}°" for a in setup.data.phi[outside][:6])
            notes.append(f"{name} lies outside {low:g} … {high:g} at {angles}: look at these angles.")
    return tuple(notes)


@arithmetic("float64")
def power_law(fit: CorrelationFit) -> dict[str, tuple[float, float]]:
    """Return amplitude, exponent and offset (value, standard error) of the rates that were fitted as CurvedPower."""
    model, law = fit.setup.model, straight(fit.setup.model)
    if law == model:
        return {}
    slopes = jax.jacfwd(partial(converted, model, law))({name: jnp.float64(v) for name, v in fit.params.items()})
    inner = fit.covariance[2 * len(fit.contrast) :, 2 * len(fit.contrast) :]
    found = {}
    for name, value in converted(model, law, fit.params).items():
        slope = np.array([slopes[name][other] for other in fit.params])
        found[name] = float(value), float(np.sqrt(slope @ inner @ slope))
    return {name: pair for name, pair in found.items() if name != "phi0"}


def correlation(fit: CorrelationFit, one: str, other: str) -> float:
    """Return the correlation of two parameters; 0 where one is not there, held or unknown."""
    names, n = list(fit.params), len(fit.contrast)
    if one not in names or other not in names:
        return 0.0
    i, j = 2 * n + names.index(one), 2 * n + names.index(other)
    known = [0 < fit.covariance[k, k] < np.inf for k in (i, j)]
    return float(fit.covariance[i, j] / np.sqrt(fit.covariance[i, i] * fit.covariance[j, j])) if all(known) else 0.0
