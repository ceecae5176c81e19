"""A posterior with its rows split over processes: the same draws on every rank, and from its folder."""

import json

import numpy as np
import pytest

from tests.sampling.test_run import by_quadrature

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_two_processes(launch, tmp_path):
    done = launch(2, "sampled.py", tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second and first["again"] and first["rows"] == 2
    means, sds = by_quadrature()
    a = np.array(first["z"])[..., 0]
    assert abs(a.mean() - means[0]) < sds[0]
