"""Refits killed at random instants end with the draws of refits that nothing happened to, to the bit."""

import os
import subprocess
import sys

import numpy as np
import pytest

from shardfit.sampling.store import load_posterior


@pytest.mark.slow
@pytest.mark.processes
def test_same_draws(tmp_path):
    command = [sys.executable, "-m", "tests.sampling.killed_refits", str(tmp_path), "10", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=os.environ)
    assert not done.returncode, done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 5
    whole, killed = (load_posterior(tmp_path / name) for name in ("whole", "killed"))
    np.testing.assert_array_equal(killed.z, whole.z)
    np.testing.assert_array_equal(killed.weights, whole.weights)
