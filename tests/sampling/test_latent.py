"""Fields of unit Gaussians: modes, evidence and draws in data space against dense linear algebra."""

import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.sampling.refits.hyper_search import search
from shardfit.sampling.refits.latent import SLOW, LatentModel, Mode, draw_refits, modes

N, P, M, K = 30, 8, 6, 9  # unit Gaussians, the field they make, what is seen of it, residuals


def linear_field(y, h, args):
    return jnp.exp(0.5 * h[0]) * (args["mixed"] @ y)


def bent_field(y, h, args):
    return jnp.exp(0.3 * (args["mixed"] @ y))


def residual(signal, args):
    return args["basis"] @ signal - args["data"]


def example(field=linear_field) -> LatentModel:
    rng = np.random.default_rng(3)
    shapes = {"mixed": (P, N), "visible": (M, P), "basis": (K, M), "data": (K,)}
    args = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return LatentModel(args["visible"], args, field, residual, N, 1)


def dense(model: LatentModel, h: float):
    """Jacobian (K, N) of the linear model, posterior mean and covariance."""
    slope = np.exp(0.5 * h) * model.args["basis"] @ model.visible @ model.args["mixed"]
    covariance = np.linalg.inv(np.eye(N) + slope.T @ slope)
    return slope, covariance @ slope.T @ model.args["data"], covariance


@arithmetic("float64")
def test_mode_and_evidence_of_a_linear_model():
    model, h = example(), np.array([[0.0], [0.7], [-1.2]])
    found = modes(model, h, np.zeros((3, N)), np.zeros((3, K)), np.zeros((3, N)))
    for i, one in enumerate(h[:, 0]):
        slope, mean, _ = dense(model, one)
        np.testing.assert_allclose(found.y[i], mean, atol=1e-10)
        covariance = np.eye(K) + slope @ slope.T
        expected = -0.5 * model.args["data"] @ np.linalg.solve(covariance, model.args["data"])
        assert found.log_evidence[i] == pytest.approx(expected - 0.5 * np.linalg.slogdet(covariance)[1], abs=1e-9)


@arithmetic("float64")
def test_draws_of_a_linear_model_have_its_moments():
    model = example()
    _, mean, covariance = dense(model, 0.0)
    found = draw_refits(model, np.zeros((600, 1)), np.zeros((600, N)), seed=5)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((found.y.mean(0) - mean) / sd).max() < 4 / np.sqrt(600) * 1.1
    np.testing.assert_allclose(found.y.std(0), sd, rtol=0.15)


@arithmetic("float64")
def test_modes_of_a_bent_model_are_stationary_from_any_start_and_in_any_company():
    model, rng = example(bent_field), np.random.default_rng(0)
    starts = rng.normal(size=(11, N))
    found = modes(model, np.zeros((11, 1)), starts, np.zeros((11, K)), np.zeros((11, N)))
    assert found.reached.all()
    best = found.y[np.argmin(found.value)]

    def energy(y):
        r = np.asarray(residual(model.visible @ bent_field(y, np.zeros(1), model.args), model.args))
        return 0.5 * r @ r + 0.5 * y @ y

    slope = [(energy(best + 1e-5 * e) - energy(best - 1e-5 * e)) / 2e-5 for e in np.eye(N)]
    assert np.linalg.norm(slope) < np.sqrt(2 * SLOW)  # standard deviations
    hopeless = modes(model, np.zeros((2, 1)), starts[:2], np.zeros((2, K)), np.zeros((2, N)), least=1e3)
    assert not hopeless.reached.any() and np.isneginf(hopeless.log_evidence).all()
    alone = modes(model, np.zeros((1, 1)), starts[4:5], np.zeros((1, K)), np.zeros((1, N)))
    np.testing.assert_array_equal(alone.y[0], found.y[4])


def test_hyper_parameters_are_weighed_as_their_posterior_says():
    """A Gaussian evidence in two hyper-parameters has a posterior that is known."""
    centre, sd = np.array([1.0, -0.5]), np.array([0.4, 0.8])

    def solve(h, y0):
        log_z = -0.5 * np.sum(((h - centre) / sd) ** 2, 1)
        flat = np.zeros(len(h))
        return Mode(y0, -log_z, flat, flat, np.ones(len(h), bool))

    points = search(solve, np.zeros(3), 2, seed=1)
    variance = 1 / (1 + 1 / sd**2)
    mean = points.share @ points.h
    np.testing.assert_allclose(mean, variance * centre / sd**2, atol=0.1)
    np.testing.assert_allclose(points.share @ (points.h - mean) ** 2, variance, rtol=0.3)
    assert points.effective > 20
    counts = np.bincount(points.pick(1000, seed=0), minlength=len(points.h))
    np.testing.assert_allclose(counts / 1000, points.share, atol=1e-3)
    with pytest.raises(ValueError, match="no hyper-parameters were found"):
        search(lambda h, y0: solve(h, y0)._replace(reached=np.zeros(len(h), bool)), np.zeros(3), 2, seed=1)
