"""One chain of the no-U-turn sampler as a state machine: one gradient per tick, whatever the tree needs.

Hoffman & Gelman (2014) with multinomial choice (Betancourt 2017), in the iterative form of Phan et al. (2019): of the
subtree that is being built only the momenta at the starts of its open branches are kept. All functions are for one
chain and are mapped over many: each is at its own place in its own tree, and none waits for another.

Positions are coordinates z; momenta and slopes are whitened by a root of the covariance L: z moves by L·momentum, and
slope is Lᵀ·gradient. The mass is one, so nothing but slopes changes when L does.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.solve.draws import threefry

LARGEST_ERROR = 1000.0  # of the energy; beyond it the trajectory has left the level set for good


Z, MOMENTUM, SLOPE = range(3)  # rows of a point of a trajectory, an array (3, n)


class Starts(NamedTuple):
    """Where the open branches of a subtree begin.

    rows: (3, levels, n), for each level the momentum at a branch's first leaf, that at the leaf before, and the total
    of the subtree's momenta up to there. own, cross: (levels,) total·momentum, and before·(total - before).
    """

    rows: jax.Array
    own: jax.Array
    cross: jax.Array


class Tree(NamedTuple):
    """A trajectory that grows by doubling.

    near, far: (3, n) its two ends; a subtree grows from near, in the direction of the sign of step. draw: (3, n) chosen
    from the tree, pick: from the subtree; value, pick_value: -log density there. weight: log of the sum of
    exp(-energy error); total: sum of momenta; sub_: those of the subtree. energy: at the start of the transition,
    infinite until the first point has been evaluated.
    """

    near: jax.Array
    far: jax.Array
    draw: jax.Array
    pick: jax.Array
    value: jax.Array
    pick_value: jax.Array
    step: jax.Array
    energy: jax.Array
    weight: jax.Array
    sub_weight: jax.Array
    total: jax.Array
    sub_total: jax.Array
    starts: Starts
    depth: jax.Array
    leaf: jax.Array  # of the subtree
    accept: jax.Array  # sum of acceptance probabilities
    gradients: jax.Array

    @property
    def started(self) -> jax.Array:
        """Whether the first point has been evaluated, and has a density."""
        return jnp.isfinite(self.energy)


class Chance(NamedTuple):
    """Random numbers of one tick: three uniform ones, and a momentum (n,) for the case that a transition begins."""

    leaf: jax.Array
    branch: jax.Array
    side: jax.Array
    momentum: jax.Array


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
    """Return a chain at z (n,) before its first evaluation: a step of length zero evaluates z itself."""
    none, levels = jnp.zeros_like(z), max(1, max_depth - 1)
    zero, count, rows = jnp.zeros((), z.dtype), jnp.zeros((), jnp.int32), jnp.zeros((levels, z.size), z.dtype)
    point = jnp.stack([z, none, none])
    return Tree(
        near=point,
        far=point,
        draw=point,
        pick=point,
        value=zero,
        pick_value=zero,
        step=zero,
        energy=zero + jnp.inf,
        weight=zero,
        sub_weight=zero - jnp.inf,
        total=none,
        sub_total=none,
        starts=Starts(jnp.stack([rows] * 3), rows[:, 0], rows[:, 0]),
        depth=count,
        leaf=count,
        accept=zero,
        gradients=count,
    )


def draw_chance(key: jax.Array, tick: jax.Array, chains: int, n: int, dtype: Any) -> Chance:
    """Return the random numbers of one tick, for every chain.

    Momenta are normal numbers of single precision: no statistic of a chain can tell, and they are drawn at every tick.
    """
    width = 2 + (n + 1) // 2
    place = jnp.arange(chains * width, dtype=jnp.uint32).reshape(chains, width)
    words = threefry(key, place, jnp.broadcast_to(tick.astype(jnp.uint32), place.shape))
    uniform = [(word[:, :2].astype(dtype) + 0.5) / 2.0**32 for word in words]
    bits = jnp.concatenate([word[:, 2:] for word in words], 1)[:, :n]
    # an odd number of half-steps from -1 to 1: never the ends
    centred = ((bits >> 9).astype(jnp.float32) + 0.5) * np.float32(2.0**-22) - 1
    normal = np.float32(np.sqrt(2)) * jax.lax.erf_inv(centred)
    return Chance(uniform[0][:, 0], uniform[1][:, 0], uniform[0][:, 1], normal.astype(dtype))


def ask(tree: Tree, root: jax.Array) -> jax.Array:
    """Return the next position: a half step of the momentum, a whole step of z along root, (n, n) or (n,)."""
    return tree.near[Z] + tree.step * along(root, _half_kicked(tree))


def tell(
    tree: Tree, z: jax.Array, value: jax.Array, slope: jax.Array, chance: Chance, max_depth: jax.Array
) -> tuple[Tree, Transition]:
    """Take in the evaluation of the asked position z; if a transition ends, the next begins in the same tick.

    slope: rootᵀ·gradient.
    """
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))
    slope = jnp.where(finite, slope, 0)
    momentum = _half_kicked(tree) - 0.5 * tree.step * slope
    energy = jnp.where(tree.started, tree.energy, 0)
    error = jnp.where(finite, value + 0.5 * jnp.vdot(momentum, momentum) - energy, jnp.inf)
    diverging = error > LARGEST_ERROR
    here = jnp.stack([z, momentum, slope])

    sub_weight = jnp.logaddexp(tree.sub_weight, -error)
    picked = jnp.log(chance.leaf) < -error - sub_weight
    pick, pick_value = choose(picked, (here, value), (tree.pick, tree.pick_value))
    sub_total = tree.sub_total + momentum
    starts, turning, top_turning = _turns(tree, momentum, sub_total)

    full = tree.leaf + 1 == 1 << tree.depth
    complete = full | turning | diverging
    valid = complete & ~turning & ~diverging
    taken = valid & (jnp.log(chance.branch) < sub_weight - tree.weight)
    draw, drawn = choose(taken | ~tree.started, (pick, pick_value), (tree.draw, tree.value))
    ends = complete & (~valid | top_turning | (tree.depth + 1 >= max_depth))
    ends = jnp.where(tree.started, ends, finite)
    gradients = tree.gradients + 1
    accept = tree.accept + jnp.exp(jnp.minimum(-error, 0))
    length = jnp.abs(tree.step)
    done = Transition(
        ends & tree.started, error, tree.energy, accept / gradients, diverging, tree.depth + valid, gradients, length
    )

    forward = chance.side < 0.5
    turned = complete & (forward != (tree.step > 0))  # the next subtree grows from the other end
    fresh = draw.at[MOMENTUM].set(chance.momentum)
    begun = drawn + 0.5 * jnp.vdot(chance.momentum, chance.momentum)
    grown = Tree(
        near=choose(ends, fresh, choose(turned, tree.far, here)),
        far=choose(ends, fresh, choose(turned, here, tree.far)),
        draw=draw,
        pick=pick,
        value=drawn,
        pick_value=pick_value,
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


def restart(tree: Tree, change: jax.Array) -> Tree:
    """Return a tree that begins anew at what it has drawn so far, in a metric whose root was multiplied by change.

    The momentum stays what it is: it is as good as a new one while the density is still being explored.
    """
    momentum = tree.near[MOMENTUM]
    point = jnp.stack([tree.draw[Z], momentum, against(change, tree.draw[SLOPE])])
    none, zero = jnp.zeros_like(tree.leaf), jnp.zeros_like(tree.weight)
    return tree._replace(
        near=point,
        far=point,
        draw=point,
        pick=point,
        pick_value=tree.value,
        energy=tree.value + 0.5 * jnp.vdot(momentum, momentum),
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
    return tree.near[MOMENTUM] - 0.5 * tree.step * tree.near[SLOPE]


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
    levels = starts.own.shape[0]
    level = jnp.arange(levels)
    innermost = jax.lax.population_count(leaf >> 1)  # level of the innermost branch that is open
    closed = jax.lax.population_count(leaf & ~(leaf + 1))  # how many branches end with this leaf: trailing ones

    # all inner products at once: one small matrix product is cheaper than a dozen sums
    vectors = jnp.stack([sub_total, momentum, tree.total, tree.far[MOMENTUM], starts.rows[0, 0]])
    with_starts = starts.rows.reshape(3 * levels, -1) @ vectors[:2].T
    (of_first, first_here), (of_before, before_here), (_, total_here) = with_starts.reshape(3, levels, 2).swapaxes(1, 2)
    products = vectors @ vectors.T
    length, here_total = products[0, 1], products[1, 2]
    whole = (of_first - starts.own <= 0) | (length - total_here <= 0)
    late = (of_before - starts.cross <= 0) | (length - total_here + before_here <= 0)
    ending = (closed > 0) & (level <= innermost) & (level > innermost - closed)
    halfway = (closed == 0) & (level == innermost - 1)  # this leaf is the first of a second half
    turning = jnp.any((ending | halfway) & whole) | jnp.any(ending & (level > innermost - closed + 1) & late)

    top = (products[3, 2] + products[3, 0] <= 0) | (here_total + length <= 0)
    halves = (products[3, 2] + products[3, 4] <= 0) | (products[4, 2] + products[4, 4] <= 0)
    halves = halves | (of_before[0] - starts.cross[0] <= 0) | (length + before_here[0] <= 0)
    return _opened(tree, momentum, (closed == 0) & (level == innermost)), turning, top | ((tree.depth > 0) & halves)


def _opened(tree: Tree, momentum: jax.Array, put: jax.Array) -> Starts:
    """Return the starts with a branch that begins at this leaf, at the level where put."""
    before, total, starts = tree.near[MOMENTUM], tree.sub_total, tree.starts
    rows = jnp.stack([momentum, before, total])[:, None]
    return Starts(
        jnp.where(put[:, None], rows, starts.rows),
        jnp.where(put, jnp.vdot(total, momentum), starts.own),
        jnp.where(put, jnp.vdot(before, total - before), starts.cross),
    )
