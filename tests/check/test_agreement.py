"""The solver's own last value against the objective's."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.check.agreement import require_same_value


@pytest.mark.parametrize("solver", ["lbfgs", "lbfgsb", "lm"])
def test_a_perfect_fit_is_no_disagreement(solver):
    """At 1e-19 of its start a value is made of rounding."""
    t = np.linspace(0.0, 2.0, 9)
    rows = {"t": t, "y": 2.0 * np.exp(-t / 0.6)}
    term = sf.residual_term(lambda p, r: r["y"] - p["a"] * jnp.exp(-r["t"] / p["tau"]), rows)
    problem = sf.Problem(sf.Objective({"decay": term}), {"a": 1.0, "tau": 1.0})
    assert sf.fit(problem, solver, progress=False, certify=False).value < 1e-10


def test_another_value_is_an_error():
    require_same_value(3.0, {"a": 1.0, "b": 2.0 + 1e-10}, "float64", lambda: [3.0])
    with pytest.raises(sf.ParityError, match="ended with the value 3, but the objective is 3.00001"):
        require_same_value(3.0, {"a": 1.0, "b": 2.00001}, "float64", lambda: [3.00001, 3.0000100001])


def test_what_rounding_does_is_not_held_against_a_solver():
    require_same_value(4.98e-31, {"a": 4.12e-31}, "float64", lambda: [4.5e-31, 3.9e-31])
    with pytest.raises(sf.ParityError):
        require_same_value(4.98e-31, {"a": 4.12e-31}, "float64", lambda: [4.12e-31])


def test_a_fit_that_starts_at_a_perfect_answer():
    t = np.linspace(0.1, 3, 50)

    def model(p, rows):
        return p[0] * jnp.exp(-p[1] * rows["t"]) - rows["y"]

    objective = sf.Objective({"d": sf.residual_term(model, {"t": t, "y": 2 * np.exp(-0.7 * t)})})
    for solver in ("lm", "lbfgs", "lbfgsb"):
        result = sf.fit(sf.Problem(objective, np.array([2.0, 0.7])), solver, progress=False)
        assert result.value < 1e-28
