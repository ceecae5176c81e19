"""A random key for each row: the same draws on every chunk, mesh and mini-batch; draws by block are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.check.certificate import certify
from shardfit.core.precision import arithmetic

N = 203
ROWS = {"x": np.linspace(0.0, 1.0, N)}


def by_row(p, rows, key, keys):
    assert keys.shape == rows["x"].shape and key.shape == ()
    return p["m"] * rows["x"] + jax.vmap(jax.random.normal)(keys) * p["s"]


def by_block(p, rows, key):
    return p["m"] * rows["x"] + jax.random.normal(key, rows["x"].shape) * p["s"]


P0 = {"m": 0.3, "s": 0.5}


def squared(total, key):
    return (total - 3.0) ** 2


def objective(fn=by_row, stochastic="rows", **options):
    term = sf.statistic_term(fn, ROWS, loss=squared, stochastic=stochastic, **options)
    return sf.Objective({"draws": term})


def test_draws_follow_their_rows():
    whole = objective(chunk=None)
    value, gradient = whole.value_and_grad(P0, key=5)
    for layout in (objective(chunk=10), objective(chunk=64).place(sf.mesh(rows=3)), whole.place(sf.mesh(rows=8))):
        found = layout.value_and_grad(P0, key=jax.random.key(5))
        np.testing.assert_allclose(found[0], value, rtol=1e-12)
        np.testing.assert_allclose(found[1]["s"], gradient["s"], rtol=1e-11)
    assert abs(float(whole.value(P0, key=6)) - float(value)) > 1e-3
    few = whole.take(lambda i, n: np.array([3, 100]))
    keys = jax.random.fold_in(jax.random.key(5), 0)
    with arithmetic("float64"):
        drawn = [float(jax.random.normal(jax.random.fold_in(keys, i))) for i in (3, 100)]
    expected = sum(0.3 * ROWS["x"][i] + 0.5 * draw for i, draw in zip((3, 100), drawn, strict=True))
    np.testing.assert_allclose(few.totals(P0, key=5)["draws"], expected, rtol=1e-12)


def test_rows_can_be_exchanged_and_the_key_frozen():
    frozen = objective().freeze(4)
    assert frozen.stochastic == ()
    other = frozen.with_rows(draws={"x": ROWS["x"] + 1})
    np.testing.assert_allclose(other.totals(P0)["draws"] - frozen.totals(P0)["draws"], 0.3 * N, rtol=1e-4)


def test_draws_by_block_are_named():
    problem = sf.Problem(objective(by_block, True), P0)
    with pytest.raises(sf.ParityError, match="'draws' draws random numbers .*stochastic='rows'"):
        certify(problem)
    certify(sf.Problem(objective(), P0))


@pytest.mark.parametrize("key", ["first", 1.5, np.zeros(3)])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(TypeError, match="no random key. Pass a whole number or jax.random.key"):
        objective().value(P0, key=key)


def test_unknown_kinds_of_randomness_are_refused():
    with pytest.raises(ValueError, match="stochastic='row' must be False, True or 'rows'"):
        objective(stochastic="row")
    assert jnp.isfinite(objective().value(P0, key=np.int64(3)))
