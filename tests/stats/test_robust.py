"""Robust fits with linear coefficients eliminated end where scipy's joint robust fit of all parameters ends."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import shardfit as sf

N_GROUPS, SIGMA = 3, 0.05


def basis(p, rows):
    f = jnp.exp(-p["k"] * rows["t"])
    return jnp.stack([f, jnp.ones_like(f)], axis=-1)


def rows():
    rng = np.random.default_rng(5)
    t, group = rng.uniform(0, 4, 90), np.arange(90) % N_GROUPS
    y = np.array([1.0, 1.5, 0.7])[group] * np.exp(-0.9 * t) + np.array([0.1, 0.3, 0.2])[group]
    y += SIGMA * rng.standard_normal(90)
    y[::11] += rng.uniform(0.5, 2, len(y[::11]))  # outliers, all to one side
    return {"t": t, "y": y, "sigma": np.full(90, SIGMA), "group": group}


ROWS = rows()
PROBLEM = sf.Problem(sf.Objective({"data": sf.linear_term(basis, ROWS, groups="group", chunk=32)}), {"k": 0.5})


@pytest.mark.parametrize(
    ("loss", "scale"),
    [
        ("soft_l1", 1.0),
        pytest.param("huber", 1.5, marks=pytest.mark.slow),
        pytest.param("cauchy", 2.0, marks=pytest.mark.slow),
    ],
)
def test_robust_fit_is_that_of_a_joint_fit(loss, scale):
    def residuals(x):
        c = x[1:].reshape(-1, 2)[ROWS["group"]]
        return (c[:, 0] * np.exp(-x[0] * ROWS["t"]) + c[:, 1] - ROWS["y"]) / SIGMA

    start = np.append(0.5, np.tile([1.0, 0.2], N_GROUPS))
    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-12, "x_scale": "jac", "max_nfev": 5000}
    joint = optimize.least_squares(residuals, start, loss=loss, f_scale=scale, **tight)
    result, reweighted = sf.robust_fit(PROBLEM, loss, scale=scale, certify=False)
    assert result.success, result.message
    assert result.value == pytest.approx(joint.cost, rel=1e-8)
    assert float(result.params["k"]) == pytest.approx(joint.x[0], rel=1e-5)
    np.testing.assert_allclose(sf.coefficients(reweighted, result).value.ravel(), joint.x[1:], rtol=2e-4)
    plain = sf.least_squares(PROBLEM, certify=False)
    assert abs(plain.params["k"] - joint.x[0]) > 0.01  # the outliers matter


def test_what_cannot_be_reweighted_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'huber'"):
        sf.robust_fit(PROBLEM, "hubert")
    with pytest.raises(ValueError, match="no linear term"):
        sf.robust_fit(sf.Problem(sf.Objective({"p": sf.residual_penalty(lambda x: x)}), 1.0))
    with pytest.raises(ValueError, match="integrated out"):
        sf.robust_fit(sf.marginalised(PROBLEM))
    with pytest.raises(ValueError, match="run_dir"):
        sf.robust_fit(PROBLEM, run_dir="here")
