"""Points far apart, from which minima are looked for: draws of the priors, and jitter of many widths."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.params import Space, broadcast_prefix
from shardfit.core.problem import Problem
from shardfit.core.transforms import Box, Chain, Identity, Interval

NARROW, WIDE = -1.0, 0.7  # decimal logarithms of the widths of jitter, in units of what is known
FREEDOM = 3.0  # of its t distribution
SEEN = 10.0  # standard deviations of a mode that jitter spans


def dispersed(problem: Problem, z: np.ndarray, sd: np.ndarray | None, count: int, seed: int) -> np.ndarray:
    """Return points (count, n): draws of priors where there are some, and jitter around the start and z.

    sd: (n,) standard deviations at z, as far as they are known. Coordinates between two ends are drawn uniformly
    between these.
    """
    rng, z0 = np.random.default_rng([seed, count]), problem.z0()
    points = _jittered(problem.space, z0, z, sd, count, rng)
    drawn, known = _from_priors(problem, count // 2, seed)
    points[: count // 2, known] = drawn[:, known]
    return points


def _jittered(space: Space, z0: np.ndarray, z: np.ndarray, sd: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    ends, plain = _kinds(space)
    # of a number without a transform the only scales are its own; others have natural units
    known = np.maximum.reduce([np.abs(z - z0), *((np.where(plain, np.abs(at), 1.0)) for at in (z, z0))])
    if sd is not None:
        most = np.where(known > 0, 100 * known, np.inf)
        known = np.maximum(known, np.minimum(SEEN * sd, most))
    known = np.where(known > 0, known, 1.0)
    width = 10 ** rng.uniform(NARROW, WIDE, (count, 1)) * known
    centre = np.where(np.arange(count)[:, None] % 2, z, z0)
    points = centre + width * rng.standard_t(FREEDOM, (count, z.size))
    return np.where(ends, rng.logistic(size=points.shape), points)


def _kinds(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return for every coordinate whether it lies between two ends, and whether it is the parameter itself."""
    ends, plain = [], []
    for i, transform in enumerate(space.transforms):
        shape, inner = space.inner_shapes[i], transform.inner if isinstance(transform, Chain) else transform
        both = np.full(shape, isinstance(inner, Interval))
        own = np.full(shape, isinstance(transform, Identity))
        if isinstance(inner, Box):
            low, high = (np.isfinite(np.reshape(end, shape)) for end in (inner.lower, inner.upper))
            both, own = low & high, ~(low | high) & isinstance(transform, Box)
        free = np.ones(shape, bool) if space.masks[i] is None else ~space.held_at(i)
        ends.append(both[free])
        plain.append(own[free])
    return np.concatenate(ends), np.concatenate(plain)


def _from_priors(problem: Problem, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws (count, n) of the priors, and which coordinates (n,) have one that can be drawn from."""
    space, key = problem.space, jax.random.key(seed)
    entries = (
        [None] * len(space.shapes) if problem.priors is None else broadcast_prefix("priors", problem.priors, problem.x0)
    )
    leaves, known = [], []
    for i, (entry, leaf) in enumerate(zip(entries, jax.tree.leaves(problem.x0), strict=True)):
        drawn = _draws(entry, jax.random.fold_in(key, i), count, np.shape(leaf))
        leaves.append(np.broadcast_to(leaf, (count, *np.shape(leaf))) if drawn is None else drawn)
        known.append(np.full(space.leaf_sizes()[i], drawn is not None))
    z = np.asarray(jax.vmap(space.pack)(space.treedef.unflatten([jnp.asarray(leaf) for leaf in leaves])), float)
    known = np.concatenate(known)
    return z, known & np.isfinite(z).all(0)


def _draws(prior: Any, key: Any, count: int, shape: tuple) -> np.ndarray | None:
    """Return draws (count, *shape), None of a prior that has none."""
    if not hasattr(prior, "sample"):
        return None
    batch = tuple(getattr(prior, "batch_shape", ())) + tuple(getattr(prior, "event_shape", ()))
    drawn = np.asarray(prior.sample(key, (count, *shape[: len(shape) - len(batch)])))
    return drawn if drawn.shape == (count, *shape) and np.isfinite(drawn).all() else None
