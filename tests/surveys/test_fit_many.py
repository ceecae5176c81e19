"""fit_many: each answer is that of a fit by itself, and what cannot be fitted is listed."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf

RNG = np.random.default_rng(5)
T = np.linspace(0.0, 4.0, 30)
TAU = RNG.uniform(0.5, 2.5, 12)


def decay(p, rows):
    return (p["a"] * jnp.exp(-rows["t"] / p["tau"]) - rows["y"]) / rows["sigma"]


def rows_of(tau, n=T.size):
    y = 3.0 * np.exp(-T[:n] / tau) + 0.05 * RNG.standard_normal(n)
    return {"t": T[:n], "y": y, "sigma": np.full(n, 0.05)}


SETS = [rows_of(tau) for tau in TAU]
UNEVEN = [rows_of(tau, n) for tau, n in zip(TAU, (30, 9, 8, 29, 5, 16, 17, 30, 11, 7, 13, 4), strict=True)]
Y = np.stack([rows["y"] for rows in SETS])


def problem_of(rows, **options):
    return sf.Problem(sf.Objective({"d": sf.residual_term(decay, rows)}), {"a": 1.0, "tau": 1.0}, **options)


def same(fits, singles):
    for i, single in singles.items():
        one = fits[i]
        assert one.status.converged and single.status.converged
        assert one.success == single.success and one.dof == single.dof and one.at_bound == single.at_bound
        for name in single.params:
            assert one.params[name] == pytest.approx(single.params[name], rel=1e-7)
            assert one.stderr[name] == pytest.approx(single.stderr[name], rel=1e-6, nan_ok=True)
        np.testing.assert_allclose(one.covariance, single.covariance, rtol=1e-5, atol=1e-12)
        assert one.value == pytest.approx(single.value)


def alone(sets, numbers, **options):
    return {i: sf.fit(problem_of(sets[i], **options), "lm", certify=False) for i in numbers}


def test_answers_and_errors_are_those_of_fits_one_by_one():
    fits = sf.fit_many(problem_of(SETS[0]), {"d": {"y": Y}})  # t and sigma are the same for all
    same(fits, alone(SETS, (0, 5, 11)))
    assert fits.params["tau"].shape == (12,) and np.asarray(fits.covariance).shape == (12, 2, 2) and len(fits) == 12
    assert fits.success.all() and not fits.failures and (fits.certificate or {})["points"] == ["x0", "answer"]
    assert "12 of 12 sets" in str(fits)


def test_sets_of_different_lengths():
    fits = sf.fit_many(problem_of(UNEVEN[0]), {"d": UNEVEN}, certify=False)
    same(fits, alone(UNEVEN, (1, 4, 7, 11)))
    np.testing.assert_array_equal(fits.dof, [len(rows["y"]) - 2 for rows in UNEVEN])


def test_bounds_starts_and_devices():
    options = {"bounds": {"tau": (0.2, 1.5)}}
    x0 = {"a": np.full(12, 2.0), "tau": np.full(12, 0.9)}
    problem = problem_of(SETS[0], **options)
    fits = sf.fit_many(problem, {"d": {"y": Y}}, x0, certify=False, slots=4)
    stopped = int(np.argmax(TAU))
    same(fits, alone(SETS, (stopped, int(np.argmin(TAU))), **options))
    assert fits.at_bound[stopped] == ("tau",) and np.isnan(fits.stderr["tau"][stopped])
    split = sf.fit_many(problem, {"d": {"y": Y}}, x0, certify=False, slots=4, mesh=sf.mesh(rows=1, runs=2))
    np.testing.assert_array_equal(split.params["tau"], fits.params["tau"])


def test_what_cannot_be_fitted_is_listed_and_stops_nobody():
    sets = [dict(rows) for rows in SETS]
    sets[2]["y"] = np.where(np.arange(30) == 4, np.nan, sets[2]["y"])
    sets[3]["sigma"] = -sets[3]["sigma"]
    sets[4] = {name: column[:0] for name, column in sets[4].items()}
    sets[5]["sigma"] = sets[5]["sigma"] / 100
    sets[6] = {name: column[:1] for name, column in sets[6].items()}
    x0 = {"a": np.ones(12), "tau": np.ones(12)}
    x0["tau"][7] = 40.0
    fits = sf.fit_many(problem_of(sets[0], bounds={"tau": (0.1, 30.0)}), {"d": sets}, x0, certify=False)
    assert sorted(fits.failures) == [2, 3, 4, 5, 6, 7]
    said = {2: "'y' of 'd' holds NaN.*row 4", 3: "positive", 4: "no rows", 5: "χ²", 6: "determine", 7: "outside"}
    for i, reason in said.items():
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(fits.failures[i])
        assert not fits.success[i] and not fits[i].success
    assert np.isnan(fits.params["a"][2]) and fits[2].status is sf.Status.FAILED
    same(fits, alone(sets, (0, 11)))


def test_a_step_limit_is_a_failure_of_each_set_that_met_it():
    fits = sf.fit_many(problem_of(SETS[0]), {"d": {"y": Y}}, maxiter=1, certify=False)
    assert len(fits.failures) == 12 and all("step" in reason for reason in fits.reasons)


@pytest.mark.parametrize(
    ("rows", "x0", "said"),
    [
        ({"e": {"y": Y}}, None, "by term"),
        ({"d": {"z": Y}}, None, "no entry 'z'"),
        ({"d": {"y": Y[:, :9]}}, None, "list of their rows"),
        ({"d": {"y": Y, "t": np.tile(T, (3, 1))}}, None, "numbers of sets differ"),
        ({"d": {"y": Y}}, {"a": np.ones(3), "tau": np.ones(3)}, "numbers of sets differ"),
        ({"d": {"y": Y}}, {"a": 1.0, "tau": 1.0}, "leading axis"),
        ({"d": [{"y": Y[0]}]}, None, "entries"),
        ({"d": [SETS[0], {**SETS[1], "y": Y[1][:4]}]}, None, "different lengths"),
        ({"d": []}, None, "empty"),
        ({"d": {"y": Y + 1j}}, None, "complex"),
    ],
)
def test_what_is_no_collection_of_sets_is_refused(rows, x0, said):
    with pytest.raises((ValueError, TypeError), match=said):
        sf.fit_many(problem_of(SETS[0]), rows, x0)


def test_a_model_that_mixes_rows_is_refused():
    problem = sf.Problem(
        sf.Objective({"d": sf.residual_term(lambda p, r: r["y"] - p * jnp.mean(r["y"]), SETS[0])}), 1.0
    )
    with pytest.raises(sf.ParityError):
        sf.fit_many(problem, {"d": {"y": Y}})


def test_answers_that_are_not_minima_are_told():
    """lbfgs ended where slopes were small beside the start's: tau was 0.58 ± 0.09 for 1.7, without a word."""
    x = np.linspace(0, 4, 50)
    y = 2e-5 * np.exp(-x / 1.7)
    term = sf.residual_term(lambda p, r: p["a"] * jnp.exp(-r["x"] / p["tau"]) - r["y"], {"x": x, "y": y})
    problem = sf.Problem(sf.Objective({"d": term}), {"a": 1.0, "tau": 1.0})
    found = sf.fit_many(problem, {"d": {"y": np.stack([y, 1e5 * y])}}, solver="lbfgs")
    assert "from the minimum" in found.failures[0]
    assert not found[0].success
