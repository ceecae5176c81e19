"""Densities on which samplers are compared, as problems; every sampler is given the same function of z."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.problems import posteriordb


def potential(problem: sf.Problem) -> Callable[[Any], jax.Array]:
    """Return the function from coordinates z (n,) to -log density."""
    target = problem.unconstrained()
    objective, space = target.objective, target.space
    return lambda z: objective.value(space.unpack(z)) - space.log_jacobian(z)


def white(x: jax.Array, rows: dict) -> jax.Array:
    """Return the residuals of a Gaussian density. rows: root (n, n) of its precision."""
    return rows["root"] @ x


def gaussian(n: int = 50, condition: float = 1e4) -> sf.Problem:
    """Gaussian around zero whose axes are turned at random; its covariance has the given condition."""
    turned, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    precision = (turned * np.logspace(-0.5, 0.5, n, base=condition)) @ turned.T
    rows = {"root": np.linalg.cholesky(precision).T}
    return sf.Problem(sf.Objective({"data": sf.residual_term(white, rows)}), np.zeros(n), name="gaussian")


def label_loss(x: jax.Array, rows: dict) -> jax.Array:
    """Return -log probability of each label. rows: x (n, p), y (n,) of 0 and 1."""
    score = rows["x"] @ x
    return jax.nn.softplus(score) - rows["y"] * score


def logistic(n: int = 10_000, p: int = 20) -> sf.Problem:
    """Logistic regression with correlated columns and a weak prior."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, p)) @ (rng.standard_normal((p, p)) / np.sqrt(p) + np.eye(p))
    y = rng.random(n) < 1 / (1 + np.exp(-x @ (0.3 * rng.standard_normal(p))))
    objective = sf.Objective({"labels": sf.statistic_term(label_loss, {"x": x, "y": y.astype(float)})})
    return sf.Problem(objective, np.zeros(p), priors=sf.Normal(0.0, 2.5), name="logistic")


# ---- a shard of two-time correlations: 7 parameters, contrast and offset of every angle integrated out --------------

Q, GAP, FRAME = 0.0054, 2e6, 0.1  # 1/Å, Å, s
FRAMES, ANGLES, PAIRS, NOISE = 100, 23, 217, 0.01
REFERENCE = float(np.sqrt(FRAME * FRAME * (FRAMES - 1)))  # s, where rates are quoted
TRUTH = {
    "transport": np.array([np.log(8300.0), -0.24, -0.25]),  # log Å²/s at the reference time, slope, exponent
    "shear": np.array([np.log(2.1e-3), -0.19, -0.2]),  # log 1/s, slope, exponent
    "flow": -4.0,  # degrees
}


def rate(times: jax.Array, v: jax.Array) -> jax.Array:
    """Return exp(v0) (1 + v1 ((t / t_ref)^v2 - 1) / v2) at all times, at least 1e-10: no ridge at exponent 0."""
    logs = jnp.log(jnp.where(times > 0.5 * FRAME, times, 0.5 * FRAME) / REFERENCE)
    near_zero = jnp.abs(v[2]) < 1e-6
    exponent = jnp.where(near_zero, 1.0, v[2])
    curve = jnp.where(near_zero, logs, jnp.expm1(exponent * logs) / exponent)
    found = jnp.exp(v[0]) * (1 + v[1] * curve)
    return jnp.where(found > 1e-10, found, 1e-10)


def between(rates: jax.Array, rows: dict) -> jax.Array:
    """Return the trapezoid sums of rates from frame i to frame j, in frames."""
    sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(0.5 * (rates[1:] + rates[:-1]))])
    return jnp.sqrt((sums[rows["j"]] - sums[rows["i"]]) ** 2 + 1e-12)


def correlation(params: dict, rows: dict, angles: Any) -> jax.Array:
    """Return g1² of every pair of frames and angle (pairs, angles)."""
    times = jnp.asarray(FRAME * np.arange(FRAMES))
    moved, sheared = (between(rate(times, params[name]), rows) for name in ("transport", "shear"))
    x = Q * GAP * FRAME / (2 * np.pi) * jnp.cos(jnp.deg2rad(params["flow"] - angles)) * sheared[:, None]
    small = jnp.abs(x) < 1e-4
    divisor = jnp.where(small, 1.0, x)
    sinc = jnp.where(small, 1 - x * x / 6, jnp.sin(divisor) / divisor)
    return jnp.exp(-Q * Q * FRAME * moved)[:, None] * sinc**4


def moments(params: dict, rows: dict, angles: Any) -> dict:
    """Return what contrast and offset of an angle need to be integrated out, for every pair (pairs, angles)."""
    f, y = correlation(params, rows, angles), rows["y"]
    return {"ff": f * f, "f": f, "fy": f * y, "y": y, "yy": y * y, "n": jnp.ones_like(f)}


def integrated(sums: dict, angles: Any) -> jax.Array:
    """Return -log of the integral of the likelihood over flat contrasts and offsets. sums: each (angles,)."""
    a, b, c, u, v, w = (sums[name] / NOISE**2 for name in ("ff", "f", "n", "fy", "y", "yy"))
    determinant = a * c - b * b
    fitted = (c * u * u - 2 * b * u * v + a * v * v) / determinant
    return jnp.sum(0.5 * (w - fitted) + 0.5 * jnp.log(determinant))


def xpcs() -> sf.Problem:
    """Two-time correlations of a sheared sample: 217 pairs of frames at 23 angles, simulated."""
    rng = np.random.default_rng(3)
    angles = np.linspace(-90.0, 90.0, ANGLES)
    first, second = np.triu_indices(FRAMES, 1)
    chosen = rng.choice(len(first), PAIRS, replace=False)
    rows = {"i": first[chosen].astype(np.int32), "j": second[chosen].astype(np.int32)}
    contrast, offset = 0.3 + 0.03 * rng.standard_normal(ANGLES), 1 + 0.01 * rng.standard_normal(ANGLES)
    with jax.enable_x64(True):
        clean = np.asarray(correlation(TRUTH, rows, angles))
    rows["y"] = offset + contrast * clean + NOISE * rng.standard_normal(clean.shape)
    priors = {
        "transport": sf.Normal(np.array([8.0, 0.0, 0.0]), np.array([2.0, 1.0, 0.5])),
        "shear": sf.Normal(np.array([-5.0, 0.0, 0.0]), np.array([2.0, 1.0, 0.5])),
        "flow": sf.Normal(0.0, 5.0),
    }
    objective = sf.Objective({"pairs": sf.statistic_term(moments, rows, angles, loss=integrated)})
    return sf.Problem(objective, TRUTH, priors=priors, name="xpcs")


def _reference(name: str) -> Callable[[], sf.Problem]:
    return lambda: posteriordb.load()[name].problem


DENSITIES: dict[str, Callable[[], sf.Problem]] = {
    "eight-schools": _reference("eight_schools-eight_schools_noncentered"),
    "gaussian": gaussian,
    "logistic": logistic,
    "kidiq": _reference("kidiq-kidscore_momiq"),
    "xpcs": xpcs,
    "gaussian-process": _reference("gp_pois_regr-gp_regr"),
}
