from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

from . import settings

T = np.linspace(0.0, 2.0, 12)
ROWS = {"t": T, "y": 2.0 * np.exp(-T / 0.6) + 0.01 * np.sin(40 * T)}


@jax.jit
def decay(p, t):
    return settings.FLOOR + p["a"] * jnp.exp(-t / p["tau"])


def residual(p, rows):
    return rows["y"] - decay(p, rows["t"])


class Scaled:
    """An object as a model."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, p, rows):
        return self.scale * residual(p, rows)


def far(t):
    return settings.FLOOR + np.exp(-t / 0.6)


def on_the_host(p, rows):
    shape = jax.ShapeDtypeStruct(rows["t"].shape, rows["t"].dtype)
    return rows["y"] - p["a"] * jax.pure_callback(far, shape, rows["t"]) - p["tau"]


def moments(p, rows):
    return residual(p, rows) ** 2


def robust(total):
    return jnp.log1p(total)


def smooth(p, weight):
    return weight * (p["a"] - 2.0) ** 2


@dataclass(frozen=True)
class Squared:
    """A transformation: x = z²."""

    def forward(self, z):
        return z**2

    def inverse(self, x):
        return jnp.sqrt(x)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cauchy:
    """A prior."""

    scale: float

    def log_prob(self, x):
        return -jnp.log1p((x / self.scale) ** 2)


TERMS = {
    "residual_term": lambda: sf.residual_term(residual, ROWS),
    "object": lambda: sf.residual_term(Scaled(0.5), ROWS),
    "partial": lambda: sf.residual_term(partial(Scaled.__call__, Scaled(2.0)), ROWS),
    "host": lambda: sf.residual_term(on_the_host, ROWS),
    "statistic_term": lambda: sf.statistic_term(moments, ROWS, loss=robust),
    "penalty": lambda: sf.penalty(smooth, 3.0),
}


def problem(term="residual_term", **more):
    names = [name for name in TERMS if name != "host"] if term == "all" else ["residual_term", term]
    return sf.Problem(sf.Objective({name: TERMS[name]() for name in names}), {"a": 1.0, "tau": 1.0}, **more)
