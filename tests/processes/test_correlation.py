"""An XPCS fit in two processes is that of one."""

import json

import numpy as np
import pytest

from tests.processes import correlation


@pytest.mark.processes
@pytest.mark.slow
def test_two_processes_fit_what_one_does(launch, tmp_path):
    done = launch(2, "correlation.py", tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    alone = correlation.fitted()
    assert first == second
    assert np.isclose(first["chi2"], alone.chi2, rtol=1e-10)
    for name, value in alone.params.items():
        assert np.isclose(first["params"][name], value, rtol=1e-8, atol=1e-8 * alone.stderr[name])
        assert np.isclose(first["stderr"][name], alone.stderr[name], rtol=1e-6)
    assert np.allclose(first["contrast"], alone.contrast, rtol=1e-8)
