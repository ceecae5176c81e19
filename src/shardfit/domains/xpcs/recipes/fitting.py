"""Fit a model to two-time correlations: start, search, answer."""

import math
from dataclasses import replace

from shardfit.core.errors import NonFiniteError
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.models import Model, static
from shardfit.domains.xpcs.problem import FitOptions, Setup, setup
from shardfit.domains.xpcs.recipes.answer import CorrelationFit, read_answer
from shardfit.domains.xpcs.recipes.frames import errors_by_frames
from shardfit.domains.xpcs.recipes.starts import find_starts
from shardfit.fitting import fit
from shardfit.run_options import RunOptions

MAXITER = 200
NEAR = 1e-7  # distance to the answer, in standard errors, at which a search ends


def fit_correlation(
    data: Correlation,
    model: Model | None = None,
    options: FitOptions | None = None,
    run: RunOptions | None = None,
    starts: int = 1,
) -> CorrelationFit:
    """Fit a model to two-time correlations by least squares.

    model: `static()` unless given. starts: how many of the best candidates are searched from; the best answer counts.
    run: solver ('lm'), mesh, seed, folder.

    Example: `print(fit_correlation(read("run7.hdf", q=0.0054, dt=0.1), static()))`.
    """
    model, options, run = model or static(), options or FitOptions(), run or RunOptions()
    if starts < 1:
        raise ValueError(f"starts={starts} must be at least 1.")
    ready = setup(data, model, options)
    keywords = run.series("start") if starts > 1 else lambda number: _single(run)
    best: tuple[float, Setup, object] | None = None
    # the value is about half the number of points, and half of 1 at a distance of one standard error
    stop = {"ftol": NEAR**2 / ready.n_points, "maxiter": MAXITER} if run.solver is None else {}
    for number, start in enumerate(find_starts(data, model, options, starts, run.seed), 1):
        here = replace(ready, problem=ready.problem.replace(x0={**ready.problem.x0, **start}))
        result = fit(here.problem, run.solver or "lm", certify=number == 1, **stop, **keywords(number))
        if math.isfinite(result.value) and (best is None or result.value < best[0]):
            best = result.value, here, result
    if best is None:
        raise NonFiniteError("no start gave a finite value: look at the data, or give a start yourself.")
    answer = read_answer(best[1], best[2], run.mesh)  # type: ignore[arg-type]
    return errors_by_frames(answer) if options.errors == "frames" else answer


def _single(run: RunOptions) -> dict:
    common = {"mesh": run.mesh, "seed": run.seed, "resume": run.resume, "progress": run.progress}
    return {**common, "run_dir": run.run_dir}
