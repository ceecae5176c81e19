"""Model error and structural similarity against sums written out."""

import numpy as np
import pytest

from shardfit.domains.seismic import model_error, structural_similarity


def by_windows(x, y):
    """Mean over all 11 x 11 windows, each summed out."""
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
    window /= window.sum()
    c1, c2 = (np.array([0.01, 0.03]) * np.ptp(y)) ** 2
    found = []
    for i in range(5, x.shape[0] - 5):
        for j in range(5, x.shape[1] - 5):
            a, b = (f[i - 5 : i + 6, j - 5 : j + 6] for f in (x, y))
            ma, mb = (window * a).sum(), (window * b).sum()
            va, vb, cov = ((window * p).sum() for p in ((a - ma) ** 2, (b - mb) ** 2, (a - ma) * (b - mb)))
            found.append((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return np.mean(found)


def test_similarity_by_its_definition():
    rng = np.random.default_rng(0)
    truth = rng.uniform(1500, 4000, (16, 19))
    guess = truth + rng.normal(0, 400, truth.shape)
    assert structural_similarity(guess, truth) == pytest.approx(by_windows(guess, truth), rel=1e-8)
    assert structural_similarity(truth, truth) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="11 cells"):
        structural_similarity(truth[:10], truth[:10])
    with pytest.raises(ValueError, match="same everywhere"):
        structural_similarity(truth, np.ones_like(truth))


def test_model_error():
    assert model_error(np.array([[1.0, 2.0]]), np.array([[1.0, 4.0]])) == pytest.approx(np.sqrt(2))
