"""Objective: changed copies, mini-batches, shards, and parameters of any shape."""

from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.mesh import mesh
from shardfit.core.objective import Objective
from shardfit.core.term_makers import penalty, residual_penalty, residual_term, statistic_term

X, Y = np.linspace(-1, 1, 6), np.array([0.3, -0.2, 0.5, 1.0, 0.1, -0.4])
P0 = np.array([0.4, 1.3])


def line(p, rows, shift):
    return rows["y"] - p[0] - p[1] * rows["x"] - shift


def masses(p, rows):
    return {"one": jnp.exp(p[0] * rows["x"]), "two": jnp.exp(p[1] * rows["x"])}


def log_misfits(total):
    return {name: jnp.log(mass) ** 2 for name, mass in total.items()}


def ridge(p, centre):
    return jnp.sum((p - centre) ** 2)


@pytest.fixture(scope="module")
def objective():
    return Objective(
        {
            "data": residual_term(line, {"x": X, "y": Y}, 0.0, weight=2.0),
            "mass": statistic_term(masses, {"x": X}, loss=log_misfits, weight={"one": 1.0, "two": 3.0}),
            "ridge": penalty(ridge, np.zeros(2), weight=0.1),
        }
    )


def hand(p, x=X, y=Y, shift=0.0, centre=0.0, data=2.0, one=1.0, two=3.0, ridge=0.1):
    value = data * 0.5 * np.sum((y - p[0] - p[1] * x - shift) ** 2)
    value += one * np.log(np.exp(p[0] * X).sum()) ** 2 + two * np.log(np.exp(p[1] * X).sum()) ** 2
    return value + ridge * np.sum((p - centre) ** 2)


