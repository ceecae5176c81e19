"""A covariance of the answer from that of the gradient, which scatters otherwise than independent points would."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy.linalg import block_diag

from shardfit.core.fast_compile import unoptimised_jit
from shardfit.domains.xpcs.forward import Geometry
from shardfit.domains.xpcs.models import Model
from shardfit.domains.xpcs.recipes.answer import CorrelationFit
from shardfit.domains.xpcs.recipes.bands import held_of, of_frames, rates_with_bands


def to_angles(fit: CorrelationFit) -> np.ndarray:
    """Return the matrix from [a, b, parameters] to [contrast, offset, parameters] of the angles."""
    design = fit.setup.design
    return np.asarray(block_diag(design.basis, design.offsets, np.eye(len(fit.params))))


def normal_inverse(fit: CorrelationFit) -> tuple[np.ndarray, np.ndarray]:
    """Return the inverse normal matrix over [a, b, parameters], zero where they are not free, and which are free."""
    known = np.isfinite(np.diag(fit.covariance))
    back = np.linalg.pinv(to_angles(fit))
    inverse = back @ (np.where(np.outer(known, known), fit.covariance, 0.0) / fit.variance) @ back.T
    return inverse, np.diag(inverse) > 0


def with_spread(fit: CorrelationFit, inner: np.ndarray, **rest: Any) -> CorrelationFit:
    """Return a fit with errors and bands by a covariance of [a, b, parameters]; rest: other fields that change."""
    n, setup, turn = len(fit.contrast), fit.setup, to_angles(fit)
    known = np.isfinite(np.diag(fit.covariance))
    spread = turn @ inner @ turn.T
    spread = np.where(np.outer(known, known), spread, np.where(np.eye(len(spread)), fit.covariance, 0.0))
    errors = np.sqrt(np.diag(spread))
    stderr = {
        name: float(error) if np.isfinite(before) else before
        for (name, before), error in zip(fit.stderr.items(), errors[2 * n :], strict=True)
    }
    bands = jax.device_get(
        _bands(setup.model, setup.geometry, _numbers(fit.params), spread[2 * n :, 2 * n :], held_of(setup))
    )
    changed = {"stderr": stderr, "contrast_stderr": errors[:n], "offset_stderr": errors[n : 2 * n]}
    return replace(fit, covariance=spread, rates=of_frames(bands, setup), **changed, **rest)


def _numbers(params: dict) -> dict[str, np.float64]:
    return {name: np.float64(value) for name, value in params.items()}


@partial(unoptimised_jit, static_argnums=0)
def _bands(model: Model, geometry: Geometry, params: Any, spread: Any, held: Any) -> dict[str, Any]:
    return rates_with_bands(model, geometry, model.values(params), spread, held)
