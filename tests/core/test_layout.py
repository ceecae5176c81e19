"""Statistics of blocks held with rows as the quickest axis: the same numbers, whatever the function does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import shardfit as sf
from shardfit.core.layout import rows_quickest
from shardfit.core.precision import arithmetic

N = 37


@pytest.fixture(autouse=True)
def in_float64():
    with arithmetic("float64"):
        yield


RNG = np.random.default_rng(3)
ROWS = {"x": RNG.normal(size=N), "y": RNG.normal(size=(N, 2)), "n": RNG.integers(0, 5, N)}
EDGES = np.linspace(-1.0, 1.0, 5)


def cumulative(p, r):
    return norm.cdf(EDGES[None, :], r["x"][:, None] + p[0], p[1])


def kernels(p, r):
    apart = r["y"][:, None, :] - p[0] * jnp.ones((7, 2))
    return jnp.exp(-jnp.sum(apart**2, axis=-1) / p[1])


FUNCTIONS = {
    "broadcast": cumulative,
    "diff": lambda p, r: jnp.diff(cumulative(p, r), axis=1),
    "stack": lambda p, r: jnp.stack([jnp.sin(r["x"] * p[0]), r["x"] ** 2 * p[1]], axis=1),
    "stack of wide": lambda p, r: jnp.stack([r["y"] * p[0], r["y"] ** 2], axis=2),
    "concatenate": lambda p, r: jnp.concatenate([cumulative(p, r), p[0] * r["y"]], axis=-1),
    "transposed": lambda p, r: (EDGES[:, None] * p[0] * r["x"]).T,
    "kernels": kernels,
    "sigmoid": lambda p, r: jax.nn.sigmoid((r["x"][:, None] - EDGES) / p[1]),
    "column": lambda p, r: cumulative(p, r)[:, 1] * r["y"][:, 0],
    "strides": lambda p, r: cumulative(p, r)[:, ::2],
    "reduced": lambda p, r: {"max": cumulative(p, r).max(1), "sum": kernels(p, r).sum(axis=1, keepdims=True)},
    "where and clip": lambda p, r: jnp.where(r["y"] > p[0], jnp.clip(r["y"], 0.0, 1.0), p[1] * r["x"][:, None]),
    "complex": lambda p, r: jnp.exp(1j * p[0] * r["x"][:, None] * EDGES),
    "integers": lambda p, r: (r["n"][:, None] == jnp.arange(5)) * p[0],
    "counts": lambda p, r: r["n"][:, None] > jnp.arange(5),
    "scaled by rows": lambda p, r: p[0] * r["y"] / r["x"][:, None],
    "reshape": lambda p, r: (p[0] * kernels(p, r)).reshape(-1, 7, 1) * r["y"][:, None, :],
    "of three axes": lambda p, r: p[0] * r["y"][:, :, None] * EDGES,
    # left as they are written
    "matrix product": lambda p, r: jnp.tanh(r["y"] @ jnp.array([[1.0, 2.0, 3.0], [0.5, 0.2, 0.1]]) * p[0]),
    "own derivative": lambda p, r: jax.nn.softplus(r["y"] * p[0]),
    "indexed": lambda p, r: (r["y"] * p[0])[:, jnp.array([1, 0, 1])],
    "cumulative sum": lambda p, r: jnp.cumsum(r["y"] * p[0], axis=1),
    "loop": lambda p, r: jax.lax.fori_loop(0, 3, lambda i, t: t + p[0] * r["y"], jnp.zeros((r["x"].shape[0], 2))),
}
P0 = np.array([0.3, 0.8])


def sums_of(fn):
    def sums(p, rows, mask):
        shaped = lambda c: jnp.where(mask.reshape(-1, *(1,) * (c.ndim - 1)), c * 1.0, 0.0)  # noqa: E731
        return jax.tree.map(lambda c: shaped(c).sum(0), fn(p, rows))

    return sums


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_and_derivatives_stay_the_same(name):
    mask, plain = np.arange(N) < N - 4, sums_of(FUNCTIONS[name])
    turned = rows_quickest(plain, N)

    def sums_and_slopes(fn, p):
        sums, pull = jax.vjp(lambda p: fn(p, ROWS, mask), p)
        complex_ = any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(sums))
        return sums, None if complex_ else pull(jax.tree.map(jnp.ones_like, sums))[0]

    @jax.jit  # one program for all: compiling is this file's time
    def both(p):
        several = jax.vmap(lambda p: turned(p, ROWS, mask))(jnp.stack([p, 2 * p]))
        return sums_and_slopes(plain, p), sums_and_slopes(turned, p), several

    (expected, slope), (found, turned_slope), several = both(P0)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14), found, expected)
    if slope is not None:
        np.testing.assert_allclose(turned_slope, slope, rtol=1e-12, atol=1e-13)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-13, atol=1e-14), several, expected)


@pytest.mark.parametrize("name", ["broadcast", "diff", "stack", "kernels", "sigmoid"])
def test_common_forms_have_rows_last(name):
    traced = jax.make_jaxpr(rows_quickest(sums_of(FUNCTIONS[name]), N))(P0, ROWS, np.ones(N, bool))

    def wide(jaxpr):
        for step in jaxpr.eqns:
            yield from (
                v.aval.shape for v in step.outvars if len(v.aval.shape) > 1 and step.primitive.name != "transpose"
            )

    assert all(shape[0] != N for shape in wide(traced.jaxpr))


@pytest.mark.parametrize("name", ["diff", "kernels"])
@pytest.mark.parametrize("shards", [1, 4])
def test_an_objective_with_either_layout(name, shards):
    fn = FUNCTIONS[name]
    rows = {k: np.tile(v, (60, 1) if v.ndim > 1 else 60) for k, v in ROWS.items()}
    term = sf.statistic_term(fn, rows, loss=lambda t: jnp.sum(jnp.log(t) ** 2), chunk=100)
    objective = sf.Objective({"s": term})
    by_hand = lambda p: jnp.sum(jnp.log(fn(p, rows).sum(0)) ** 2)  # noqa: E731
    expected = jax.jit(jax.value_and_grad(by_hand))(P0)
    placed = objective.place(sf.mesh(rows=shards)) if shards > 1 else objective
    for found, right in zip(placed.value_and_grad(P0), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10)
    plain = jax.jit(lambda p: jax.jvp(jax.grad(by_hand), (p,), (jnp.ones(2),))[1])(P0)
    np.testing.assert_allclose(placed.hvp(P0, np.ones(2)), plain, rtol=1e-9)
