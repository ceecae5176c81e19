"""float64 by scope: data decide, and no global setting is touched."""

# pyright: reportAttributeAccessIssue=false
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.current import working_on_it
from shardfit.core.mesh import mesh
from shardfit.core.objective import Objective
from shardfit.core.precision import (
    PRECISIONS,
    _no_trace,
    arithmetic,
    cast,
    in_caller_precision,
    precision_of,
    tracing,
)
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_term, statistic_term
from shardfit.fitting import fit

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


TRACES = {
    "jit": lambda objective, p: jax.jit(lambda p: objective.value_and_grad(p))(p),
    "argument": lambda objective, p: jax.jit(lambda o, p: o.value(p))(objective, p),
    "constant": lambda objective, p: jax.jit(lambda: objective.value(p))(),
    "grad": lambda objective, p: jax.grad(objective.value)(p),
    "vmap": lambda objective, p: jax.vmap(objective.value)({"a": np.array([p["a"], 0.5])}),
}


@pytest.mark.parametrize("layout", ["host", None, 2])
@pytest.mark.parametrize("kind", TRACES)
def test_a_callers_trace_does_not_round_a_float64_objective(kind, layout):
    """With 64-bit off it is refused; switched on in the same process, the same objective gives the same digits."""
    objective = line(np.float64)
    objective = objective if layout == "host" else objective.place(layout and mesh(layout))
    p = {"a": np.float64(1 / 3)}
    with pytest.raises(TypeError, match=r"float64 objective .*jax_enable_x64"):
        TRACES[kind](objective, p)
    with jax.enable_x64(True):  # as jax.config.update does for good
        found = TRACES[kind](objective, p)
    value, gradient = objective.value_and_grad(p)
    expected = {"jit": (value, gradient), "grad": gradient}.get(kind, value)
    found = jax.tree.map(lambda leaf: leaf if leaf.ndim == 0 else leaf[0], found)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), found, expected)


def test_a_float32_objective_in_a_callers_trace():
    objective, p = line(np.float32), {"a": np.float32(1 / 3)}
    value = jax.jit(objective.value)(p)
    assert value.dtype == np.float32
    with jax.enable_x64(True):
        assert jax.jit(objective.value)(p).dtype == np.float32


GRID = np.linspace(0.1, 2, 5)
HALF = np.arange(5)


@jax.jit
def compiled_helper(x):
    return jnp.sum(jnp.sin(GRID) * x)


def loop_body(total, i):
    return total + jnp.sum(jax.lax.exp(GRID)) + jnp.asarray(GRID)[i], None


def closing_over(p, rows):
    looped, _ = jax.lax.scan(loop_body, jnp.zeros_like(p), HALF)
    return rows["x"] * jnp.sum(GRID * p) + looped + compiled_helper(p)


def exact(p):
    looped = 5 * np.exp(GRID).sum() + GRID.sum()
    return 0.5 * np.sum((X * np.sum(GRID * p) + looped + np.sum(np.sin(GRID) * p)) ** 2)


def value_in(precision):
    objective = Objective({"d": residual_term(closing_over, {"x": X}, chunk=4)})
    return Problem(objective, 0.7, precision=precision).objective.value(PRECISIONS[precision](0.7))


@pytest.mark.parametrize("order", [("float64", "float32"), ("float32", "float64")])
def test_arrays_that_a_model_closes_over_have_the_type_of_each_precision(order):
    """JAX remembers such constants by the array alone: the other precision failed, or computed with rounded ones."""
    jax.jit(compiled_helper)(0.5)  # the caller's own program, in the caller's precision, stays alive
    for precision in order * 2:
        value = value_in(precision)
        assert value.dtype == PRECISIONS[precision]
        assert float(value) == pytest.approx(exact(0.7), rel=1e-14 if precision == "float64" else 1e-5)


def test_threads_in_different_precisions():
    start = threading.Barrier(4)

    def work(precision):
        start.wait()
        values = [value_in(precision) for _ in range(3)]
        return precision, {v.dtype for v in values}, [float(v) for v in values]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, ["float64", "float32"] * 2))
    for precision, types, values in found:
        assert types == {np.dtype(PRECISIONS[precision])}
        np.testing.assert_allclose(values, exact(0.7), rtol=1e-14 if precision == "float64" else 1e-5)


