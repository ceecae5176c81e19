"""curve_fit against scipy's, on problems like those of its documentation and tests, and what it refuses."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import Bounds
from scipy.optimize import curve_fit as scipy_curve_fit

import shardfit as sf
from shardfit.core.errors import NotConvergedError

RNG = np.random.default_rng(3)
X = np.linspace(0.0, 4.0, 50)
SPREAD = np.linspace(0.1, 0.4, X.size)
JOINT = np.diag(SPREAD**2) + 0.01 * np.exp(-np.abs(X[:, None] - X))
Y = 2.5 * np.exp(-1.3 * X) + 0.5 + 0.2 * RNG.normal(size=X.size)
PLANE = RNG.normal(size=(2, 50))


def decay(xp):
    return lambda x, a, b, c: a * xp.exp(-b * x) + c


@pytest.mark.parametrize("unit", [1e3, 1e12])
def test_values_far_from_one_need_no_start(unit):
    plain, found = sf.curve_fit(decay(jnp), X, Y), sf.curve_fit(decay(jnp), X, Y * unit)
    np.testing.assert_allclose(found.popt, plain.popt * [unit, 1, unit], rtol=1e-6)
    assert "from the best a, c there" in found.result.note and not plain.result.note.endswith("there.")
    with pytest.raises(NotConvergedError):
        sf.curve_fit(decay(jnp), X, Y * unit, p0=[1, 1, 1])


def line(xp):
    return lambda x, slope, offset: slope * x + offset


def surface(xp):
    return lambda x, a, b: xp.exp(a * x[0]) + b * x[1]


def same(model, x, y, p0=None, **options):
    """Fit both ways, scipy's as precisely as it can, and compare."""
    tight: Any = {} if "bounds" in options else {"ftol": 1e-15, "xtol": 1e-15}
    popt, pcov = scipy_curve_fit(model(np), x, y, p0, **options, **tight)
    ours = sf.curve_fit(model(jnp), x, y, p0, certify=False, **options)
    found, covariance = ours
    errors = np.sqrt(np.diag(pcov))
    np.testing.assert_allclose((found - popt) / errors, 0, atol=1e-4)
    np.testing.assert_allclose(covariance / np.outer(errors, errors), pcov / np.outer(errors, errors), atol=1e-3)
    np.testing.assert_allclose(ours.perr, np.sqrt(np.diag(covariance)))
    return ours


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sigma": SPREAD},
        {"sigma": SPREAD, "absolute_sigma": True},
        {"sigma": JOINT},
        {"sigma": JOINT, "absolute_sigma": True},
        {"sigma": 0.3, "absolute_sigma": True},
        {"bounds": (0, [5.0, 5.0, 5.0])},
        {"bounds": Bounds(np.zeros(3), np.full(3, 5.0))},  # type: ignore[arg-type]
    ],
    ids=["plain", "sigma", "absolute", "matrix", "absolute matrix", "number", "bounds", "Bounds"],
)
def test_errors_and_bounds_are_scipys(options):
    assert same(decay, X, Y, **options).names == ("a", "b", "c")


@pytest.mark.parametrize("form", [np.asarray, tuple, list], ids=["array", "tuple", "list"])
def test_several_variables(form):
    y = surface(np)(PLANE, 0.3, -2.0) + 0.1 * RNG.normal(size=50)
    same(surface, form(PLANE), y)


def test_variables_by_name_and_with_points_first():
    y = surface(np)(PLANE, 0.3, -2.0)
    named = sf.curve_fit(lambda x, a, b: jnp.exp(a * x["t"]) + b * x["q"], {"t": PLANE[0], "q": PLANE[1]}, y)
    first = sf.curve_fit(lambda x, a, b: jnp.exp(a * x[:, 0]) + b * x[:, 1], PLANE.T, y)
    np.testing.assert_allclose(named.popt, [0.3, -2.0], atol=1e-9)
    np.testing.assert_allclose(first.popt, [0.3, -2.0], atol=1e-9)


def test_parameters_of_a_function_of_any_number_are_those_of_the_start():
    ours = same(lambda xp: lambda x, *p: p[0] * xp.exp(-p[1] * x) + p[2], X, Y, [1.0, 1.0, 1.0])
    assert ours.names == ("p0", "p1", "p2")
    named = sf.curve_fit(lambda x, *p: p[0] * x + p[1], X, Y, names=("slope", "offset"), certify=False)
    assert named.result.params.keys() == {"slope", "offset"}


def test_the_covariance_is_in_the_functions_order_not_that_of_the_names():
    def backwards(x, z, a):
        return z * x + a

    ours = sf.curve_fit(backwards, X, 3 * X + 100 + 0.1 * RNG.normal(size=X.size), {"a": 50.0})
    assert ours.names == ("z", "a")
    np.testing.assert_allclose(ours.popt, [3, 100], rtol=0.01)
    assert ours.pcov[1, 1] > ours.pcov[0, 0]
    np.testing.assert_allclose(np.sqrt(np.diag(ours.pcov)), ours.perr)


def test_a_parameter_at_a_bound_has_no_error_and_the_others_do():
    ours = sf.curve_fit(decay(jnp), X, Y, bounds={"b": (None, 1.0)})
    assert ours.popt[1] == 1.0 and np.isnan(ours.perr[1]) and np.isnan(ours.pcov[1, 1])
    assert np.isfinite(ours.perr[[0, 2]]).all() and ours.result.at_bound == ("b",)


