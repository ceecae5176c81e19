"""A survey killed at random instants ends complete, each point once, equal to one that nothing happened to."""

import os
import subprocess
import sys

import numpy as np
import pytest

import shardfit
from shardfit.surveys.reading import Survey
from tests.surveys.killed import OPTIONS, POINTS
from tests.surveys.small import cells, run


@pytest.fixture(scope="module", params=[2, pytest.param(20, marks=pytest.mark.slow)])
def folder(request, tmp_path_factory):
    """Folder with `whole` and `killed`."""
    folder, kills = tmp_path_factory.mktemp("survey"), request.param
    command = [sys.executable, "-m", "tests.surveys.killed", str(folder), str(kills), "7"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=os.environ | {"JAX_PLATFORMS": "cpu"}
    )
    assert not done.returncode, done.stderr
    hits, *shares = done.stdout.split()
    assert int(hits) == kills, f"some processes had ended before they were killed: {done.stdout}"
    if kills >= 20:  # throughout: in every quarter of the work, points polished in float64 too, and with work between
        quarters = {min(3, int(4 * float(share))) for share in shares}
        assert quarters == {0, 1, 2, 3} and len(set(shares)) >= 12, done.stdout
    return folder


def test_complete_and_equal_to_the_bit(folder):
    with Survey(folder / "whole") as whole, Survey(folder / "killed") as killed:
        assert killed.complete
        assert len(killed) == len(POINTS)
        assert cells(killed) == cells(whole)
        assert set(whole.column("attempt")) == {1, 2} and whole.converged == 1.0


def test_nothing_is_left_to_do(folder):
    seen = []
    run(folder / "killed", POINTS, on_points=seen.append, **OPTIONS).close()
    assert not seen


@pytest.mark.slow
def test_continued_with_other_slots_and_devices(folder, tmp_path):
    """Points differ by the order of sums only."""
    run(tmp_path, POINTS, limit=30, **OPTIONS).close()
    run(tmp_path, POINTS, slots=8, mesh=shardfit.mesh(2, 1), limit=30, **OPTIONS).close()
    run(tmp_path, POINTS, slots=6, mesh=shardfit.mesh(1, 2), limit=10, **OPTIONS).close()
    with run(tmp_path, POINTS, slots=3, **OPTIONS) as found, Survey(folder / "whole") as whole:
        assert found.complete
        np.testing.assert_allclose(found.column("value"), whole.column("value"), rtol=1e-9)
