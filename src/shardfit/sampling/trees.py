"""One chain of the no-U-turn sampler as a state machine: one gradient per tick, whatever the tree needs.

Hoffman & Gelman (2014) with multinomial choice (Betancourt 2017), in the iterative form of Phan et al. (2019): of the
subtree that is being built only the momenta at the starts of its open branches are kept. All functions are for one
chain and are mapped over many: each is at its own place in its own tree, and none waits for another.

Positions are coordinates z; momenta and slopes are whitened by a root of the covariance L: z moves by L·momentum, and
slope is Lᵀ·gradient. The mass is one, so nothing but slopes changes when L does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

LARGEST_ERROR = 1000.0  # of the energy; beyond it the trajectory has left the level set for good


class Point(NamedTuple):
    """A place on a trajectory: all (n,)."""

    z: jax.Array
    momentum: jax.Array
    slope: jax.Array


class Candidate(NamedTuple):
    """A place that may become the next draw, with the -log density there."""

    z: jax.Array
    slope: jax.Array
    value: jax.Array


class Starts(NamedTuple):
    """Where the open branches of a subtree begin, one row per level: (levels, n).

    momentum: at a branch's first leaf; before: at the leaf before it; total: sum of the subtree's momenta up to there.
    own, cross: (levels,) total·momentum, and before·(total - before).
    """

    momentum: jax.Array
    before: jax.Array
    total: jax.Array
    own: jax.Array
    cross: jax.Array


class Tree(NamedTuple):
    """A trajectory that grows by doubling.

    near, far: its two ends; a subtree grows from near, in the direction of the sign of step. draw: chosen from the
    tree, pick: from the subtree. weight: log of the sum of exp(-energy error); total: sum of momenta; sub_: of the subtree.
    started: whether the first point has been evaluated.
    """

    started: jax.Array
    near: Point
    far: Point
    draw: Candidate
    pick: Candidate
    step: jax.Array
    energy: jax.Array  # at the start of the transition
    weight: jax.Array
    sub_weight: jax.Array
    total: jax.Array
    sub_total: jax.Array
    starts: Starts
    depth: jax.Array
    leaf: jax.Array  # of the subtree
    accept: jax.Array  # sum of acceptance probabilities
    gradients: jax.Array


class Chance(NamedTuple):
    """Random numbers of one tick: three uniform ones, and a momentum (n,) for the case that a transition begins."""

    leaf: jax.Array
    branch: jax.Array
    side: jax.Array
    momentum: jax.Array


class Transition(NamedTuple):
    """What has just ended, if ends; the draw itself is in the tree."""

    ends: jax.Array
    energy: jax.Array
    accept: jax.Array
    diverging: jax.Array
    depth: jax.Array
    gradients: jax.Array
    step: jax.Array


def plant(z: jax.Array, max_depth: int) -> Tree:
    """Return a chain at z (n,) before its first evaluation: a step of length zero evaluates z itself."""
    none, levels = jnp.zeros_like(z), max(1, max_depth - 1)
    zero, count, rows = jnp.zeros((), z.dtype), jnp.zeros((), jnp.int32), jnp.zeros((levels, z.size), z.dtype)
    point, candidate = Point(z, none, none), Candidate(z, none, zero)
    return Tree(
        started=jnp.zeros((), bool),
        near=point,
        far=point,
        draw=candidate,
        pick=candidate,
        step=zero,
        energy=zero,
        weight=zero,
        sub_weight=zero - jnp.inf,
        total=none,
        sub_total=none,
        starts=Starts(rows, rows, rows, rows[:, 0], rows[:, 0]),
        depth=count,
        leaf=count,
        accept=zero,
        gradients=count,
    )


def ask(tree: Tree, root: jax.Array) -> jax.Array:
    """Return the next position: a half step of the momentum, a whole step of z along root, (n, n) or (n,)."""
    return tree.near.z + tree.step * along(root, _half_kicked(tree))


def tell(
    tree: Tree, z: jax.Array, value: jax.Array, slope: jax.Array, chance: Chance, max_depth: jax.Array
) -> tuple[Tree, Transition]:
    """Take in the evaluation of the asked position z; if a transition ends, the next begins in the same tick.

    slope: rootᵀ·gradient.
    """
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))
    slope = jnp.where(finite, slope, 0)
    momentum = _half_kicked(tree) - 0.5 * tree.step * slope
    error = jnp.where(finite, value + 0.5 * jnp.vdot(momentum, momentum) - tree.energy, jnp.inf)
    diverging = error > LARGEST_ERROR
    here = Point(z, momentum, slope)

    sub_weight = jnp.logaddexp(tree.sub_weight, -error)
    picked = jnp.log(chance.leaf) < -error - sub_weight
    pick = choose(picked, Candidate(z, slope, value), tree.pick)
    sub_total = tree.sub_total + momentum
    starts, turning, top_turning = _turns(tree, momentum, sub_total)

    full = tree.leaf + 1 == 1 << tree.depth
    complete = full | turning | diverging
    valid = complete & ~turning & ~diverging
    taken = valid & (jnp.log(chance.branch) < sub_weight - tree.weight)
    draw = choose(taken | ~tree.started, pick, tree.draw)
    ends = complete & (~valid | top_turning | (tree.depth + 1 >= max_depth))
    ends = jnp.where(tree.started, ends, finite)
    gradients = tree.gradients + 1
    accept = tree.accept + jnp.exp(jnp.minimum(-error, 0))
    length = jnp.abs(tree.step)
    done = Transition(
        ends & tree.started, tree.energy, accept / gradients, diverging, tree.depth + valid, gradients, length
    )

    forward = chance.side < 0.5
    turned = complete & (forward != (tree.step > 0))  # the next subtree grows from the other end
    fresh = Point(draw.z, chance.momentum, draw.slope)
    begun = draw.value + 0.5 * jnp.vdot(chance.momentum, chance.momentum)
    grown = Tree(
        started=tree.started | finite,
        near=choose(ends, fresh, choose(turned, tree.far, here)),
        far=choose(ends, fresh, choose(turned, here, tree.far)),
        draw=draw,
        pick=pick,
        step=jnp.where(complete | ends, jnp.where(forward, length, -length), tree.step),
        energy=jnp.where(ends, begun, tree.energy),
        weight=jnp.where(ends, 0, jnp.where(valid, jnp.logaddexp(tree.weight, sub_weight), tree.weight)),
        sub_weight=jnp.where(complete | ends, -jnp.inf, sub_weight),
        total=jnp.where(ends, chance.momentum, jnp.where(valid, tree.total + sub_total, tree.total)),
        sub_total=jnp.where(complete | ends, 0, sub_total),
        starts=starts,
        depth=jnp.where(ends, 0, tree.depth + complete),
        leaf=jnp.where(complete | ends, 0, tree.leaf + 1),
        accept=jnp.where(ends, 0, accept),
        gradients=jnp.where(ends, 0, gradients),
    )
    return grown, done


def with_length(tree: Tree, length: jax.Array) -> Tree:
    """Return a tree that has just begun with steps of another length."""
    return tree._replace(step=jnp.copysign(length, tree.step))


def restart(tree: Tree, momentum: jax.Array, change: jax.Array) -> Tree:
    """Return a tree that begins anew at what it has drawn so far, in a metric whose root was multiplied by change."""
    draw = tree.draw._replace(slope=against(change, tree.draw.slope))
    point, none = Point(draw.z, momentum, draw.slope), jnp.zeros_like(tree.leaf)
    zero = jnp.zeros_like(tree.weight)
    return tree._replace(
        near=point,
        far=point,
        draw=draw,
        pick=draw,
        energy=draw.value + 0.5 * jnp.vdot(momentum, momentum),
        weight=zero,
        sub_weight=zero - jnp.inf,
        total=momentum,
        sub_total=jnp.zeros_like(momentum),
        depth=none,
        leaf=none,
        accept=zero,
        gradients=none,
    )


def _half_kicked(tree: Tree) -> jax.Array:
    return tree.near.momentum - 0.5 * tree.step * tree.near.slope


def along(root: jax.Array, momentum: jax.Array) -> jax.Array:
    """Return root·momentum, for a root (n, n) or its diagonal (n,)."""
    return root * momentum if root.ndim == 1 else root @ momentum


def against(root: jax.Array, gradient: jax.Array) -> jax.Array:
    """Return rootᵀ·gradient."""
    return root * gradient if root.ndim == 1 else gradient @ root


def choose(condition: jax.Array, one, other):
    """Return one of two equal structures."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def _turns(tree: Tree, momentum: jax.Array, sub_total: jax.Array) -> tuple[Starts, jax.Array, jax.Array]:
    """Return the starts with this leaf, whether a branch that ends here turns back, and whether the whole tree would.

    A stretch of trajectory turns back where the sum of its momenta points against the momentum at one of its ends. A
    branch is also tested from its first leaf to the first of its second half, and from the last leaf of its first half
    to its last, as in Stan: a trajectory that has just closed a circle passes the test of its ends alone.
    """
    leaf, starts = tree.leaf, tree.starts
    level = jnp.arange(starts.own.shape[0])
    open_at = jax.lax.population_count(leaf >> 1)  # level of the innermost branch that is open
    closed = jax.lax.population_count(leaf & ~(leaf + 1))  # how many branches end with this leaf: trailing ones
    first = starts.momentum[0]
    with_momenta, with_before, with_totals = (
        rows @ jnp.stack([sub_total, momentum, tree.total], 1)
        for rows in (starts.momentum, starts.before, starts.total)
    )
    length = jnp.vdot(momentum, sub_total)
    whole = (with_momenta[:, 0] - starts.own <= 0) | (length - with_totals[:, 1] <= 0)
    late = (with_before[:, 0] - starts.cross <= 0) | (length - with_totals[:, 1] + with_before[:, 1] <= 0)
    ending = (closed > 0) & (level <= open_at) & (level > open_at - closed)
    early = (closed == 0) & (level == open_at - 1)  # this leaf is the first of a second half
    turning = jnp.any((ending | early) & whole) | jnp.any(ending & (level > open_at - closed + 1) & late)

    far, total = tree.far.momentum, tree.total
    top = (jnp.vdot(far, total + sub_total) <= 0) | (jnp.vdot(momentum, total) + length <= 0)
    halves = (
        (jnp.vdot(far, total + first) <= 0)
        | (with_momenta[0, 2] + jnp.vdot(first, first) <= 0)
        | (with_before[0, 0] - starts.cross[0] <= 0)
        | (length + with_before[0, 1] <= 0)
    )
    put = (closed == 0) & (level == open_at)
    before, previous = tree.near.momentum, tree.sub_total
    starts = Starts(
        jnp.where(put[:, None], momentum, starts.momentum),
        jnp.where(put[:, None], before, starts.before),
        jnp.where(put[:, None], previous, starts.total),
        jnp.where(put, jnp.vdot(previous, momentum), starts.own),
        jnp.where(put, jnp.vdot(before, previous - before), starts.cross),
    )
    return starts, turning, top | ((tree.depth > 0) & halves)
