"""Where a search begins: the best of many candidates on thinned data, each searched from there for a moment.

Thinned data always have the same shape, whatever they are thinned from, so their programs are compiled once for all.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.fast_compile import fast_compile_jit
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.precision import arithmetic
from shardfit.core.status import Status
from shardfit.domains.xpcs.bins import Binned
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.groups import Grouped
from shardfit.domains.xpcs.models import Model
from shardfit.domains.xpcs.problem import FitOptions, parameter_table, setup
from shardfit.domains.xpcs.rates import Parameter
from shardfit.solve.lm import LM
from shardfit.solve.loop import answer, start, tick_once
from shardfit.stats.latin import latin_hypercube

CANDIDATES = 512
FRAMES, ANGLES = 48, 8  # of the thinned data
SEARCHED = 3  # candidates that are searched from, at least
MAXITER = 60
APART = 0.1  # relative distance of two minima that are not the same


def thinned(data: Correlation) -> Correlation:
    """Return every few frames and angles: fewer numbers, the same parameters."""
    if isinstance(data, Binned):
        return data
    step = max(1, data.n_frames // FRAMES)
    cut = slice(None, step * min(FRAMES, data.n_frames), step)
    keep = np.linspace(0, len(data.phi) - 1, min(ANGLES, len(data.phi))).round().astype(int)
    return data.take(np.sort(np.argsort(data.phi, kind="stable")[keep])).cut(cut)


@arithmetic("float64")
def find_starts(data: Correlation, model: Model, options: FitOptions, count: int, seed: int) -> list[dict[str, float]]:
    """Return up to `count` different starts of the model's parameters, best first; one if options give them all."""
    table = parameter_table(model, options)
    if {*options.start, *options.fixed} >= {*table}:
        return [{name: p.start for name, p in table.items()}]
    if isinstance(model, Grouped):  # all groups begin where one model for all of them ends
        given = {name: p.start for name, p in table.items() if name in {*options.start, *options.fixed}}
        common = replace(options, start={}, fixed={}, bounds={})
        return [{**model.spread(each), **given} for each in find_starts(data, model.model, common, count, seed)]
    simple: Any = {"loss": "linear", "scaling": "individual", "shear_weighted": False, "compat": None}
    thin = replace(options, **simple, even_scales=0.0, likelihood="points", errors="points")
    problem = setup(thinned(data), model, thin).problem
    columns = _candidates(table, {*options.start, *options.fixed}, seed)
    searched = max(SEARCHED, 2 * count if count > 1 else 0)
    values, params = jax.device_get(_search(searched, problem.objective, problem.space, problem.box, columns))
    reached = [(value, {n: float(params[n][i]) for n in table}) for i, value in enumerate(values) if np.isfinite(value)]
    return _different(reached, table)[:count]


def _candidates(table: Mapping[str, Parameter], known: set[str], seed: int) -> dict[str, np.ndarray]:
    """Return values (CANDIDATES,) of every parameter: spread over its range unless it is known or begins at zero."""
    loose = [name for name, p in table.items() if name not in known and not _offset_like(p)]
    points = latin_hypercube(CANDIDATES, max(1, len(loose)), np.random.default_rng(seed))
    columns = {name: np.full(CANDIDATES, p.start) for name, p in table.items()}
    return columns | {name: _spread(table[name], points[:, i]) for i, name in enumerate(loose)}


@partial(fast_compile_jit, static_argnums=0)
def _search(count: int, objective: Objective, space: Space, box: Any, columns: Mapping[str, np.ndarray]):
    """Return values (count,) and parameters (count,) that short searches from the best candidates reach."""
    values = jax.lax.map(objective.value, columns)
    best = jnp.argsort(jnp.where(jnp.isfinite(values), values, jnp.inf))[:count]
    solver = LM()

    def search(candidate):
        run = start(solver, space.pack(candidate), *box, jax.random.key(0), None)
        going = lambda run: (run.state.status == Status.RUNNING.code) & (run.ticks < MAXITER)  # noqa: E731
        run = jax.lax.while_loop(going, lambda run: tick_once(solver, space, objective, run, None), run)
        z, value = answer(run, False)
        return value, space.unpack(z)

    return jax.lax.map(search, jax.tree.map(lambda column: column[best], columns))


def _different(reached: list, table: Mapping[str, Parameter]) -> list[dict[str, float]]:
    """Return the parameters of different minima, the lowest first."""
    kept: list[dict[str, float]] = []
    for _, params in sorted(reached, key=lambda pair: pair[0]):
        if all(_distance(params, other, table) > APART for other in kept):
            kept.append(params)
    return kept


def about_minima(reached: list, table: Mapping[str, Parameter], variance: float) -> list[str]:
    """Return what to say of the minima (value, params) that several searches ended in."""
    if len(reached) < 2:
        return []
    reached = sorted(reached, key=lambda pair: pair[0])
    best = reached[0][0]
    equal = [pair for pair in reached if pair[0] - best < 0.5 * variance]  # less than 1 in χ² above the lowest
    places = _different(equal, table)
    spread = max(_distance(params, reached[0][1], table) for _, params in equal)
    text = f"{len(equal)} of {len(reached)} searches ended at the lowest value, parameters apart by up to {spread:.1%}."
    if len(places) > 1:
        text += f" {len(places)} different answers fit equally well: the data cannot tell them apart."
    return [text]


def _distance(one: Mapping, other: Mapping, table: Mapping[str, Parameter]) -> float:
    def scale(name):
        return max(abs(one[name]), abs(other[name]), 1e-3 * (table[name].upper - table[name].lower))

    return max(abs(one[name] - other[name]) / scale(name) for name in one)


def _offset_like(parameter: Parameter) -> bool:
    """Whether zero is the natural start: a quantity with a unit that may have either sign."""
    return parameter.lower < 0 < parameter.upper and parameter.unit not in ("", "°") and parameter.start == 0


def _spread(parameter: Parameter, unit: np.ndarray) -> np.ndarray:
    """Return candidates from points of the unit interval: in logarithm where the range is positive and wide."""
    low, high = parameter.lower, parameter.upper
    if low > 0 and high / low > 100:
        return low * (high / low) ** unit
    return low + (high - low) * unit
