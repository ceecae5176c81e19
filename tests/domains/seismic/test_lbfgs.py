"""Preconditioned L-BFGS with held cells and bounds: on quadratics with known answers, then on waves."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.optimize import minimize

import shardfit as sf
from shardfit.core.status import Status
from shardfit.domains.seismic import Conditioning, Recording
from shardfit.domains.seismic.recipes import Display, InversionOptions, invert
from shardfit.domains.seismic.recipes.lbfgs import PreconditionedLBFGS
from tests.domains.seismic.lens import survey

SHAPE = (6, 8)
N = SHAPE[0] * SHAPE[1]
RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.normal(size=(N, N)))[0]
CENTRE = RNG.normal(size=N)
QUIET = {"certify": False, "progress": False}


def quadratic(matrix, start, low=None, high=None):
    """(x - c)' A (x - c) / 2 as a problem."""
    term = sf.residual_penalty(lambda x, root: root @ (x.ravel() - CENTRE), np.linalg.cholesky(matrix).T)
    bounds = None if low is None else (low.reshape(SHAPE), high.reshape(SHAPE))
    return sf.Problem(sf.Objective({"q": term}), start.reshape(SHAPE), bounds=bounds)


def solver(mask=None, weights=None, how=None, **options):
    mask = np.ones(SHAPE) if mask is None else mask
    weights = np.ones(SHAPE) if weights is None else weights
    return PreconditionedLBFGS.of(how or Conditioning(), mask, weights, **{"first": 0.05, "ftol": 0.0, **options})


