"""Latin-hypercube scans, and trajectories with thinning."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.stats.scan import scan, trajectory


def powers(params, rows):
    return {"sum": params["a"] * rows["x"], "wave": jnp.exp(1j * params["b"] * rows["x"])}


def loss(totals):
    return {"size": totals["sum"] ** 2, "wave": jnp.abs(totals["wave"]) ** 2}


@pytest.fixture(scope="module")
def problem():
    rows = {"x": np.linspace(0, 1, 37)}
    terms = {
        "data": sf.statistic_term(powers, rows, loss=loss, weight={"size": 1.0, "wave": 0.5}),
        "prior": sf.penalty(lambda p: p["a"] ** 2, weight=3.0),
    }
    return sf.Problem(sf.Objective(terms), {"a": 2.0, "b": 1.0}, transforms={"a": "log"})


@pytest.mark.parametrize("devices", [None, 3])
def test_scan_evaluates_a_latin_hypercube(problem, devices):
    mesh = None if devices is None else sf.mesh(rows=devices)
    found = scan(problem, 12, {"a": (0.5, 4.0), "b": (-1.0, 1.0)}, seed=4, mesh=mesh)
    slices = np.sort(np.floor((found.params["a"] - 0.5) / 3.5 * 12).astype(int))
    assert np.array_equal(slices, np.arange(12))
    for i in (0, 11):
        params = {name: leaf[i] for name, leaf in found.params.items()}
        np.testing.assert_allclose(found.values[i], problem.objective.value(params), rtol=1e-12)
        parts = problem.objective.parts(params)
        assert set(parts) == set(found.parts) == {"data.size", "data.wave", "prior"}
        np.testing.assert_allclose(found.parts["data.wave"][i], parts["data.wave"], rtol=1e-12)
        totals = problem.objective.totals(params)["data"]
        np.testing.assert_allclose(found.statistics["data"]["wave"][i], totals["wave"], rtol=1e-12)


def test_scan_needs_a_box(problem):
    with pytest.raises(ValueError, match="two finite bounds"):
        scan(problem, 5, {"a": (0.5, 4.0)})


def test_thinning(problem):
    result = sf.fit(problem, "adam", maxiter=10, keep=1, certify=False, progress=False)
    whole = trajectory(problem, result.history)
    assert len(whole.values) == 11
    np.testing.assert_allclose(whole.params["a"][0], 2.0, rtol=1e-12)  # in parameters, not in solver coordinates
    for i in (0, 4, 10):
        params = {name: leaf[i] for name, leaf in whole.params.items()}
        np.testing.assert_allclose(whole.values[i], problem.objective.value(params), rtol=1e-12)
    thinned = trajectory(problem, result.history, thin=3)
    assert np.array_equal(thinned.values, whole.values[[0, 3, 6, 9, 10]])
    assert np.array_equal(trajectory(problem, result.history, thin=0).values, whole.values[[10]])
    bare = sf.fit(problem, "adam", maxiter=3, certify=False, progress=False)
    with pytest.raises(ValueError, match="keep=1"):
        trajectory(problem, bare.history)
