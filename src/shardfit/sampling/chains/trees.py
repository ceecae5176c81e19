"""Chains of the no-U-turn sampler as state machines: one gradient per tick, whatever their trees need.

Hoffman & Gelman (2014) with multinomial choice (Betancourt 2017), in the iterative form of Phan et al. (2019): of the
subtree that is being built only the momenta at the starts of its open branches are kept. Each chain is at its own place
in its own tree, and none waits for another.

Chains are the last axis of every array, so that processors work on several at once, and what belongs together is one
array: on small densities a tick costs as much as the number of kernels that it takes. Positions are coordinates z;
momenta and slopes are whitened by a root of the covariance L: z moves by L·momentum, and slope is Lᵀ·gradient. The mass
is one, so nothing but slopes changes when L does.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.solve.draws import threefry

MANY = 256  # numbers of all chains from which it pays to look only at the levels that a tree has
LARGEST_ERROR = 1000.0  # of the energy; beyond it the trajectory has left the level set for good

# rows of Tree.vectors: the two ends with z, momentum and slope, what was drawn and picked with z and slope, and totals
NEAR, FAR, DRAW, PICK, TOTAL, SUB_TOTAL = slice(0, 3), slice(3, 6), slice(6, 8), slice(8, 10), 10, 11
NUMBERS = ("value", "pick_value", "step", "energy", "weight", "sub_weight", "accept")


class Tree(NamedTuple):
    """Trajectories that grow by doubling.

    vectors: (12, n, chains). near, far: the two ends; a subtree grows from near, in the direction of the sign of step.
    draw: chosen from the tree, pick: from the subtree, each z and slope. total: sum of momenta. numbers: (7, chains).
    value, pick_value: -log density at draw and pick; weight: log of the sum of exp(-energy error); accept: sum of
    acceptance probabilities; energy: at the start of the transition, infinite until the first point has been evaluated.
    sub_: of the subtree. counts: (3, chains) depth, leaf, gradients; leaf: of the subtree. starts: (3, levels, n,
    chains), where the open branches of the subtree begin: the momentum at a branch's first leaf, that at the leaf
    before, and the total of the subtree's momenta up to there.
    """

    vectors: jax.Array
    numbers: jax.Array
    counts: jax.Array
    starts: jax.Array

    @property
    def draw(self) -> jax.Array:
        """Coordinates (n, chains) that are drawn so far."""
        return self.vectors[DRAW][0]

    @property
    def slope(self) -> jax.Array:
        """Slope (n, chains) there."""
        return self.vectors[DRAW][1]

    @property
    def value(self) -> jax.Array:
        """-log density (chains,) there."""
        return self.numbers[0]

    @property
    def step(self) -> jax.Array:
        """Length (chains,) of steps, with the sign of their direction."""
        return self.numbers[NUMBERS.index("step")]

    @property
    def started(self) -> jax.Array:
        """Whether the first point has been evaluated, and has a density."""
        return jnp.isfinite(self.numbers[NUMBERS.index("energy")])


class Chance(NamedTuple):
    """Random numbers of one tick: three uniform ones (chains,), and the momentum (n, chains) of transitions that begin,
    which is asked for only where some do.
    """

    leaf: jax.Array
    branch: jax.Array
    side: jax.Array
    momentum: Callable[[], jax.Array]


class Transition(NamedTuple):
    """What has just ended, if ends; the draw itself is in the tree. error: of the energy at the newest leaf."""

    ends: jax.Array
    error: jax.Array
    energy: jax.Array
    accept: jax.Array
    diverging: jax.Array
    depth: jax.Array
    gradients: jax.Array
    step: jax.Array


def plant(z: jax.Array, max_depth: int) -> Tree:
    """Return chains at z (n, chains) before their first evaluation: a step of length zero evaluates z itself."""
    levels, (n, chains) = max(1, max_depth - 1), z.shape
    none = jnp.zeros_like(z)
    zero, count = none[0], jnp.zeros(chains, jnp.int32)
    return Tree(
        vectors=jnp.stack([z, none, none, z, none, none, z, none, z, none, none, none]),
        numbers=jnp.stack([zero, zero, zero, zero + jnp.inf, zero, zero - jnp.inf, zero]),
        counts=jnp.stack([count] * 3),
        starts=jnp.zeros((3, levels, n, chains), z.dtype),
    )


def draw_chance(key: jax.Array, tick: jax.Array, chains: int, n: int, dtype: Any) -> Chance:
    """Return the random numbers of one tick, for every chain: functions of key, chain and tick."""
    words = _words(key, tick, chains, n, slice(0, 2))
    uniform = [(word.astype(dtype) + 0.5) / 2.0**32 for word in words]
    return Chance(uniform[0][0], uniform[1][0], uniform[0][1], partial(draw_normal, key, tick, chains, n, dtype))


def draw_normal(key: jax.Array, tick: jax.Array, chains: int, n: int, dtype: Any) -> jax.Array:
    """Return normal numbers (n, chains) of single precision: no statistic of a chain can tell."""
    bits = jnp.concatenate(list(_words(key, tick, chains, n, slice(2, None))))[:n]
    # an odd number of half-steps from -1 to 1: never the ends
    centred = ((bits >> 9).astype(jnp.float32) + 0.5) * np.float32(2.0**-22) - 1
    return (np.float32(np.sqrt(2)) * jax.lax.erf_inv(centred)).astype(dtype)


def _words(key: jax.Array, tick: jax.Array, chains: int, n: int, rows: slice) -> jax.Array:
    width = 2 + (n + 1) // 2
    place = jnp.arange(chains * width, dtype=jnp.uint32).reshape(chains, width).T[rows]
    words = threefry(key, place, jnp.broadcast_to(tick.astype(jnp.uint32), place.shape))
    return jax.lax.optimization_barrier(jnp.stack(words))


def ask(tree: Tree, metric: Any) -> jax.Array:
    """Return the next positions (n, chains): a half step of the momentum, a whole step of z in the metric."""
    return tree.vectors[0] + tree.step * metric.along(_half_kicked(tree))


def tell(
    tree: Tree, z: jax.Array, value: jax.Array, slope: jax.Array, chance: Chance, max_depth: jax.Array
) -> tuple[Tree, Transition]:
    """Take in the evaluation of the asked positions z; if a transition ends, the next begins in the same tick.

    slope: that of the metric, Sᵀ·gradient.
    """
    known, picked_value, step, energy, weight, sub_weight, accept = tree.numbers
    depth, leaf, gradients = tree.counts
    started = jnp.isfinite(energy)
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope), 0)
    slope = jnp.where(finite, slope, 0)
    momentum = _half_kicked(tree) - 0.5 * step * slope
    error = value + 0.5 * _dot(momentum, momentum) - jnp.where(started, energy, 0)
    error = jnp.where(finite, error, jnp.inf)
    diverging = error > LARGEST_ERROR

    sub_weight = jnp.logaddexp(sub_weight, -error)
    picked = jnp.log(chance.leaf) < -error - sub_weight
    sub_total = tree.vectors[SUB_TOTAL] + momentum
    starts, turning, top_turning = _turns(tree, momentum, sub_total)

    full = leaf + 1 == 1 << depth
    complete = full | turning | diverging
    valid = complete & ~turning & ~diverging
    taken = (valid & (jnp.log(chance.branch) < sub_weight - weight)) | ~started
    ends = complete & (~valid | top_turning | (depth + 1 >= max_depth))
    ends = jnp.where(started, ends, finite)
    forward = chance.side < 0.5
    turned = complete & (forward != (step > 0))  # the next subtree grows from the other end
    # decided once: without the barrier every number of every vector would decide anew
    decided = jax.lax.optimization_barrier(jnp.stack([picked, taken, ends, valid, complete, turned, forward]))
    picked, taken, ends, valid, complete, turned, forward = decided
    closes = complete | ends

    pick = jnp.where(picked, jnp.stack([z, slope]), tree.vectors[PICK])
    picked_value = jnp.where(picked, value, picked_value)
    draw = jnp.where(taken, pick, tree.vectors[DRAW])
    drawn = jnp.where(taken, picked_value, known)
    gradients = gradients + 1
    accept = accept + jnp.exp(jnp.minimum(-error, 0))
    length = jnp.abs(step)
    done = Transition(ends & started, error, energy, accept / gradients, diverging, depth + valid, gradients, length)

    here = jnp.stack([z, momentum, slope])
    newest = jax.lax.cond(jnp.any(ends), chance.momentum, lambda: jnp.zeros_like(z))
    fresh = jnp.stack([draw[0], newest, draw[1]])
    far, total = tree.vectors[FAR], tree.vectors[TOTAL]
    vectors = [
        jnp.where(ends, fresh, jnp.where(turned, far, here)),
        jnp.where(ends, fresh, jnp.where(turned, here, far)),
        draw,
        pick,
        jnp.where(ends, newest, jnp.where(valid, total + sub_total, total))[None],
        jnp.where(closes, 0, sub_total)[None],
    ]
    numbers = [
        drawn,
        picked_value,
        jnp.where(closes, jnp.where(forward, length, -length), step),
        jnp.where(ends, drawn + 0.5 * _dot(newest, newest), energy),
        jnp.where(ends, 0, jnp.where(valid, jnp.logaddexp(weight, sub_weight), weight)),
        jnp.where(closes, -jnp.inf, sub_weight),
        jnp.where(ends, 0, accept),
    ]
    counts = [jnp.where(ends, 0, depth + complete), jnp.where(closes, 0, leaf + 1), jnp.where(ends, 0, gradients)]
    return Tree(jnp.concatenate(vectors), jnp.stack(numbers), jnp.stack(counts), starts), done


def with_length(tree: Tree, length: jax.Array, where: jax.Array) -> Tree:
    """Return trees that have just begun with steps of another length."""
    at = NUMBERS.index("step")
    step = jnp.where(where, jnp.copysign(length, tree.step), tree.step)
    return tree._replace(numbers=jnp.concatenate([tree.numbers[:at], step[None], tree.numbers[at + 1 :]]))


def restart(tree: Tree, slope: jax.Array) -> Tree:
    """Return trees that begin anew at what they have drawn so far, in a metric that makes its slope this.

    The momentum stays what it is: it is as good as a new one while the density is still being explored.
    """
    z, momentum, value = tree.draw, tree.vectors[1], tree.value
    zero, none = jnp.zeros_like(value), jnp.zeros_like(z)
    energy = value + 0.5 * _dot(momentum, momentum)
    return tree._replace(
        vectors=jnp.stack([z, momentum, slope, z, momentum, slope, z, slope, z, slope, momentum, none]),
        numbers=jnp.stack([value, value, tree.step, energy, zero, zero - jnp.inf, zero]),
        counts=jnp.zeros_like(tree.counts),
    )


def _half_kicked(tree: Tree) -> jax.Array:
    return tree.vectors[1] - 0.5 * tree.step * tree.vectors[2]


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return inner products over n of (..., n, chains)."""
    return jnp.sum(a * b, -2)


