"""What all chains of one target learn together during warm-up: the length of steps, and the metric.

Nobody waits: chains hand in what they have when a transition ends, and take what is there when the next begins.

Step length: dual averaging (Nesterov; Hoffman & Gelman 2014) of the mean acceptance of as many transitions as there are
chains. Updating at every transition instead would act on results of steps that are no longer in use, and swing.

Metric: from draws and gradients (metric.py), in coordinates that the present metric whitens where there are few.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

GAIN, SETTLING, FORGETTING = 0.2, 10.0, 0.75  # gamma, t0 and kappa of dual averaging
FIRST, GROWTH = 10, 1.25  # transitions per chain before the first metric; how far apart later ones are

STEPS = ("log_step", "log_mean", "aim", "shortfall", "rounds", "accept", "count")


class Pool(NamedTuple):
    """steps: (7,) dual averaging of the logarithm of the step's length, named by STEPS. shortfall: running mean of
    target - acceptance; accept, count: of the round that is being collected.

    recent: ring (size, 2, n) of draws and slopes of warm-up. collected:
    draws that were ever put in; next_at: number of them at which the metric is renewed; closed: whether it is final.
    informed: whether the metric is better than a guess. exploring: whether it is made from all points.
    """

    steps: jax.Array
    metric: Any
    recent: jax.Array
    collected: jax.Array
    next_at: jax.Array
    informed: jax.Array
    closed: jax.Array
    exploring: jax.Array

    @property
    def log_step(self) -> jax.Array:
        """Logarithm of the length to try next."""
        return self.steps[0]

    @property
    def log_mean(self) -> jax.Array:
        """Logarithm of the length to stay with."""
        return self.steps[1]


def usual_log_step(n: int) -> float:
    """Return the logarithm of a step that suits n independent normal coordinates; too long is found out sooner."""
    return math.log(1.5) - 0.25 * math.log(n)


def begin_steps(log_step: jax.Array) -> jax.Array:
    """Return the averaging before its first round."""
    zero = jnp.zeros_like(log_step)
    return jnp.stack([log_step] * 3 + [zero] * 4)


def follow(steps: jax.Array, accept: jax.Array, counts: jax.Array, target: float) -> jax.Array:
    """Add acceptances (chains,) where counts; end the round when there are as many as chains."""
    _, log_mean, aim, shortfall, rounds, *collected = steps
    new = jnp.sum(jnp.where(counts, jnp.stack([accept, jnp.ones_like(accept)]), 0), 1)
    total, count = jnp.stack(collected) + new
    ends, rounds = count >= accept.shape[0], rounds + 1
    rate = 1 / (rounds + SETTLING)
    shortfall = (1 - rate) * shortfall + rate * (target - total / jnp.maximum(count, 1))
    log_step = aim - jnp.sqrt(rounds) / GAIN * shortfall
    share = rounds**-FORGETTING
    renewed = [log_step, share * log_step + (1 - share) * log_mean, aim, shortfall, rounds]
    none = jnp.zeros_like(total)
    return jnp.where(ends, jnp.stack([*renewed, none, none]), jnp.stack([*steps[:5], total, count]))


def emptied(pool: Pool, chains: int, when: jax.Array | bool = True) -> Pool:
    """Return the pool without draws."""
    collected, next_at = jnp.where(when, 0, pool.collected), jnp.where(when, FIRST * chains, pool.next_at)
    return pool._replace(collected=collected.astype(jnp.int32), next_at=next_at.astype(jnp.int32))


def collect(pool: Pool, newest: jax.Array, counts: jax.Array) -> Pool:
    """Put draws and slopes (chains, 2, n) into the ring where counts (chains,)."""
    size, chains = pool.recent.shape[0], len(counts)
    # sums of those before, as one product with a triangle: a running sum takes several kernels
    number = pool.collected + jnp.sum(jnp.where(np.tri(chains, dtype=bool), counts, False), 1, dtype=jnp.int32)
    at = jnp.where(counts, (number - 1) % size, size)
    recent = pool.recent.at[at].set(newest, mode="drop")
    return pool._replace(recent=recent, collected=number[-1])


def guessed(pool: Pool, slope: jax.Array, spread: jax.Array) -> Pool:
    """Return the pool with a metric that fits slopes (n, chains) at starts that lie `spread` around the centre."""
    typical = jnp.sqrt(jnp.mean(slope**2, 1)) + jnp.finfo(slope.dtype).tiny ** 0.5
    return _with_metric(pool, type(pool.metric).of(jnp.sqrt(spread / typical)), _gradients(pool))


def renewed(pool: Pool) -> Pool:
    """Return the pool with the metric that the newer half of all draws asks for."""
    size = pool.recent.shape[0]
    last = pool.collected - 1
    number = last - (last - jnp.arange(size)) % size  # which draw is in which place
    counts = (number >= jnp.maximum(pool.collected // 2, 0)) & (number >= 0)
    gradients = _gradients(pool)
    return _with_metric(pool, pool.metric.renewed(pool.recent[:, 0], gradients, counts), gradients)


def _gradients(pool: Pool) -> jax.Array:
    return pool.metric.gradient(pool.recent[:, 1].T).T


def _with_metric(pool: Pool, metric: Any, gradients: jax.Array) -> Pool:
    """Return the pool with another metric; slopes in the ring follow."""
    return pool._replace(metric=metric, recent=pool.recent.at[:, 1].set(metric.against(gradients.T).T))