@pytest.mark.parametrize(("bounded", "smoothing"), [(False, 0.0), (True, 0.7)])
def test_quadratic_with_held_cells(bounded, smoothing):
    """The minimum is that of scipy's solver, over the cells that are not held; those do not move at all."""
    matrix, mask = BASIS @ np.diag(np.logspace(-3, 0, N)) @ BASIS.T, np.ones(SHAPE)
    mask[:2] = 0
    held = mask.ravel() == 0
    low = np.where(held, -9.0, -0.3 - 0.01 * np.arange(N)) if bounded else np.full(N, -np.inf)
    high = np.where(held, 9.0, 0.4) if bounded else np.full(N, np.inf)
    start = np.where(held, 0.123, 0.0)
    chosen = solver(mask, how=Conditioning(smoothing=smoothing), maxiter=2000, gtol=1e-8)
    found = sf.fit(quadratic(matrix, start, *((low, high) if bounded else ())), chosen, **QUIET)
    box = [(0.123, 0.123) if h else (a, b) for h, a, b in zip(held, low, high, strict=True)]
    expected = minimize(
        lambda x: (0.5 * (x - CENTRE) @ matrix @ (x - CENTRE), matrix @ (x - CENTRE)),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=box,
        options={"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-10},
    )
    z = found.params.ravel()
    assert found.status is Status.CONVERGED_GRADIENT
    assert np.array_equal(z[held], start[held])
    assert (z >= low).all() and (z <= high).all()
    assert found.value == pytest.approx(expected.fun, rel=1e-6)


def test_a_good_preconditioner_pays():
    """With the roots of the inverse curvatures as scales a badly scaled problem takes a few steps."""
    curvatures = np.logspace(-3, 3, N)
    problem = quadratic(np.diag(curvatures), np.zeros(N))

    def evaluations(weights):
        return sf.fit(problem, solver(weights=weights, maxiter=400, gtol=1e-7), **QUIET).evaluations

    good, none = evaluations(1 / curvatures.reshape(SHAPE)), evaluations(np.ones(SHAPE))
    assert good < 12
    assert none > 4 * good


def test_steps_are_those_of_dense_matrices():
    """Every step is minus BFGS's inverse Hessian, built from the pairs so far, times the gradient."""
    matrix = BASIS @ np.diag(np.linspace(0.5, 1.5, N)) @ BASIS.T
    mask, weights = np.ones(SHAPE), RNG.uniform(0.5, 1.0, SHAPE)
    mask[0] = 0
    points = [np.zeros(N)]
    chosen = solver(mask, weights, Conditioning(smoothing=0.8), maxiter=6, gtol=0.0)
    sf.fit(quadratic(matrix, points[0]), chosen, callback=lambda s: points.append(s.params.ravel()), every=1, **QUIET)
    points = list(dict(zip(map(bytes, points), points, strict=True)).values())
    assert len(points) == 7
    root = (mask * np.sqrt(weights / weights.max())).ravel()
    blur = np.stack([gaussian_filter(unit.reshape(SHAPE), 0.8, mode="reflect").ravel() for unit in np.eye(N)])
    scale, free = root[:, None] * blur * root, mask.ravel() > 0
    gradients = [np.where(free, matrix @ (x - CENTRE), 0) for x in points]
    first = scale @ gradients[0]
    first *= 0.05 / np.sqrt(np.mean(first[free] ** 2))
    assert points[1] == pytest.approx(-first, rel=1e-6, abs=1e-9)
    for k in range(1, 6):
        pairs = [(points[i + 1] - points[i], gradients[i + 1] - gradients[i]) for i in range(k)]
        step, change = pairs[-1]
        inverse = scale * (step @ change) / (change @ scale @ change)
        for step, change in pairs:
            side = np.eye(N) - np.outer(step, change) / (step @ change)
            inverse = side @ inverse @ side.T + np.outer(step, step) / (step @ change)
        assert points[k + 1] - points[k] == pytest.approx(-inverse @ gradients[k], rel=1e-5, abs=1e-7)


def test_no_way_down_is_said():
    """A gradient that lies: the value rises wherever it points."""
    import jax

    @jax.custom_vjp
    def wall(x):
        return jnp.sum((x - 1) ** 2)

    wall.defvjp(lambda x: (wall(x), x), lambda x, bar: (-2 * bar * (x - 1),))
    problem = sf.Problem(sf.Objective({"wall": sf.penalty(wall)}), np.zeros(SHAPE))
    found = sf.fit(problem, solver(maxiter=50), **QUIET)
    assert found.status is Status.STALLED
    assert "No step" in found.note


def rows_problem(n=24):
    """Rows that a common point fits exactly, as shots of one model do, each seeing some of it."""
    rng = np.random.default_rng(1)
    sees = rng.normal(size=(n, 6, N)) * np.logspace(-1, 0, N)
    rows = {"A": sees, "b": sees @ CENTRE}
    term = sf.residual_term(lambda x, rows: jnp.einsum("rij,j->ri", rows["A"], x.ravel()) - rows["b"], rows)
    return sf.Problem(sf.Objective({"rows": term}), np.zeros(SHAPE))


@pytest.mark.slow
def test_mini_batches_find_the_common_point():
    problem = rows_problem()
    weights = np.logspace(-1, 0, N).reshape(SHAPE) ** -2.0
    found = sf.fit(problem, solver(weights=weights, batch=6, limit=1.0, maxiter=240), seed=1, **QUIET)
    start = float(problem.objective.value(problem.x0))
    assert found.evaluations >= found.steps == 240  # as many steps as evaluations, but for those that were shortened
    assert found.evaluations < 300
    assert found.value < 1e-6 * start
    assert np.abs(found.params.ravel() - CENTRE).max() < 0.05


def test_no_cell_changes_by_more_than_the_limit():
    steps = []
    chosen = solver(batch=6, limit=0.02, maxiter=9)
    sf.fit(rows_problem(), chosen, callback=lambda shot: steps.append(shot.params.copy()), every=1, **QUIET)
    change = np.abs(np.diff(np.array([np.zeros(SHAPE), *steps]), axis=0))
    assert 0.019 < change.max() < 0.02 + 1e-12


def test_a_killed_run_of_batches_goes_on_to_the_bit(tmp_path):
    """At a step within a batch; the preconditioner comes from the stored state, whatever it is now."""
    options = {"batch": 6, "limit": 0.2, "maxiter": 14}
    whole = sf.fit(rows_problem(), solver(**options), seed=2, **QUIET)

    def die(shot):
        if shot.step == 7:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        folder = sf.RunDir(tmp_path, seconds=0)
        sf.fit(rows_problem(), solver(**options), seed=2, run_dir=folder, callback=die, every=1, **QUIET)
    other = solver(weights=np.full(SHAPE, 1.0) + 1e-6 * np.arange(N).reshape(SHAPE), **options)
    found = sf.fit(rows_problem(), other, seed=2, run_dir=tmp_path, resume="must", **QUIET)
    assert np.array_equal(found.params, whole.params)
    assert found.history["value"].tolist() == whole.history["value"].tolist()


LENS = {"epochs": 6, "conditioning": Conditioning(rows=4, near=3.0, smoothing=1.0)}


@pytest.mark.parametrize("batchsize", [pytest.param(None, marks=pytest.mark.slow), 3])
def test_water_is_held_exactly_and_the_lens_is_found(batchsize):
    sim, start, truth, wavelet, shots, data = survey()
    start = start + 0.1  # not a number that rounding leaves alone
    low, high = np.full(sim.shape, 1900.0), np.full(sim.shape, 2300.0)
    high[:, :10] = 2010.0
    options = InversionOptions(solver="plbfgs", batchsize=batchsize, bounds=(low, high), **LENS)
    run = sf.RunOptions(progress=False)
    found = invert(sim, start, Recording(shots, wavelet, data), options, run, truth=truth)
    assert np.array_equal(found.velocity[:4], start[:4].astype(np.float32))
    assert found.velocity[:, :10].max() <= 2010.0
    assert found.metrics["loss"][-1] < 0.2 * found.metrics["loss"][0]
    assert found.metrics["model_error"][-1] < 0.8 * found.metrics["model_error"][0]
    assert "plbfgs" in found.results[0].solver
    assert "curvature=1.0" in found.results[0].solver


def lens_found(display=None, how=None, **options):
    sim, start, _, wavelet, shots, data = survey()
    chosen = InversionOptions(solver="plbfgs", certify=False, **{**LENS, **options})
    run = sf.RunOptions(progress=False, **(how or {}))
    return invert(sim, start, Recording(shots, wavelet, data), chosen, run, display=display)


@pytest.mark.parametrize("batchsize", [5, pytest.param(None, marks=pytest.mark.slow)])
def test_devices_share_the_shots(batchsize):
    """Five or ten shots need padding on four devices."""
    one, four = (
        lens_found(precision="float64", batchsize=batchsize, epochs=4, how={"mesh": mesh})
        for mesh in (None, sf.mesh(rows=4))
    )
    assert four.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=1e-9)
    assert four.velocity == pytest.approx(one.velocity, rel=1e-9)
    assert np.ptp(one.velocity) > 20


