"""Which law of a rate the data need: a constant, a power law, or a power law with offset; the simplest that holds.

A power law with offset that data do not need is on a ridge: amplitude and offset run to the ends of their ranges with
opposite signs. So the search without a ridge comes first, then simpler laws from the rates that it found.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from shardfit.domains.xpcs.forward import FLOOR
from shardfit.domains.xpcs.models import Homodyne, Model
from shardfit.domains.xpcs.problem import FitOptions, curved, left_out, power_laws, with_rates
from shardfit.domains.xpcs.rates import CurvedPower, PowerLaw
from shardfit.domains.xpcs.recipes.answer import CorrelationFit
from shardfit.domains.xpcs.recipes.comparison import CLEAR, FitComparison, compare_fits

WORDS = {"constant": "constant", "power": "power law", "full": "power law + offset"}
HARDLY = 2.0  # difference of BIC below which it hardly prefers one law

Refit = Callable[[Mapping[str, float], Mapping[str, float], str], CorrelationFit | None]


def open_rates(model: Model, options: FitOptions) -> dict[str, PowerLaw]:
    """Return the rates, 'J' and 'S', whose law is to be chosen: all of whose parameters are left to the fit.

    A start, a held value, or bounds of exponent or offset say which law is meant. Losses that are not squares are not
    compared.
    """
    squares = options.loss == "linear" and options.compat is None and options.even_scales == 0
    if options.law != "auto" or not squares:
        return {}
    said = {*options.start, *options.fixed}
    rates = power_laws(model).items()
    return {n: r for n, r in rates if not said & {*r.table} and not {*options.bounds} & {*left_out(r, "constant")}}


def simplest(full: CorrelationFit, refit: Refit) -> CorrelationFit:
    """Return the fit whose laws BIC prefers, with the comparison.

    refit: (held values, start, name) → the fit of a simpler law. Of two rates the shear's law is chosen first, then
    that of the diffusion beside it.
    """
    model, options = full.setup.model, full.setup.options
    rates = open_rates(model, options)
    chosen = dict.fromkeys(rates, "full")
    fits = {_name(chosen): (full, chosen)}
    for name in reversed(rates):
        best, chosen = fits[_preferred(fits)]
        for law in ("power", "constant"):
            laws = {**chosen, name: law}
            held = {n: v for other, rate in rates.items() for n, v in left_out(rate, laws[other]).items()}
            found = refit(held, {**best.params, **_start(best, name, rates[name]), **held}, f"{name}_{law}")
            if found is not None:
                fits[_name(laws)] = found, laws
    if len(fits) < 2:
        return full
    comparison = compare_fits({name: fit for name, (fit, _) in fits.items()})
    fit, laws = fits[comparison.names[0]]
    unneeded = tuple(n for name, rate in rates.items() for n in left_out(rate, laws[name]))
    told = [f"The simplest law that holds, by BIC: {comparison.names[0]}."]
    if unneeded:
        told.append(f"{_listed(unneeded)} not needed: held at 0. With law 'full' all are free.")
    if comparison.difference[1] < HARDLY:
        told.append(f"The next, {comparison.names[1]}, holds nearly as well: parameters depend on that choice.")
    if comparison.difference[1] < CLEAR:
        told.append("Standard errors include what the other laws, by their weights, would have changed.")
    fit = _whatever_law(fit, {name: each for name, (each, _) in fits.items()}, comparison)
    return replace(fit, laws=comparison, unneeded=unneeded, warnings=(*fit.warnings, " ".join(told)))


def _whatever_law(fit: CorrelationFit, fits: Mapping[str, CorrelationFit], laws: FitComparison) -> CorrelationFit:
    """Return a fit whose errors include how far off it is if another law holds: the mean square over their weights.

    Errors of the chosen law alone are too small where the data nearly need another. A law that BIC clearly rejects
    counts nothing: on a ridge its parameters are anywhere.
    """
    weights = np.where(laws.difference < CLEAR, np.exp(-0.5 * laws.difference), 0.0)
    weights, n = weights / weights.sum(), len(fit.contrast)
    varies = np.diag(fit.covariance) > 0  # neither held nor unknown, which is NaN or infinite
    spread, rates = fit.covariance.copy(), {name: rate**2 for name, rate in fit.rates.items()}
    for name, weight in zip(laws.names, weights, strict=True):
        other = fits[name]
        off = np.where(varies, np.nan_to_num(_numbers(other) - _numbers(fit)), 0.0)
        spread += weight * np.outer(off, off)
        for rate, squares in rates.items():
            squares[:, 1] += weight * (other.rates[rate][:, 0] - fit.rates[rate][:, 0]) ** 2
    errors = np.sqrt(np.diag(spread))
    stderr = {
        name: e if v else before
        for (name, before), e, v in zip(fit.stderr.items(), errors[2 * n :].tolist(), varies[2 * n :], strict=True)
    }
    return replace(
        fit,
        stderr=stderr,
        contrast_stderr=np.where(varies[:n], errors[:n], fit.contrast_stderr),
        offset_stderr=np.where(varies[n : 2 * n], errors[n : 2 * n], fit.offset_stderr),
        covariance=spread,
        rates={name: np.stack([fit.rates[name][:, 0], np.sqrt(squares[:, 1])], 1) for name, squares in rates.items()},
    )


def _numbers(fit: CorrelationFit) -> np.ndarray:
    return np.concatenate([fit.contrast, fit.offset, [*fit.params.values()]])


def without_ridges(fit: CorrelationFit) -> tuple[Model, FitOptions]:
    """Return the fitted model with its full power laws in coordinates without a ridge, and options that hold the rest.

    Rates of which something is held, because a simpler law holds or somebody said so, stay as they are.
    """
    model, options = fit.setup.model, fit.setup.options
    full = [rate for rate in power_laws(model).values() if not {*rate.table} & {*options.fixed}]
    if not full:
        return model, options
    whole = curved(model, fit.setup.data)
    assert isinstance(whole, Homodyne)
    bent = {rate.stem: rate for rate, _ in whole.by_rate(whole.names) if isinstance(rate, CurvedPower)}
    return with_rates(model, lambda rate: bent[rate.stem] if rate in full else rate), options


def _preferred(fits: Mapping) -> str:
    return compare_fits({name: fit for name, (fit, _) in fits.items()}).names[0] if len(fits) > 1 else next(iter(fits))


def _name(laws: Mapping[str, str]) -> str:
    if len(laws) == 1:
        return WORDS[next(iter(laws.values()))]
    return ", ".join(f"{name} {WORDS[law]}" for name, law in laws.items())


def _listed(names: tuple[str, ...]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"


def _start(fit: CorrelationFit, name: str, rate: PowerLaw) -> dict[str, float]:
    """Return amplitude and exponent of the power law nearest to a fitted rate, inside their ranges."""
    t, found = fit.setup.data.t[1:], fit.rates[name][1:, 0]
    seen = found > 10 * FLOOR
    slope, level = np.polyfit(np.log(t[seen]), np.log(found[seen]), 1) if seen.sum() > 2 else (0.0, -np.inf)
    values = dict(zip(rate.table, (np.exp(level), slope), strict=False))
    ends = {n: (fit.setup.problem.bounds or {}).get(n, rate.table[n][:2]) for n in values}
    return {n: float(np.clip(value, *_inside(*ends[n]))) for n, value in values.items()}


def _inside(low: float, high: float) -> tuple[float, float]:
    return low + 0.01 * abs(low), high - 0.01 * abs(high)
