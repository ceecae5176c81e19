"""What the imaging recipes share: settings of a series of fits, and fits that begin where the last one ended."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.vlbi.recipes.quality import step_doubts
from shardfit.run_options import RunOptions
from shardfit.series import FitSeries
from shardfit.solve.registry import CLASSES


def series_of(run: RunOptions, options: Any, prefix: str, patience: int = 0) -> FitSeries:
    """Return a series of fits in folders run_dir/<prefix>01, ...; options: has maxiter and stop.

    A solver that is named, L-BFGS by default, takes its limits from the options; an object has its own. patience:
    evaluations over which `stop` is the least progress, where the solver knows such a rule; 0: over one step.
    """
    solver = "lbfgs" if run.solver is None else run.solver
    settings: dict[str, Any] = {"solver": solver}
    if isinstance(solver, str):
        settings |= {"maxiter": options.maxiter, "gtol": options.stop}
    if isinstance(solver, str) and solver in CLASSES:
        # for first-order methods a small change of the value is no sign of convergence
        settings["ftol"] = options.stop
        if hasattr(CLASSES[solver], "memory") and getattr(options, "transform", "log") == "log":
            # in the logarithm a longer memory than usual pays; in the power 1.5 it does not
            settings["memory"] = 50
        if patience and hasattr(CLASSES[solver], "patience"):
            settings |= {"patience": patience, "ptol": options.stop, "ftol": 0.0, "gtol": 0.0}
    return FitSeries(run, prefix, **settings)


def fit_again(
    series: FitSeries, problem: Problem, again: Callable[[Problem, Result], Problem], restarts: int
) -> tuple[Problem, Result, list[str]]:
    """Fit a problem, then `restarts` times again(problem, result) of the last one.

    An interruption ends it. Return the best problem, its result as that of all fits, where taking all steps is planned,
    and doubts about the steps of the best fit.
    """
    kept = problem
    for k in range(restarts + 1):
        result = series.fit(problem)
        kept = problem if series.best() == k else kept
        if series.interrupted or k == restarts:
            break
        problem = again(problem, result)
    return kept, series.answer(planned=True), step_doubts(series.results[series.best()])


def data_chi2(result: Result) -> dict[str, float]:
    """Return χ² per measurement by product."""
    return {name.removeprefix("data."): part for name, part in result.parts.items() if name.startswith("data.")}


def options_of(kind: type, what: str, given: Mapping[str, Any]) -> Any:
    """Return kind(**given); raise for a name that is none of its fields."""
    known = [f.name for f in fields(kind)]
    for name in given:
        if name not in known:
            raise TypeError(f"{what} has no option {name!r}.{suggestion(name, known)}")
    return kind(**given)
