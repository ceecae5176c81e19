"""The no-U-turn sampler as a step solver: chains of one target that share every evaluation and what they learn.

One tick evaluates the density once for every chain, and each takes its step in its own tree (trees.py). Chains are at
different transitions at any time: phases depend on a chain's own count, the metric and the step's length on what all
have handed in (adapt.py). Random numbers depend on key, chain and tick alone.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from shardfit.core.mesh import RUNS
from shardfit.core.status import Status
from shardfit.sampling.chains import trees
from shardfit.sampling.chains.adapt import (
    DENSE,
    FIRST,
    GROWTH,
    Pool,
    begin_steps,
    changed,
    collect,
    emptied,
    follow,
    guess_root,
    renew_root,
    usual_log_step,
    with_root,
)
from shardfit.sampling.chains.trees import Transition, Tree, choose
from shardfit.solve.base import ValueAndGrad, value_and_grad_parts
from shardfit.solve.points import placed
from shardfit.solve.step import StepSolver

EARLY_DEPTH = 8  # of trees until the metric is final: longer ones say that it is wrong, not where to go
CLOSING = 6  # the last 1/6 of warm-up is for the step's length alone
EXPLORING = 10  # transitions per chain during which the metric is made from all points, not only from draws
SOUND = 10.0  # error of the energy above which a point says more of the step's length than of the density
REFUSED, MOVING = 0.05, 0.3  # acceptance of a transition that led nowhere, and of one that did
STUCK = 2  # transitions in a row that lead nowhere while most chains move: the place is to blame, not the step
MOST_HALVINGS = 30
MOST_TRIES = 60  # halvings of the way from a start to the centre, until its density is finite
STATS = ("value", "energy", "accept", "step_size", "diverging", "depth", "gradients")  # columns beside a draw's z


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
class NUTS(StepSolver):
    """Chains of the no-U-turn sampler on the density exp(-objective) of the parameters, seen from coordinates z.

    warmup, draws: transitions per chain. target_accept: mean acceptance that the step's length aims at. max_depth: of
    trees, 2^max_depth - 1 gradients. temper: power of the transforms' Jacobian, 1/K for one of K shards.

    `begin` takes given={"root": L, "spread": s}: a factor of the covariance around z0, (n, n), or standard deviations
    (n,); chains then start at z0 + s·L·(normal numbers). Without it they start within ±s of z0. Or they start at
    given["points"] (chains, n), with or without a root.
    """

    chains: int = 4
    warmup: int = 300
    draws: int = 1000
    target_accept: float = 0.8
    max_depth: int = 10
    temper: float = 1.0
    maxiter: int = field(default=1, init=False, repr=False)
    ftol: float = field(default=0.0, init=False, repr=False)
    gtol: float = field(default=0.0, init=False, repr=False)
    xtol: float = field(default=0.0, init=False, repr=False)
    name: ClassVar[str] = "nuts"
    minimises: ClassVar[bool] = False

    def __post_init__(self):
        for option, least in {"chains": 1, "warmup": 20, "draws": 1, "max_depth": 1}.items():
            if getattr(self, option) < least:
                raise ValueError(f"nuts: {option}={getattr(self, option)} must be at least {least}.")
        if not 0 < self.target_accept < 1:
            raise ValueError(f"nuts: target_accept={self.target_accept} must lie between 0 and 1; 0.8 suits most.")
        if not self.temper > 0:
            raise ValueError(f"nuts: temper={self.temper} must be positive.")
        if self.max_depth > 20:
            raise ValueError(f"nuts: max_depth={self.max_depth} means 2^{self.max_depth} gradients. Use at most 20.")
        object.__setattr__(self, "maxiter", self.warmup + self.draws)

    @property
    def points(self) -> int:
        """Evaluations per tick."""
        return self.chains

    @property
    def closing(self) -> int:
        """Transition of a chain after which the metric stays."""
        return self.warmup - max(self.warmup // CLOSING, 10)

    def init(self, z0, lower, upper):
        """Return the state with all chains at z0; `begin` spreads them."""
        n, dtype, count = z0.shape[0], z0.dtype, jnp.zeros((), jnp.int32)
        log_step = jnp.asarray(usual_log_step(n), dtype)
        size = max(8 * min(n, DENSE), 400, 4 * self.chains)
        root = jnp.eye(n, dtype=dtype) if n <= DENSE else jnp.ones(n, dtype)
        pool = Pool(
            steps=begin_steps(log_step),
            root=root,
            transposed=root,
            recent=jnp.zeros((size, 2, n), dtype),
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
            kept=jnp.zeros((self.chains, self.draws, n + len(STATS)), dtype),
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
        given, n, dtype = given or {}, state.x.shape[0], state.x.dtype
        if "earlier" in given:
            return self._continued(state, given["earlier"])
        spread = jnp.asarray(given.get("spread", 1.0), dtype)
        state = state._replace(key=jax.random.key_data(key), spread=spread)
        # ticks count from zero: none will have these numbers
        ways = trees.draw_chance(state.key, jnp.uint32(2**32 - 1), self.chains, n, dtype).momentum
        if "points" in given:
            points = jnp.asarray(given["points"], dtype).T
            root = _root_of(jnp.asarray(given["root"], dtype), n) if "root" in given else None
            pool = state.pool if root is None else with_root(state.pool, root)._replace(informed=jnp.ones((), bool))
            return state._replace(trees=trees.plant(points, self.max_depth), centre=points, pool=pool)
        if "root" not in given:
            within = jax.lax.erf(ways / np.sqrt(2))  # uniform from -1 to 1
            return state._replace(trees=trees.plant(state.x[:, None] + spread * within, self.max_depth))
        root = _root_of(jnp.asarray(given["root"], dtype), n)
        planted = trees.plant(state.x[:, None] + spread * trees.along(root, ways), self.max_depth)
        return state._replace(trees=planted, pool=with_root(state.pool, root)._replace(informed=jnp.ones((), bool)))

    def evaluate(self, space, objective, z, key):
        """Return -log density and its gradient at z (chains, n), split over the mesh's axis `runs`."""
        mesh, n = objective.mesh, z.shape[0]
        runs = 1 if mesh is None else mesh.shape.get(RUNS, 1)

        def density(z):
            here = value_and_grad_parts(space, objective, z, key)[0]
            if space.plain:
                return here
            stretch, slope = jax.value_and_grad(space.log_jacobian)(z)
            return ValueAndGrad(here.value - self.temper * stretch, here.gradient - self.temper * slope)

        if runs == 1:
            return jax.vmap(density)(z)
        # copies of the last chain fill the devices: any other point could be outside the model's domain
        filled = jnp.concatenate([z, jnp.broadcast_to(z[-1], (-n % runs, z.shape[1]))])
        found = jax.vmap(density)(_unless_mapped(filled, mesh, RUNS))
        return jax.tree.map(lambda leaf: _unless_mapped(leaf[:n], mesh), found)

    def step(self, evaluate, state):
        """Move every chain by one gradient, and hand in what has ended."""
        pool, old = state.pool, state.trees
        z = trees.ask(old, pool.root)
        # the barrier keeps the model's program its own: a transposition that moves into its products makes them slow
        value, gradient = jax.lax.optimization_barrier(evaluate(jax.lax.optimization_barrier(z.T)))
        slope = trees.along(pool.transposed, gradient.T)
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
            kept=self._kept(state, grown, done, ends & ~warming),
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

    def _kept(self, state, grown: Tree, done: Transition, keeps):
        row = [grown.value, done.energy, done.accept, done.step, done.diverging, done.depth, done.gradients]
        row = jnp.concatenate([grown.draw, jnp.stack([column.astype(state.x.dtype) for column in row])]).T
        at = jnp.where(keeps, state.made - self.warmup, self.draws)
        return state.kept.at[jnp.arange(self.chains), at].set(row, mode="drop")

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
        guess = guess_root(pool.root, old.slope, state.spread)
        change = jnp.where(pool.informed, renew_root(pool), guess)
        renewed = changed(pool, change)
        usual = usual_log_step(state.x.shape[0])
        # too long a step ends trees at once, too short a one is found out after thousands of gradients
        log_step = jnp.where(pool.exploring, jnp.maximum(pool.log_mean, usual), pool.log_mean)
        renewed = renewed._replace(
            steps=begin_steps(log_step),
            next_at=(GROWTH * pool.collected).astype(jnp.int32) + FIRST * self.chains,
            informed=jnp.ones((), bool),
            closed=state.most >= self.closing,
        )
        planted = trees.restart(old, change)
        warming = state.made < self.warmup
        planted = self._with_lengths(planted, state.made <= self.warmup, warming, renewed, state.refused)
        # every chain is evaluated at once: those that have a density wait for those that have none
        halfway = trees.plant(0.5 * (old.vectors[0] + state.centre), self.max_depth)
        due = self._metric_due(state)
        return state._replace(
            trees=choose(due, planted, choose(old.started, old, halfway)),
            pool=choose(due, renewed, pool),
        )

    def glance(self, state):
        """Return divergences so far, and the draws that all chains have made."""
        n, made = state.x.shape[0], max(0, int(np.min(state.made)) - self.warmup)
        kept = np.asarray(state.kept[:, :made])
        return {"divergences": int(np.sum(kept[..., n + STATS.index("diverging")])), "draws": kept[..., :n]}

    def leave(self, state):
        """Return the payload, and under names that begin with `state_` all that more draws need to go on."""
        state = jax.device_get(state)
        rest = jax.tree.leaves(state._replace(kept=None))
        return self.payload(state) | {f"state_{i:03d}": leaf for i, leaf in enumerate(rest)}

    def _continued(self, state, earlier):
        """Return the state that an earlier run left, with room for new draws."""
        tree = jax.tree.structure(state._replace(kept=None))
        going = tree.unflatten([jnp.asarray(earlier[name]) for name in sorted(earlier)])
        made = jnp.full_like(going.made, self.warmup)
        status = jnp.full_like(going.status, Status.RUNNING.code)
        return going._replace(kept=state.kept, made=made, steps=made[0], most=made[0], status=status)

    def payload(self, state):
        """Return draws z (chains, draws, n), a column (chains, draws) for each of STATS, and counts of warm-up."""
        n = state.x.shape[0]
        columns = {name: state.kept[..., n + i] for i, name in enumerate(STATS)}
        columns["diverging"] = columns["diverging"] > 0.5
        for name in ("depth", "gradients"):
            columns[name] = columns[name].astype(np.int32)
        return {
            "z": state.kept[..., :n],
            **columns,
            "warmup_gradients": state.warm[0],
            "warmup_diverging": state.warm[1],
            "ticks": state.tick,
            "root": state.pool.root,
        }


def _unless_mapped(array: jax.Array, mesh: Mesh | None, *axes: str) -> jax.Array:
    """Return an array placed on the mesh; as it is where many runs are mapped, for then they are what `runs` splits."""

    @jax.custom_batching.custom_vmap
    def put(array):
        return placed(array, mesh, *axes)

    @put.def_vmap
    def _as_it_is(_size, mapped, array):
        return array, mapped[0]

    return put(array)


def _root_of(root: jax.Array, n: int) -> jax.Array:
    if root.shape not in ((n,), (n, n)) or (n > DENSE and root.ndim == 2):
        raise ValueError(
            f"nuts: root {root.shape} must be ({n},) standard deviations{f' or ({n}, {n})' if n <= DENSE else ''}."
        )
    return jnp.diag(root) if n <= DENSE and root.ndim == 1 else root
