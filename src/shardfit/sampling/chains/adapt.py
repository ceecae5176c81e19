"""What all chains of one target learn together during warm-up: the length of steps, and the metric.

Nobody waits: chains hand in what they have when a transition ends, and take what is there when the next begins.

Step length: dual averaging (Nesterov; Hoffman & Gelman 2014) of the mean acceptance of as many transitions as there are
chains. Updating at every transition instead would act on results of steps that are no longer in use, and swing.

Metric: the covariance that makes draws and gradients alike, M with M·cov(gradients)·M = cov(draws), as in nutpie. For a
Gaussian it is exact from n + 1 draws. It is estimated in coordinates that the present metric whitens, so that few draws
change little.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from shardfit.sampling.chains.trees import against

DENSE = 200  # coordinates up to which the metric has correlations
GAIN, SETTLING, FORGETTING = 0.2, 10.0, 0.75  # gamma, t0 and kappa of dual averaging
FIRST, GROWTH = 10, 1.25  # transitions per chain before the first metric; how far apart later ones are
LEAST_RATIO = 2.0  # of variances, to the metric's, that a direction must have before it is changed
SHRINKAGE = 0.1  # of covariances from few draws, in variances of the present metric


STEPS = ("log_step", "log_mean", "aim", "shortfall", "rounds", "accept", "count")


class Pool(NamedTuple):
    """steps: (7,) dual averaging of the logarithm of the step's length, named by STEPS. shortfall: running mean of
    target - acceptance; accept, count: of the round that is being collected.

    root: factor of the metric, (n, n) or (n,); transposed: the same, kept because products with a transposed matrix are
    slow. recent: ring (size, 2, n) of draws and slopes of warm-up. collected:
    draws that were ever put in; next_at: number of them at which the metric is renewed; closed: whether it is final.
    informed: whether the metric is better than a guess. exploring: whether it is made from all points.
    """

    steps: jax.Array
    root: jax.Array
    transposed: jax.Array
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


def with_root(pool: Pool, root: jax.Array) -> Pool:
    """Return the pool with another metric."""
    return pool._replace(root=root, transposed=root.T)


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


def guess_root(root: jax.Array, slope: jax.Array, spread: float) -> jax.Array:
    """Return what makes root fit slopes (n, chains) at starts that lie `spread` around the centre."""
    typical = jnp.sqrt(jnp.mean(slope**2, 1)) + jnp.finfo(slope.dtype).tiny ** 0.5
    return _diagonal(root, jnp.sqrt(spread / typical))


def renew_root(pool: Pool) -> jax.Array:
    """Return the change (n, n) or (n,) that the newer half of all draws asks for: the new root is root @ change."""
    size = pool.recent.shape[0]
    last = pool.collected - 1
    number = last - (last - jnp.arange(size)) % size  # which draw is in which place
    counts = (number >= jnp.maximum(pool.collected // 2, 0)) & (number >= 0)
    n_draws = jnp.sum(counts)
    z, slope = pool.recent[:, 0], pool.recent[:, 1]
    whitened = z / pool.root if pool.root.ndim == 1 else z @ jnp.linalg.inv(pool.root).T
    draws, slopes = (_centred(rows, counts, n_draws) for rows in (whitened, slope))
    tiny = jnp.finfo(z.dtype).tiny ** 0.5
    ratio = (jnp.sum(draws**2, 0) + tiny) / (jnp.sum(slopes**2, 0) + tiny)
    # few draws: part of the way, in the logarithm
    scale = ratio ** (0.25 * n_draws / (n_draws + SETTLING))
    if pool.root.ndim == 1:
        return scale
    return scale[:, None] * _correlated(draws / scale, slopes * scale, n_draws)


def _correlated(draws: jax.Array, slopes: jax.Array, n_draws: jax.Array) -> jax.Array:
    """Return a factor (n, n) of the matrix M with M·cov(slopes)·M = cov(draws), one where it is nearly one."""
    n = draws.shape[1]
    eye = jnp.eye(n, dtype=draws.dtype)
    # the ranges of few draws and of their slopes differ, and what is in one of them only seems very long or short
    shrinkage = SHRINKAGE * jnp.minimum(1, n / n_draws) ** 4 + 10 * jnp.sqrt(jnp.finfo(draws.dtype).eps)
    of_draws, of_slopes = (rows.T @ rows / n_draws + shrinkage * eye for rows in (draws, slopes))
    lower = jnp.linalg.cholesky(of_slopes)
    size, basis = jnp.linalg.eigh(lower.T @ of_draws @ lower)
    root = solve_triangular(lower.T, basis * jnp.maximum(size, 0) ** 0.25, lower=False)
    size, basis = jnp.linalg.eigh(root @ root.T)
    changes = (size > LEAST_RATIO) | (size < 1 / LEAST_RATIO)
    return basis * jnp.sqrt(jnp.where(changes, size, 1))


def _centred(rows: jax.Array, counts: jax.Array, n: jax.Array) -> jax.Array:
    mean = jnp.sum(jnp.where(counts[:, None], rows, 0), 0) / jnp.maximum(n, 1)
    return jnp.where(counts[:, None], rows - mean, 0)


def _diagonal(root: jax.Array, scale: jax.Array) -> jax.Array:
    return scale if root.ndim == 1 else jnp.diag(scale)


def changed(pool: Pool, change: jax.Array) -> Pool:
    """Return the pool with root @ change; slopes in the ring follow."""
    sound = jnp.all(jnp.isfinite(change))
    one = jnp.ones_like(change) if change.ndim == 1 else jnp.eye(change.shape[0], dtype=change.dtype)
    change = jnp.where(sound, change, one)
    root = pool.root * change if change.ndim == 1 else pool.root @ change
    recent = pool.recent.at[:, 1].set(against(change, pool.recent[:, 1].T).T)
    return with_root(pool, root)._replace(recent=recent)
