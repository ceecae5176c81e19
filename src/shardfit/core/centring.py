"""Sums taken around a point: the same objective, with digits that differences of large sums would lose."""

from dataclasses import replace
from typing import Any

import jax

from shardfit.core.objective import Objective, replace_terms
from shardfit.core.precision import arithmetic
from shardfit.core.reduce import scaled, totals
from shardfit.core.terms import RowTerm


def centred(objective: Objective, params: Any) -> Objective:
    """Return the objective with sums taken around params, for terms that say by `centre_of` that they gain by it."""
    gains = [isinstance(t, RowTerm) and type(t).centre_of is not RowTerm.centre_of for t in objective.terms]
    if objective.stochastic or not any(gains):
        return objective
    with arithmetic(objective.precision):
        centres = _centres(objective, params)
    terms = zip(objective.terms, gains, centres, strict=True)
    return replace_terms(objective, [replace(t, centre=c) if gain else t for t, gain, c in terms])


@jax.jit
def _centres(objective: Objective, params: Any) -> list:
    sums = totals(objective.mesh, objective.terms, params, None)
    terms = zip(objective.terms, sums, strict=True)
    return [t.centre_of(scaled(t, s)) if isinstance(t, RowTerm) else None for t, s in terms]
