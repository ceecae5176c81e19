"""Truncated Gauss-Newton: products and steps against dense matrices, then held cells, devices and kills on waves."""

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic
from shardfit.domains.seismic import (
    Conditioning,
    Huber,
    Recording,
    Simulation,
    acquisition,
    penalties,
    propagate,
    ricker,
)
from shardfit.domains.seismic.gauss_newton import product
from shardfit.domains.seismic.recipes import Display, InversionOptions, invert
from shardfit.domains.seismic.recipes.gauss_newton import GaussNewton
from tests.domains.seismic.lens import problem_of, survey

SHAPE = (7, 8)
N = SHAPE[0] * SHAPE[1]
TIKHONOV = 1e-6


def tiny(loss="l2", engine="auto"):
    """Three shots over 56 cells, weighted traces: the problem, and functions of all its residuals and weights."""
    sim = Simulation(SHAPE, 10.0, 1e-3, 70, 2600.0, 30.0, 2, widths=6)
    start = np.full(SHAPE, 2000.0)
    start[3:] = 2150.0
    truth = start + 60 * np.random.default_rng(3).normal(size=SHAPE)
    wavelet = ricker(30.0, sim.dt, sim.nt)
    shots = acquisition(sim, [(1, x) for x in (1, 4, 6)], [(row, x) for row in (0, 5) for x in range(0, 8, 2)])
    with arithmetic("float64"):
        data = np.asarray(propagate(sim, truth, wavelet, shots))
    weights = np.random.default_rng(4).uniform(0.5, 1.5, data.shape[:2])
    more = {"tikhonov": penalties.tikhonov(TIKHONOV)}
    waves = {"precision": "float64", "engine": engine}
    problem = problem_of(sim, start, wavelet, shots, data, weights, more, loss=loss, **waves)
    rms = np.sqrt(np.mean(data**2))

    def residuals(velocity):
        return np.asarray(propagate(sim, velocity, wavelet, shots) - data) / rms

    return problem, residuals, np.broadcast_to(weights[..., None], data.shape)


def dense(problem, residuals, weights, bend):
    """Return gradient and Gauss-Newton matrix, its columns by finite differences; bend: of the loss, of residuals."""
    here = np.asarray(problem.x0["velocity"])
    units = 0.1 * np.eye(N).reshape(N, *SHAPE)
    with arithmetic("float64"):
        found = np.asarray(residuals(here))
        jacobian = np.stack([np.ravel(residuals(here + u) - residuals(here - u)) / 0.2 for u in units], 1)
        smooth = jax.hessian(lambda v: problem.objective.terms[1].losses({"velocity": v}))(here).reshape(N, N)
    sides = (weights * bend(found)).ravel() / weights.sum()
    gradient = problem.objective.value_and_grad(problem.x0)[1]["velocity"].ravel()
    return np.asarray(gradient), jacobian.T @ (sides[:, None] * jacobian) + TIKHONOV * np.asarray(smooth)


BENDS = {
    "l2": ("l2", lambda r: np.full_like(r, 2.0)),
    "huber": (Huber(0.3), lambda r: 0.6 / np.maximum(np.abs(r), 0.3)),
}


@pytest.fixture(scope="module")
def squares():
    problem, residuals, weights = tiny()
    return problem, *dense(problem, residuals, weights, BENDS["l2"][1])


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "engine", "shards"), [("l2", "auto", 1), ("l2", "auto", 2), ("huber", "jax", 1)])
def test_products_are_those_of_the_dense_matrix(squares, loss, engine, shards):
    given, bend = BENDS[loss]
    problem, residuals, weights = tiny(given, engine)
    matrix = squares[2] if loss == "l2" else dense(problem, residuals, weights, bend)[1]
    vector = np.random.default_rng(5).normal(size=N)
    with arithmetic("float64"):
        z = problem.space.pack(problem.x0)
        placed = problem.objective.place(sf.mesh(rows=shards) if shards > 1 else None)
        found = jax.jit(product)(placed, problem.space, z, vector)
    np.testing.assert_allclose(found, matrix @ vector, rtol=1e-7, atol=1e-7 * np.abs(matrix @ vector).max())


def solver(how, mask, weights, **options):
    return GaussNewton.of(how, mask, weights, **{"gtol": 0.0, "ftol": 0.0, "maxiter": 1, **options})


