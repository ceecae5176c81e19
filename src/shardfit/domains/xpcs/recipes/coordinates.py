"""Where a search walks: along the ridge of a power law with offset it would take many short steps, so it is curved."""

from functools import partial
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.domains.xpcs.models import Homodyne, Model
from shardfit.domains.xpcs.problem import TERM, FitOptions, Setup, converted, curved, parameter_table, with_rates


def searchable(ready: Setup, start: dict[str, float]) -> Problem:
    """Return the problem in coordinates without a ridge; the model's own parameters are its derived quantities.

    It has the model's own coordinates where amplitude or offset of a power law are held or bounded, or the start is no
    rate.
    """
    problem, model = ready.problem, _without_ridges(ready)
    x0 = {**problem.x0, **start}
    if model == ready.model:
        return problem.replace(x0=x0)
    bounds = {name: pair for name, pair in ready.options.bounds.items() if name in model.names}
    fixed = {name: value for name, value in ready.options.fixed.items() if name in model.names}
    table = parameter_table(model, FitOptions(bounds=bounds, fixed=fixed))
    start = {name: float(value) for name, value in converted(ready.model, model, x0).items()}
    ends = {name: (p.lower, p.upper) for name, p in table.items() if name not in fixed}
    if not all(low < start[name] < high for name, (low, high) in ends.items()):
        return problem.replace(x0=x0)
    scales = {name: value for name, value in x0.items() if name not in ready.model.names}
    term = problem.objective.terms[0]
    return problem.replace(
        objective=problem.objective.with_args(**{TERM: (model, *term.args[1:])}),
        x0={**start, **scales},
        bounds={**ends, **{name: pair for name, pair in problem.bounds.items() if name in scales}},
        units={name: p.unit for name, p in table.items()},
        decode=partial(_decoded, model, ready.model),
    )


def within_bounds(ready: Setup, params: dict[str, Any]) -> bool:
    """Return whether parameters of the model are numbers inside the problem's bounds."""
    ends = {name: pair for name, pair in ready.problem.bounds.items() if name in params}
    return all(low <= params[name] <= high for name, (low, high) in ends.items())  # NaN fails


def _without_ridges(ready: Setup) -> Model:
    model, named = ready.model, {*ready.options.fixed, *ready.options.bounds}
    if not isinstance(model, Homodyne):
        return model
    bent = dict(zip((r for r, _ in model.by_rate(model.names)), _rates(curved(model, ready.data)), strict=True))
    return with_rates(model, lambda r: r if ({*r.table} - {*bent[r].table}) & named else bent[r])


def _rates(model: Any) -> list:
    return [rate for rate, _ in model.by_rate(model.names)]


def _decoded(searched: Model, model: Model, params: Any) -> dict[str, float]:
    with np.errstate(all="ignore"):  # at exponent 0 there is no power law: bounds see that
        return {name: float(value) for name, value in converted(searched, model, params).items()}
