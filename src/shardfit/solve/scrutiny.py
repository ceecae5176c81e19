"""What speaks against an answer that a solver found: χ² far from 1 with errors that are known, and active bounds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardfit.core.objective import Objective, normalised
from shardfit.core.problem import Problem
from shardfit.core.success import chi2_doubt
from shardfit.core.terms import RowTerm
from shardfit.solve.covariance import at_bound


def scrutiny(
    problem: Problem, z: np.ndarray, params: Any, parts: Mapping[str, float], absolute: bool | None = None
) -> dict[str, tuple[str, ...]]:
    """Return a Result's doubts and at_bound at coordinates z. absolute: residuals are in units of known errors."""
    stopped = at_bound(problem, z) if z.size else np.zeros(0, bool)
    labels = problem.space.coordinate_labels() if stopped.any() else []
    names = tuple(name for name, here in zip(labels, stopped, strict=False) if here)
    doubt = _chi2_doubt(problem.objective, params, parts, z.size - int(stopped.sum()), absolute)
    return {"doubts": (doubt,) if doubt else (), "at_bound": names}


def _chi2_doubt(
    objective: Objective, params: Any, parts: Mapping[str, float], n_free: int, absolute: bool | None
) -> str:
    """Return what is odd about χ² of the data; '' where errors are not known, or residuals cannot be counted."""
    data = {name: term for name, term in objective.items() if isinstance(term, RowTerm)}
    known = normalised(objective) if absolute is None else absolute
    if not (known and data and all(term.least_squares and term.counted for term in data.values())):
        return ""
    chi2 = 2 * sum(value for name, value in parts.items() if name.partition(".")[0] in data)
    return chi2_doubt(chi2, sum(int(term.n_residuals(params)) for term in data.values()) - n_free)
