"""calibrate: simulate data from the prior, sample every data set, and rank the truths."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.functions import shared_space
from shardfit.core.objective import Objective
from shardfit.core.params import Space, broadcast_prefix, element_label
from shardfit.core.precision import in_caller_precision
from shardfit.core.problem import Problem
from shardfit.core.terms import RowTerm
from shardfit.core.ties import tied_together
from shardfit.sampling.density import sampled
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.calibration import Calibration
from shardfit.sampling.quality.simulated_runs import IN_SLOTS, Draws, one_by_one
from shardfit.sampling.run import sample

LOG_DENSITY = "log density"


class DataSet(NamedTuple):
    """A problem whose data were simulated, and the parameters that they came from."""

    truth: Any
    problem: Problem


def calibrate(
    make_problem: Callable[[Any, Any], Problem],
    x0: Any,
    method: str | Callable[[Problem, int], Posterior] = "nuts",
    n: int = 200,
    *,
    draw: Callable[[Any], Any] | None = None,
    ranks: int = 99,
    seed: int = 0,
    **options: Any,
) -> Calibration:
    """Test a method on data whose truth is known: simulation-based calibration.

    Parameters
    ----------
    make_problem
        (params, key) → the Problem of data simulated from params, with priors. Its terms use the same functions and
        shapes each time, so that all data sets run as one program.
    x0
        any parameters, for their structure.
    method
        'nuts', 'consensus' (give shards): all data sets at once, in slots. Another method of `sample`, or a function
        (problem, seed) → Posterior: one data set after the other.
    n
        data sets. Subtle errors need many: 1000 show a bias of 0.1 standard deviations.
    draw
        (key) → true parameters, for priors that are terms; by default they are drawn from the problem's priors.
    ranks
        draws of each posterior, evenly spaced, among which the truth is ranked; they should be nearly independent.
    seed
        of all random numbers.
    options
        of the method; for those in slots also slots, how many runs share a batch.

    Example: `calibrate(make_problem, {"tau": 1.0}, n=100, draws=200)`.

    """
    if n < 10 or ranks < 9:
        raise ValueError(f"calibrate: n={n} data sets and ranks={ranks} must be at least 10 and 9 to show anything.")
    template = in_caller_precision(make_problem)(x0, jax.random.key(seed))
    if not isinstance(template, Problem):
        raise TypeError(f"calibrate: make_problem returned {type(template).__name__}, not a Problem.")
    data = [_simulate(make_problem, template, draw, jax.random.fold_in(jax.random.key(seed), i)) for i in range(n)]
    problems = [one.problem for one in data]
    if callable(method):
        runs = one_by_one(partial(method, **options), problems, ranks, seed)
    elif method in IN_SLOTS:
        runs = IN_SLOTS[method](sampled(template, "calibrate"), problems, ranks, seed, **options)
    else:
        runs = one_by_one(partial(_sampled, method, options), problems, ranks, seed)
    found = dict(runs)
    failed = {i: why for i, why in sorted(found.items()) if isinstance(why, str)}
    good = {i: draws for i, draws in sorted(found.items()) if isinstance(draws, Draws)}
    if not good:
        raise ValueError(f"calibrate: no data set gave draws. The first failed: {failed[min(failed)]}")
    return Calibration(
        names=(*_free_names(template.space), LOG_DENSITY),
        ranks=np.stack([_ranks(data[i], draws, np.random.default_rng([seed, i])) for i, draws in good.items()]),
        draws=ranks,
        method=method if isinstance(method, str) else getattr(method, "__name__", "this method"),
        rhat=np.array([draws.rhat for draws in good.values()]),
        divergences=np.array([draws.divergences for draws in good.values()]),
        failed=failed,
    )


def _simulate(make_problem: Callable, template: Problem, draw: Callable | None, key: Any) -> DataSet:
    truth_key, data_key = jax.random.split(key)
    truth = _from_priors(template, truth_key) if draw is None else in_caller_precision(draw)(truth_key)
    with at_work(template):
        truth = jax.tree.map(np.asarray, tied_together(template.space.ties, truth))
    problem = in_caller_precision(make_problem)(truth, data_key)
    if not _alike(template.objective, problem.objective) or shared_space(problem) != shared_space(template):
        raise ValueError(
            "calibrate: make_problem returned another kind of problem than the first time. Define the functions of its "
            "terms once, outside make_problem, give all data sets one shape, and let rows alone depend on params."
        )
    return DataSet(truth, problem)


def _from_priors(problem: Problem, key: Any) -> Any:
    """Draw parameters from the problem's priors; held numbers stay."""
    space, leaves = problem.space, jax.tree.leaves(problem.x0)
    entries = broadcast_prefix("priors", problem.priors, problem.x0)
    drawn = []
    with at_work(problem):
        for i, (entry, leaf) in enumerate(zip(entries, leaves, strict=True)):
            held = space.held_at(i)
            if held.all():
                drawn.append(leaf)
                continue
            if not hasattr(entry, "sample"):
                what = "no prior" if entry is None else f"the prior {type(entry).__name__}, which cannot be drawn from"
                raise ValueError(f"calibrate: {space.labels[i]} has {what}. Give a proper prior, or draw=... .")
            value = np.broadcast_to(entry.sample(jax.random.fold_in(key, i), np.shape(leaf)), np.shape(leaf))
            drawn.append(np.where(held, leaf, value).astype(np.asarray(leaf).dtype))
    return jax.tree.unflatten(space.treedef, drawn)


def _own_of_rows(term: RowTerm) -> dict[str, None]:
    """Return what else a term took from its rows: the centre of sums, for whose rounding any data set's serves."""
    return {"centre": None} if hasattr(term, "centre") else {}


def _alike(one: Objective, other: Objective) -> bool:
    """Whether two objectives differ in their rows alone."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    for a, b in zip(one.terms, other.terms, strict=True):
        if isinstance(a, RowTerm) and isinstance(b, RowTerm):
            if jax.tree.map(np.shape, a.rows) != jax.tree.map(np.shape, b.rows):
                return False
            a, b = (replace(term, rows=None, **_own_of_rows(term)) for term in (a, b))
        if not all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)):
            return False
    return True


def _ranks(one: DataSet, draws: Draws, rng: np.random.Generator) -> np.ndarray:
    """Return the rank of the truth among the draws, for every free number and for the log density; ties by lot."""
    problem = one.problem
    truth = jax.tree.map(lambda leaf: np.asarray(leaf)[None], one.truth)
    with at_work(problem):
        values = [-np.asarray(_values(problem.objective, params)) for params in (truth, draws.params)]
    here, there = (
        np.concatenate([_free_numbers(problem.space, params), value[:, None]], axis=1)
        for params, value in zip((truth, draws.params), values, strict=True)
    )
    ties = (there == here).sum(0)
    return (there < here).sum(0) + rng.integers(0, ties + 1)


def _free_numbers(space: Space, params: Any) -> np.ndarray:
    leaves = jax.tree.leaves(params)
    return np.concatenate([np.asarray(leaf, float)[:, ~space.held_at(i)] for i, leaf in enumerate(leaves)], axis=1)


def _free_names(space: Space) -> list[str]:
    return [element_label(label, at) for i, label in enumerate(space.labels) for at in np.argwhere(~space.held_at(i))]


@jax.jit
def _values(objective: Objective, params: Any) -> jax.Array:
    return jax.lax.map(objective.value, params)


def _sampled(method: str, options: Mapping[str, Any], problem: Problem, seed: int) -> Posterior:
    return sample(problem, method, seed=seed, **{"progress": False, **options})
