"""What an objective does over a box of parameters, and along a fit: scans and trajectories."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core import reduce
from shardfit.core.bounds import ends_of
from shardfit.core.current import working_on_it
from shardfit.core.evaluations import named_parts
from shardfit.core.params import broadcast_prefix, make_space
from shardfit.core.problem import Problem
from shardfit.core.terms import Penalty, weighted_sum
from shardfit.stats.latin import latin_hypercube


class Scan(NamedTuple):
    """Draws of a scan, leading axis n: params like x0, values, unweighted parts, summed statistics of the row terms."""

    params: Any
    values: Any
    parts: dict[str, Any]
    statistics: dict[str, Any]


@working_on_it
def scan(problem: Problem, n: int, bounds: Any = None, *, seed: int = 0, mesh: Any = None) -> Scan:
    """Evaluate n parameter points of a Latin hypercube, one after the other in one compiled loop.

    bounds: as in Problem, finite; the problem's own unless given. A stochastic objective uses one key for all points.

    Example: `draws = scan(problem, 200, {"a": (0, 1), "b": (-2, 2)}); draws.params["a"][draws.values.argmin()]`.
    """
    if n < 1:
        raise ValueError(f"scan: n={n} must be at least 1.")
    held = [problem.space.held_at(i) for i in range(len(problem.space.shapes))]
    # of the free parameters themselves, without transforms
    space = make_space(problem.x0, held=held, ties=problem.space.ties)
    pairs = broadcast_prefix("bounds", problem.bounds if bounds is None else bounds, problem.x0)
    ends = [ends_of(*leaf) for leaf in zip(space.labels, pairs, space.shapes, strict=True)]
    lower, upper = (np.concatenate([end[side][~h] for end, h in zip(ends, held, strict=True)]) for side in (0, 1))
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError(
            "scan: every free parameter needs two finite bounds. Pass bounds={'name': (lower, upper), ...}."
        )
    points = lower + (upper - lower) * latin_hypercube(n, space.size, np.random.default_rng(seed))
    placed = problem.objective.place(mesh)
    key = jax.random.key(seed) if placed.stochastic else None
    draws = _evaluate(space, placed, points.astype(problem.z0().dtype), key)
    return jax.tree.map(np.asarray, draws)


@jax.jit
def _evaluate(space, objective, points, key):
    def one(z):
        params, terms = space.unpack(z), objective.terms
        sums = reduce.totals(objective.mesh, terms, params, key)
        losses = tuple(
            t.losses(params) if isinstance(t, Penalty) else reduce.scaled_losses(t, s, reduce.term_key(t, key, i))
            for i, (t, s) in enumerate(zip(terms, sums, strict=True))
        )
        value = sum(weighted_sum(t.weight, loss) for t, loss in zip(terms, losses, strict=True))
        statistics = {name: s for name, s in zip(objective.names, sums, strict=True) if s is not None}
        return Scan(params, value, named_parts(objective.names, losses), statistics)

    return jax.lax.map(one, points)


class Trajectory(NamedTuple):
    """Way of a fit: params like x0 and values (n,), with a leading axis; row 0 is the start."""

    params: Any
    values: np.ndarray


@working_on_it
def trajectory(problem: Problem, history: dict[str, np.ndarray], thin: int = 1) -> Trajectory:
    """Return the parameters along a fit with keep=1, each with the value there.

    thin: t keeps the start and then the last of every t steps, the final one included; 0 keeps the final one only,
    still with a leading axis.

    Example: `result = fit(problem, "adam", keep=1); trajectory(problem, result.history, thin=10).params`.
    """
    if "x" not in history or len(history["x"]) != len(history["value"]):
        raise ValueError(
            "trajectory: this history has no parameters of every step. Fit with an optax solver and keep=1."
        )
    if thin < 0:
        raise ValueError(f"trajectory: thin={thin} must be zero or positive.")
    last = len(history["value"]) - 1
    rows = np.array([last]) if thin == 0 else np.unique(np.append(np.arange(0, last + 1, thin), last))
    params = jax.vmap(problem.space.unpack)(jnp.asarray(history["x"][rows]))
    return Trajectory(jax.tree.map(np.asarray, params), history["value"][rows])
