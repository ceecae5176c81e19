"""Waveform inversion in two processes equals that of one, and both processes hold the same model to the bit."""

import json

import numpy as np
import pytest

from tests.processes import waves

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_two_processes(launch, tmp_path):
    done = launch(2, "waves.py", tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["processes"] == 2
    alone = waves.solve(None)
    assert first["loss"] == pytest.approx(alone.metrics["loss"].tolist(), rel=1e-10)
    assert np.array(first["velocity"]) == pytest.approx(alone.velocity, rel=1e-9)
