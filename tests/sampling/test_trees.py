"""The tree machine against a plain sampler in NumPy that keeps whole trajectories, fed the same random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from shardfit.core.precision import arithmetic
from shardfit.sampling.chains import trees
from shardfit.sampling.chains.metric import Dense

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


def held(chance):
    """The numbers of one tick as the machine takes them."""
    return chance._replace(momentum=lambda: chance.momentum)


@jax.jit
def machine(start, chances, step, max_depth):
    """Return what every tick of a chain ends, and its draw, with steps of one length."""
    metric = Dense.of(jnp.asarray(ROOT))

    def tick(tree, chance):
        z = trees.ask(tree, metric)
        bend = z[1] - 0.5 * z[0] ** 2
        gradient = jnp.array([z[0] - 2 * bend * z[0], 2 * bend, z[2]])
        value = 0.5 * (z[0] ** 2 + 2 * bend**2 + z[2] ** 2)
        grown, done = trees.tell(tree, z, value, metric.against(gradient), held(chance), max_depth)
        begins = done.ends | (grown.started & ~tree.started)
        return trees.with_length(grown, step, begins), (done, grown.draw)

    return jax.lax.scan(tick, trees.plant(start, 10), chances)[1]


@pytest.mark.parametrize(("step", "max_depth"), [(0.15, 10), (0.5, 10), (1.2, 10), (0.02, 5)])
def test_same_as_plain_sampler(step, max_depth):
    """Draws, depths and gradients of many transitions agree, whatever the length of the trees."""
    rng, ticks = np.random.default_rng(3), 600
    chances = trees.Chance(*rng.uniform(size=(3, ticks, 2)), rng.standard_normal((ticks, 3, 2)))
    start = np.array([[0.3, 1.3], [-0.2, 0.5], [0.1, -0.4]])
    with arithmetic("float64"):
        done, draws = jax.device_get(machine(start, chances, step, max_depth))
    for chain in range(2):
        own, mine, drawn = (jax.tree.map(lambda leaf, c=chain: leaf[..., c], part) for part in (done, chances, draws))
        require_same(own, mine, drawn, start[:, chain], PlainNUTS([], step, max_depth))


def require_same(done, chances, draws, z, plain):
    """Assert that one chain has drawn what the plain sampler draws from the same numbers."""
    each = [trees.Chance(*(leaf[i] for leaf in chances)) for i in range(len(draws))]
    ended = np.flatnonzero(done.ends)
    assert len(ended) > 5
    plain.chances, chance = iter(each[1:]), each[0]
    for i in ended:
        side = 1 if chance.side < 0.5 else -1
        z, chance, depth, leaps = plain.transition(z, chance.momentum, side)
        assert (depth, leaps) == (done.depth[i], done.gradients[i])
        np.testing.assert_allclose(draws[i], z, rtol=1e-9, atol=1e-11)
        z = np.asarray(draws[i])  # or rounding would grow from one transition to the next


@pytest.mark.parametrize("step", [0.7, 2.5])
def test_density_is_kept(step):
    """Chains that begin with the density (logistic, which no step follows exactly) have it after three transitions."""
    chains, ticks, transitions, depth = 4000, 60, 3, 4
    rng = np.random.default_rng(5)
    chances = trees.Chance(*rng.uniform(size=(3, ticks, chains)), rng.standard_normal((ticks, 1, chains)))

    def tick(carry, chance):
        tree, made, kept = carry
        z = trees.ask(tree, Dense.of(jnp.ones(1)))
        value = jnp.sum(z + 2 * jax.nn.softplus(-z), 0)
        grown, done = trees.tell(tree, z, value, jnp.tanh(z / 2), held(chance), depth)
        begins = done.ends | (grown.started & ~tree.started)
        made = made + done.ends
        kept = jnp.where(done.ends & (made == transitions), grown.draw[0], kept)
        return (trees.with_length(grown, jnp.asarray(step), begins), made, kept), None

    def draw(start, chances):
        begin = (trees.plant(start, depth), jnp.zeros(chains, int), jnp.full(chains, jnp.nan))
        return jax.lax.scan(tick, begin, chances)[0][2]

    with arithmetic("float64"):
        z = np.asarray(jax.jit(draw)(rng.logistic(size=(1, chains)), chances))
    assert np.isfinite(z).all()
    assert stats.kstest(z, "logistic").pvalue > 0.01
    assert stats.kstest(np.abs(z), lambda size: 2 / (1 + np.exp(-size)) - 1).pvalue > 0.01