CHANGES = {
    "weights": (lambda o: o.with_weights(data=0.5, ridge=7.0), {"data": 0.5, "ridge": 7.0}),
    "part weight": (lambda o: o.with_weights(mass={"two": 0.5}), {"two": 0.5}),
    "args": (lambda o: o.with_args(data=(0.2,), ridge=[np.ones(2)]), {"shift": 0.2, "centre": 1.0}),
    "rows": (lambda o: o.with_rows(data={"x": X**2, "y": -Y}), {"x": X**2, "y": -Y}),
    "nothing": (lambda o: o, {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies(objective, change):
    make, values = CHANGES[change]
    assert float(make(objective).value(P0)) == pytest.approx(hand(P0, **values), rel=1e-13)
    assert float(objective.value(P0)) == pytest.approx(hand(P0), rel=1e-13), "the original stays as it is"


def test_weights_can_be_swept_under_vmap(objective):
    weights = np.array([0.0, 1.0, 10.0])
    with jax.enable_x64(True):
        swept = jax.jit(jax.vmap(lambda o, w: o.with_weights(ridge=w).value(P0), (None, 0)))(objective, weights)
    np.testing.assert_allclose(swept, [hand(P0, ridge=w) for w in weights], rtol=1e-13)


def test_only_keeps_the_named_terms(objective):
    both = objective.only("ridge", "data")
    assert both.names == ("data", "ridge")
    assert float(both.value(P0)) == pytest.approx(hand(P0, one=0, two=0), rel=1e-13)


def test_parts_are_unweighted_and_named(objective):
    parts = objective.parts(P0)
    assert list(parts) == ["data", "mass.one", "mass.two", "ridge"]
    assert float(parts["ridge"]) == pytest.approx(np.sum(P0**2))
    assert float(parts["mass.two"]) == pytest.approx(np.log(np.exp(P0[1] * X).sum()) ** 2, rel=1e-13)
    assert objective.n_rows == {"data": 6, "mass": 6}


@pytest.mark.parametrize(
    "call",
    [
        lambda o: o.with_weights(ridg=1.0),
        lambda o: o.with_args(ridg=()),
        lambda o: o.with_rows(ridg={}),
        lambda o: o.only("ridg"),
    ],
)
def test_an_unknown_term_is_named_with_the_nearest(objective, call):
    with pytest.raises(ValueError, match="no term 'ridg'.*Did you mean 'ridge'.*Known: data, mass, ridge"):
        call(objective)


def test_with_rows_keeps_shapes(objective):
    with pytest.raises(ValueError, match=r"with_rows: shapes .*\(5,\).* differ from .*\(6,\).*Make a new term"):
        objective.with_rows(mass={"x": X[:5]})
    with pytest.raises(TypeError, match="has no rows"):
        objective.with_rows(ridge={"x": X})


@pytest.mark.parametrize("bad", [{}, [1], {"a": 3.0}, {"a": lambda p: p}])
def test_objective_takes_named_terms(bad):
    with pytest.raises(TypeError, match=r"Objective.*(named terms|'a' is .*, not a term).*residual_term"):
        Objective(bad)


# ---- mini-batches ---------------------------------------------------------------------------------------------------


def test_take_is_unbiased(objective):
    """The mean over all batches of two is the whole: exactly, for sums."""
    batches = [objective.take(lambda i, n, c=chosen: np.array(c)) for chosen in combinations(range(6), 2)]
    assert batches[0].n_rows == {"data": 2, "mass": 2}
    totals = [b.totals(P0) for b in batches]
    whole = objective.totals(P0)
    scaled = [np.asarray(t["mass"]["one"]) * b.terms[1].scale for t, b in zip(totals, batches, strict=True)]
    assert np.mean(scaled) == pytest.approx(float(whole["mass"]["one"]), rel=1e-13)
    values = [float(b.parts(P0)["data"]) for b in batches]
    assert np.mean(values) == pytest.approx(0.5 * np.sum((Y - P0[0] - P0[1] * X) ** 2), rel=1e-13)
    misfit = float(batches[0].parts(P0)["mass.one"])
    assert misfit == pytest.approx(np.log(3 * np.exp(P0[0] * X[:2]).sum()) ** 2, rel=1e-13)


def test_a_batch_of_a_batch_still_stands_for_all_rows(objective):
    twice = objective.take(lambda i, n: np.arange(4)).take(lambda i, n: np.arange(2))
    assert twice.terms[0].scale == pytest.approx(3.0)
    r = np.asarray(twice.only("data").residuals(P0))
    np.testing.assert_allclose(r, np.sqrt(2.0 * 3) * (Y - P0[0] - P0[1] * X)[:2], rtol=1e-13)


def test_take_from_a_padded_layout_and_of_nothing(objective):
    chosen = objective.place(mesh(4)).take(lambda i, n: np.array([5, 1]))
    np.testing.assert_array_equal(chosen.terms[0].rows["y"], Y[[1, 5]])
    assert chosen.mesh is None
    with pytest.raises(ValueError, match="no rows chosen for term 'data'. Choose at least one of its 6"):
        objective.take(lambda i, n: np.array([], int))


# ---- layouts --------------------------------------------------------------------------------------------------------


def test_moving_between_layouts_loses_nothing(objective):
    placed = objective
    for layout in (mesh(4), mesh(8), None, mesh(2), mesh(3)):
        placed = placed.place(layout)
        assert placed.n_rows == objective.n_rows
        assert placed.mesh is layout
    back = placed.place(None)
    np.testing.assert_array_equal(back.terms[0].rows["y"], Y)
    assert float(placed.value(P0)) == pytest.approx(hand(P0), rel=1e-13)


@pytest.mark.parametrize("shards", [1, 4])
def test_shards_add_up_to_the_whole(shards):
    """Data terms are split, penalties divided: Σ over shards is the objective, and so are the gradients."""
    whole = Objective(
        {
            "data": residual_term(line, {"x": X, "y": Y}, 0.0, weight=2.0),
            "like": statistic_term(lambda p, r: jnp.cosh(p[0] * r["x"]), {"x": X}, chunk=1),
            "ridge": penalty(ridge, np.zeros(2), weight=0.1),
            "prior": residual_penalty(lambda p: p - 1.0, weight=0.5),
        }
    ).place(mesh(shards))

    def one(sub, index):
        p = jnp.asarray(P0)
        return {"value": sub.value(p), "gradient": jax.grad(sub.value)(p), "index": index, "ridge": sub.terms[2].weight}

    found = jax.tree.map(np.asarray, whole.map_shards(one))
    value, gradient = whole.value_and_grad(P0)
    np.testing.assert_array_equal(found["index"], np.arange(shards))
    np.testing.assert_allclose(found["ridge"], np.full(shards, 0.1 / shards), rtol=1e-15)
    assert np.sum(found["value"]) == pytest.approx(float(value), rel=1e-13)
    np.testing.assert_allclose(np.sum(found["gradient"], 0), gradient, rtol=1e-12)


def test_map_shards_refuses_what_does_not_add_up(objective):
    with pytest.raises(TypeError, match="map_shards needs losses that are plain sums over rows, but 'mass'"):
        objective.map_shards(lambda sub, i: i)
    few = objective.only("data").place(mesh(8))
    with pytest.raises(ValueError, match="term 'data' has 6 rows for 8 shards.*fewer rows"):
        few.map_shards(lambda sub, i: i)


# ---- parameters of any shape ----------------------------------------------------------------------------------------


class Line(NamedTuple):
    offset: object
    slope: object


TREES = {
    "dict": ({"b": P0[1], "a": P0[0]}, lambda p: (p["a"], p["b"])),
    "list": ([P0[0], P0[1]], lambda p: (p[0], p[1])),
    "nested tuple": ((P0[0], {"b": [P0[1:]]}), lambda p: (p[0], p[1]["b"][0][0])),
    "namedtuple": (Line(P0[0], P0[1]), lambda p: (p.offset, p.slope)),
    "array": (P0, lambda p: (p[0], p[1])),
    "scalar": (P0[0], lambda p: (p, P0[1])),
}


@pytest.mark.parametrize("kind", TREES)
def test_parameters_are_any_pytree(kind):
    params, read = TREES[kind]

    def fn(p, rows):
        a, b = read(p)
        return rows["y"] - a - b * rows["x"]

    objective = Objective({"line": residual_term(fn, {"x": X, "y": Y}, chunk=2)}).place(mesh(2))
    value, gradient = objective.value_and_grad(params)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)
    r = Y - P0[0] - P0[1] * X
    assert float(value) == pytest.approx(0.5 * r @ r, rel=1e-13)
    slopes = {"a": -r.sum(), "b": -(r @ X)}
    flat = np.concatenate([np.ravel(g) for g in jax.tree.leaves(gradient)])
    np.testing.assert_allclose(flat, list(slopes.values())[: flat.size], rtol=1e-12)
