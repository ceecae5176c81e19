"""Fit a model to two-time correlations: start, search, answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import NonFiniteError, ParityError
from shardfit.core.mesh import leads
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.core.term_makers import residual_penalty
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.models import Model, static
from shardfit.domains.xpcs.options import HELD
from shardfit.domains.xpcs.problem import TERM, FitOptions, Setup, setup, with_law
from shardfit.domains.xpcs.recipes.answer import CorrelationFit, read_answer
from shardfit.domains.xpcs.recipes.coordinates import searchable, within_bounds
from shardfit.domains.xpcs.recipes.frames import errors_by_frames
from shardfit.domains.xpcs.recipes.laws import open_rates, simplest
from shardfit.domains.xpcs.recipes.speckle import by_pace, errors_by_speckle, in_rounds, parameters, reweighted
from shardfit.domains.xpcs.recipes.starts import about_minima, find_starts
from shardfit.domains.xpcs.recipes.units import check_q
from shardfit.domains.xpcs.terms import SCALES
from shardfit.fitting import fit
from shardfit.io.compile_cache import programs_kept
from shardfit.io.results import save_result
from shardfit.run_options import RunOptions
from shardfit.series import FitSeries, whole
from shardfit.solve.base import Finish, Task
from shardfit.solve.lm import LM

UNTOLD = (
    "The search ended where rounding decides the value. If the model is one of shardfit's, these maps do not determine "
    "it: often contrast and offset cannot be told apart because correlations decay little within the measured lags. "
    "Hold what is known (fixed), take a simpler law (law='constant'), or use longer maps."
)
MAXITER = 200
NEAR = 1e-6  # distance to the answer, in standard errors, at which a search ends


@dataclass(frozen=True)
class Search(LM):
    """The solver of searches: errors are those of the answer, in the model's own parameters (`read_answer`)."""

    error_bars: ClassVar[bool] = False

    def extras(self, task: Task, params: Any, finish: Finish) -> tuple[dict[str, Any], str]:
        """Return nothing."""
        return {}, ""


@programs_kept()  # the search for a start comes before the fit
def fit_correlation(
    data: Correlation,
    model: Model | None = None,
    options: FitOptions | None = None,
    run: RunOptions | None = None,
    starts: int = 1,
) -> CorrelationFit:
    """Fit a model to two-time correlations by least squares; power laws by the simplest law that holds (`options.law`).

    model: `static()` unless given. starts: how many of the best candidates are searched from; the best answer counts.
    run: solver ('lm'), mesh, seed, folder: every search keeps its own below it, the folder itself holds the answer.

    Example: `print(fit_correlation(read("run7.hdf", q=0.0054, dt=0.1), static()))`.
    """
    model, options, run = model or static(), options or FitOptions(), run or RunOptions()
    if starts < 1:
        raise ValueError(f"starts={starts} must be at least 1.")
    series, options = FitSeries(run, "start"), with_law(model, options)
    ready, doubt = setup(data, model, options), check_q(data, model, options)
    begin = find_starts(data, model, options, starts, run.seed)
    try:
        found = _best(by_pace(ready, begin[0]), begin, series)
    except ParityError as error:
        raise ParityError(f"{UNTOLD} What was noticed: {error}") from error

    def refit(held: Mapping[str, float], start: Mapping[str, float], name: str) -> CorrelationFit | None:
        law = FitSeries(run.later, name, certificate=found.result.certificate)
        try:
            # with the weights and the noise of the whole law: answers can be compared
            simpler = _best(_held(found.setup, held), [dict(start)], law, found)
        except (NonFiniteError, ParityError):
            return None
        if simpler.result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return simpler

    answer = found
    if open_rates(model, options) and found.result.status is not Status.INTERRUPTED:
        try:
            answer = simplest(found, refit)
        except KeyboardInterrupt:  # which law holds is open, so the answer is that of the full one so far
            answer = replace(found, result=replace(found.result, status=Status.INTERRUPTED))
    answer = replace(answer, warnings=(*answer.warnings, doubt)) if doubt else answer
    if answer.noise is not None:
        answer = replace(answer, noise=answer.noise._replace(draws=[]))  # simpler laws needed them
    if run.folder is not None and leads(run.mesh):
        save_result(answer.answer(), run.folder)
    return answer


