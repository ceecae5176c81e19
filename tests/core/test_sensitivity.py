"""Derivatives of an objective with respect to weights and args, first and second, against plain jnp code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Objective, mesh, penalty, residual_term, statistic_term

X = np.linspace(0.0, 1.0, 13)
AT = (1.3, 2.0, 1.5, np.array([0.3, 0.4]), 2.0 + 0.5j)
FIRST, SECOND = (0, 1, 2, 3, 4), (0, 1, 2)


def wave(p, rows, settings, index):
    return {"n": jnp.ones_like(rows["x"]), "s": jnp.sin(p * rows["x"] * settings["f"]) + settings["g"][index]}


def mean(totals, settings, index):
    return {"u": (totals["s"] / totals["n"]) ** 2 * settings["f"], "v": totals["s"]}


def line(p, rows, slope):
    return rows["x"] - slope * p


def square(p, factor):
    return factor * p**2


def turned(p, rows, phase):
    return jnp.abs(phase * p - rows["x"]) ** 2


def value(base, p, weight, f, g, phase):
    changed = base.with_weights(line=weight, square=weight, wave={"u": weight + 1})
    changed = changed.with_args(wave=({"f": f, "g": g}, np.array(1)), line=(f,), square=(f,), turned=(phase,))
    return changed.value(p)


def plainly(p, weight, f, g, phase):
    s = jnp.sum(jnp.sin(p * X * f) + g[1])
    rows = 0.5 * jnp.sum((X[:7] - f * p) ** 2)
    phases = jnp.sum(jnp.abs(phase * p - X) ** 2)
    return (weight + 1) * (s / X.size) ** 2 * f + 0.5 * s + weight * rows + weight * f * p**2 + phases


def derivatives(fn):
    """All first derivatives, and the second ones forward and in reverse over reverse."""
    first = jax.grad(fn, SECOND)
    second = [outer(first, SECOND) for outer in (jax.jacfwd, jax.jacrev)]
    return jax.tree.leaves(jax.jit(lambda *at: [d(*at) for d in (jax.grad(fn, FIRST), *second)])(*AT))


@pytest.mark.parametrize(
    ("shards", "chunk"),
    [(1, None), (4, 2), *(pytest.param(*layout, marks=pytest.mark.slow) for layout in ((1, 2), (4, None)))],
)
def test_weights_and_args_are_differentiated_on_every_layout(shards, chunk):
    settings = {"f": 1.0, "g": np.zeros(2)}
    terms = {
        "wave": statistic_term(
            wave, {"x": X}, settings, np.array(0), loss=mean, weight={"u": 1.0, "v": 0.5}, chunk=chunk
        ),
        "line": residual_term(line, {"x": X[:7]}, 1.0, chunk=chunk),
        "turned": statistic_term(turned, {"x": X}, 1.0 + 0j, chunk=chunk),
        "square": penalty(square, 1.0),
    }
    with jax.enable_x64(True):
        base = Objective(terms).place(mesh(rows=shards))
        for ours, reference in zip(derivatives(lambda *at: value(base, *at)), derivatives(plainly), strict=True):
            np.testing.assert_allclose(ours, reference, rtol=1e-11, atol=1e-12)
