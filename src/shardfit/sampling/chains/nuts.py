"""The no-U-turn sampler as a step solver: chains of one target that share every evaluation and what they learn.

One tick evaluates the density once for every chain, and each takes its step in its own tree (trees.py). Chains are at
different transitions at any time: phases depend on a chain's own count, the metric and the step's length on what all
have handed in (adapt.py). Random numbers depend on key, chain and tick alone.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.status import Status
from shardfit.sampling.chains import trees
from shardfit.sampling.chains.adapt import (
    FIRST,
    GROWTH,
    Pool,
    begin_steps,
    collect,
    emptied,
    follow,
    guessed,
    renewed,
    usual_log_step,
)
from shardfit.sampling.chains.chain_solver import MOST_TRIES, ChainSolver
from shardfit.sampling.chains.metric import most_draws
from shardfit.sampling.chains.trees import Tree, choose

EARLY_DEPTH = 8  # of trees until the metric is final: longer ones say that it is wrong, not where to go
CLOSING = 6  # the last 1/6 of warm-up is for the step's length alone
EXPLORING = 10  # transitions per chain during which the metric is made from all points, not only from draws
SOUND = 10.0  # error of the energy above which a point says more of the step's length than of the density
REFUSED, MOVING = 0.05, 0.3  # acceptance of a transition that led nowhere, and of one that did
STUCK = 2  # transitions in a row that lead nowhere while most chains move: the place is to blame, not the step
MOST_HALVINGS = 30


class State(NamedTuple):
    """x, value: the newest draw of the first chain. steps, most: transitions of the slowest and the fastest.

    trees: (..., chains). made: (chains,) transitions. kept: (chains, draws, n + stats). warm: (2, chains) gradients and
    divergences of warm-up. latest: (chains,) acceptance of the newest transition. refused: (chains,) how many led
    nowhere in a row, less those since that did not; see `_refusals`. centre: (n, chains) where starts lie around.
    """

    x: jax.Array
    value: jax.Array
    gradient: None
    status: jax.Array
    steps: jax.Array
    most: jax.Array
    trees: Tree
    pool: Pool
    made: jax.Array
    kept: jax.Array
    warm: jax.Array
    latest: jax.Array
    refused: jax.Array
    centre: jax.Array
    spread: jax.Array
    tick: jax.Array
    key: jax.Array


@dataclass(frozen=True, kw_only=True)
class NUTS(ChainSolver):
    """Chains of the no-U-turn sampler.

    warmup: transitions of each chain. target_accept: mean acceptance that the step's length aims at. max_depth: of
    trees, 2^max_depth - 1 gradients. More options: `ChainSolver`.
    """

    target_accept: float = 0.8
    max_depth: int = 10
    name: ClassVar[str] = "nuts"
    stats: ClassVar[tuple[str, ...]] = ("value", "energy", "accept", "step_size", "diverging", "depth", "gradients")

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.target_accept < 1:
            raise ValueError(f"nuts: target_accept={self.target_accept} must lie between 0 and 1; 0.8 suits most.")
        if not 1 <= self.max_depth <= 20:
            raise ValueError(f"nuts: max_depth={self.max_depth} must lie between 1 and 20; 20 are 10^6 gradients.")

    @property
    def closing(self) -> int:
        """Transition of a chain after which the metric stays."""
        return self.warmup - max(self.warmup // CLOSING, 10)

    def init(self, z0, lower, upper):
        """Return the state with all chains at z0; `begin` spreads them."""
        n, dtype, count = z0.shape[0], z0.dtype, jnp.zeros((), jnp.int32)
        pool = Pool(
            steps=begin_steps(jnp.asarray(usual_log_step(n), dtype)),
            metric=self.metric_of(n).of(jnp.ones(n, dtype)),
            recent=jnp.zeros((most_draws(n, self.chains), 2, n), dtype),
            collected=count,
            next_at=count,
            informed=jnp.zeros((), bool),
            closed=jnp.zeros((), bool),
            exploring=jnp.ones((), bool),
        )
        pool, none = emptied(pool, self.chains), jnp.zeros(self.chains, jnp.int32)
        return State(
            x=z0,
            value=jnp.full((), jnp.inf, dtype),
            gradient=None,
            status=count,
            steps=count,
            most=count,
            trees=trees.plant(jnp.broadcast_to(z0[:, None], (n, self.chains)), self.max_depth),
            pool=pool,
            made=none,
            kept=self.empty(n, dtype),
            warm=jnp.stack([none, none]),
            latest=jnp.zeros(self.chains, dtype),
            refused=none,
            centre=jnp.broadcast_to(z0[:, None], (n, self.chains)),
            spread=jnp.ones((), dtype),
            tick=count,
            key=jnp.zeros(2, jnp.uint32),
        )

    def begin(self, state, key, given):
        """Draw the starts, around z0 by the given root of the covariance, or else uniformly."""
        given = given or {}
        if "earlier" in given:
            going = self.continued(state, given["earlier"])
            return going._replace(most=going.steps)
        state = state._replace(
            key=jax.random.key_data(key), spread=jnp.asarray(given.get("spread", 1.0), state.x.dtype)
        )
        z, metric, centre = self.starts(state.x, state.key, given)
        pool = state.pool if metric is None else state.pool._replace(metric=metric, informed=jnp.ones((), bool))
        return state._replace(trees=trees.plant(z, self.max_depth), centre=centre, pool=pool)

    def step(self, evaluate, state):
        """Move every chain by one gradient, and hand in what has ended."""
        pool, old = state.pool, state.trees
        z = trees.ask(old, pool.metric)
        value, gradient = self.look(evaluate, z)
        slope = pool.metric.against(gradient)
        chance = trees.draw_chance(state.key, state.tick, self.chains, z.shape[0], z.dtype)
        depth = jnp.where(pool.closed, self.max_depth, min(self.max_depth, EARLY_DEPTH))
        grown, done = trees.tell(old, z, value, slope, chance, depth)

        warming = state.made < self.warmup
        ends = done.ends & (state.made < self.maxiter)
        warm = ends & warming
        # the first chain to end its warm-up settles the length for all: chains of other lengths would end far apart
        free = state.refused < STUCK
        learns = warm & free & (state.most < self.warmup)
        steps = follow(pool.steps, done.accept, learns, self.target_accept)
        made = state.made + ends
        # at first every point counts: where gradients are linear, any few of them give the metric
        newest = jnp.where(pool.exploring, jnp.stack([z, slope]), grown.vectors[trees.DRAW])
        counts = jnp.where(pool.exploring, done.error < SOUND, warm & free)
        exploring = jnp.sum(made) < EXPLORING * self.chains
        pool = collect(pool._replace(steps=steps, exploring=exploring), newest.transpose(2, 0, 1), counts)
        pool = emptied(pool, self.chains, state.pool.exploring & ~exploring)
        begins = done.ends | (grown.started & ~old.started)
        latest, refused = self._refusals(state, done.accept, warm)
        grown = self._with_lengths(grown, begins & (made <= self.warmup), made < self.warmup, pool, refused)
        row = [grown.value, done.energy, done.accept, done.step, done.diverging, done.depth, done.gradients]
        least, most = jnp.min(made), jnp.max(made)
        failed = jnp.any(~grown.started) & (state.tick >= MOST_TRIES)
        code = jnp.where(failed, Status.NONFINITE.code, Status.RUNNING.code)
        return state._replace(
            x=grown.draw[:, 0],
            value=jnp.where(grown.started[0], grown.value[0], jnp.inf),
            status=jnp.where(least >= self.maxiter, Status.COMPLETED.code, code).astype(jnp.int32),
            steps=least,
            most=most,
            trees=grown,
            pool=pool,
            made=made,
            kept=self.with_row(state, grown.draw, row, ends & ~warming),
            warm=state.warm + jnp.where(warm, jnp.stack([done.gradients, done.diverging.astype(jnp.int32)]), 0),
            latest=latest,
            refused=refused,
            tick=state.tick + 1,
        )

    def _refusals(self, state, accept, warm):
        """Return the newest acceptance of every chain, and its count of refusals in warm-up.

        A chain that started where the common step is far too long would otherwise stay there, end transition after
        transition with one gradient each, and so outvote all others: the step of all would shrink to what it needs.
        It takes shorter steps of its own instead, and hands in nothing, until it has come away.
        """
        latest = jnp.where(warm, accept, state.latest)
        others_move = 2 * jnp.sum(latest > MOVING) >= self.chains
        count = jnp.where((accept < REFUSED) & others_move, state.refused + 1, state.refused - 1)
        return latest, jnp.where(warm, jnp.clip(count, 0, STUCK + MOST_HALVINGS), state.refused)

    def _with_lengths(self, grown, chosen, warming, pool, refused):
        """Give transitions that begin the length of the moment, or its mean from the first that is kept."""
        shorter = math.log(2) * jnp.maximum(refused - STUCK + 1, 0)
        return trees.with_length(grown, jnp.exp(jnp.where(warming, pool.log_step - shorter, pool.log_mean)), chosen)

    def _metric_due(self, state):
        pool, closes = state.pool, state.most >= self.closing
        wanted = ~pool.informed | (pool.collected >= pool.next_at) | closes
        return jnp.all(state.trees.started) & ~pool.closed & wanted

    def needs_maintenance(self, state):
        """Return whether the metric should be renewed, or a start has no density."""
        return self._metric_due(state) | (jnp.any(~state.trees.started) & (state.tick <= MOST_TRIES))

    def maintain(self, state):
        """Renew the metric and begin all trees anew in it; move starts without a density halfway to the centre."""
        pool, old = state.pool, state.trees
        fresh = choose(pool.informed, renewed(pool), guessed(pool, old.slope, state.spread))
        usual = usual_log_step(state.x.shape[0])
        # too long a step ends trees at once, too short a one is found out after thousands of gradients
        log_step = jnp.where(pool.exploring, jnp.maximum(pool.log_mean, usual), pool.log_mean)
        fresh = fresh._replace(
            steps=begin_steps(log_step),
            next_at=(GROWTH * pool.collected).astype(jnp.int32) + FIRST * self.chains,
            informed=jnp.ones((), bool),
            closed=state.most >= self.closing,
        )
        planted = trees.restart(old, fresh.metric.against(pool.metric.gradient(old.slope)))
        warming = state.made < self.warmup
        planted = self._with_lengths(planted, state.made <= self.warmup, warming, fresh, state.refused)
        # every chain is evaluated at once: those that have a density wait for those that have none
        halfway = trees.plant(0.5 * (old.vectors[0] + state.centre), self.max_depth)
        due = self._metric_due(state)
        return state._replace(
            trees=choose(due, planted, choose(old.started, old, halfway)),
            pool=choose(due, fresh, pool),
        )

    def told(self, results):
        """Return the largest depth of a tree, which says what the depths of draws mean."""
        return {"max_depth": self.max_depth}