def _best(
    ready: Setup, starts: list[dict[str, float]], series: FitSeries, full: CorrelationFit | None = None
) -> CorrelationFit:
    """Return the best answer of the searches from some starts; full: of the law that this one is a simpler case of."""
    options, searched = ready.options, replace(ready, problem=_evened(ready))
    results: list[Result] = []
    for start in starts:
        start = _warmed(ready, start, series.run) if options.warm_start else start
        results.append(_searched(searched, start, series))
        if results[-1].status is Status.INTERRUPTED:
            break
    place = min(range(len(results)), key=lambda i: v if math.isfinite(v := results[i].value) else math.inf)
    if not math.isfinite(results[place].value):
        raise NonFiniteError("no start gave a finite value: look at the data, or give a start yourself.")
    reached, best = [(result.value, parameters(ready, result)) for result in results], results[place]
    if ready.maps is not None and full is None and series.interrupted:
        ready, _ = reweighted(ready, reached[place][1])  # errors of an answer so far need weights, too
    elif ready.maps is not None and full is None:
        rounds = series.within("round", place + 1)
        ready, later = in_rounds(ready, best, lambda ready, start: _searched(ready, start, rounds))
        results, best = [*results, *later], later[-1]
    answer = read_answer(ready, whole(results, best), series.run.mesh)
    answer = replace(answer, warnings=(*answer.warnings, *about_minima(reached, ready.model.table, answer.variance)))
    if ready.maps is not None or options.errors == "speckle":
        return errors_by_speckle(answer, full)
    return errors_by_frames(answer) if options.errors == "frames" else answer


def _held(ready: Setup, held: Mapping[str, float]) -> Setup:
    """Return the same problem with some of the model's parameters held."""
    options = replace(ready.options, fixed={**ready.options.fixed, **held})
    problem = ready.problem
    fixed = {**{name: problem.x0[name] for name in ready.options.fixed}, **held}
    if ready.options.scaling in HELD:
        fixed |= {name: problem.x0[name] for name in SCALES}
    bounds = {name: pair for name, pair in (problem.bounds or {}).items() if name not in held}
    return replace(
        ready, options=options, problem=problem.replace(x0={**problem.x0, **held}, bounds=bounds, fixed=fixed)
    )


def _searched(ready: Setup, start: dict[str, float], series: FitSeries) -> Result:
    """Return the answer of a search without a ridge; where it leaves the bounds of the model, of one within them."""
    # the value is about half the number of points, and half of 1 at a distance of one standard error; the next power
    # of two of the whole array, so that neither missing points nor a few frames more compile the loop anew
    size = 1 << (ready.data.c2.size - 1).bit_length()
    stop = {"ftol": NEAR**2 / size, "maxiter": MAXITER} if series.run.solver is None else {}
    solver = series.run.solver or Search(**stop)
    result = series.fit(searchable(ready, start), solver=solver)
    if series.interrupted or not result.derived or within_bounds(ready, result.derived):
        return result
    bounds = {name: pair for name, pair in ready.problem.bounds.items() if name in result.derived}
    nearest = {name: min(max(result.derived[name], low), high) for name, (low, high) in bounds.items()}
    nearest = nearest if all(map(math.isfinite, nearest.values())) else {}
    problem = ready.problem.replace(x0={**ready.problem.x0, **start, **nearest})
    bounded = series.within("bounded")
    return whole([result, bounded.fit(problem, solver=solver)], bounded.results[-1])


def _warmed(ready: Setup, start: dict[str, float], run: RunOptions) -> dict[str, float]:
    """Return where a search with held scales ends."""
    options = replace(ready.options, scaling="constant", loss="linear", even_scales=0.0, compat=None)
    held = setup(ready.data, ready.model, options)
    problem = held.problem.replace(x0={**held.problem.x0, **start})
    result = fit(problem, "lm", maxiter=MAXITER, certify=False, mesh=run.mesh, progress=False)
    return {name: float(result.params[name]) for name in start}


def _evened(ready: Setup) -> Problem:
    """Return the problem that is searched: with the penalty on uneven scales, if one is wanted."""
    strength = np.sqrt(2 * ready.options.even_scales * ready.n_points / len(ready.data.phi))
    if strength == 0:
        return ready.problem
    terms = {
        TERM: ready.problem.objective.terms[0],
        "even": residual_penalty(_unevenness, ready.design.basis, strength),
    }
    return ready.problem.replace(objective=Objective(terms))


def _unevenness(params: Mapping, basis: Any, strength: Any) -> jax.Array:
    scales = [basis @ params[name] for name in SCALES]
    return strength * jnp.concatenate([each / jnp.mean(each) - 1 for each in scales])
