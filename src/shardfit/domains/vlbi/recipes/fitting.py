"""What the imaging recipes share: settings of a fit, its folder, and fits that begin where the last one ended."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from shardfit.core.errors import CheckpointError, suggestion
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.domains.vlbi.problem import with_start
from shardfit.fitting import fit
from shardfit.io.run_dir import RESUME
from shardfit.solve.registry import CLASSES


def fit_folder(run_dir: str | Path | None, name: str, resume: str) -> Path | None:
    """Return the folder of a series of fits, None without run_dir; raise for a bad `resume` or nothing to resume."""
    if resume not in RESUME:
        raise ValueError(f"resume={resume!r} must be one of {', '.join(map(repr, RESUME))}.")
    folder = None if run_dir is None else Path(run_dir) / name
    if resume == "must" and (folder is None or not (folder / "01" / "config.json").exists()):
        raise CheckpointError(f"{run_dir} holds no run to resume. Check the path, or use resume='auto'.")
    return folder


def fit_settings(solver: Any, options: Any, resume: str, **how: Any) -> dict[str, Any]:
    """Return the keywords of every fit of a series; options: has maxiter and stop; how: mesh, seed, progress."""
    settings = {"solver": solver, "resume": "auto" if resume == "must" else resume, **how}
    if not (solver is None or isinstance(solver, str)):
        return settings
    settings |= {"maxiter": options.maxiter, "gtol": options.stop}
    if solver is not None and solver not in CLASSES:
        return settings  # for first-order methods a small change of the value is no sign of convergence
    settings["ftol"] = options.stop
    many = solver is None or hasattr(CLASSES[solver], "memory")
    # a longer memory than usual pays: an evaluation costs more than the products with the stored pairs
    return {**settings, "memory": 50} if many else settings


def fit_again(
    problem: Problem,
    next_start: Callable[[Problem, Result], Any],
    restarts: int,
    settings: Mapping[str, Any],
    folder: Path | None,
) -> tuple[Problem, Result]:
    """Fit a problem, then `restarts` times from the maps next_start(problem, result); return problem and result.

    They are those of the last fit. An interruption ends the series.
    """
    for k in range(restarts + 1):
        place = None if folder is None else folder / f"{k + 1:02d}"
        result = fit(problem, certify=k == 0, run_dir=place, **settings)
        if result.status is Status.INTERRUPTED or k == restarts:
            return problem, as_planned(result, k + 1)
        problem = with_start(problem, next_start(problem, result))
    raise AssertionError("restarts is not negative")


def as_planned(result: Result, n_fits: int) -> Result:
    """Return the last fit's result; that it took all its steps is what the schedule asked for, not a failure."""
    if result.status is not Status.MAX_STEPS:
        return result
    note = f"This was the last of {n_fits} fits, ended after {result.steps} steps; the tolerance was not yet met."
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