def test_callbacks_run_in_the_callers_setting():
    problem = Problem(line(np.float64), {"a": 0.1})
    seen = []

    def look(snapshot):
        seen.append((jnp.ones(1).dtype, snapshot.params["a"].dtype))

    fit(problem, "lbfgs", callback=look, every=1, progress=False)
    assert set(seen) == {(np.dtype(np.float32), np.dtype(np.float64))}
    with arithmetic("float64"):
        kept = in_caller_precision(lambda: jnp.ones(1).dtype)
        with arithmetic("float32"):
            assert kept() == np.float64


def test_a_float32_model_in_a_float64_problem_is_named():
    with pytest.raises(TypeError, match=r"fn of term 'wave' .*float32, but the problem is float64"):
        Problem(Objective({"wave": residual_term(lambda p, rows: jnp.float32(rows["x"] * p), {"x": X})}), 1.0)
    with pytest.raises(TypeError, match=r"loss of term 'small' is float32"):
        Problem(Objective({"small": penalty(lambda p: jnp.float32(p**2))}), 1.0)
    counts = statistic_term(lambda p, rows: jnp.ones_like(rows["x"], np.int32), {"x": X}, loss=lambda n: n)
    assert Problem(Objective({"counts": counts}), 1.0).precision == "float64", "whole numbers have no precision"


def test_float64_in_a_float32_problem_is_told_when_it_is_made():
    with jax.enable_x64(True):
        factor = jnp.asarray(2.0, np.float64)
    for model in (lambda p, rows: (rows["x"] * p).astype(np.float64), lambda p, rows: rows["x"] * p * factor):
        with pytest.warns(UserWarning, match="float64"):
            Problem(Objective({"d": residual_term(model, {"x": X})}), 1.0, precision="float32")


def test_a_memory_map_of_another_type_is_not_read_whole(tmp_path):
    np.save(tmp_path / "y.npy", X.astype(np.float32))
    rows = {"y": np.load(tmp_path / "y.npy", mmap_mode="r")[1:], "x": X[1:].astype(np.float32)}
    objective = Objective({"line": residual_term(model, rows)})
    with pytest.raises(ValueError, match=r"'line'.*'y'.*memory map of float32.*precision='float32'.*float64"):
        Problem(objective, {"a": 0.5})
    kept = Problem(objective, {"a": 0.5}, precision="float32").objective.terms[0].rows["y"]
    assert kept is rows["y"]


def test_a_float32_problem_stays_float32():
    problem = Problem(line(np.float64), {"a": 1 / 3}, precision="float32")
    leaves = [leaf for leaf in jax.tree.leaves((problem.objective, problem.x0)) if leaf.dtype.kind == "f"]
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
    assert problem.z0().dtype == np.float32
    with arithmetic("float32"):
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


def test_a_function_runs_in_the_precision_of_its_first_argument():
    @working_on_it
    def dtype(problem, more=None):
        return jnp.ones(1).dtype

    problem = Problem(line(np.float64), {"a": 0.5})
    assert dtype(problem) == dtype(problem=problem, more=1) == np.float64
    assert dtype(None) == np.float32, "what is no problem is for the function to refuse"


def test_precision_follows_the_arrays():
    assert precision_of({"a": np.ones(2, np.float32), "n": 1.0, "key": jax.random.key(0)}) == "float32"
    assert precision_of({"a": np.ones(2, np.float32), "b": np.ones(2, np.complex128)}) == "float64"
    assert precision_of({"i": np.arange(3), "w": 1.0}) is None
    with arithmetic("float64"), arithmetic(None), arithmetic("float64"):
        assert jnp.ones(1).dtype == np.float64
        with arithmetic("float32"):
            assert jnp.ones(1).dtype == np.float32
    with pytest.raises(RuntimeError, match="inside"), arithmetic("float64"):
        raise RuntimeError("inside")


def test_whether_a_trace_is_under_way_does_not_depend_on_the_first_to_ask():
    """A first call from within a trace must not make every later one outside look like another trace."""
    _no_trace.cache_clear()
    seen = []
    jax.jit(lambda x: seen.append(tracing()) or x)(1.0)
    jax.vmap(lambda x: seen.append(tracing()) or x)(jnp.ones(2))
    assert seen == [True, True]
    assert not tracing()
