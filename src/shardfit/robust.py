"""robust_fit: outliers count less, and linear coefficients are still eliminated."""

from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.losses import loss_named
from shardfit.core.objective import normalised
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.series import FitSeries
from shardfit.stats.reweighting import deviations_of, distances, with_deviations


def robust_fit(
    problem: Problem,
    loss: str = "soft_l1",
    *,
    scale: float = 1.0,
    rounds: int = 200,
    tol: float = 1e-12,
    solver: Any = "lm",
    **options: Any,
) -> tuple[Result, Problem]:
    """Fit a problem with linear terms so that outliers count less; return the result and the reweighted problem.

    Other residuals take a loss by themselves: `residual_term(..., loss="cauchy")`.

    The answer is that of a joint robust fit of all parameters, linear ones too: the minimum of ½ scale² Σρ(|r/scale|²).
    Weights and least squares take turns until the robust cost changes by less than tol (relative).

    loss: 'soft_l1', 'huber', 'cauchy' or 'arctan', as in scipy.optimize.least_squares. scale: from how many sigma on a
    residual counts as large. rounds: most turns. solver, options: as for `fit`, without run_dir. Terms that are not
    linear stay as they are. Value and parts of the result are robust costs; covariance and errors are those of the
    reweighted problem, to which also `coefficients(reweighted, result)` belongs.

    Example: `result, reweighted = robust_fit(problem, "cauchy", scale=2.0)`.
    """
    rule = loss_named(loss, "robust_fit")
    if not scale > 0 or rounds < 1 or not tol >= 0:
        raise ValueError(f"robust_fit: scale={scale} and rounds={rounds} must be positive, tol={tol} zero or more.")
    if options.get("run_dir") is not None:
        raise ValueError("robust_fit: it is a series of fits, so it has no run_dir. Save its result with save_result.")
    if solver == "lm":
        options = {"absolute_sigma": normalised(problem.objective)} | options
    sigma = deviations_of(problem)
    turn, previous, series = with_deviations(problem, sigma), np.inf, FitSeries(solver=solver, **options)
    for number in range(1, rounds + 1):
        result = series.answer(series.fit(turn))
        squares = {name: (far / (scale * sigma[name])) ** 2 for name, far in distances(turn, result.params).items()}
        with arithmetic("float64"):  # costs are compared to twelve digits
            parts = {name: 0.5 * scale**2 * float(np.sum(np.asarray(rule.rho(s)))) for name, s in squares.items()}
            slopes = {name: np.asarray(rule.slope(s)) for name, s in squares.items()}
        result = _with_costs(result, turn, parts, number)
        if not result.status.converged or abs(previous - result.value) <= tol * abs(result.value):
            return result, turn
        previous = result.value
        weighted = {name: sigma[name] / np.sqrt(slope) for name, slope in slopes.items()}
        turn = with_deviations(problem, weighted, result.params)
    return replace(result, status=Status.MAX_STEPS), turn


def _with_costs(result: Result, problem: Problem, parts: dict[str, float], turns: int) -> Result:
    """Return the result of a turn with robust costs in place of the weighted squares."""
    merged = result.parts | parts
    weights = {name: term.weight for name, term in problem.objective.items()}
    value = result.value + sum(float(weights[name]) * (parts[name] - result.parts[name]) for name in parts)
    note = " ".join(filter(None, (result.note, f"Robust: {turns} turns of weights and fit.")))
    # outliers make χ² large, which is what the loss is for
    return replace(result, value=value, parts=merged, note=note, doubts=())