@pytest.mark.parametrize("batch", [None, 3])
def test_steps_minimise_over_the_directions_that_were_tried(squares, batch):
    """Three iterations: the minimum of the parabola in the space of P g, P H P g and P H P H P g."""
    problem, gradient, matrix = squares
    mask, weights = np.ones(SHAPE), np.random.default_rng(6).uniform(0.3, 1.0, SHAPE)
    mask[:2] = 0
    chosen = solver(Conditioning(), mask, weights, products=3, batch=batch)
    found = sf.fit(problem, chosen, certify=False, progress=False)
    scale = np.diag((mask**2 * weights).ravel())
    tried = [scale @ gradient]
    for _ in range(2):
        tried.append(scale @ (matrix @ tried[-1]))
    basis = np.linalg.qr(np.array(tried).T / np.linalg.norm(tried, axis=1))[0]
    expected = -basis @ np.linalg.solve(basis.T @ matrix @ basis, basis.T @ gradient)
    step = (found.params["velocity"] - problem.x0["velocity"]).ravel()
    np.testing.assert_allclose(step, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    assert found.evaluations == 5  # two looks, three products
    assert np.array_equal(step[: 2 * SHAPE[1]], np.zeros(2 * SHAPE[1]))


LENS = {"conditioning": Conditioning(rows=4, near=3.0, smoothing=1.0), "solver": "gauss-newton", "products": 3}


def lens_found(display=None, how=None, **options):
    sim, start, truth, wavelet, shots, data = survey()
    chosen = InversionOptions(certify=False, **{"epochs": 3, **LENS, **options})
    run = sf.RunOptions(progress=False, **(how or {}))
    return invert(sim, start + 0.1, Recording(shots, wavelet, data), chosen, run, truth=truth, display=display)


@pytest.mark.parametrize("batchsize", [None, pytest.param(5, marks=pytest.mark.slow)])
def test_water_is_held_exactly_and_the_lens_is_found(batchsize):
    sim, start, *_ = survey()
    low, high = np.full(sim.shape, 1900.0), np.full(sim.shape, 2300.0)
    high[:, :10] = 2010.0
    found = lens_found(batchsize=batchsize, bounds=(low, high), learning_rate=100.0)
    assert np.array_equal(found.velocity[:4], (start[:4] + 0.1).astype(np.float32))
    assert found.velocity[:, :10].max() <= 2010.0
    assert found.metrics["loss"][-1] < 0.05 * found.metrics["loss"][0]
    assert found.metrics["model_error"][-1] < 0.5 * found.metrics["model_error"][0]
    assert "gauss-newton" in found.results[0].solver


def test_a_step_that_is_too_long_is_shortened(squares, monkeypatch):
    """With a hundredth of the curvature steps are a hundred times too long; the misfit still falls."""
    monkeypatch.setattr("shardfit.domains.seismic.recipes.gauss_newton.product", lambda *a: 0.01 * product(*a))
    chosen = solver(Conditioning(), np.ones(SHAPE), np.ones(SHAPE), products=2, maxiter=2)
    found = sf.fit(squares[0], chosen, certify=False, progress=False)
    assert found.evaluations > 1 + 2 * 3  # steps that were looked at more than once
    assert (np.diff(found.history["value"]) <= 0).all()
    assert found.value < 0.8 * found.history["value"][0]


@pytest.mark.slow
@pytest.mark.parametrize("batchsize", [5, None])
def test_devices_share_the_shots(batchsize):
    one, four = (
        lens_found(precision="float64", batchsize=batchsize, how={"mesh": mesh}) for mesh in (None, sf.mesh(rows=4))
    )
    assert four.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=1e-8)
    assert four.velocity == pytest.approx(one.velocity, rel=1e-9)


def test_a_killed_inversion_goes_on_to_the_bit(tmp_path):
    options = {"bands": (15.0, None), "epochs": (1, 3), "batchsize": (5, None)}
    whole = lens_found(**options)

    def die(epoch, *_):
        if epoch == 4:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        lens_found(Display(die, 1), how={"run_dir": sf.RunDir(tmp_path, seconds=0)}, **options)
    found = lens_found(how={"run_dir": tmp_path, "resume": "must"}, **options)
    assert np.array_equal(found.velocity, whole.velocity)
    assert found.metrics["loss"].tolist() == whole.metrics["loss"].tolist()


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="Correlation compares whole traces .* 'plbfgs'"):
        InversionOptions(solver="gauss-newton", loss="correlation")
    with pytest.raises(ValueError, match="products = 0 must be a whole number"):
        InversionOptions(solver="gauss-newton", products=0)
    with pytest.raises(ValueError, match="conditioning.clip"):
        InversionOptions(solver="gauss-newton", conditioning=Conditioning(clip=98.0))
