"""CMA-ES: a global search in a box that learns the shape of the valley it is in, and needs no gradient.

Points are drawn from a normal distribution whose mean, covariance and size follow the better ones (Hansen's tutorial,
arXiv:1604.00772, with negative weights). One tick evaluates `population` points. A restart may use more: its generation
then takes several ticks, so that shapes stay fixed and runs, checkpoints and meshes are those of every step solver.
Random numbers depend on seed and tick alone. Beyond the box the function is continued by reflection.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.status import Status
from shardfit.solve.box_search import BoxSearch, times

LARGEST_GROWTH = 64  # times the first population: a restart's is never larger
WORST_CONDITION = 1e14  # of the covariance: its axes can no longer be told from rounding
WIDEST = 1e3  # box widths that the distribution may have: the function says nothing about where to go


class State(NamedTuple):
    """Best point ever seen, the distribution (in box widths), and the generation that is being evaluated."""

    x: jax.Array
    value: jax.Array
    gradient: None
    status: jax.Array
    steps: jax.Array
    mean: jax.Array  # (n,)
    sigma: jax.Array
    covariance: jax.Array  # (n, n)
    axes: jax.Array  # (n, n) columns, with lengths (n,): its square root
    lengths: jax.Array
    path: jax.Array  # (n,) of the mean, for the covariance
    turned_path: jax.Array  # (n,) the same without the covariance, for sigma
    draws: jax.Array  # (largest, n) unit normals of this generation
    losses: jax.Array  # (largest,)
    filled: jax.Array  # how many of them are evaluated
    size: jax.Array  # of a generation
    generation: jax.Array  # of this run
    best: jax.Array  # value of this run
    stale: jax.Array  # generations since it improved
    ended: jax.Array  # status code of the run that found x
    restart: jax.Array
    grown: jax.Array  # size of the last run of the growing kind
    spent: jax.Array  # (2,) evaluations of growing and of small runs
    small: jax.Array  # whether this run is a small one
    nonfinite: jax.Array
    lower: jax.Array
    width: jax.Array
    key: jax.Array  # raw, so that a checkpoint can hold it


class Rates(NamedTuple):
    """Weights of points by rank, and how quickly each part of the distribution follows."""

    weights: jax.Array  # (largest,) positive ones add up to 1
    mass: jax.Array  # how many points the positive ones are worth
    path: jax.Array
    turned_path: jax.Array
    rank_one: jax.Array
    rank_mu: jax.Array
    damping: jax.Array


@dataclass(frozen=True, kw_only=True)
class CMAES(BoxSearch):
    """Covariance matrix adaptation, with restarts.

    Every parameter needs finite bounds. The first run starts at x0, restarts anywhere in the box.

    population: points evaluated per step; 4 + 3·log(n) is the least that works, more are better with many minima.
    maxiter: steps, so that population · maxiter is the number of evaluations. sigma: first spread, in box widths.
    restarts: at most this many more runs once one has converged or is stuck. growth: 'ipop' doubles the generation with
    each restart (up to 64 times), 'bipop' spends as many evaluations on small runs of narrower spread in between.
    xtol: a run has converged once its distribution is narrower than this (box widths); ftol: once values of a
    generation differ by less than this (relative) and the last 10 + 30 n / size of them improved nothing. at_once: as
    for a swarm.

    Example: `fit(problem, "cmaes", restarts=5, maxiter=2000)`.
    """

    population: int = 20
    maxiter: int = 1000
    sigma: float = 0.25
    restarts: int = 0
    growth: str = "ipop"
    at_once: int | None = None
    ftol: float = 1e-12
    gtol: float = 0.0
    xtol: float = 1e-11
    differentiates: ClassVar[bool] = False
    name: ClassVar[str] = "cmaes"

    def __post_init__(self):
        super().__post_init__()
        self.require_least({"population": 4, "restarts": 0, "at_once": 1})
        if not 0 < self.sigma <= 1:
            raise ValueError(f"cmaes: sigma={self.sigma} must be between 0 and 1: it is in box widths.")
        if self.growth not in ("ipop", "bipop"):
            raise ValueError(f"cmaes: growth={self.growth!r} must be 'ipop' or 'bipop'.")
        if self.gtol:
            raise ValueError("cmaes: gtol needs a gradient, which CMA-ES does not compute. Use xtol or ftol.")

    @property
    def points(self) -> int:
        """Evaluations per tick."""
        return self.population

    @property
    def largest(self) -> int:
        """Points of the largest generation that restarts may come to."""
        return self.population * min(LARGEST_GROWTH, 2 ** min(self.restarts, 6))

    def init(self, z0, lower, upper):
        """Return the state before the first generation."""
        n, dtype = z0.shape[0], z0.dtype
        lower = z0 if lower is None else lower
        width = jnp.ones_like(z0) if upper is None else jnp.where(upper > lower, upper - lower, 1)
        count, far = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype)
        size = jnp.full((), self.population, jnp.int32)
        return State(
            x=z0,
            value=far,
            gradient=None,
            status=count,
            steps=count,
            **_spread((z0 - lower) / width, jnp.full((), self.sigma, dtype)),
            draws=jnp.zeros((self.largest, n), dtype),
            losses=jnp.full(self.largest, jnp.inf, dtype),
            filled=count,
            size=size,
            generation=count,
            best=far,
            stale=count,
            ended=count,
            restart=count,
            grown=size,
            spent=jnp.zeros(2, jnp.int32),
            small=jnp.zeros((), bool),
            nonfinite=count,
            lower=lower,
            width=width,
            key=jnp.zeros(2, jnp.uint32),
        )

    def begin(self, state, key, given):
        """Return the initial state with its random key."""
        return state._replace(key=jax.random.key_data(key))

    def step(self, evaluate: Callable, state: State) -> State:
        """Draw and evaluate one part of a generation; follow its better points once it is whole."""
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.steps)
        draws = jax.random.normal(key, (self.population, state.x.shape[0]), state.x.dtype)
        places = state.lower + state.width * reflected(state.mean + state.sigma * _stretched(state, draws))
        state = self._remember(state, draws, places, evaluate(places))
        state = jax.lax.cond(state.filled >= state.size, self._generation, lambda s: s, state)
        return state._replace(steps=state.steps + 1)

    def _remember(self, state, draws, places, losses):
        finite = jnp.isfinite(losses)
        losses = jnp.where(finite, losses, jnp.inf)
        first = jnp.argmin(losses)
        better = losses[first] < state.value
        return state._replace(
            x=jnp.where(better, places[first], state.x),
            value=jnp.where(better, losses[first], state.value),
            ended=jnp.where(better, 0, state.ended),
            draws=jax.lax.dynamic_update_slice(state.draws, draws, (state.filled, jnp.zeros((), jnp.int32))),
            losses=jax.lax.dynamic_update_slice(state.losses, losses, (state.filled,)),
            filled=state.filled + self.population,
            nonfinite=state.nonfinite + jnp.sum(~finite, dtype=jnp.int32),
        )

    def _generation(self, state):
        """Return the state after a whole generation: moved, and stopped or started anew where that is due."""
        best, flat = jnp.min(state.losses), _flat(state, self.ftol)
        size = jnp.where(jnp.isfinite(state.best), jnp.abs(state.best), 0)  # ftol·inf would be NaN
        improved = best < state.best - self.ftol * size
        state = _followed(state)._replace(
            best=jnp.minimum(best, state.best),
            stale=jnp.where(improved, 0, state.stale + 1),
            spent=state.spent.at[state.small.astype(jnp.int32)].add(state.size),
            losses=jnp.full_like(state.losses, jnp.inf),
            filled=jnp.zeros((), jnp.int32),
            generation=state.generation + 1,
        )
        code = self._code(state, flat)
        state = state._replace(ended=jnp.where(state.best <= state.value, code, state.ended))
        stopped = code != Status.RUNNING.code
        if self.restarts:
            again = stopped & (state.restart < self.restarts)
            state = jax.lax.cond(again, self._anew, lambda s: s, state)
            stopped &= ~again
        # of several runs, the one that found the answer says how it ended
        return state._replace(status=jnp.where(stopped, state.ended, 0).astype(jnp.int32))

    def _code(self, state, flat):
        """Return how this run has ended; 0 while it goes on. flat: the last generation's values were all the same."""
        n = state.x.shape[0]
        spread = state.sigma * jnp.maximum(jnp.sqrt(jnp.max(jnp.diag(state.covariance))), jnp.max(jnp.abs(state.path)))
        condition = (jnp.max(state.lengths) / jnp.min(state.lengths)) ** 2
        stuck = (condition > WORST_CONDITION) | (state.sigma > WIDEST) | ~jnp.isfinite(state.sigma)
        stuck |= state.stale >= 100 + 100 * n**1.5 / state.size
        code = jnp.where(stuck | ~jnp.isfinite(state.best), Status.STALLED.code, Status.RUNNING.code)
        code = jnp.where(flat & (state.stale >= 10 + 30 * n / state.size), Status.CONVERGED_VALUE.code, code)
        code = jnp.where(spread < self.xtol, Status.CONVERGED_STEP.code, code)
        return jnp.where(jnp.isfinite(state.value), code, Status.NONFINITE.code).astype(jnp.int32)

    def _anew(self, state):
        """Return the state at the start of another run, somewhere in the box."""
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), -1 - state.restart)
        place, narrow, fewer = jax.random.split(key, 3)
        grown = jnp.minimum(2 * state.grown, self.largest)
        size, sigma, small = grown, jnp.full_like(state.sigma, self.sigma), jnp.zeros((), bool)
        if self.growth == "bipop":
            small = state.spent[1] < state.spent[0]
            share = jax.random.uniform(fewer, (), sigma.dtype) ** 2
            times = (0.5 * grown / self.population) ** share
            size = jnp.where(small, self.population * jnp.floor(times).astype(jnp.int32), grown)
            sigma = jnp.where(small, sigma * 10 ** (-2 * jax.random.uniform(narrow, (), sigma.dtype)), sigma)
            grown = jnp.where(small, state.grown, grown)
        mean = jax.random.uniform(place, state.mean.shape, state.mean.dtype)
        return state._replace(
            **_spread(mean, sigma),
            size=jnp.maximum(size, self.population),
            generation=jnp.zeros((), jnp.int32),
            best=jnp.full_like(state.best, jnp.inf),
            stale=jnp.zeros((), jnp.int32),
            restart=state.restart + 1,
            grown=grown,
            small=small,
        )

    def glance(self, state):
        """Return the spread of the distribution, for a progress display."""
        return {"spread": float(state.sigma * jnp.max(state.lengths))}

    def again(self, state):
        """Say how often it was started again, and how large it had become."""
        return f"It was started again {times(state.restart)}, last with {int(state.size)} points."


