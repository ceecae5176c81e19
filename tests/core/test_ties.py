"""Tied parameters: fits, errors and limits, against the same model written with fewer parameters."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.errors import CheckpointError
from shardfit.core.functions import shared_space
from shardfit.stats.laplace import laplace
from shardfit.stats.scan import scan

X = np.linspace(0, 3, 60)
Y = 2 * np.exp(-X) + 1.0 * np.exp(-2 * X) + 0.02 * np.random.default_rng(0).standard_normal(60)
START = {"a": 1.5, "k": np.array([0.8, 1.0]), "b": 0.0, "sum": 0.0}
TIES = {"b": lambda p: 0.5 * p["a"], "k[1]": lambda p: 2 * p["k"][0], "sum": lambda p: p["a"] + p["b"]}


def decays(p, rows):
    return p["a"] * jnp.exp(-p["k"][0] * rows["x"]) + p["b"] * jnp.exp(-p["k"][1] * rows["x"]) - rows["y"]


def fewer(p, rows):
    return p["a"] * (jnp.exp(-p["k"] * rows["x"]) + 0.5 * jnp.exp(-2 * p["k"] * rows["x"])) - rows["y"]


def problem(fn=decays, x0=START, tied=TIES, **fields):
    rows = {"x": X, "y": Y}
    return sf.Problem(sf.Objective({"decays": sf.residual_term(fn, rows)}), x0, tied=tied, **fields)


@pytest.mark.parametrize("solver", ["lm", "lbfgsb"])
def test_a_fit_is_that_of_fewer_parameters(solver):
    made = problem()
    assert made.space.size == 2 and made.x0["sum"] == 2.25
    result = sf.error_bars(made, sf.fit(made, solver))
    plain = sf.fit(problem(fewer, {"a": 1.5, "k": 0.8}, None), "lm")
    assert result.success and result.dof == plain.dof
    np.testing.assert_allclose(result.params["a"], plain.params["a"], rtol=1e-6)
    np.testing.assert_allclose(result.params["sum"], 1.5 * result.params["a"], rtol=1e-12)
    np.testing.assert_allclose(result.params["k"], plain.params["k"] * np.array([1, 2]), rtol=1e-6)
    np.testing.assert_allclose(result.stderr["k"], plain.stderr["k"] * np.array([1, 2]), rtol=1e-5)
    np.testing.assert_allclose(result.stderr["sum"], 1.5 * plain.stderr["a"], rtol=1e-5)
    assert "Tied, with errors of what they follow: b, k[1], sum." in result.note
    assert "Held" not in result.note
    assert [row[-1] for row in made.table()] == ["", "tied", "tied", "tied"]


def test_with_bounds_held_numbers_transforms_and_shards():
    made = problem(bounds={"a": (0, 1.8)}, transforms={"k": None}, fixed={"k[0]": 1.0})
    result = sf.fit(made, "lm", mesh=sf.mesh(rows=4))
    assert result.params["a"] == 1.8 and result.params["sum"] == pytest.approx(2.7)
    np.testing.assert_array_equal(result.params["k"], [1.0, 2.0])
    open_ended = made.unconstrained()
    assert open_ended.space.ties and open_ended.space.size == 1


def test_equal_functions_share_a_space_and_others_do_not():
    factors = [problem(tied={"b": lambda p, f=f: f * p["a"]}) for f in (0.5, 0.5, 0.7)]
    spaces = [shared_space(each) for each in factors]
    assert spaces[0] == spaces[1] != spaces[2]


SHARE = 0.5


def test_what_a_tie_reaches_is_as_it_is_now(monkeypatch):
    share = 0.5
    reached = {"b": lambda p: SHARE * p["a"], "sum": lambda p: share * p["a"]}
    made = problem(tied=reached)
    for share, other in ((0.5, 0.5), (0.7, 0.5), (0.7, 0.3)):  # noqa: B007 (the closure's)
        monkeypatch.setitem(globals(), "SHARE", other)
        found = sf.error_bars(made, sf.fit(made, "lm"))
        for of in (found.params, found.stderr):
            assert of["b"] / of["a"] == pytest.approx(other)
            assert of["sum"] / of["a"] == pytest.approx(share)
        many = sf.fit_many(made, {"decays": {"y": np.stack([Y, Y])}}, certify=False)
        np.testing.assert_allclose(many.params["b"], other * many.params["a"])
        np.testing.assert_allclose(many.stderr["b"], other * many.stderr["a"])


def test_starts_of_tied_numbers_do_not_matter_and_those_of_held_ones_do():
    rows = {"decays": {"y": np.stack([Y, Y])}}
    starts = {"a": np.ones(2), "k": np.array([[0.8, 1.0], [0.9, 7.0]]), "b": np.full(2, 9.0), "sum": np.zeros(2)}
    many = sf.fit_many(problem(), rows, starts, certify=False)
    np.testing.assert_allclose(many.params["sum"], 1.5 * many.params["a"])
    np.testing.assert_allclose(many.params["a"], sf.fit(problem(), "lm").params["a"], rtol=1e-6)
    with pytest.raises(ValueError, match="starts k elsewhere"):
        sf.fit_many(problem(fixed={"k[0]": 1.0}), rows, starts)


def test_draws_of_a_scan_follow():
    draws = scan(problem(), 5, {"a": (1, 2), "k": (0.5, 1.5)})
    np.testing.assert_allclose(draws.params["sum"], 1.5 * draws.params["a"])


def test_a_profile_is_that_of_fewer_parameters_in_whatever_units_others_follow():
    steep = TIES | {"sum": lambda p: 1e12 * p["a"]}
    for made, plain in (
        (problem(tied=steep), problem(fewer, {"a": 1.5, "k": 0.8}, None)),
        (problem(tied=steep, fixed={"k[0]": 1.0}), problem(fewer, {"a": 1.5, "k": 0.8}, None, fixed={"k": 1.0})),
    ):
        found, expected = (sf.profile(each, sf.fit(each, "lm"), "a", points=0) for each in (made, plain))
        np.testing.assert_allclose(found.interval, expected.interval, rtol=1e-5)
    with pytest.raises(ValueError, match="It is tied"):
        sf.profile(made, sf.fit(made, "lm"), "b")


def test_a_run_directory_knows_other_ties(tmp_path):
    sf.fit(problem(), "lm", run_dir=tmp_path, certify=False)
    other = problem(tied=TIES | {"b": lambda p: 0.6 * p["a"]})
    with pytest.raises(CheckpointError, match="tied b"):
        sf.fit(other, "lm", run_dir=tmp_path, certify=False)


@pytest.mark.parametrize(
    ("tied", "message"),
    [
        ({"c": lambda p: p["a"]}, "tied: no parameter 'c'"),
        ({"b": 2.0}, "function of all parameters"),
        ({"b": lambda p: 2 * p["b"]}, "depends on b itself"),
        ({"b": lambda p: p["sum"], "sum": lambda p: p["a"]}, "or on one tied later"),
        ({"b": lambda p: p["k"]}, "returned shape"),
        ({"b": lambda p: jnp.log(p["sum"])}, "not finite at x0"),
    ],
)
def test_what_cannot_follow_is_refused(tied, message):
    with pytest.raises((TypeError, ValueError), match=message.replace("(", r"\(")):
        problem(tied=tied)


def test_bounds_of_a_tied_parameter_are_refused():
    with pytest.raises(ValueError, match="bounds: b is tied"):
        problem(bounds={"b": (0, 1)})
    with pytest.raises(ValueError, match=r"bounds: k\[1\] is tied.*inf for what is tied"):
        problem(bounds={"k": (0, None)})
    assert problem(bounds={"k": (np.array([0, -np.inf]), None), "b": (None, np.inf)}).box is not None


def test_errors_without_a_matrix_are_those_of_what_is_followed():
    made = problem()
    drawn = sf.fit(made, "lm-cg", draws=4)
    around = laplace(made, drawn.params)
    for errors in (drawn.stderr, around.sd):
        assert errors["sum"] == pytest.approx(1.5 * errors["a"]) and errors["k"][1] == pytest.approx(2 * errors["k"][0])
    assert around.sd["a"] > 0