def choose(condition: jax.Array, one, other):
    """Return one of two equal structures."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def _turns(tree: Tree, momentum: jax.Array, sub_total: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the starts with this leaf, whether a branch that ends here turns back, and whether the whole tree would.

    A stretch of trajectory turns back where the sum of its momenta points against the momentum at one of its ends. A
    branch is also tested from its first leaf to the first of its second half, and from the last leaf of its first half
    to its last, as in Stan: a trajectory that has just closed a circle passes the test of its ends alone.
    """
    leaf, starts = tree.counts[1], tree.starts
    innermost = jax.lax.population_count(leaf >> 1)  # level of the innermost branch that is open
    closed = jax.lax.population_count(leaf & ~(leaf + 1))  # how many branches end with this leaf: trailing ones
    counts = innermost, closed

    def among(levels: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        return _turns_among(starts[:, :levels], counts, tree, momentum, sub_total)

    if starts[0, 0].size < MANY:
        turning, turns, late = among(starts.shape[1])
    else:  # those of levels that no branch has reached are not looked at
        tiers = (*range(2, starts.shape[1], 2), starts.shape[1])
        which = jnp.sum(jnp.max(innermost) >= jnp.array(tiers[:-1]))
        turning, turns, late = jax.lax.switch(which, [partial(among, levels) for levels in tiers])
    opening = jnp.stack([momentum, tree.vectors[1], tree.vectors[SUB_TOTAL]])
    opened = starts.at[:, jnp.where(closed == 0, innermost, starts.shape[1]), :, jnp.arange(len(leaf))].set(
        opening.transpose(2, 0, 1), mode="drop"
    )
    return opened, turning, turns | ((tree.counts[0] > 0) & late)


def _turns_among(
    starts: jax.Array, counts: tuple[jax.Array, jax.Array], tree: Tree, momentum: jax.Array, sub_total: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return, of some levels, whether a branch that ends here turns back, the whole tree would, and its halves do."""
    innermost, closed = counts
    level = jnp.arange(starts.shape[1])[:, None]
    first, before, earlier = starts
    whole = _turns_back(sub_total - earlier, first, momentum)
    late = _turns_back(sub_total - earlier + before, before, momentum)
    ending = (closed > 0) & (level <= innermost) & (level > innermost - closed)
    halfway = (closed == 0) & (level == innermost - 1)  # this leaf is the first of a second half
    turning = ((ending | halfway) & whole) | (ending & (level > innermost - closed + 1) & late)

    total, far = tree.vectors[TOTAL], tree.vectors[FAR][1]
    top = _turns_back(total + sub_total, far, momentum)
    halves = _turns_back(total + first[0], far, first[0]) | late[0]
    return jnp.any(turning, 0), top, halves


def _turns_back(total: jax.Array, one_end: jax.Array, other_end: jax.Array) -> jax.Array:
    """Return whether a stretch turns back: the total of its momenta, and those at its ends, all (..., n, chains)."""
    return (_dot(one_end, total) <= 0) | (_dot(other_end, total) <= 0)
