"""Synthetic two-time correlations with a known answer: for tests, coverage, and planning an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs.cleaning import corrected_diagonal
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.forward import Geometry, Grid
from shardfit.domains.xpcs.models import Model

JITTER = 1e-9  # added to the field's covariance, which may be singular


@dataclass(frozen=True)
class Experiment:
    """What is measured and how well.

    Attributes
    ----------
    phi
        azimuths in degrees.
    n_frames, dt, q, gap
        frames, seconds between them, 1/Å, Å.
    contrast, offset
        one number or one per angle.
    sigma
        standard deviation of independent noise on every point; None for speckle noise.
    speckles
        number of independent speckles per angle: the correlations are then computed from simulated intensities, and
        their noise is that of a measurement, correlated between points that share a frame.

    """

    phi: Any = (0.0,)
    n_frames: int = 100
    dt: float = 0.1
    q: float = 0.0054
    gap: float = 2e6
    contrast: Any = 0.3
    offset: Any = 1.0
    sigma: float | None = 0.01
    speckles: int | None = None


def simulate(model: Model, params: Mapping[str, float], experiment: Experiment, seed: int = 0) -> Correlation:
    """Return the correlations that an experiment would measure of a sample with known parameters.

    Example: `simulate(static(), {"D0": 1e4, "alpha": -0.3, "D_offset": 0.0}, Experiment(n_frames=200), seed=1)`.
    """
    for name in {*params} ^ {*model.names}:
        problem = "no value for" if name in model.names else "the model has no parameter"
        raise ValueError(f"simulate: {problem} {name!r}.{suggestion(name, model.names)}")
    if (experiment.sigma is None) == (experiment.speckles is None):
        raise ValueError("simulate: give either sigma (independent noise) or speckles (their number per angle).")
    curve, rng = model_curve(model, params, experiment), np.random.default_rng(seed)
    n, nt = curve.shape[:2]
    contrast, offset = (np.broadcast_to(np.asarray(v, float), (n,)) for v in (experiment.contrast, experiment.offset))
    diagonal = None
    if experiment.sigma is None:
        assert experiment.speckles is not None
        c2 = np.stack([_speckle_c2(f, c, experiment.speckles, rng) for f, c in zip(curve, contrast, strict=True)])
        c2 = c2 + (offset - 1.0)[:, None, None]
        c2, diagonal = corrected_diagonal(c2), np.diagonal(c2, axis1=1, axis2=2).copy()
    else:
        clean = corrected_diagonal(offset[:, None, None] + contrast[:, None, None] * curve)
        noise = np.triu(experiment.sigma * rng.standard_normal((n, nt, nt)))
        c2 = corrected_diagonal(clean + noise + np.swapaxes(np.triu(noise, 1), 1, 2))
    phi = np.asarray(experiment.phi, float)
    known = (experiment.q, experiment.dt, experiment.sigma, experiment.gap, "simulated")
    return Correlation(c2, phi, *known, diagonal=diagonal)


@arithmetic("float64")
def model_curve(model: Model, params: Mapping[str, float], experiment: Experiment) -> np.ndarray:
    """Return f (n, nt, nt) without scales or noise."""
    t = np.linspace(0.0, experiment.dt * (experiment.n_frames - 1), experiment.n_frames)
    phi = np.atleast_1d(np.asarray(experiment.phi, float))
    geometry = Geometry(*map(jnp.asarray, (t, phi, experiment.q, experiment.gap, experiment.dt)))
    return np.array(model.curve(model.values(dict(params)), geometry, Grid()))


def _speckle_c2(f: np.ndarray, contrast: float, speckles: int, rng: np.random.Generator) -> np.ndarray:
    """Return the correlation of the intensities of many speckles whose fields decorrelate as √f.

    A constant background lowers the contrast of fully developed speckle, which is 1, to the wanted one.
    """
    nt = len(f)
    try:
        factor = np.linalg.cholesky(np.sqrt(f) + JITTER * np.eye(nt))
    except np.linalg.LinAlgError:
        raise ValueError("simulate: no random field has this correlation. Use sigma instead of speckles.") from None
    normal = rng.standard_normal((2, speckles, nt)) @ factor.T
    intensity = 0.5 * np.sum(normal**2, axis=0) + (1 / np.sqrt(contrast) - 1)
    mean = intensity.mean(axis=0)
    return intensity.T @ intensity / speckles / np.outer(mean, mean)
