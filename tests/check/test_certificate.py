"""Parity certificate: right models pass, wrong ones are caught and named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.check.certificate import certify
from shardfit.core.equations import NormalEquations
from shardfit.core.errors import NonFiniteError, ParityError
from shardfit.core.mesh import ROWS, mesh
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_term, statistic_term
from shardfit.curvature import error_bars
from shardfit.fitting import fit
from shardfit.stats.linear import linear_term

RNG = np.random.default_rng(5)
ROWS_IN = {"x": RNG.uniform(0.1, 2, 23), "y": RNG.normal(size=23), "sigma": RNG.uniform(0.5, 1, 23)}


def check(terms, x0, layout=None, precision="float64", seed=0, **more):
    return certify(Problem(Objective(terms), x0, precision=precision, **more), mesh=layout, seed=seed)


def decay(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["x"])) / rows["sigma"]


def log_counts(total):
    return jnp.sum(jnp.log(total) ** 2)


def bins(p, rows):
    return jax.nn.sigmoid(jnp.array([0.0, 1.0]) - p["k"] * rows["x"][:, None])


def good_terms():
    return {
        "data": residual_term(decay, ROWS_IN, chunk=4),
        "bins": statistic_term(bins, ROWS_IN, loss=log_counts),
        "smooth": penalty(lambda p: p["a"] ** 2, weight=0.1),
    }


X0 = {"a": 1.5, "k": 0.7}


@pytest.mark.parametrize("devices, precision", [(1, "float64"), (4, "float64"), (4, "float32")])
def test_a_right_model_passes(devices, precision):
    found = check(good_terms(), X0, mesh(devices), precision, transforms={"k": "log"})
    assert found.shards == devices
    assert set(found.finite_difference) == {"data", "bins", "smooth"}
    assert max(found.finite_difference.values()) < 1e-6
    assert (found.sharded is None) == (devices == 1)
    assert (found.precision is None) == (precision == "float64")
    if precision == "float64" and devices > 1:
        assert max(found.sharded.values()) < 1e-12
    assert "finite differences" in str(found)
    assert found.to_dict()["probe_rows"] == {"data": 4, "bins": 23}


@jax.custom_vjp
def wrong_square(x):
    return x**2


wrong_square.defvjp(lambda x: (x**2, x), lambda x, g: (1.99 * x * g,))


def test_a_wrong_derivative_rule_is_caught_and_named():
    terms = good_terms() | {"odd": statistic_term(lambda p, r: wrong_square(p["a"] * r["x"]), ROWS_IN)}
    with pytest.raises(ParityError, match="term 'odd': the gradient differs from a finite difference.*custom_vjp"):
        check(terms, X0)


def test_parameters_of_very_different_size_are_all_checked():
    """A parameter with a small gradient and a large value counts as much as one the other way round."""

    def fn(p, rows, square):
        return rows["y"] - p["tiny"] * 1e9 * rows["x"] - square(p["huge"] * 1e-8)

    x0 = {"tiny": 1e-9, "huge": 1e8}
    assert check({"d": residual_term(lambda p, r: fn(p, r, jnp.square), ROWS_IN)}, x0).finite_difference["d"] < 1e-6
    with pytest.raises(ParityError, match="term 'd': the gradient differs from a finite difference"):
        check({"d": residual_term(lambda p, r: fn(p, r, wrong_square), ROWS_IN)}, x0)


def test_a_term_that_does_not_depend_on_its_parameters_passes():
    """Its gradient is rounding, which differs from layout to layout."""

    def flux(p, rows):
        return rows["A"] @ jax.nn.softmax(p) - rows["y"]

    rows = {"A": np.ones((23, 8)), "y": ROWS_IN["y"]}
    check({"flux": residual_term(flux, rows)}, np.zeros(8), mesh(4))


def inside_shards():
    try:
        jax.lax.axis_index(ROWS)
    except NameError:
        return False
    return True


@jax.custom_vjp
def unsafe_exp(x):
    return jnp.exp(x)


def unsafe_backward(y, g):
    """Right on one device; sums over devices where it runs on several, as some foreign functions do."""
    return (jax.lax.psum(y * g, ROWS) if inside_shards() else y * g,)


unsafe_exp.defvjp(lambda x: (jnp.exp(x),) * 2, unsafe_backward)


def test_a_derivative_that_is_wrong_only_when_split_is_caught():
    terms = {
        "fine": good_terms()["smooth"],
        "foreign": statistic_term(lambda p, r: unsafe_exp(p["a"] * r["x"]), ROWS_IN),
    }
    assert check(terms, X0).sharded is None
    with pytest.raises(ParityError, match="term 'foreign': split over 4 devices.*not safe to split.*without a mesh"):
        check(terms, X0, mesh(4))


def test_a_model_that_mixes_rows_is_caught():
    """The mean over the rows at hand is another number on every shard."""
    mixing = residual_term(lambda p, r: p["a"] * (r["x"] - jnp.mean(r["x"])) - r["y"], ROWS_IN)
    with pytest.raises(ParityError, match="term 'mixing' depends on which rows share a block"):
        check({"mixing": mixing}, X0, mesh(4))


def test_digits_lost_in_float32_are_noticed():
    def cancelling(p, rows):
        # a row's own offset, because XLA cancels constants by itself
        return (rows["big"] + p["a"] * rows["x"]) - rows["big"] - rows["y"] * 1e-3

    terms = {"cancel": residual_term(cancelling, ROWS_IN | {"big": 1e6 * ROWS_IN["sigma"]})}
    check(terms, {"a": 1e-3})
    with pytest.raises(ParityError, match="term 'cancel': in float32.*cancellation.*precision='float64'"):
        check(terms, {"a": 1e-3}, precision="float32")


@pytest.mark.parametrize(
    "terms, x0, words",
    [
        (
            {"root": penalty(lambda p: jnp.sqrt(jnp.sum(p**2)))},
            np.zeros(3),
            "term 'root' is finite at x0 but its gradient",
        ),
        (
            {"amp": residual_term(lambda p, r: jnp.sqrt(p * r["x"]) - 1, ROWS_IN)},
            0.0,
            "term 'amp' is finite at x0 but its gradient.*square root",
        ),
        ({"log": penalty(lambda p: jnp.log(p))}, -1.0, "term 'log' is nan at x0. Start where the model is defined"),
    ],
)
def test_a_start_without_gradient_is_refused(terms, x0, words):
    with pytest.raises(NonFiniteError, match=words):
        check(terms, x0)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_bin_that_the_probe_lacks_is_no_reason_to_refuse(shards):
    """A logarithm of counts needs all rows: the rarest bin has 3 of 40,000, and a probe none of them."""
    n = 40_000
    rows = {"x": np.linspace(0, 3, n), "bin": np.where(np.arange(n) % (n // 3) == n // 6, 1, 0)}

    def counts(p, r):
        return jax.nn.one_hot(r["bin"], 2) * jax.nn.sigmoid(p * r["x"])[:, None]

    def loss(totals):
        return jnp.sum((jnp.log10(totals) - 1) ** 2)

    terms = {"counts": statistic_term(counts, rows, loss=loss)}
    found = check(terms, 1.0, mesh(shards) if shards > 1 else None)
    assert found.probe_rows["counts"] < n and found.finite_difference["counts"] < 1e-6
    empty = {"counts": statistic_term(counts, {**rows, "bin": np.zeros(n, int)}, loss=loss)}
    with pytest.raises(NonFiniteError, match="leave out bins that are empty"):
        check(empty, 1.0)


def total_variation(image):
    dx, dy = jnp.diff(image, axis=0)[:, :-1], jnp.diff(image, axis=1)[:-1]
    return jnp.sum(jnp.sqrt(dx**2 + dy**2 + 1e-12))


KINKS = {
    "total variation of a flat image": (total_variation, np.full((6, 6), 0.3)),
    "total variation of nothing": (total_variation, np.zeros((6, 6))),
    "l1 at zero": (lambda p: jnp.sum(jnp.abs(p)), np.zeros(20)),
    "l1 of a sparse image": (lambda p: jnp.sum(jnp.abs(p)), np.where(np.arange(40) % 4, 0.0, 2.0)),
    "hinge": (lambda p: jnp.sum(jnp.maximum(p - 1.0, 0.0)), np.ones(10)),
    "constant": (lambda p: 0.0 * jnp.sum(p) + 3.0, np.ones(4)),
    "huge value, small slope": (lambda p: 1e8 + jnp.sum(p**2), np.ones(4)),
}


@pytest.mark.parametrize("kind", KINKS)
def test_non_smooth_but_right_penalties_pass(kind):
    fn, x0 = KINKS[kind]
    for seed in range(3):
        check({"kink": penalty(fn)}, x0, seed=seed)


def test_a_start_on_the_edge_of_the_model_passes():
    """At a bound beyond which the model is not defined, the differences are taken inside."""
    for seed in range(3):
        check({"edge": penalty(lambda p: jnp.sum(p**1.5))}, np.zeros(4), bounds=(0, None), seed=seed)


def test_stochastic_terms_are_checked_at_one_draw():
    def fn(p, rows, key):
        return jnp.exp(p["a"] * rows["x"] * jax.random.normal(key))

    terms = {"draw": statistic_term(fn, ROWS_IN, loss=lambda t, key: jnp.log(t), stochastic=True)}
    assert check(terms, X0, mesh(2)).finite_difference["draw"] < 1e-6


def test_large_rows_are_probed_by_few():
    rows = {"x": RNG.normal(size=(3000, 2))}
    terms = {"many": statistic_term(lambda p, r: jnp.sin(p["a"] * r["x"][:, 0]), rows)}
    assert check(terms, X0).probe_rows == {"many": 1024}


MANY = {"x": RNG.normal(size=(20_000, 3))}
LONG = 4500  # rows: more than a probe has


def total(sums):
    return jnp.sum(sums**2) / 20_000**2


@pytest.mark.parametrize("devices, precision", [(1, "float64"), (2, "float32")])
def test_a_function_that_is_another_in_long_blocks_is_caught(devices, precision):
    def counted(p, rows):
        return p["k"] * rows["x"] * (1.01 if len(rows["x"]) > LONG else 1.0)

    layout = None if devices == 1 else mesh(rows=devices)
    start = {"k": 0.7}
    with pytest.raises(ParityError, match=r"'sum': summed in blocks as long as .* shorter blocks"):
        check({"sum": statistic_term(counted, MANY, loss=total, chunk=9000)}, start, layout, precision)
    found = check({"sum": statistic_term(counted, MANY, loss=total, chunk=LONG)}, start, layout, precision)
    assert found.walk is not None and found.walk["sum"] < (1e-12 if precision == "float64" else 1e-4)


@pytest.mark.parametrize("chunk", [4096, "auto"])
def test_a_product_that_is_compiled_wrongly_gives_no_answer(chunk):
    """XLA on CPUs sums x @ ones wrongly in long blocks; where it does not, the value is right."""

    def mixed(p, rows):
        return (rows["x"] @ jnp.ones((3, 4))) * p["k"] + p["a"]

    rows = {"x": RNG.normal(size=(200_000, 3))}
    term = statistic_term(mixed, rows, loss=lambda sums: jnp.sum(sums), chunk=chunk)
    problem = Problem(Objective({"sum": term}), {"k": 0.7, "a": 1.3})
    exact = 4 * (0.7 * rows["x"].sum() + 1.3 * 200_000)
    try:
        certify(problem)
    except ParityError as error:
        assert "pass the matrix in args" in str(error)
    else:
        value, gradient = jax.jit(lambda o, p: o.value_and_grad(p))(problem.objective, problem.x0)
        assert value == pytest.approx(exact, rel=1e-9)
        assert gradient["k"] == pytest.approx(4 * rows["x"].sum(), rel=1e-9)


def line_with_own_equations(product):
    """Return y = a + k s, s the sum of a row's numbers; its own normal matrix takes Σs from product(x), 4 times s."""
    x = RNG.normal(0.3, 1.0, size=(200_000, 3))
    rows = {"x": x, "y": 0.3 + 0.8 * x.sum(1) + RNG.normal(size=len(x))}

    def residual(p, rows):
        return p["a"] + p["k"] * rows["x"].sum(1) - rows["y"]

    def sums(p, rows, real):
        s, r = rows["x"].sum(1), residual(p, rows)
        found = {"n": real.sum(), "ss": real @ s**2, "r": real @ r, "sr": real @ (s * r), "rr": real @ r**2}
        return found | {"s": jnp.sum(real[:, None] * product(rows["x"])) / 4}

    def solve(t, p):
        return 0.5 * t["rr"], jnp.array([t["r"], t["sr"]]), jnp.array([[t["n"], t["s"]], [t["s"], t["ss"]]])

    term = residual_term(residual, rows, chunk=2000, gram=NormalEquations(sums, solve))
    return Problem(Objective({"line": term}), {"a": 1.0, "k": 1.0}), rows


