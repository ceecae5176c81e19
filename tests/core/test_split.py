"""Shards of an objective: equal shapes, every row once, shares of every label, sums that are the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.objective import Objective
from shardfit.core.term_makers import penalty, residual_term, statistic_term

N, M = 23, 11
DRAW = np.random.default_rng(0)
ROWS = {"x": DRAW.normal(size=N), "y": DRAW.normal(size=N), "angle": np.arange(N) % 3, "number": np.arange(N)}
MORE = {"t": np.linspace(0.1, 1, M), "block": DRAW.normal(size=(M, 2))}
P0 = np.array([0.4, -1.3])


def line(p, rows):
    return rows["y"] - p[0] - p[1] * rows["x"]


def decay(p, rows, rate):
    return jnp.exp(-rate * p[0] * rows["t"]) + p[1] * rows["block"].sum(1)


def terms():
    return {
        "data": residual_term(line, ROWS, weight=2.0, chunk=3),
        "decay": statistic_term(decay, MORE, 0.7),
        "ridge": penalty(lambda p: {"a": jnp.sum(p**2), "b": p[0]}, weight={"a": 0.5, "b": 3.0}),
        "flat": penalty(lambda p: jnp.sum(jnp.abs(p)), weight=0.1),
    }


@pytest.fixture(scope="module")
def objective():
    return Objective(terms())


@pytest.mark.parametrize("shards", [1, 2, 5, 11])
def test_shards_add_up(objective, shards):
    parts = objective.split(shards, by="angle" if shards < 7 else None)
    values, gradients = zip(*(part.value_and_grad(P0) for part in parts), strict=True)
    value, gradient = objective.value_and_grad(P0)
    np.testing.assert_allclose(sum(map(float, values)), float(value), rtol=1e-12)
    np.testing.assert_allclose(np.sum(gradients, axis=0), gradient, rtol=1e-11)


def real_rows(part, entry="number", term=0):
    own = part.terms[term]
    return np.asarray(own.rows[entry])[: own.n_rows]


def test_every_row_once_in_equal_shapes(objective):
    parts = objective.split(4)
    assert len({str(jax.tree.map(np.shape, part)) for part in parts}) == 1
    assert len({jax.tree.structure(part) for part in parts}) == 1
    np.testing.assert_array_equal(np.sort(np.concatenate([real_rows(p) for p in parts])), np.arange(N))
    for part in parts:
        assert set(np.asarray(part.terms[0].rows["number"])) == set(real_rows(part))  # padding is real rows
        np.testing.assert_array_equal(real_rows(part), np.sort(real_rows(part)))


def test_shares_of_every_label(objective):
    labels = {"angle": "angle", "an array": {"data": ROWS["angle"]}, "by term": {"data": "angle"}}
    for by in labels.values():
        for part in objective.split(5, by=by):
            shares = np.bincount(real_rows(part, "angle"), minlength=3)
            assert shares.min() >= 1
            assert np.ptp(shares) <= 1
            assert part.n_rows["data"] in (4, 5)


def test_seed_decides(objective):
    first, again, other = ([real_rows(p).tolist() for p in objective.split(3, seed=seed)] for seed in (0, 0, 1))
    assert first == again != other


def test_rows_that_were_padded_before(objective):
    once = objective.split(2)[0]
    twice = once.split(3)
    np.testing.assert_array_equal(np.sort(np.concatenate([real_rows(p) for p in twice])), real_rows(once))
    stratified = once.split(2, by="angle")
    np.testing.assert_allclose(sum(float(p.value(P0)) for p in stratified), float(once.value(P0)), rtol=1e-12)


class Marginal:
    shardable = True

    def __call__(self, total):
        return jnp.log(total)


def test_losses_of_totals(objective):
    mass = statistic_term(lambda p, rows: jnp.exp(p[0] * rows["t"]), MORE, loss=jnp.log)
    with pytest.raises(TypeError, match="split needs losses that are plain sums over rows, but 'mass'"):
        Objective({**terms(), "mass": mass}).split(2)
    willing = statistic_term(lambda p, rows: jnp.exp(p[0] * rows["t"]), MORE, loss=Marginal())
    assert len(Objective({"mass": willing}).split(2)) == 2
    with pytest.raises(TypeError, match="map_shards needs losses"):
        Objective({"mass": willing}).map_shards(lambda part, k: k)


@pytest.mark.parametrize(
    "shards, by, words",
    [
        (0, None, "shards=0 must be a whole number, at least 1"),
        (2.0, None, "shards=2.0 must be a whole number"),
        (True, None, "shards=True must be"),
        (12, None, "term 'decay' has 11 rows for 12 shards. Use at most 11"),
        (8, "angle", "7 rows labelled 2 for 8 shards.*at most 7 shards, or coarser labels"),
        (2, "angel", "no term has rows with an entry 'angel'. Did you mean 'angle'"),
        (2, np.zeros(N), "labels for which of 'data', 'decay'"),
        (2, {"data": np.zeros(N - 1)}, r"labels of shape \(22,\) for term 'data'.*each of its 23 rows"),
        (2, {"decay": "block"}, r"labels of shape \(11, 2\) for term 'decay'"),
        (2, {"decay": "angle"}, "the rows of term 'decay' have no entry 'angle'"),
        (2, {"ridge": "angle"}, "no term 'ridge' with rows"),
    ],
)
def test_bad_input(objective, shards, by, words):
    with pytest.raises(ValueError, match=words):
        objective.split(shards, by=by)
