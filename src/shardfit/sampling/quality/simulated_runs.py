"""Draws for many data sets of one shape: all at once, in slots of one compiled sampler, or one after the other."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.objective import Objective, replace_terms
from shardfit.core.problem import Problem
from shardfit.sampling.chains.nuts import NUTS
from shardfit.sampling.density import as_objective, parameters_of, sampled
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.diagnostics import FEWEST_DRAWS, rhat
from shardfit.sampling.shards.shard_consensus import combined_posterior
from shardfit.sampling.shards.shard_plan import Division, ShardPlan
from shardfit.sampling.shards.shard_store import ShardRun
from shardfit.sampling.shards.splitting import Shards
from shardfit.sampling.start import Start, find_start
from shardfit.solve.base import check_options
from shardfit.solve.lbfgs import LBFGS
from shardfit.surveys.engine import Engine
from shardfit.surveys.point import SurveyPoint

SLOTS = 32
STEPS = 200  # of the fits from which chains begin
USUAL = {"warmup": 300, "draws": 250}


class Draws(NamedTuple):
    """Draws of one data set: params, a pytree with leaves (draws, *shape); rhat, divergences: of its chains."""

    params: Any
    rhat: float
    divergences: int


Outcome = tuple[int, Draws | str]  # number of the data set, and its draws or why there are none


def nuts_in_slots(
    template: Problem, problems: list[Problem], ranks: int, seed: int, slots: int = SLOTS, **options: Any
) -> Iterator[Outcome]:
    """Yield the draws of NUTS for every problem, as they end. template: in coordinates without a box."""
    check_options("nuts", NUTS, options)
    solver = NUTS(**{**USUAL, **options})
    _require_draws(solver, ranks)
    parts = tuple(sampled(problem, "calibrate").objective for problem in problems)
    slots = min(slots, len(parts))
    start = find_start(template, seed=seed)
    family = Shards(template, parts, _modes(template, parts, slots))
    for point in _points(Engine(family, solver, slots, seed=seed, given=start.given), family):
        if point.failed:
            yield point.id, point.reason or "the sampler failed."
            continue
        z, diverging = point.payload["z"], int(point.payload["diverging"].sum())
        with at_work(template):
            params = jax.tree.map(np.asarray, parameters_of(template.space, _spaced(z, ranks)))
        yield point.id, Draws(params, _largest_rhat(z), diverging)


def consensus_in_slots(
    template: Problem,
    problems: list[Problem],
    ranks: int,
    seed: int,
    *,
    shards: int,
    by: Any = None,
    rule: str = "full",
    correct: bool | int = True,
    slots: int = SLOTS,
    **options: Any,
) -> Iterator[Outcome]:
    """Yield the draws of consensus for every problem: the shards of all of them share the slots."""
    plan = ShardPlan.make(template, Division(shards, by, seed, slots, {**USUAL, **options}))
    _require_draws(plan.solver, ranks)
    plans = [_planned(plan, problem, _own_seed(seed, i)) for i, problem in enumerate(problems)]
    whole = tuple(plan.problem.objective for plan in plans)
    modes = _modes(template, whole, min(slots, len(whole)))
    start = find_start(template, seed=seed)
    # a shard knows as much as 1/shards of the rows: its posterior is that much wider
    given = {name: root * np.sqrt(shards) for name, root in start.given.items()}
    family = Shards(template, tuple(part for plan in plans for part in plan.parts), np.repeat(modes, shards, axis=0))
    runs: dict[int, dict[int, ShardRun | None]] = {i: {} for i in range(len(plans))}
    for point in _points(Engine(family, plan.solver, slots, seed=seed, given=given), family):
        number, shard = divmod(point.id, shards)
        arrays = {name: np.asarray(array) for name, array in point.payload.items()}
        runs[number][shard] = None if point.failed else ShardRun(shard, arrays, point.evaluations, point.seconds)
        if len(runs[number]) == shards:
            own = Start(modes[number], start.root)
            yield number, _combined(plans[number], own, runs.pop(number), rule, correct, ranks)


def _planned(plan: ShardPlan, problem: Problem, seed: int) -> ShardPlan:
    """Return the plan for another data set, with a seed of its own: with one for all, the chance in one data set's
    draws would be that of every other.
    """
    problem, division = sampled(problem, "calibrate"), replace(plan.division, seed=seed)
    parts = tuple(problem.objective.split(division.shards, division.by, seed))
    return replace(plan, problem=problem, division=division, parts=parts)


def _combined(
    plan: ShardPlan, start: Start, runs: dict[int, ShardRun | None], rule: str, correct: bool | int, ranks: int
) -> Draws | str:
    ended = [run for _, run in sorted(runs.items()) if run is not None]
    if len(ended) < len(runs):
        return "a shard found no finite density where it began."
    with at_work(plan.problem):
        posterior = combined_posterior(plan, start, ended, rule, correct, None)
    largest = max(_largest_rhat(run.arrays["z"]) for run in ended)
    diverging = sum(int(run.arrays["diverging"].sum()) for run in ended)
    return _ranked(posterior, ranks, plan.division.seed)._replace(rhat=largest, divergences=diverging)


def one_by_one(
    method: Callable[[Problem, int], Posterior], problems: list[Problem], ranks: int, seed: int
) -> Iterator[Outcome]:
    """Yield the draws of any method for one problem after the other."""
    for i, problem in enumerate(problems):
        own = _own_seed(seed, i)
        yield i, _ranked(method(problem, own), ranks, own)


IN_SLOTS = {"nuts": nuts_in_slots, "consensus": consensus_in_slots}


def _own_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _points(engine: Engine, family: Shards) -> Iterator[SurveyPoint]:
    with closing(engine.run(family.points())) as batches:
        for finished in batches:
            yield from finished


def _modes(template: Problem, parts: tuple[Objective, ...], slots: int) -> np.ndarray:
    """Return where chains begin, (n, size): the mode of each data set, x0 where a fit finds none."""
    z = np.tile(template.z0(), (len(parts), 1))
    density = as_objective(template)
    stretch = density.objective.terms[-1]  # what it adds to each part
    densities = tuple(replace_terms(density.objective, (*part.terms, stretch)) for part in parts)
    family = Shards(density, densities, z[0])
    for point in _points(Engine(family, LBFGS(maxiter=STEPS), slots), family):
        if not point.failed and point.z is not None:
            z[point.id] = point.z
    return z


def _ranked(posterior: Posterior, ranks: int, seed: int) -> Draws:
    """Return the draws to rank among: evenly spaced, or drawn by their weights."""
    if posterior.weights is None:
        chosen = _even(posterior.size, ranks)
    else:
        weights = posterior.weights.ravel()
        chosen = np.random.default_rng(seed).choice(posterior.size, ranks, p=weights / weights.sum())
    params = jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *np.shape(leaf)[2:]))[chosen], posterior.draws)
    # independent draws have no chains that could differ
    ratio = 1.0 if posterior.extra.get("independent") else _largest_rhat(posterior.z)
    return Draws(params, ratio, int(np.sum(posterior.stats.get("diverging", 0))))


def _spaced(z: np.ndarray, ranks: int) -> np.ndarray:
    flat = z.reshape(-1, z.shape[-1])
    return flat[_even(len(flat), ranks)]


def _even(size: int, ranks: int) -> np.ndarray:
    if size < ranks:
        raise ValueError(f"calibrate: {size} draws per data set are fewer than ranks={ranks}. Draw more.")
    return np.linspace(0, size - 1, ranks).round().astype(int)


def _require_draws(solver: NUTS, ranks: int) -> None:
    _even(solver.chains * solver.draws, ranks)


def _largest_rhat(z: np.ndarray) -> float:
    return float(np.max(rhat(z))) if z.shape[1] >= FEWEST_DRAWS else np.nan