def _flat(state: State, ftol: float) -> jax.Array:
    """Return whether the values of a generation differ by less than ftol, relative to the least."""
    finite = jnp.isfinite(state.losses)
    least, most = jnp.min(state.losses), jnp.max(jnp.where(finite, state.losses, -jnp.inf))
    return most - least <= ftol * jnp.abs(least)


def reflected(place: jax.Array) -> jax.Array:
    """Return where in the unit box a point lies when the box is continued by mirror images."""
    return 1 - jnp.abs(1 - jnp.mod(place, 2))


def _spread(mean, sigma) -> dict[str, Any]:
    """Return the parts of a round distribution."""
    n, dtype = mean.shape[0], mean.dtype
    parts = {"covariance": jnp.eye(n, dtype=dtype), "axes": jnp.eye(n, dtype=dtype), "lengths": jnp.ones(n, dtype)}
    return {"mean": mean, "sigma": sigma, "path": jnp.zeros(n, dtype), "turned_path": jnp.zeros(n, dtype), **parts}


def _stretched(state, draws):
    return (draws * state.lengths) @ state.axes.T


def rates(n: int, size: Any, largest: int, dtype: Any) -> Rates:
    """Return weights and rates of a generation of some size; weights beyond it are zero."""
    rank = jnp.arange(1, largest + 1, dtype=dtype)
    raw = jnp.where(rank <= size, jnp.log((size + 1) / 2) - jnp.log(rank), 0.0)
    good, bad = jnp.maximum(raw, 0), jnp.minimum(raw, 0)
    mass, bad_mass = (jnp.sum(w) ** 2 / jnp.sum(w**2) for w in (good, bad))
    rank_one = 2 / ((n + 1.3) ** 2 + mass)
    rank_mu = jnp.minimum(1 - rank_one, 2 * (0.25 + mass + 1 / mass - 2) / ((n + 2) ** 2 + mass))
    turned_path = (mass + 2) / (n + mass + 5)
    # as much negative weight as keeps the covariance positive
    most = (1 + rank_one / rank_mu, 1 + 2 * bad_mass / (mass + 2), (1 - rank_one - rank_mu) / (n * rank_mu))
    weights = good / jnp.sum(good) - bad / jnp.sum(bad) * jnp.min(jnp.stack(most))
    damping = 1 + 2 * jnp.maximum(0, jnp.sqrt((mass - 1) / (n + 1)) - 1) + turned_path
    path = (4 + mass / n) / (n + 4 + 2 * mass / n)
    return Rates(weights.astype(dtype), mass, path, turned_path, rank_one, rank_mu, damping)