def test_starts_that_are_not_given_lie_inside_the_bounds():
    bounds = {"a": (1.0, 3.0), "b": (5.0, None), "c": (None, -2.0)}
    assert sf.curve_fit(decay(jnp), X, decay(np)(X, 2.0, 6.0, -3.0), bounds=bounds).popt == pytest.approx([2, 6, -3])


def test_what_the_data_do_not_determine_has_infinite_errors_and_a_warning():
    with pytest.warns(UserWarning, match="do not determine unused"):
        ours = sf.curve_fit(lambda x, a, unused: a * x, X, Y)
    assert np.isinf(ours.perr[1]) and np.isfinite(ours.perr[0])
    with pytest.warns(UserWarning, match="2 residuals for 2 parameters"):
        exact = sf.curve_fit(line(jnp), [0.0, 1.0], [1.0, 2.0])
    assert np.isinf(exact.pcov).all() and exact.popt == pytest.approx([1, 1])


def test_fixed_parameters_and_units():
    ours = sf.curve_fit(decay(jnp), X, Y, fixed={"c": 0.5}, units={"b": "1/s"})
    assert ours.popt[2] == 0.5 and ours.perr[2] == 0 and ours.perr[0] > 0
    assert "1/s" in str(ours)


def test_tied_parameters():
    popt, pcov = sf.curve_fit(decay(jnp), X, Y, tied={"c": lambda p: 0.2 * p["a"]}, certify=False)
    a, b = scipy_curve_fit(lambda x, a, b: a * (np.exp(-b * x) + 0.2), X, Y, xtol=1e-15)
    np.testing.assert_allclose(popt, [*a, 0.2 * a[0]], rtol=1e-5)
    np.testing.assert_allclose(np.diag(pcov), [*np.diag(b), 0.04 * b[0, 0]], rtol=1e-3)


def test_a_fit_that_ends_nowhere_raises_with_what_it_had():
    with pytest.raises(NotConvergedError, match="step") as caught:
        sf.curve_fit(decay(jnp), X, Y, [50.0, 30.0, -20.0], maxiter=1)
    assert isinstance(caught.value, RuntimeError) and caught.value.result.steps == 1


def test_new_data_and_new_functions_of_the_same_code_are_not_traced_again():
    traced = []

    def made():
        def model(x, a, b):
            traced.append(1)
            return a * x + b

        return model

    sf.curve_fit(made(), X, Y)
    traced.clear()
    sf.curve_fit(made(), X, 2 * Y)
    assert not traced


Y_NAN = np.where(np.arange(X.size) == 7, np.nan, Y)
SKEW = JOINT + np.triu(np.ones_like(JOINT), 1)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((X, Y_NAN), {}, r"ydata has 1 of 50 numbers that are NaN.*\[7\]"),
        ((np.where(X > 3, np.inf, X), Y), {}, "xdata has 13 of 50"),
        ((X, Y[:, None]), {}, r"ydata has shape \(50, 1\)"),
        ((X[:9], Y), {}, r"xdata has shape \(9,\) for 50 points"),
        ((np.ones((4, 4)), Y[:4]), {}, "two ways"),
        ((X, Y, [1, 1]), {}, r"p0 has shape \(2,\) for 3 parameters \(a, b, c\)"),
        ((X, Y, {"d": 1}), {}, "p0 names 'd'"),
        ((X[:2], Y[:2]), {}, "2 points cannot determine 3"),
        ((X, Y), {"sigma": SPREAD[:9]}, "sigma has shape"),
        ((X, Y), {"sigma": SPREAD - 0.2}, "sigma must be positive"),
        ((X, Y), {"sigma": SKEW}, "not symmetric"),
        ((X, Y), {"sigma": JOINT - 0.2 * np.eye(50)}, "not positive definite"),
        ((X, Y), {"bounds": (0, [1.0, 2.0])}, "3 numbers each"),
        ((X, Y), {"bounds": {"tau": (0, 1)}}, "bounds names 'tau'"),
        ((X, Y, [9, 1, 1]), {"bounds": (0, 5)}, "a"),
        ((X, np.ma.masked_greater(Y, 2.0)), {}, "masked"),
        (([[1, 2], [3]], Y[:2]), {}, "different lengths"),
        ((X, Y + 1j), {}, "complex"),
        ((X, Y), {"maxfev": 100}, "maxiter"),
        ((X, Y), {"names": ("a", "b", "a")}, "name of its own"),
        ((X, Y), {"names": ("a", "b")}, r"2 names for f's 3 parameters \(a, b, c\)"),
        ((X, Y), {"bounds": {"b": 0}}, "bounds of 'b' are 0"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(arguments, options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        sf.curve_fit(decay(jnp), *arguments, **options)


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (lambda x, *p: x, "how many parameters"),
        (lambda x, a: a * x[:, None], r"f gave shape \(50, 1\)"),
        (lambda x, a: a * (x - jnp.mean(x)), "share a block"),
        (lambda x, a: a * np.exp(-x * a), "jax.numpy"),
    ],
)
def test_functions_that_are_no_curves_are_refused(f, said):
    with pytest.raises((ValueError, TypeError), match=said):
        sf.curve_fit(f, X, Y)


def test_a_start_far_larger_than_the_answer_hides_nothing():
    """Planck's constant from a start of one: rounding was measured by the start, and 2.5e-30 was a success."""
    frequency = np.linspace(5e14, 1.2e15, 30)
    found = sf.curve_fit(lambda x, h, w: h * x + w, frequency, 6.626e-34 * frequency - 3.2e-19)
    np.testing.assert_allclose(found.popt, [6.626e-34, -3.2e-19], rtol=1e-9)
