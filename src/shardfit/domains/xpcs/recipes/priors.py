"""What is known before the data, said of the power laws' own parameters whatever coordinates are sampled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.priors import TruncatedNormal
from shardfit.core.term_makers import prior
from shardfit.core.terms import Penalty
from shardfit.domains.xpcs.models import Homodyne, Model
from shardfit.domains.xpcs.problem import converted, straight
from shardfit.domains.xpcs.rates import CurvedPower, Parameter, PowerLaw
from shardfit.domains.xpcs.recipes.answer import CorrelationFit, power_law
from shardfit.domains.xpcs.terms import SCALES

POWER_LAWS = "power_laws"  # the term of priors on parameters that are not sampled themselves
WIDE = 10.0  # standard errors of the fit over which a weak prior is nearly flat


def chosen_priors(priors: str | Mapping[str, Any] | None, fit: CorrelationFit) -> dict[str, Any]:
    """Return priors by name of the parameter.

    'reference': Gaussians within bounds as analyses of the field take them, around numbers that know nothing of the
    sample. 'weak': such Gaussians around the fit's answer, as wide as the answer itself and ten of its errors at least.
    A table names parameters of the model or of its power laws, contrast or offset, with a prior or its (mean, sd) each.
    """
    law = straight(fit.setup.model)
    answer = converted(fit.setup.model, law, fit.params)
    free = {name: value for name, value in answer.items() if name not in fit.setup.options.fixed}
    if priors in ("reference", "weak"):
        known = {name: usual for name in free if (usual := law.table[name].prior) is not None}
        if priors == "weak":
            errors = fit.stderr | {name: error for name, (_, error) in power_law(fit).items()}
            most = {name: law.table[name].upper - law.table[name].lower for name in known}
            width = {name: max(sd, abs(free[name]), WIDE * errors[name]) for name, (_, sd) in known.items()}
            known = {name: (free[name], min(width[name], most[name])) for name in known}
    elif isinstance(priors, str):
        raise ValueError(f"priors {priors!r}: use 'reference', 'weak', or a table of (mean, sd) by parameter.")
    else:
        known = dict(priors or {})
    names = {*free, *fit.params, *SCALES} - {*fit.setup.options.fixed}
    for name in known:
        if name not in names:
            raise ValueError(f"priors: no free parameter {name!r}.{suggestion(name, names)}")
    return {name: _gaussian(name, entry, law.table.get(name)) for name, entry in known.items()}


def _gaussian(name: str, entry: Any, usual: Parameter | None) -> Any:
    if not isinstance(entry, tuple | list):
        return entry
    if len(entry) != 2 or not np.all(np.isfinite(entry)) or not entry[1] > 0:
        raise ValueError(f"priors: {name} = {entry!r} must be (mean, sd) with sd above zero.")
    mean, sd = map(float, entry)
    return TruncatedNormal(mean, sd, usual.lower, usual.upper) if usual else TruncatedNormal(mean, sd)


@dataclass(frozen=True)
class _OfPowerLaws:
    """Log density of a curved model's parameters that priors on its power laws give."""

    rates: tuple[CurvedPower, ...]

    def __call__(self, params: Any, known: dict[str, Any]) -> Any:
        total = 0.0
        for rate in self.rates:
            level, exponent, slope = own = [params[name] for name in rate.table]
            law = dict(zip(PowerLaw(rate.stem).table, rate.power_law(own), strict=True))
            total += sum(entry.log_prob(law[name]) for name, entry in known.items() if name in law)
            # |∂(amplitude, offset)/∂(level, slope)|
            total += jnp.log(level / jnp.abs(exponent)) - exponent * np.log(rate.t_ref)
        return total


def power_law_prior(model: Model, known: dict[str, Any]) -> Penalty | None:
    """Return the term of priors on amplitudes and offsets of curved rates, and take these out of `known`."""
    rates = [r for r, _ in model.by_rate(model.names)] if isinstance(model, Homodyne) else []
    rates = [r for r in rates if isinstance(r, CurvedPower) and {*PowerLaw(r.stem).table} - {*r.table} & {*known}]
    names = [n for rate in rates for n in PowerLaw(rate.stem).table if n in known]
    return prior(_OfPowerLaws(tuple(rates)), {n: known.pop(n) for n in names}) if rates else None
