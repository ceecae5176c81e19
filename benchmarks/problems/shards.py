"""Problems of 20,000 data that are sampled by shards and, to compare, whole."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.problems.densities import label_loss

N = 20_000


def logistic(n: int = N, size: int = 10) -> sf.Problem:
    """Logistic regression with correlated columns, and a constant that makes successes rare."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, size)) @ (np.eye(size) + 0.5 * rng.normal(size=(size, size)) / np.sqrt(size))
    x[:, 0] = 1
    w = np.append(-2.0, rng.normal(size=size - 1) / np.sqrt(size))
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-x @ w))).astype(float)
    objective = sf.Objective({"labels": sf.statistic_term(label_loss, {"x": x, "y": y})})
    return sf.Problem(objective, np.zeros(size), priors=sf.Normal(0.0, 2.0), name="logistic")


# ---- two-time correlations: three parameters, contrast and offset of every angle integrated out ---------------------

Q, FRAME, FRAMES, ANGLES, NOISE = 0.0054, 0.1, 120, 5, 0.02  # 1/Å, s
TIMES = FRAME * np.arange(FRAMES)
MIDDLE = float(np.sqrt(FRAME * TIMES[-1]))  # s, where rates are quoted
LEVEL, EXPONENT, SHARE = np.log(15000.0) + 0.3 * np.log(MIDDLE), -0.3, 0.08


def ridge(p: Any) -> jax.Array:
    """Return the rate D ((t/t_mid)^α + share) in Å²/s at all frames: exponent and share lie on a ridge."""
    return jnp.exp(p["level"]) * (_power(p["exponent"]) + p["share"])


def bent_ridge(p: Any) -> jax.Array:
    """Return the rate D ((1 - share) (t/t_mid)^α + share): data fix level and (1 - share) α, so the ridge is bent."""
    return jnp.exp(p["level"]) * ((1 - p["share"]) * _power(p["exponent"]) + p["share"])


def curved(p: Any) -> jax.Array:
    """Return the same rate as D (1 + slope ((t/t_mid)^α - 1)/α): no ridge at exponent 0."""
    flat = jnp.abs(p["exponent"]) < 1e-6
    exponent = jnp.where(flat, 1.0, p["exponent"])
    bent = jnp.where(flat, jnp.log(_scaled()), (_power(exponent) - 1) / exponent)
    return jnp.exp(p["level"]) * jnp.maximum(1 + p["slope"] * bent, 1e-10)


def _scaled() -> jax.Array:
    return jnp.maximum(TIMES, 0.5 * FRAME) / MIDDLE


def _power(exponent: Any) -> jax.Array:
    return _scaled() ** exponent


def basis(rate: Callable, p: Any, rows: Any) -> jax.Array:
    """Return g1² and one for every pair of frames and angle, (pairs, angles, 2)."""
    rates = rate(p)
    sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(0.5 * (rates[1:] + rates[:-1]))])
    decay = jnp.exp(-Q * Q * FRAME * jnp.sqrt((sums[rows["j"]] - sums[rows["i"]]) ** 2 + 1e-12))
    decay = jnp.broadcast_to(decay[:, None], (len(decay), ANGLES))
    return jnp.stack([decay, jnp.ones_like(decay)], -1)


COORDINATES = {
    "ridge": (
        ridge,
        {"level": LEVEL, "exponent": EXPONENT, "share": SHARE},
        {"level": sf.Normal(9.0, 1.0), "exponent": sf.Normal(0.0, 0.5), "share": sf.Normal(0.0, 0.3)},
    ),
    "bent ridge": (
        bent_ridge,
        {"level": LEVEL, "exponent": EXPONENT, "share": SHARE},
        {"level": sf.Normal(9.0, 1.0), "exponent": sf.Normal(0.0, 0.5), "share": sf.Normal(0.0, 0.3)},
    ),
    "curved": (
        curved,
        {"level": LEVEL, "exponent": EXPONENT, "slope": EXPONENT},
        {"level": sf.Normal(9.0, 1.0), "exponent": sf.Normal(0.0, 0.5), "slope": sf.Normal(0.0, 1.0)},
    ),
}


def correlations(coordinates: str, pairs: int = N // ANGLES) -> sf.Problem:
    """Two-time correlations of pairs of frames at five angles, simulated; coordinates: of COORDINATES."""
    rate, start, priors = COORDINATES[coordinates]
    rng = np.random.default_rng(3)
    first, second = np.triu_indices(FRAMES, 1)
    chosen = rng.choice(len(first), pairs, replace=False)
    rows = {"i": first[chosen].astype(np.int32), "j": second[chosen].astype(np.int32)}
    with jax.enable_x64(True):
        decay = np.asarray(basis(ridge, COORDINATES["ridge"][1], rows))[..., 0]
    contrast, offset = 0.3 + 0.03 * rng.standard_normal(ANGLES), 1 + 0.01 * rng.standard_normal(ANGLES)
    rows["y"] = offset + contrast * decay + NOISE * rng.standard_normal(decay.shape)
    rows["sigma"] = np.full(decay.shape, NOISE)
    term = sf.linear_term(partial(basis, rate), rows, groups=np.arange(ANGLES), marginal=True)
    return sf.Problem(sf.Objective({"pairs": term}), start, priors=priors, name=f"correlations, {coordinates}")


PROBLEMS: dict[str, Callable[[], sf.Problem]] = {
    "logistic": logistic,
    "correlations": lambda: correlations("curved"),
    "correlations on a ridge": lambda: correlations("ridge"),
    "correlations on a bent ridge": lambda: correlations("bent ridge"),
}