def test_normal_equations_that_are_compiled_wrongly_give_no_answer():
    """Where XLA sums x @ ones wrongly, neither least squares nor error bars come from it: elsewhere they are right."""
    problem, rows = line_with_own_equations(lambda x: x @ jnp.ones((3, 4)))
    answer = fit(problem, progress=False, ftol=1e-14)  # value and gradient are right
    s = rows["x"].sum(1)
    matrix = np.array([[len(s), s.sum()], [s.sum(), s @ s]])
    for attempt in (lambda: error_bars(problem, answer), lambda: fit(problem, "lm", progress=False)):
        try:
            covariance = attempt().covariance
        except ParityError as error:
            assert "'line': summed in blocks" in str(error) and "the normal equations differ" in str(error)
        else:
            assert covariance == pytest.approx(np.linalg.inv(matrix) * 2 * answer.value / (len(s) - 2), rel=1e-6)


def test_normal_equations_are_compared_in_their_own_blocks():
    """Generic ones are walked over where value and gradient are not, and those of linear terms too."""
    x = RNG.normal(size=(200_000, 3))
    rows = {"x": x, "y": x[:, 0]}

    def counted(p, rows):  # another function in long blocks; value and gradient take all rows at once
        return (rows["y"] - p["k"] * rows["x"][:, 0]) * (1.01 if 20_000 < len(rows["x"]) < 200_000 else 1.0)

    def basis(p, rows):
        return jnp.exp(p["k"] * rows["x"][:, :2] * (1.01 if 20_000 < len(rows["x"]) < 200_000 else 1.0))

    for term in (residual_term(counted, rows, chunk=None), linear_term(basis, rows)):
        problem = Problem(Objective({"sum": term}), {"k": 0.7})
        assert certify(problem).gram_walk is None
        with pytest.raises(ParityError, match=r"'sum': summed in blocks as long as .* the normal equations differ"):
            certify(problem, gram=True)
    plain = Problem(Objective({"sum": residual_term(lambda p, r: r["y"] - p["k"] * r["x"][:, 0], rows)}), {"k": 0.7})
    walk = certify(plain, gram=True).gram_walk
    assert walk is not None and walk["sum"] < 1e-12


def test_what_is_not_walked_over_or_wide_is_not_compared():
    assert check(good_terms(), {"a": 1.0, "k": 0.7}).walk is not None  # "data", in blocks of four rows
    assert check({"bins": good_terms()["bins"]}, {"k": 0.7}).walk is None
    wide = {"x": RNG.normal(size=(8, 1024))}
    assert (
        check({"wide": residual_term(lambda p, rows: p["k"] * rows["x"].sum(1), wide, chunk=4)}, {"k": 1.0}).walk
        is None
    )
