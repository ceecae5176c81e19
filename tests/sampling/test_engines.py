"""Other engines draw from the same density: their moments are ours, and those of a grid."""

import numpy as np
import pytest

import shardfit as sf
from tests.sampling.test_run import by_quadrature, problem


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpyro", "blackjax"])
def test_moments(engine):
    pytest.importorskip(engine)
    found = sf.sample(problem(), engine, chains=2, warmup=200, draws=300)
    means, sds = by_quadrature()
    summary = found.summary()
    assert np.all(np.abs(summary["mean"] - means) < 5 * summary["mcse"] + 0.02 * np.array(sds))
    assert found.z.dtype == np.float64 and found.stats["gradients"].min() >= 1


def test_no_folders():
    with pytest.raises(ValueError, match="no run_dir"):
        sf.sample(problem(), "numpyro", run_dir="x")
