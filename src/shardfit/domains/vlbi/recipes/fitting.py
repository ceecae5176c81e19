"""What the imaging recipes share: settings of a fit, its folder, and fits that begin where the last one ended."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.problem import Problem
from shardfit.core.result import Result, certified_by
from shardfit.core.status import Status
from shardfit.domains.vlbi.problem import with_start
from shardfit.fitting import fit
from shardfit.run_options import RunOptions
from shardfit.solve.registry import CLASSES


def fit_settings(run: RunOptions, options: Any, prefix: str, patience: int = 0) -> Callable[[int], dict[str, Any]]:
    """Return number → keywords of `fit`, for fits 1, 2, ... of a series; options: has maxiter and stop.

    A solver that is named, L-BFGS by default, takes its limits from the options; an object has its own. patience:
    evaluations over which `stop` is the least progress, where the solver knows such a rule; 0: over one step.
    """
    keywords = run.series(prefix)
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
    return lambda number: {**keywords(number), **settings}


def fit_again(
    problem: Problem,
    next_start: Callable[[Problem, Result], Any],
    restarts: int,
    settings: Callable[[int], dict[str, Any]],
) -> tuple[Problem, Result]:
    """Fit a problem, then `restarts` times from the maps next_start(problem, result); return problem and result.

    They are those of the fit with the lowest value. The first is certified: others differ in their start alone. An
    interruption ends the series.
    """
    kept: Any = None
    first: Result | None = None
    for k in range(restarts + 1):
        result = fit(problem, certify=k == 0, **settings(k + 1))
        first = first or result
        result = certified_by(result, first.certificate)
        if kept is None or result.value < kept[1].value or not np.isfinite(kept[1].value):
            kept = problem, result
        if result.status is Status.INTERRUPTED:
            return kept[0], replace(kept[1], status=Status.INTERRUPTED)
        if k < restarts:
            problem = with_start(problem, next_start(problem, result))
    return kept[0], as_planned(kept[1], restarts + 1)


def as_planned(result: Result, n_fits: int) -> Result:
    """Return the result of a schedule's best fit; that it took all its steps was planned, which is not convergence."""
    if result.status is not Status.MAX_STEPS:
        return result
    note = f"This was the best of {n_fits} fits." if n_fits > 1 else ""
    return replace(result, status=Status.COMPLETED, note=" ".join(filter(None, (result.note, note))))


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
