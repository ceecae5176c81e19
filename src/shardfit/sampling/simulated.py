"""calibrate: simulate data from the prior, sample every data set, and rank the truths."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.objective import Objective, replace_terms
from shardfit.core.params import Space, element_label, spread
from shardfit.core.precision import arithmetic, for_caller
from shardfit.core.problem import Problem
from shardfit.core.terms import RowTerm
from shardfit.sampling.calibration import Calibration
from shardfit.sampling.density import as_objective, sampled
from shardfit.sampling.diagnostics import FEWEST_DRAWS, rhat
from shardfit.sampling.nuts import NUTS
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.run import sample
from shardfit.sampling.shards import Shards
from shardfit.sampling.start import find_start
from shardfit.solve.lbfgs import LBFGS
from shardfit.surveys.engine import Engine

LOG_DENSITY = "log density"
SLOTS = 32
STEPS = 200  # of the fits from which chains begin


class DataSet(NamedTuple):
    """A problem whose data were simulated, and the parameters that they came from."""

    truth: Any
    problem: Problem


class Draws(NamedTuple):
    """Draws of one data set: params, a pytree with leaves (draws, *shape); rhat, divergences: of its chains."""

    params: Any
    rhat: float
    divergences: int


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
        'nuts': all data sets at once, in slots. Another method of `sample`, or a function (problem, seed) → Posterior:
        one data set after the other.
    n
        data sets. Subtle errors need many: 1000 show a bias of 0.1 standard deviations.
    draw
        (key) → true parameters, for priors that are terms; by default they are drawn from the problem's priors.
    ranks
        draws of each posterior, evenly spaced, among which the truth is ranked; they should be nearly independent.
    seed
        of everything random.
    options
        of the method; for 'nuts' also slots, how many data sets run at the same time.

    Example: `calibrate(make_problem, {"tau": 1.0}, n=100, draws=200)`.

    """
    if n < 10 or ranks < 9:
        raise ValueError(f"calibrate: n={n} data sets and ranks={ranks} must be at least 10 and 9 to show anything.")
    template = for_caller(make_problem)(x0, jax.random.key(seed))
    if not isinstance(template, Problem):
        raise TypeError(f"calibrate: make_problem returned {type(template).__name__}, not a Problem.")
    data = [_simulate(make_problem, template, draw, jax.random.fold_in(jax.random.key(seed), i)) for i in range(n)]
    if method == "nuts":
        runs = _in_slots(template, data, ranks, seed, options)
    else:
        runs = _one_by_one(method, data, ranks, seed, options)
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
    truth = _from_priors(template, truth_key) if draw is None else for_caller(draw)(truth_key)
    truth = jax.tree.map(np.asarray, truth)
    problem = for_caller(make_problem)(truth, data_key)
    if not _alike(template.objective, problem.objective) or problem.space != template.space:
        raise ValueError(
            "calibrate: make_problem returned another kind of problem than the first time. Define the functions of its "
            "terms once, outside make_problem, give all data sets one shape, and let rows alone depend on params."
        )
    return DataSet(truth, problem)


def _from_priors(problem: Problem, key: Any) -> Any:
    """Draw parameters from the problem's priors; held numbers stay."""
    space, leaves = problem.space, jax.tree.leaves(problem.x0)
    entries = spread("priors", problem.priors, problem.x0)
    drawn = []
    with arithmetic(problem.precision):
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


