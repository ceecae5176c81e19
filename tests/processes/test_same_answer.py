"""One script, unchanged, on one device, on eight, in two and three processes, and in two of two devices each."""

import json

import jax
import numpy as np
import pytest

import shardfit as sf
from tests.processes import decay

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def alone():
    """Value and gradient, by one device of this process."""
    return decay.objective_of(decay.read()).value_and_grad(jax.tree.map(np.float64, decay.POINT))


def answers(folder, n):
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(n)]


def require_same(found, alone):
    value, gradient = alone
    assert found["value"] == pytest.approx(float(value), rel=1e-12)
    for name, slope in gradient.items():
        assert found["gradient"][name] == pytest.approx(float(slope), rel=1e-10)


def test_eight_devices(tmp_path, alone):
    decay.main("lbfgsb", "own", tmp_path)
    (found,) = answers(tmp_path, 1)
    assert found["shards"] == len(jax.devices())
    require_same(found, alone)


@pytest.mark.parametrize(
    ("n", "devices", "solver", "whose"),
    [
        (2, 1, "lbfgs", "own"),
        pytest.param(2, 1, "lbfgsb", "own", marks=pytest.mark.slow),
        pytest.param(3, 1, "lbfgs", "own", marks=pytest.mark.slow),
        pytest.param(2, 2, "lbfgsb", "own", marks=pytest.mark.slow),
        pytest.param(2, 1, "lbfgs", "all", marks=pytest.mark.slow),
        pytest.param(3, 1, "lbfgsb", "all", marks=pytest.mark.slow),
        pytest.param(1, 3, "lbfgsb", "own", marks=pytest.mark.slow),
    ],
)
def test_processes(launch, tmp_path, alone, n, devices, solver, whose):
    done = launch(n, "decay.py", solver, whose, tmp_path, options=("--devices-per-process", devices))
    assert done.returncode == 0, done.stderr
    found = answers(tmp_path, n)
    assert all(other == found[0] for other in found)  # to the bit, times included
    assert found[0]["processes"] == n
    assert found[0]["shards"] == n * devices
    assert found[0]["n_rows"] == {"decay": decay.N, "count": decay.N}
    require_same(found[0], alone)
    problem = sf.Problem(decay.objective_of(decay.read()), {name: np.float64(1.0) for name in decay.POINT})
    whole = sf.fit(problem, solver, certify=False)
    assert found[0]["steps"] == whole.steps
    for name, value in whole.params.items():
        assert found[0]["params"][name] == pytest.approx(float(value), rel=1e-7)


@pytest.mark.slow
def test_standard_errors_count_real_rows_only(launch, tmp_path):
    done = launch(3, "decay.py", "lm", "own", tmp_path)
    assert done.returncode == 0, done.stderr
    problem = sf.Problem(decay.objective_of(decay.read(), True), {name: np.float64(1.0) for name in decay.POINT})
    whole = sf.fit(problem, "lm", certify=False)
    for name, error in whole.stderr.items():
        assert answers(tmp_path, 3)[0]["stderr"][name] == pytest.approx(float(error), rel=1e-9)
