"""L-BFGS with held cells, bounds and a preconditioner: on quadratics with known answers, then on waves."""

import numpy as np
import pytest
from scipy.optimize import minimize

import shardfit as sf
from shardfit.core.status import Status
from shardfit.domains.seismic import Conditioning, Recording
from shardfit.domains.seismic.recipes import InversionOptions, invert
from shardfit.domains.seismic.recipes.lbfgs import PreconditionedLBFGS, preconditioned
from tests.domains.seismic.lens import survey

SHAPE = (6, 8)


class Quadratic:
    """(x - c)' A (x - c) / 2 with eigenvalues over four decades; counts evaluations and steps."""

    def __init__(self):
        rng = np.random.default_rng(0)
        n = SHAPE[0] * SHAPE[1]
        basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
        self.matrix = basis @ np.diag(np.logspace(-4, 0, n)) @ basis.T
        self.centre, self.evaluations = rng.normal(size=n), 0

    def __call__(self, x):
        self.evaluations += 1
        slope = self.matrix @ (x - self.centre)
        return 0.5 * slope @ (x - self.centre), slope

    def step(self, x):
        pass


def solver(mask=None, weights=None, how=None, **options):
    mask = np.ones(SHAPE) if mask is None else mask
    return preconditioned(how or Conditioning(), mask, np.ones(SHAPE) if weights is None else weights, 5.0, **options)


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
@pytest.mark.parametrize("bounded", [False, True])
def test_quadratic_with_held_cells(bounded, smoothing):
    """The minimum is that of scipy's solver, over the cells that are not held; those do not move at all."""
    quadratic, mask = Quadratic(), np.ones(SHAPE)
    mask[:2] = 0
    held = mask.ravel() == 0
    low = np.where(held, -9.0, -0.3 - 0.01 * np.arange(held.size)) if bounded else np.full(held.size, -np.inf)
    high = np.where(held, 9.0, 0.4) if bounded else np.full(held.size, np.inf)
    start = np.where(held, 0.123, 0.0)
    chosen = solver(mask, how=Conditioning(smoothing=smoothing), maxiter=2000, gtol=1e-8, ftol=0.0)
    found = chosen.minimise(quadratic, start, low, high)
    box = [(0.123, 0.123) if h else (a, b) for h, a, b in zip(held, low, high, strict=True)]
    options = {"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-10}
    expected = minimize(quadratic, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
    assert found.status is Status.CONVERGED_GRADIENT
    assert np.array_equal(found.z[held], start[held])
    assert (found.z >= low).all()
    assert (found.z <= high).all()
    assert quadratic(found.z)[0] == pytest.approx(expected.fun, rel=1e-6)


def test_a_good_preconditioner_pays():
    """With the roots of the inverse curvatures as scales a badly scaled problem takes a few steps."""
    curvatures = np.logspace(-4, 4, SHAPE[0] * SHAPE[1])
    calls = []

    class Scaled(Quadratic):
        def __call__(self, x):
            calls.append(1)
            slope = curvatures * (x - self.centre)
            return 0.5 * slope @ (x - self.centre), slope

    def evaluations(weights):
        calls.clear()
        chosen = solver(weights=weights, maxiter=400, gtol=1e-9, ftol=0.0)
        chosen.minimise(Scaled(), np.zeros(curvatures.size), None, None)
        return len(calls)

    good, none = evaluations(1 / curvatures.reshape(SHAPE)), evaluations(np.ones(SHAPE))
    assert good < 8
    assert none > 5 * good


def test_no_way_down_is_said():
    class Wall(Quadratic):
        def __call__(self, x):
            value, slope = super().__call__(x)
            return value, -slope  # a gradient that lies

    found = solver(maxiter=5).minimise(Wall(), np.zeros(SHAPE[0] * SHAPE[1]), None, None)
    assert found.status is Status.STALLED
    assert "No step" in found.note


def test_water_is_held_exactly_and_the_lens_is_found():
    sim, start, truth, wavelet, shots, data = survey()
    start = start + 0.1  # not a number that rounding leaves alone
    low, high = np.full(sim.shape, 1900.0), np.full(sim.shape, 2300.0)
    high[:, :10] = 2010.0
    how = Conditioning(rows=4, near=3.0, illumination=0.5, smoothing=1.0)
    options = InversionOptions(solver="lbfgsb", batchsize=None, epochs=6, bounds=(low, high), conditioning=how)
    run = sf.RunOptions(progress=False)
    found = invert(sim, start, Recording(shots, wavelet, data), options, run, truth=truth)
    assert np.array_equal(found.velocity[:4], start[:4].astype(np.float32))
    assert found.velocity[:, :10].max() <= 2010.0
    assert found.metrics["loss"][-1] < 0.1 * found.metrics["loss"][0]
    assert found.metrics["model_error"][-1] < 0.8 * found.metrics["model_error"][0]
    assert "preconditioned-lbfgs" in found.results[0].solver
    assert isinstance(found.results[0].value, float)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="'lbfgs' knows no conditioning"):
        InversionOptions(solver="lbfgs", batchsize=None, conditioning=Conditioning(rows=2))
    with pytest.raises(ValueError, match="conditioning.clip"):
        InversionOptions(solver="lbfgsb", batchsize=None, conditioning=Conditioning(clip=98.0))
    assert PreconditionedLBFGS.bounded
