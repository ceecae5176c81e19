import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.demo.ringdown import MODES, TRUE_MASS, TRUE_SPIN, black_hole, problem_of, residual, simulate
from shardfit.io.results import load_result


def test_modes_name_the_black_hole_they_come_from():
    with arithmetic("float64"):
        told = black_hole(simulate(500).truth)
    for mode in MODES:
        assert np.isclose(told[f"{mode}: mass (solar masses)"], TRUE_MASS, rtol=1e-12)
        assert np.isclose(told[f"{mode}: spin"], TRUE_SPIN, rtol=1e-12)


def test_residuals_of_the_truth_are_unit_normal():
    data = simulate(20_000, seed=3)
    with arithmetic("float64"):
        r = np.asarray(residual(data.truth, data.rows))
    assert abs(r.mean()) < 4 / np.sqrt(r.size)
    assert abs(r.var() - 1) < 4 * np.sqrt(2 / r.size)


def test_data_depend_on_the_seed_alone():
    first, again, other = (simulate(600, seed).rows["strain"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_problem_knows_units_and_limits():
    problem = problem_of(simulate(500).rows)
    assert problem.unit_labels() == ["10⁻²¹", "ms", "Hz", "rad"] * 2
    far = jax.tree.leaves(problem.space.unpack(np.full(8, 50.0)))
    assert max(far[2], far[6]) <= 700


def test_demo_end_to_end(tmp_path):
    pytest.importorskip("matplotlib")
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    env = os.environ | {"XLA_FLAGS": " ".join(flags)}  # the command chooses the number of devices itself
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardfit.cli", "demo", "--rows", "2000", "--repeats", "10", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 devices" in done.stdout
    assert "report.html" in done.stdout
    assert "FAIL" not in done.stdout
    result = load_result(out)
    assert result.success
    assert result.layout["rows"] == 2
    text = (out / "report.html").read_text()
    assert text.count("<img") == 6
    assert "Ringdown of a black hole" in text