def _alike(one: Objective, other: Objective) -> bool:
    """Whether two objectives differ in their rows alone."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    for a, b in zip(one.terms, other.terms, strict=True):
        if isinstance(a, RowTerm) and isinstance(b, RowTerm):
            if jax.tree.map(np.shape, a.rows) != jax.tree.map(np.shape, b.rows):
                return False
            a, b = replace(a, rows=None), replace(b, rows=None)
        if not all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)):
            return False
    return True


def _in_slots(
    template: Problem, data: list[DataSet], ranks: int, seed: int, options: dict[str, Any]
) -> Iterator[tuple[int, Draws | str]]:
    """Yield the draws of NUTS for every data set, as they end: one program whose rows differ from slot to slot."""
    options = dict(options)
    slots = min(options.pop("slots", SLOTS), len(data))
    solver = NUTS(**{"warmup": 300, "draws": 250, **options})
    target = sampled(template, "calibrate")
    parts = tuple(sampled(one.problem, "calibrate").objective for one in data)
    start = find_start(target, seed=seed)
    family = Shards(target, parts, _modes(target, parts, slots))
    for finished in Engine(family, solver, slots, seed=seed, given=start.given).run(family.points()):
        for point in finished:
            if point.failed:
                yield point.id, point.reason or "the sampler failed."
                continue
            z, diverging = point.payload["z"], int(point.payload["diverging"].sum())
            with arithmetic(target.precision):
                params = jax.tree.map(np.asarray, _parameters(target.space, _spaced(z, ranks)))
            yield point.id, Draws(params, _largest_rhat(z), diverging)


def _modes(target: Problem, parts: tuple[Objective, ...], slots: int) -> np.ndarray:
    """Return where chains begin, (n, size): the mode of each data set, x0 where a fit finds none."""
    z = np.tile(target.z0(), (len(parts), 1))
    density = as_objective(target)
    stretch = density.objective.terms[-1]  # what it adds to each part
    densities = tuple(replace_terms(density.objective, (*part.terms, stretch)) for part in parts)
    family = Shards(density, densities, z[0])
    for finished in Engine(family, LBFGS(maxiter=STEPS), slots).run(family.points()):
        for point in finished:
            if not point.failed and point.z is not None:
                z[point.id] = point.z
    return z


def _one_by_one(
    method: str | Callable[[Problem, int], Posterior],
    data: list[DataSet],
    ranks: int,
    seed: int,
    options: dict[str, Any],
) -> Iterator[tuple[int, Draws | str]]:
    for i, one in enumerate(data):
        own = int(np.random.SeedSequence([seed, i]).generate_state(1)[0])
        if callable(method):
            posterior = method(one.problem, own, **options)
        else:
            posterior = sample(one.problem, method, seed=own, **{"progress": False, **options})
        chosen = _chosen(posterior, ranks, np.random.default_rng([seed, i, 1]))
        params = jax.tree.map(lambda leaf, at=chosen: np.reshape(leaf, (-1, *np.shape(leaf)[2:]))[at], posterior.draws)
        diverging = int(np.sum(posterior.stats.get("diverging", 0)))
        # independent draws have no chains that could differ
        ratio = 1.0 if posterior.extra.get("independent") else _largest_rhat(posterior.z)
        yield i, Draws(params, ratio, diverging)


def _chosen(posterior: Posterior, ranks: int, rng: np.random.Generator) -> np.ndarray:
    """Return the numbers of the draws to rank among: evenly spaced, or drawn by their weights."""
    if posterior.weights is None:
        return np.linspace(0, posterior.size - 1, ranks).round().astype(int)
    weights = posterior.weights.ravel()
    return rng.choice(posterior.size, ranks, p=weights / weights.sum())


def _spaced(z: np.ndarray, ranks: int) -> np.ndarray:
    flat = z.reshape(-1, z.shape[-1])
    if len(flat) < ranks:
        raise ValueError(f"calibrate: {len(flat)} draws per data set are fewer than ranks={ranks}. Draw more.")
    return flat[np.linspace(0, len(flat) - 1, ranks).round().astype(int)]


def _largest_rhat(z: np.ndarray) -> float:
    return float(np.max(rhat(z))) if z.shape[1] >= FEWEST_DRAWS else np.nan


def _ranks(one: DataSet, draws: Draws, rng: np.random.Generator) -> np.ndarray:
    """Return the rank of the truth among the draws, for every free number and for the log density; ties by lot."""
    problem = one.problem
    truth = jax.tree.map(lambda leaf: np.asarray(leaf)[None], one.truth)
    with arithmetic(problem.precision):
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


@jax.jit
def _parameters(space: Space, z: jax.Array) -> Any:
    return jax.vmap(space.unpack)(z)
