"""NIST's separable regressions with their linear parameters eliminated: certified values and standard deviations."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from benchmarks.problems import nist


def columns(*each):
    return jnp.stack(jnp.broadcast_arrays(*each), axis=-1)


def enso(p, r):
    angles = [2 * jnp.pi * r["x"] / period for period in (12.0, p[0], p[1])]
    return columns(1.0, *(wave(angle) for angle in angles for wave in (jnp.cos, jnp.sin)))


def gauss(p, r):
    x = r["x"]
    return columns(jnp.exp(-p[0] * x), jnp.exp(-(((x - p[1]) / p[2]) ** 2)), jnp.exp(-(((x - p[3]) / p[4]) ** 2)))


def powers(x, n):
    return x[:, None] ** jnp.arange(n)


# name: basis, positions of the nonlinear parameters, of the linear ones
SEPARABLE = {
    "Misra1a": (lambda p, r: columns(1 - jnp.exp(-p[0] * r["x"])), [1], [0]),
    "MGH17": (lambda p, r: columns(1.0, jnp.exp(-r["x"] * p[0]), jnp.exp(-r["x"] * p[1])), [3, 4], [0, 1, 2]),
    "Thurber": (
        lambda p, r: powers(r["x"], 4) / (1 + p[0] * r["x"] + p[1] * r["x"] ** 2 + p[2] * r["x"] ** 3)[:, None],
        [4, 5, 6],
        [0, 1, 2, 3],
    ),
    "BoxBOD": (lambda p, r: columns(1 - jnp.exp(-p[0] * r["x"])), [1], [0]),
    "DanWood": (lambda p, r: columns(r["x"] ** p[0]), [1], [0]),
    "Rat42": (lambda p, r: columns(1 / (1 + jnp.exp(p[0] - p[1] * r["x"]))), [1, 2], [0]),
    "Kirby2": (
        lambda p, r: powers(r["x"], 3) / (1 + p[0] * r["x"] + p[1] * r["x"] ** 2)[:, None],
        [3, 4],
        [0, 1, 2],
    ),
    "Hahn1": (
        lambda p, r: powers(r["x"], 4) / (1 + p[0] * r["x"] + p[1] * r["x"] ** 2 + p[2] * r["x"] ** 3)[:, None],
        [4, 5, 6],
        [0, 1, 2, 3],
    ),
    "Gauss1": (gauss, [1, 3, 4, 6, 7], [0, 2, 5]),
    "Lanczos3": (lambda p, r: jnp.exp(-r["x"][:, None] * p), [1, 3, 5], [0, 2, 4]),
    "ENSO": (enso, [3, 6], [0, 1, 2, 4, 5, 7, 8]),
}
QUICK = ["Misra1a"]
ELSEWHERE = {"Thurber": 0}  # a start that lies in the basin of a minimum with a pole between the data
SETS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SEPARABLE if name not in QUICK)]


@pytest.mark.parametrize("name", SETS)
def test_certified_values(name):
    case = nist.load()[name]
    basis, nonlinear, linear = SEPARABLE[name]
    objective = sf.Objective({"data": sf.linear_term(basis, dict(case.rows))})
    for start in (start for i, start in enumerate(case.starts) if i != ELSEWHERE.get(name)):
        problem = sf.Problem(objective, start[nonlinear], name=name)
        result = sf.least_squares(problem, certify=False, progress=False)
        found = sf.coefficients(problem, result)
        values, errors = np.empty_like(start), np.empty_like(start)
        values[nonlinear], values[linear] = result.params, found.value[0]
        errors[nonlinear], errors[linear] = result.stderr, found.stderr[0]
        assert nist.lre(values, case.certified).min() >= 6, result.message
        assert 2 * result.value == pytest.approx(case.rss, rel=1e-6)
        np.testing.assert_allclose(errors, case.sd, rtol=1e-4)