def _followed(state: State) -> State:
    """Return the state with the distribution moved towards the better points of the generation."""
    n, dtype = state.x.shape[0], state.x.dtype
    r = rates(n, state.size, state.losses.shape[0], dtype)
    z = state.draws[jnp.argsort(state.losses)]
    y, good = _stretched(state, z), jnp.maximum(r.weights, 0)
    step, turned_step = good @ y, state.axes @ (good @ z)
    length = jnp.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))  # of a unit normal vector, on average
    turned = (1 - r.turned_path) * state.turned_path
    turned += jnp.sqrt(r.turned_path * (2 - r.turned_path) * r.mass) * turned_step
    far = jnp.linalg.norm(turned)
    settled = jnp.sqrt(1 - (1 - r.turned_path) ** (2.0 * (state.generation + 1)))
    steady = (far / settled < (1.4 + 2 / (n + 1)) * length).astype(dtype)
    path = (1 - r.path) * state.path + steady * jnp.sqrt(r.path * (2 - r.path) * r.mass) * step
    shares = jnp.where(r.weights < 0, r.weights * n / jnp.maximum(jnp.sum(z**2, 1), 1e-30), r.weights)
    kept = 1 - r.rank_one - r.rank_mu * jnp.sum(r.weights) + r.rank_one * (1 - steady) * r.path * (2 - r.path)
    covariance = kept * state.covariance + r.rank_one * jnp.outer(path, path) + r.rank_mu * (y.T * shares) @ y
    covariance = (covariance + covariance.T) / 2
    squares, axes = jnp.linalg.eigh(covariance)
    growth = jnp.exp(jnp.minimum(1, r.turned_path / r.damping * (far / length - 1)))
    return state._replace(
        mean=state.mean + state.sigma * step,
        sigma=(state.sigma * growth).astype(dtype),
        covariance=covariance,
        axes=axes,
        lengths=jnp.sqrt(jnp.maximum(squares, jnp.finfo(dtype).tiny)),
        path=path,
        turned_path=turned,
    )
