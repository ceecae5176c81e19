"""Chains killed at random instants end with the draws of chains that nothing happened to, to the bit."""

import os
import subprocess
import sys

import numpy as np
import pytest

from shardfit.sampling.store import load_posterior


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("kills", [1, 12])
def test_same_draws(kills, tmp_path):
    command = [sys.executable, "-m", "tests.sampling.killed", str(tmp_path), str(kills), "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ)
    assert not done.returncode, done.stderr
    whole = load_posterior(tmp_path / "whole")
    for folder in sorted(tmp_path.glob("killed*")):
        killed = load_posterior(folder)
        np.testing.assert_array_equal(whole.z, killed.z)
        for name in whole.stats:
            np.testing.assert_array_equal(whole.stats[name], killed.stats[name])
