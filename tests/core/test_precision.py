"""float64 by scope: data decide, and no global setting is touched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.mesh import mesh
from shardfit.core.objective import Objective
from shardfit.core.precision import cast, problem_scope, scope
from shardfit.core.problem import Problem
from shardfit.core.terms import penalty, residual_term

X = np.linspace(0, 1, 6)


@pytest.fixture(autouse=True)
def unchanged_setting():
    before = jax.config.jax_enable_x64
    assert not before, "these tests need the global switch off"
    yield
    assert jax.config.jax_enable_x64 is before
    assert jnp.ones(1).dtype == np.float32


def model(p, rows):
    return rows["y"] - p["a"] * rows["x"]


def line(dtype):
    rows = {"x": X.astype(dtype), "y": (2 * X).astype(dtype)}
    return Objective(
        {"line": residual_term(model, rows, chunk=4), "small": penalty(lambda p: p["a"] ** 2, weight=1e-3)}
    )


EXACT = 0.5 * np.sum((2 * X - X / 3) ** 2) + 1e-3 / 9


@pytest.mark.parametrize("layout", [None, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_results_have_the_type_of_the_data(dtype, layout):
    objective = line(dtype).place(layout and mesh(layout))
    value, gradient = objective.value_and_grad({"a": dtype(1 / 3)})
    assert value.dtype == gradient["a"].dtype == dtype
    assert float(value) == pytest.approx(EXACT, rel=1e-15 if dtype == np.float64 else 1e-6)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(objective.terms[0].rows))


def test_other_quantities_are_float64_too():
    objective, p = line(np.float64), {"a": np.float64(1 / 3)}
    data = objective.only("line")
    found = (objective.parts(p), objective.totals(p), objective.hvp(p, p), data.gram(p), data.residuals(p))
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float64)}
    shards = data.place(mesh(2)).map_shards(lambda sub, i: sub.value({"a": jnp.float64(1 / 3)}))
    assert shards.dtype == np.float64


@pytest.mark.parametrize("layout", ["host", None, 2])
def test_a_users_own_jit_and_grad_work_with_the_switch_off(layout):
    objective = line(np.float64)
    objective = objective if layout == "host" else objective.place(layout and mesh(layout))
    p = {"a": np.float64(1 / 3)}
    value, gradient = jax.jit(lambda o, p: o.value_and_grad(p))(objective, p)
    assert float(value) == pytest.approx(EXACT, rel=1e-6)
    slope = float(jax.grad(objective.value)(p)["a"])
    assert slope == pytest.approx(float(gradient["a"]), rel=1e-6)
    assert slope == pytest.approx(-np.sum(X * (2 * X - X / 3)) + 2e-3 / 3, rel=1e-6)


def test_a_float32_problem_stays_float32():
    problem = Problem(line(np.float64), {"a": 1 / 3}, precision="float32")
    leaves = [leaf for leaf in jax.tree.leaves((problem.objective, problem.x0)) if leaf.dtype.kind == "f"]
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
    assert problem.z0().dtype == np.float32
    with problem_scope("float32"):
        value, gradient = problem.objective.value_and_grad(problem.x0)
    assert value.dtype == gradient["a"].dtype == np.float32


def test_a_float64_problem_raises_float32_data():
    problem = Problem(line(np.float32), {"a": np.float32(0.5)})
    assert problem.z0().dtype == np.float64
    assert problem.objective.value(problem.x0).dtype == np.float64


def test_cast_leaves_integers_flags_and_keys_alone():
    tree = {"f": np.ones(2), "c": np.ones(2, np.complex128), "i": np.arange(2), "b": np.ones(2, bool), "w": 0.5, "n": 3}
    found = cast(tree, "float32")
    types = {"f": np.float32, "c": np.complex64, "i": np.int64, "b": np.bool_, "w": np.float32}
    assert {k: found[k].dtype for k in types} == {k: np.dtype(v) for k, v in types.items()}
    assert found["n"] == 3
    key = jax.random.key(0)
    assert cast({"k": key}, "float64")["k"] is key
    assert cast(tree, "float64")["f"] is tree["f"], "no copy where the type is right"


def test_scope_follows_the_arrays():
    with scope({"a": np.ones(2, np.float32)}, 1.0, jax.random.key(0)):
        assert not jax.config.jax_enable_x64
    with scope({"a": np.ones(2, np.complex128)}):
        assert jnp.ones(1).dtype == np.float64
    with pytest.raises(RuntimeError, match="inside"), problem_scope("float64"):
        raise RuntimeError("inside")
