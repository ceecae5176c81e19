"""Problem: every bad input is refused when the problem is made, with a name and a remedy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_penalty, residual_term, statistic_term
from shardfit.core.transforms import Interval
from shardfit.fitting import fit

ROWS = {"x": np.linspace(0, 1, 5), "y": np.ones(5)}
X0 = {"slope": 1.0, "w": np.array([0.5, 0.5])}


def line(p, rows):
    return rows["y"] - p["slope"] * rows["x"]


def make(term=None, x0=X0, **more):
    return Problem(Objective({"line": term or residual_term(line, ROWS)}), x0, **more)


def test_a_good_problem_knows_its_parameters():
    problem = make(bounds={"slope": (0, 3)}, transforms={"w": "simplex"}, units={"slope": "Jy/s"}, name="lines")
    assert problem.space.size == 2
    np.testing.assert_array_equal(problem.box[0], [0, -np.inf])
    np.testing.assert_array_equal(problem.z0(), [1, 0])
    assert problem.unit_labels() == ["Jy/s", ""]
    other = problem.replace(x0={"slope": 2.0, "w": np.array([0.2, 0.8])}, name="steep")
    assert (other.z0()[0], other.name, problem.z0()[0]) == (2.0, "steep", 1.0)
    assert other.space == problem.space


def test_parts_may_be_named_or_stochastic():
    named = residual_term(lambda p, r: {"a": line(p, r), "b": [r["x"], r["y"] * 1j]}, ROWS, weight={"a": 1.0, "b": 2.0})
    random = statistic_term(
        lambda p, r, key: r["x"] + jax.random.normal(key), ROWS, loss=lambda t, key: t * p_of(t), stochastic=True
    )
    prior = residual_penalty(lambda p: p["w"])
    Problem(Objective({"named": named, "random": random, "prior": prior}), X0)


def p_of(total):
    return jnp.sin(total)


def test_checking_does_not_run_the_model():
    """Rows may be larger than memory allows to work on at once: shapes are enough to check a term."""

    def fn(p, rows):
        assert isinstance(rows["x"], jax.core.Tracer)
        return jnp.exp(rows["x"]) * p["slope"]

    make(statistic_term(fn, ROWS))


TERMS = {
    "wrong count": (
        lambda: residual_term(lambda p, r: r["x"][1:], ROWS),
        "fn returned 4 values for 5 rows.*one per row",
    ),
    "single number": (
        lambda: residual_term(lambda p, r: jnp.sum(line(p, r)), ROWS),
        r"fn returned a single number for 5 rows.*penalty\(\)",
    ),
    "nothing": (lambda: statistic_term(lambda p, r: None, ROWS), "fn returned nothing"),
    "no loss": (
        lambda: statistic_term(lambda p, r: jnp.outer(r["x"], np.arange(5.0)), ROWS),
        r"the summed statistic has shape \(5,\).*pass a loss",
    ),
    "pairs of rows": (
        lambda: statistic_term(lambda p, r: jnp.outer(r["x"], r["x"]), ROWS, loss=jnp.sum),
        r"the contribution of a row has shape \(5,\) among 5 rows and \(4,\) among 4.*pairs of rows",
    ),
    "vector loss": (
        lambda: statistic_term(line, ROWS, loss=lambda t: jnp.array([t, t])),
        r"the loss has shape \(2,\).*return one number, or a dict",
    ),
    "complex loss": (lambda: statistic_term(line, ROWS, loss=lambda t: t * 1j), "the loss has .*complex128"),
    "complex sum": (
        lambda: statistic_term(lambda p, r: r["x"] * 1j, ROWS),
        "the summed statistic .*complex.*pass a loss",
    ),
    "no return": (lambda: penalty(lambda p: None), "the loss is NoneType; return one number"),
    "tuple loss": (lambda: statistic_term(line, ROWS, loss=lambda t: (t, t)), "the loss is tuple; return one number"),
    "nested loss": (lambda: penalty(lambda p: {"a": {"b": p["slope"]}}), "the loss is a nested dict; return one"),
    "empty loss": (lambda: penalty(lambda p: {}), "the loss is an empty dict; return one"),
    "integer loss": (lambda: penalty(lambda p: 3), "the loss has .*int"),
    "vector weight": (
        lambda: residual_term(line, ROWS, weight=np.ones(3)),
        r"weight has shape \(3,\). Give one number",
    ),
    "weight name": (
        lambda: penalty(lambda p: {"amp": p["slope"]}, weight={"ampl": 1.0}),
        "no part 'ampl'. Did you mean 'amp'",
    ),
    "dict weight": (lambda: penalty(lambda p: p["slope"], weight={"a": 1.0}), "weight is a dict, but the loss is one"),
}


@pytest.mark.parametrize("case", TERMS)
def test_a_bad_term_is_named(case):
    term, words = TERMS[case]
    with pytest.raises(ValueError, match=f"term 'line': {words}"):
        make(term())


def test_an_error_in_the_model_says_which_term():
    with pytest.raises(AttributeError) as caught:
        make(residual_term(lambda p, r: jnp.linespace(0, 1, 5) * r["x"], ROWS))
    assert "raised while checking term 'line'" in " ".join(caught.value.__notes__)


def test_how_functions_are_called_is_said():
    term = statistic_term(lambda p, r, edges: r["x"] * p["a"], {"x": np.ones(3)}, np.zeros(4), loss=lambda t, e, n: t)
    with pytest.raises(TypeError, match="missing 1 required positional") as caught:
        Problem(Objective({"smf": term}), {"a": 1.0})
    assert "called as fn(params, rows, (4,)) and loss(totals, (4,))" in " ".join(caught.value.__notes__)


@pytest.mark.parametrize(
    "more, error, words",
    [
        ({"x0": {"slope": np.nan, "w": X0["w"]}}, ValueError, "parameter slope of x0 is not finite"),
        ({"x0": {"slope": 1j}}, TypeError, "parameter slope is complex"),
        ({"bounds": {"slop": (0, 1)}}, ValueError, "bounds: no parameter 'slop'.*Did you mean 'slope'"),
        ({"transforms": {"slop": "log"}}, ValueError, "transforms: no parameter 'slop'.*Did you mean 'slope'"),
        ({"transforms": {"slope": "logg"}}, ValueError, "unknown transform 'logg'.*Did you mean 'log'"),
        ({"units": {"slop": "m"}}, ValueError, "units: no parameter 'slop'.*Did you mean 'slope'"),
        ({"bounds": {"slope": (2, 3)}}, ValueError, r"x0 of slope is 1, outside its bounds \[2, 3\]"),
        ({"transforms": {"slope": Interval(2.0, 3.0)}}, ValueError, "x0 of slope lies outside its transform's range"),
        ({"transforms": {"slope": Interval(1.0, 3.0)}}, ValueError, "x0 of slope lies outside its transform's range"),
        ({"precision": "float16"}, ValueError, "unknown precision 'float16'.*Known: float32, float64"),
    ],
)
def test_bad_parameters_are_named(more, error, words):
    with pytest.raises(error, match=words):
        make(**more)


def test_a_problem_needs_an_objective():
    with pytest.raises(TypeError, match="Problem needs an Objective, not ResidualTerm"):
        Problem(residual_term(line, ROWS), X0)


def test_a_start_on_its_bound_is_inside_in_float32_too():
    problem = make(bounds={"slope": (0, 0.1)}, x0={"slope": 0.1, "w": X0["w"]}, precision="float32")
    assert problem.z0()[0] == np.float32(0.1)


def test_a_problem_made_anew_does_not_trace_its_terms_again():
    traced = []

    def counted(p, rows):
        traced.append("rows")
        return line(p, rows)

    def held(p):
        traced.append("penalty")
        return p["slope"] ** 2

    problem = Problem(Objective({"line": residual_term(counted, ROWS), "held": penalty(held)}), X0)
    once = len(traced)
    assert once > 0
    problem.replace(x0={"slope": 2.0, "w": np.ones(2)})
    assert len(traced) == once
    problem.replace(x0={"slope": 2.0, "w": np.ones(3)})  # other shapes are looked at
    assert len(traced) > once


@pytest.mark.parametrize(
    "model, message",
    [
        (
            lambda p, r: np.exp(p["a"]) * r["x"],
            "term 'd' uses NumPy functions on parameters or rows.*jnp.exp for np.exp",
        ),
        (lambda p, r: r["x"] if p["a"] > 0 else -r["x"], "term 'd' decides by the value of a parameter.*jnp.where"),
        (lambda p, r: float(p["a"]) * r["x"], "term 'd' needs the value of a parameter or row as a Python number"),
        (lambda p, r: len(range(p["a"].astype(int))) * r["x"], "term 'd' needs the value of a parameter or row"),
    ],
    ids=["numpy", "if", "float", "range"],
)
def test_models_that_cannot_be_traced_are_named(model, message):
    with pytest.raises(TypeError, match=message):
        Problem(Objective({"d": residual_term(model, {"x": np.ones(3)})}), {"a": 1.0})


def test_problems_and_fits_inside_traced_functions_are_refused():
    def made(a):
        return Problem(Objective({"d": penalty(lambda p: (p - 1) ** 2)}), a)

    outside = made(0.5)
    for traced in (jax.jit(made), jax.grad(lambda a: made(a).x0), lambda a: jax.vmap(made)(np.ones(2))):
        with pytest.raises(TypeError, match="a Problem is made inside a function that jit, grad or vmap traces"):
            traced(0.5)
    with pytest.raises(TypeError, match="fit is called inside a function that jit, grad or vmap traces.*outside"):
        jax.jit(lambda a: a * fit(outside).value)(1.0)


def test_low_precision_starts_are_numbers():
    for dtype in (jnp.bfloat16, jnp.float16):
        made = Problem(Objective({"d": penalty(lambda p: (p["a"] - 1) ** 2)}), {"a": jnp.asarray(0.5, dtype)})
        assert made.x0["a"].dtype == np.float64
        assert made.x0["a"] == 0.5


def test_functions_among_parameters_are_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"parameter layer.act of x0 is a function.*eqx.partition.*eqx.combine"):
        Problem(Objective({"d": penalty(lambda p: 0.0)}), {"layer": {"act": jax.nn.relu, "w": np.ones(2)}})
    with pytest.raises(TypeError, match="parameter name is <U3, not a number. Keep what is not fitted out of x0"):
        Problem(Objective({"d": penalty(lambda p: 0.0)}), {"name": "abc"})


def test_bounds_as_scipy_writes_them_follow_the_written_order():
    objective = Objective({"d": penalty(lambda p: sum(jax.tree.leaves(p)))})
    made = Problem(objective, {"b": 1.0, "a": 5.0}, bounds=([0, 4], [2, None]))
    np.testing.assert_array_equal(made.box, [[4, 0], [np.inf, 2]])  # coordinates are in the order of names
    np.testing.assert_array_equal(made.replace(x0={"a": 6.0, "b": 0.0}).box, made.box)
    np.testing.assert_array_equal(Problem(objective, [1.0, 5.0], bounds=([0, 4], [2, 9])).box, [[0, 4], [2, 9]])
    np.testing.assert_array_equal(Problem(objective, {"a": 1.0}, bounds=([0], [2])).box, [[0], [2]])
    with pytest.raises(ValueError, match="bounds: 3 lower and 2 upper ends for 2 parameters"):
        Problem(objective, {"b": 1.0, "a": 5.0}, bounds=([0, 4, 5], [2, 9]))


def test_a_problem_is_made_with_the_shapes_of_one_chunk():
    """Shapes of all rows may not even fit into an index: 23 million rows with a wide intermediate."""
    seen = []

    def residual(p, rows):
        seen.append(rows["x"].shape[0])
        return (p * rows["x"][:, None] * np.ones(1 << 20))[:, 0]

    rows = {"x": np.broadcast_to(np.float64(1.0), 23_000_000)}
    Problem(Objective({"data": residual_term(residual, rows, chunk=1000)}), 1.0)
    assert set(seen) == {1000, 999}
