"""Models that compute in 16 or 32 bits inside a fit of more: their own rounding is no error, wrong models still are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Objective, ParityError, Problem, residual_term
from shardfit.check.certificate import certify
from shardfit.check.grain import grain

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 8))
Y = np.tanh(X @ RNG.normal(size=8)) + 0.05 * RNG.normal(size=200)


@jax.custom_jvp
def square(x):
    return x**2


@square.defjvp
def _(primals, tangents):
    return square(primals[0]), 2.04 * primals[0] * tangents[0]  # 2 % too large


def problem(dtype, after=jnp.tanh, precision="float64"):
    def fn(p, rows):
        inner = rows["x"].astype(dtype) @ p["w"].astype(dtype)
        return after(inner).astype(rows["y"].dtype) - rows["y"]

    return Problem(Objective({"d": residual_term(fn, {"x": X, "y": Y})}), {"w": np.full(8, 0.9)}, precision=precision)


@pytest.mark.parametrize(
    ("dtype", "precision"), [("bfloat16", "float64"), ("float16", "float32"), ("float32", "float64")]
)
def test_coarse_programs_are_certified(dtype, precision):
    made = problem(dtype, precision=precision)
    assert certify(made, gram=True).undecided["d"] > 0  # saturated rows, and all in 16 bits
    assert grain(made.objective.terms[0], made.x0) == jnp.finfo(dtype).eps


def test_what_is_wrong_beyond_rounding_is_refused():
    with pytest.raises(ParityError, match="differs from a finite difference"):
        certify(problem("float32", square))
    with pytest.raises(ParityError, match="depends on which rows share a block"):
        certify(problem("bfloat16", lambda h: jnp.tanh(h - 2 * h.mean())))
