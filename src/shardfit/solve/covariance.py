"""Covariance of least-squares parameters from the normal matrix, honest about what the data do not determine."""

from typing import NamedTuple

import numpy as np


class Covariance(NamedTuple):
    """Covariance (p, p), standard errors (p,), and the rank of the normal matrix.

    A parameter with a share in an undetermined direction has an infinite standard error; the covariance is that of the
    determined directions.
    """

    matrix: np.ndarray
    stderr: np.ndarray
    rank: int


def covariance(normal: np.ndarray, factor: float = 1.0) -> Covariance:
    """Return factor · (JᵀJ)⁻¹ from normal = JᵀJ (p, p), scaled to unit columns first."""
    normal = np.asarray(normal, np.float64)
    size = np.sqrt(np.diag(normal))
    unit = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(normal / np.outer(unit, unit))
    known = values > len(values) * np.finfo(float).eps * max(values.max(initial=0.0), 1.0)
    directions = vectors[:, known] / np.sqrt(values[known])
    scaled = directions / unit[:, None]
    matrix = factor * scaled @ scaled.T
    # a share below this in a null direction is rounding of the eigenvectors
    undetermined = (np.abs(vectors[:, ~known]) > 1e-6).any(1)
    stderr = np.where(undetermined, np.inf, np.sqrt(np.diag(matrix)))
    return Covariance(matrix, stderr, int(known.sum()))