def test_a_killed_inversion_goes_on_to_the_bit(tmp_path):
    """In its second band, which has other batches, within one of them."""
    options = {"bands": (15.0, None), "epochs": (2, 6), "batchsize": (5, 3)}
    whole = lens_found(**options)

    def die(epoch, *_):
        if epoch == 7:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        lens_found(Display(die, 1), how={"run_dir": sf.RunDir(tmp_path, seconds=0)}, **options)
    found = lens_found(how={"run_dir": tmp_path, "resume": "must"}, **options)
    assert np.array_equal(found.velocity, whole.velocity)
    assert found.metrics["loss"].tolist() == whole.metrics["loss"].tolist()


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="'lbfgs' does not support conditioning. Use 'plbfgs'"):
        InversionOptions(solver="lbfgs", batchsize=None, conditioning=Conditioning(rows=2))
    with pytest.raises(ValueError, match="conditioning.clip"):
        InversionOptions(solver="plbfgs", batchsize=None, conditioning=Conditioning(clip=98.0))
    assert PreconditionedLBFGS.bounded
    sim, start, _, wavelet, shots, data = survey()
    high = np.full(sim.shape, 2300.0)
    high[:4] = 1900.0
    options = InversionOptions(solver="plbfgs", bounds=(np.full(sim.shape, 1900.0), high), **LENS)
    with pytest.raises(ValueError, match="equal ends"):
        invert(sim, np.where(high == 1900.0, 1900.0, start), Recording(shots, wavelet, data), options)
