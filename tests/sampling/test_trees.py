"""The tree machine against a plain sampler in NumPy that keeps whole trajectories, fed the same random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.sampling import trees

ROOT = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.2, 0.5]])


def density(z):
    """A bent normal density: value and gradient."""
    bend = z[1] - 0.5 * z[0] ** 2
    value = 0.5 * (z[0] ** 2 + 2 * bend**2 + z[2] ** 2)
    return value, np.array([z[0] - 2 * bend * z[0], 2 * bend, z[2]])


def turns(momenta):
    """Whether a stretch of trajectory turns back on itself."""
    total = np.sum(momenta, 0)
    return momenta[0] @ total <= 0 or momenta[-1] @ total <= 0


def branch_turns(momenta):
    """Whether any branch of a subtree that ends with the newest leaf, or is half done with it, turns back."""
    last, size = len(momenta) - 1, 2
    if last and last % 2 == 0:
        half = last & -last  # the newest leaf is the first of a second half of this length
        return turns(momenta[last - half :])
    while last % size == size - 1:
        whole = momenta[last + 1 - size :]
        if turns(whole) or (size > 2 and turns(whole[size // 2 - 1 :])):
            return True
        size *= 2
    return False


class PlainNUTS:
    """One transition after another; every list is in the order of time along the trajectory."""

    def __init__(self, chances, step, max_depth):
        self.chances, self.step, self.max_depth = iter(chances), step, max_depth

    def leap(self, end, side):
        z, momentum = end
        kicked = momentum - 0.5 * side * self.step * (density(z)[1] @ ROOT)
        z = z + side * self.step * ROOT @ kicked
        return z, kicked - 0.5 * side * self.step * (density(z)[1] @ ROOT)

    def transition(self, z, momentum, side):
        """Return the next draw, the momentum and side to begin the next transition with, depth and leaps."""
        energy = density(z)[0] + 0.5 * momentum @ momentum
        path, draw, weight, leaps = [(z, momentum)], z, 0.0, 0
        for depth in range(self.max_depth):
            leaves, pick, sub_weight = [], None, -np.inf
            while len(leaves) < 2**depth:
                end = leaves[-1] if leaves else path[-1 if side > 0 else 0]
                leaf = self.leap(end, side)
                leaves.append(leaf)
                leaps += 1
                chance = next(self.chances)
                error = density(leaf[0])[0] + 0.5 * leaf[1] @ leaf[1] - energy
                sub_weight = np.logaddexp(sub_weight, -error)
                if np.log(chance.leaf) < -error - sub_weight:
                    pick = leaf[0]
                if branch_turns([m for _, m in leaves]) or error > trees.LARGEST_ERROR:
                    return draw, chance, depth, leaps
            if np.log(chance.branch) < sub_weight - weight:
                draw = pick
            weight = np.logaddexp(weight, sub_weight)
            old, new = [m for _, m in path], [m for _, m in leaves]
            old = old if side > 0 else old[::-1]
            path = path + leaves if side > 0 else leaves[::-1] + path
            if turns(old + new) or turns([*old, new[0]]) or turns([old[-1], *new]):
                return draw, chance, depth + 1, leaps
            side = 1 if chance.side < 0.5 else -1
        return draw, chance, self.max_depth, leaps


@pytest.mark.parametrize(("step", "max_depth"), [(0.15, 10), (0.5, 10), (1.2, 10), (0.02, 5)])
def test_same_as_plain_sampler(step, max_depth):
    """Draws, depths and gradients of many transitions agree, whatever the length of the trees."""
    rng, ticks = np.random.default_rng(3), 600
    uniform = rng.uniform(size=(3, ticks))
    chances = trees.Chance(*uniform, rng.standard_normal((ticks, 3)))
    each = [trees.Chance(*(leaf[i] for leaf in chances)) for i in range(ticks)]
    start = np.array([0.3, -0.2, 0.1])

    def tick(tree, chance):
        z = trees.ask(tree, jnp.asarray(ROOT))
        bend = z[1] - 0.5 * z[0] ** 2
        gradient = jnp.array([z[0] - 2 * bend * z[0], 2 * bend, z[2]])
        value = 0.5 * (z[0] ** 2 + 2 * bend**2 + z[2] ** 2)
        grown, done = trees.tell(tree, z, value, trees.against(jnp.asarray(ROOT), gradient), chance, max_depth)
        begins = done.ends | (grown.started & ~tree.started)
        grown = trees.choose(begins, trees.with_length(grown, jnp.asarray(step)), grown)
        return grown, (done, grown.draw[trees.Z])

    with arithmetic("float64"):
        planted = trees.plant(jnp.asarray(start), max_depth)
        _, (done, draws) = jax.jit(lambda tree, chances: jax.lax.scan(tick, tree, chances))(planted, chances)
    ended = np.flatnonzero(done.ends)
    assert len(ended) > 5
    plain, chance, z = PlainNUTS(each[1:], step, max_depth), each[0], start
    for i in ended:
        side = 1 if chance.side < 0.5 else -1
        z, chance, depth, leaps = plain.transition(z, chance.momentum, side)
        assert (depth, leaps) == (done.depth[i], done.gradients[i])
        np.testing.assert_allclose(draws[i], z, rtol=1e-9, atol=1e-11)
        z = np.asarray(draws[i])  # or rounding would grow from one transition to the next
