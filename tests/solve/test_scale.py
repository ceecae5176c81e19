"""The same fit in other units ends at the same place, with the same status, in as many steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.solve.scale import Scaled

RNG = np.random.default_rng(1)
T = np.linspace(0, 3, 60)
ROWS = {"t": T, "y": 2 * np.exp(-0.7 * T) + 0.02 * RNG.standard_normal(T.size)}
UNITS = [(1e12, 1.0, 1.0), (1e-12, 1e12, 1e12), (1.0, 1e-12, 1e12), (1e-7, 1e5, 1e-9)]  # of objective, a, k
SOLVERS = ("lbfgsb", "lbfgs", "lbfgs-bt", "lm", "adam", "adamw", "sgd", "rmsprop")
BOUNDED = ("lbfgsb", "lm", "adam", "sgd")
FIRST_ORDER = ("adam", "adamw", "sgd", "rmsprop")
FIRST_RATES = {"learning_rate": 0.05, "maxiter": 150}


def decay(p, rows, units):
    return jnp.sqrt(units[0]) * (p["a"] * units[1] * jnp.exp(-p["k"] * units[2] * rows["t"]) - rows["y"])


def problem(units=(1.0, 1.0, 1.0), start=(1.0, 1.0), most=None, **options):
    objective = sf.Objective({"data": sf.residual_term(decay, ROWS, np.array(units))})
    bounds = None if most is None else {"a": (0, most / units[1]), "k": (0, 5 / units[2])}
    return sf.Problem(objective, {"a": start[0] / units[1], "k": start[1] / units[2]}, bounds=bounds, **options)


def same(result, units):
    return result.value / units[0], result.params["a"] * units[1], result.params["k"] * units[2]


@pytest.mark.parametrize("start", [(1.0, 1.0), (0.0, 0.0)])
@pytest.mark.parametrize(("name", "most"), [*((n, None) for n in SOLVERS), *((n, 1.5) for n in BOUNDED)])
def test_units_change_nothing(name, most, start):
    options = {"progress": False, "certify": False} | (FIRST_RATES if name in FIRST_ORDER else {})
    plain = sf.fit(problem(start=start, most=most), name, **options)
    known = same(plain, (1.0, 1.0, 1.0))
    for units in UNITS:
        other = sf.fit(problem(units, start, most), name, **options)
        assert other.status is plain.status
        assert abs(other.steps - plain.steps) <= 1 + 0.02 * plain.steps
        close = 1e-6 if plain.status.converged else 1e-3
        assert same(other, units) == pytest.approx(known, rel=close)
    if name not in FIRST_ORDER:
        assert plain.success and plain.value == pytest.approx(0.5 * 60 * 0.02**2, rel=0.5) or most


@pytest.mark.parametrize("most", [None, 1.5])
def test_a_large_objective_hides_no_curvature(most):
    plain, large = (sf.fit(problem((unit, 1.0, 1.0), most=most), "lbfgs", progress=False) for unit in (1.0, 1e24))
    assert large.status is plain.status and large.evaluations == plain.evaluations


def test_a_scale_can_be_given():
    units = (1.0, 1e9, 1e-9)
    plain = sf.fit(problem(x := (1.0, 1.0, 1.0)), "lbfgs", x_scale=1.0, progress=False)
    given = sf.fit(problem(units), "lbfgs", x_scale={"a": 1e-9, "k": 1e9}, progress=False)
    assert same(given, units) == pytest.approx(same(plain, x), rel=1e-9)
    assert given.steps == plain.steps
    by_columns = sf.fit(problem(units), "lbfgs", x_scale="jac", progress=False)
    assert same(by_columns, units) == pytest.approx(same(plain, x), rel=1e-6)
    errors = sf.fit(problem(units), "lm", progress=False)
    scaled = sf.fit(problem(units), "lm", x_scale={"a": 1e-9, "k": 1e9}, progress=False)
    np.testing.assert_allclose(scaled.covariance, errors.covariance, rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("jaq", "x_scale='jaq' is not known"),
        ({"a": 0.0}, "x_scale of a is 0. Scales are positive"),
        ({"b": 1.0}, "no parameter 'b'"),
        ({"a": [1.0, 2.0]}, "x_scale of a is .*, which does not fit its shape"),
    ],
)
def test_a_wrong_scale_is_refused(scale, words):
    with pytest.raises(ValueError, match=words):
        sf.fit(problem(), x_scale=scale, progress=False, certify=False)


def test_coordinates_of_a_transform_have_no_unit():
    logs = problem(transforms={"k": "log"})
    with pytest.raises(ValueError, match="x_scale of k: it has a transform"):
        sf.fit(logs, x_scale={"k": 2.0}, progress=False, certify=False)
    assert sf.fit(logs, x_scale=1.0, progress=False).success


def test_bounds_are_met_to_the_bit():
    for most in (0.1 + 0.2, 1.1, 1 / 3):
        found = sf.fit(problem((1.0, 1.0, 1.0), (most / 7, 1.0), most), progress=False, certify=False)
        assert float(found.params["a"]) == most and "a" in found.at_bound


def test_a_scaled_space_slopes_like_its_product_at_a_bound():
    import jax

    made = problem()
    with jax.enable_x64(True):
        space = Scaled(made.space, np.array([3.0, 0.7]), np.zeros(2), np.array([0.9, 5.0]))
        slopes = jax.jacobian(space.coordinates)(np.array([0.3, 1.0]))
    np.testing.assert_allclose(slopes, np.diag([3.0, 0.7]))


def test_callbacks_and_histories_are_in_parameters():
    seen = []
    sf.fit(problem((1, 1e-6, 1)), "lbfgs", callback=seen.append, every=1, progress=False)
    assert all(shot.params["a"] == shot.z[0] > 1e5 for shot in seen)
    kept = sf.fit(problem((1, 1e-6, 1)), "adam", keep=1, maxiter=5, progress=False).history["x"]
    assert kept.shape == (6, 2) and (kept[:, 0] > 1e5).all()
