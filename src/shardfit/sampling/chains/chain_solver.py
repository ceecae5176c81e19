"""What samplers by chains have in common: a step solver whose every tick evaluates the density once for each chain.

A sampler of one's own is a class like `NUTS` or `MAMS`: `ChainSolver` with `init`, `begin` and `step`, and a state that
has the fields of `StepState` and `made`, `kept`, `warm`, `key` and `tick`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from shardfit.core.mesh import RUNS
from shardfit.core.status import Status
from shardfit.sampling.chains.metric import Dense, LowRank, usual_metric
from shardfit.sampling.chains.trees import draw_normal
from shardfit.solve.base import ValueAndGrad, value_and_grad_parts
from shardfit.solve.points import placed
from shardfit.solve.step import StepSolver

MOST_TRIES = 60  # halvings of the way from a start to the centre, until its density is finite
BEFORE = 2**32 - 1  # the tick of random numbers that starts are drawn with: ticks count from zero
METRICS = {"dense": Dense, "low-rank": LowRank}


@dataclass(frozen=True, kw_only=True)
class ChainSolver(StepSolver):
    """Chains on the density exp(-objective) of the parameters, seen from coordinates z.

    warmup, draws: steps of warm-up, and transitions that are kept, per chain. temper: power of the transforms'
    Jacobian, 1/K for one of K shards. metric: 'dense', 'low-rank', a class with their methods, None by dimension.

    `begin` takes given={"root": L, "spread": s}: a factor of the covariance around z0, (n, n), or standard deviations
    (n,); chains then start at z0 + s·L·(normal numbers). Without it they start within ±s of z0. Or they start at
    given["points"] (chains, n), with or without a root. given["earlier"] goes on from where a run has left off.
    """

    chains: int = 4
    warmup: int = 300
    draws: int = 1000
    temper: float = 1.0
    metric: Any = None
    maxiter: int = field(default=1, init=False, repr=False)
    ftol: float = field(default=0.0, init=False, repr=False)
    gtol: float = field(default=0.0, init=False, repr=False)
    xtol: float = field(default=0.0, init=False, repr=False)
    minimises: ClassVar[bool] = False
    stats: ClassVar[tuple[str, ...]] = ()  # columns beside a draw's z
    least_warmup: ClassVar[int] = 20
    looks_outside: ClassVar[bool] = False  # chains can sit in a spike, so that mass elsewhere is looked for

    def __post_init__(self):
        for option, least in {"chains": 1, "warmup": self.least_warmup, "draws": 1}.items():
            if getattr(self, option) < least:
                raise ValueError(f"{self.name}: {option}={getattr(self, option)} must be at least {least}.")
        if not self.temper > 0:
            raise ValueError(f"{self.name}: temper={self.temper} must be positive.")
        if isinstance(self.metric, str) and self.metric not in METRICS:
            raise ValueError(f"{self.name}: metric={self.metric!r} must be one of {', '.join(map(repr, METRICS))}.")
        object.__setattr__(self, "maxiter", self.discarded + self.draws)

    @property
    def points(self) -> int:
        """Evaluations per tick."""
        return self.chains

    @property
    def discarded(self) -> int:
        """Steps and transitions of a chain before the first draw."""
        return self.warmup

    def metric_of(self, n: int) -> Any:
        """Return the class of metric for n coordinates."""
        if isinstance(self.metric, str):
            return METRICS[self.metric]
        return usual_metric(n) if self.metric is None else self.metric

    def starts(self, z0: jax.Array, key: jax.Array, given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Return starts (n, chains), a metric or None, and what starts lie around (n, chains)."""
        n, dtype = z0.shape[0], z0.dtype
        spread = jnp.asarray(given.get("spread", 1.0), dtype)
        metric = self._given_metric(jnp.asarray(given["root"], dtype), n) if "root" in given else None
        centre = jnp.broadcast_to(z0[:, None], (n, self.chains))
        if "points" in given:
            points = jnp.asarray(given["points"], dtype).T
            return points, metric, points
        ways = draw_normal(key, jnp.uint32(BEFORE), self.chains, n, dtype)
        # without a metric: uniform from -1 to 1
        away = jax.lax.erf(ways / np.sqrt(2)) if metric is None else metric.along(ways)
        return centre + spread * away, metric, centre

    def _given_metric(self, root: jax.Array, n: int) -> Any:
        if root.shape not in ((n,), (n, n)):
            raise ValueError(f"{self.name}: root {root.shape} must be ({n},) standard deviations, or ({n}, {n}).")
        kind = self.metric_of(n)
        whole = root.ndim == 1 or kind is Dense
        return kind.of(root if whole else jnp.linalg.norm(root, axis=1))

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

    def look(self, evaluate: Any, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return -log density (chains,) and gradient (n, chains) at z (n, chains)."""
        # the barrier keeps the model's program its own: a transposition that moves into its products makes them slow
        value, gradient = jax.lax.optimization_barrier(evaluate(jax.lax.optimization_barrier(z.T)))
        return value, gradient.T

    def empty(self, n: int, dtype: Any) -> jax.Array:
        """Return room for all draws and their columns of statistics."""
        return jnp.zeros((self.chains, self.draws, n + len(self.stats)), dtype)

    def with_row(self, state: Any, z: jax.Array, columns: list[jax.Array], keeps: jax.Array) -> jax.Array:
        """Return the kept draws with another of each chain that keeps (chains,); columns: each (chains,)."""
        row = jnp.concatenate([z, jnp.stack([column.astype(z.dtype) for column in columns])]).T
        at = jnp.where(keeps, state.made - self.discarded, self.draws)
        return state.kept.at[jnp.arange(self.chains), at].set(row, mode="drop")

    def glance(self, state):
        """Return divergences so far, and the draws that all chains have made."""
        n, made = state.x.shape[0], max(0, int(np.min(state.made)) - self.discarded)
        kept = np.asarray(state.kept[:, :made])
        return {"divergences": int(np.sum(kept[..., n + self.stats.index("diverging")])), "draws": kept[..., :n]}

    def leave(self, state):
        """Return the payload, and under names that begin with `state_` all that more draws need to go on."""
        state = jax.device_get(state)
        rest = jax.tree.leaves(state._replace(kept=None))
        return self.payload(state) | {f"state_{i:03d}": leaf for i, leaf in enumerate(rest)}

    def continued(self, state, earlier):
        """Return the state that an earlier run left, with room for new draws."""
        tree = jax.tree.structure(state._replace(kept=None))
        going = tree.unflatten([jnp.asarray(earlier[name]) for name in sorted(earlier)])
        made = jnp.full_like(going.made, self.discarded)
        status = jnp.full_like(going.status, Status.RUNNING.code)
        steps = jnp.full_like(going.steps, self.discarded)
        return going._replace(kept=state.kept, made=made, steps=steps, status=status)

    def payload(self, state):
        """Return draws z (chains, draws, n), a column (chains, draws) for each of stats, and counts of warm-up."""
        n = state.x.shape[0]
        columns = {name: state.kept[..., n + i] for i, name in enumerate(self.stats)}
        columns["diverging"] = columns["diverging"] > 0.5
        for name in {"depth", "gradients"} & columns.keys():
            columns[name] = columns[name].astype(np.int32)
        warm = {"warmup_gradients": state.warm[0], "warmup_diverging": state.warm[1]}
        return {"z": state.kept[..., :n], **columns, **warm, "ticks": state.tick}

    def told(self, results: list[dict]) -> dict[str, Any]:
        """Return what the posterior keeps, besides draws and statistics, of the payloads of all groups of chains."""
        return {}


def _unless_mapped(array: jax.Array, mesh: Mesh | None, *axes: str) -> jax.Array:
    """Return an array placed on the mesh; as it is where many runs are mapped, for then they are what `runs` splits."""

    @jax.custom_batching.custom_vmap
    def put(array):
        return placed(array, mesh, *axes)

    @put.def_vmap
    def _as_it_is(_size, mapped, array):
        return array, mapped[0]

    return put(array)
