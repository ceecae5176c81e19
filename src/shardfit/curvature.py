"""Error bars of any fit, from the curvature of its objective at the answer (Laplace's approximation)."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from shardfit.check.certificate import certify_equations
from shardfit.core.current import working_on_it
from shardfit.core.errors import NonFiniteError
from shardfit.core.factor import factored
from shardfit.core.gram import Gram
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.io.compile_cache import programs_kept
from shardfit.solve.base import value_and_grad_parts
from shardfit.solve.covariance import ErrorBars, count_residuals, normalised, of_residuals, standard_errors, uncounted
from shardfit.stats.laplace import hessian_matrix, laplace

DENSE = 500  # coordinates up to which the matrix is formed
FAR = 0.1  # standard errors between answer and minimum beyond which the curvature is of another place
DOWNWARDS = 1e-6  # least curvature over the largest that rounding explains
SCALE = "Standard errors take the objective as a negative log likelihood (½χ² for Gaussian errors)."


@programs_kept()
@working_on_it
def error_bars(problem: Problem, result: Result, *, absolute_sigma: bool | None = None, mesh: Any = None) -> Result:
    """Return the result with covariance and standard errors, whichever solver found it.

    Residuals give the errors that `lm` gives, from the normal equations. Any other objective must be a negative log
    likelihood (or posterior), up to a constant: errors come from its Hessian. Up to 500 coordinates the matrix is
    formed; beyond, standard errors come without covariance from `stats.laplace`. Away from a minimum there are none,
    and the note says so. Normal equations that no certificate has compared yet are compared: ParityError if wrong.

    absolute_sigma: residuals are in units of known errors; None: they are if every data term has an entry `sigma`.
    mesh: devices to split the rows over.

    Example: `error_bars(problem, fit(problem)).stderr`.
    """
    objective = problem.objective
    if objective.stochastic:
        raise ValueError("error_bars: the objective is stochastic. Fix it with objective.freeze(key) first.")
    squares = of_residuals(objective)
    if absolute_sigma is not None and not squares:
        raise ValueError("error_bars: absolute_sigma is about residuals, and a term of this objective has none.")
    scale = squares and not (normalised(objective) if absolute_sigma is None else absolute_sigma)
    placed = objective if mesh is None and objective.mesh is not None else objective.place(mesh)
    if problem.space.size > DENSE:
        bars = _without_matrix(problem, result, scale, mesh)
    else:
        if squares:
            certify_equations(problem, result.params, mesh=mesh)
        bars = _judged(standard_errors(problem, placed, result.params, scale, factored if squares else hessian))
    fields = {"covariance": None, "stderr": None, "dof": None} | bars.fields
    notes = (result.note, "" if squares or fields["stderr"] is None else SCALE, bars.note)
    return replace(result, **fields, note=" ".join(filter(None, notes)))


def hessian(objective: Objective, space: Space, z: jax.Array, key: Any = None) -> Gram:
    """Return value, gradient (n,) and Hessian (n, n) at coordinates z."""
    here = value_and_grad_parts(space, objective, z, key)[0]
    return Gram(here.value, here.gradient, hessian_matrix(space, objective, z))


def _judged(bars: ErrorBars) -> ErrorBars:
    """Return error bars of a minimum as they are; elsewhere none, and the reason."""
    if not np.isfinite([bars.lowest, bars.distance]).all():
        why = "the curvature is not finite at the answer"
    elif bars.lowest < -DOWNWARDS:
        why = f"the objective curves downwards at the answer ({bars.lowest:.2g} of its largest curvature): no minimum"
    elif bars.distance > FAR:
        why = f"the answer lies {bars.distance:.2g} standard errors from the minimum"
    else:
        return bars
    left = {name: field for name, field in bars.fields.items() if name == "dof"}
    return ErrorBars(left, f"No standard errors: {why}. Fit again with smaller tolerances or more iterations.")


def _without_matrix(problem: Problem, result: Result, scale: bool, mesh: Any) -> ErrorBars:
    dof = None
    if not uncounted(problem.objective):
        dof = int(count_residuals(problem.objective, result.params)) - problem.space.size
    if scale and (dof is None or dof <= 0):
        return ErrorBars({"dof": dof}, "No standard errors: no more residuals than parameters.")
    variance = 2 * result.value / dof if scale and dof is not None else 1.0
    try:
        found = laplace(problem, result.params, scale=1 / variance, mesh=mesh)
    except (ValueError, NonFiniteError) as error:
        return ErrorBars({"dof": dof}, f"No standard errors: {error}")
    known = f", uncertain by {found.uncertainty:.1%} themselves" if found.uncertainty else ""
    note = f"Standard errors are Laplace's, without a covariance{known}."
    scaled = " They are scaled by the reduced χ²." if scale else ""
    return ErrorBars({"stderr": found.sd, "dof": dof}, note + scaled)
