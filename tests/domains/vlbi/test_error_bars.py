"""Error bars of images against a dense Hessian, and against truths drawn from the prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.images import blank
from shardfit.domains.vlbi.problem import imaging_problem
from shardfit.domains.vlbi.recipes import error_map, image, simulated_ring
from shardfit.domains.vlbi.simulation import EHT2017, Night, simulate
from shardfit.domains.vlbi.tables import data_set
from shardfit.stats.laplace import laplace

NPIX, FIELD = 12, 120 * UAS


def envelope():
    x = (np.arange(NPIX) - (NPIX - 1) / 2) * FIELD / NPIX / UAS
    return np.exp(-0.5 * (x[:, None] ** 2 + x**2) / 30**2)


def covariance():
    """Log brightness varies by a factor of 1.6, over 25 µas."""
    x = np.arange(NPIX) * FIELD / NPIX / UAS
    y, x = (a.ravel() for a in np.meshgrid(x, x))
    square = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    return 0.25 * np.exp(-0.5 * square / 25**2) + 1e-4 * np.eye(NPIX**2)


def gaussian(params, mean, precision):
    delta = jnp.log(params["I"]) - mean
    return 0.5 * delta @ precision @ delta


@pytest.mark.slow
def test_coverage_of_truths_drawn_from_the_prior():
    rng = np.random.default_rng(3)
    mean = envelope() * 0.6 / envelope().sum()
    factor, precision = np.linalg.cholesky(covariance()), np.linalg.inv(covariance())
    empty = blank(NPIX, FIELD, ra_hours=12.5137, dec_deg=12.39, freq_hz=230e9, mjd=57854, source="TEST")
    pulls = []
    for seed in range(6):
        values = np.exp(np.log(mean).ravel() + factor @ rng.standard_normal(NPIX**2)).reshape(NPIX, NPIX)
        truth = empty.replace(values={"I": values})
        obs = simulate(truth, EHT2017, Night(cadence_s=3600), seed=seed)
        data = data_set(obs, ("vis",))
        grid = Grid(NPIX, NPIX, FIELD / NPIX, truth.pulse)
        whole = imaging_problem(
            data,
            grid,
            mean,
            data_weights={"vis": len(obs)},
            reg_weights={"flux": 1},
            flux=mean.sum(),
            beam=20 * UAS,
            transform="log",
        )
        terms = {
            "data": dict(whole.objective.items())["data"],
            "prior": sf.penalty(gaussian, np.log(mean).ravel(), precision),
        }
        problem = whole.replace(objective=sf.Objective(terms))
        found = sf.fit(problem, "lbfgs", ftol=0, gtol=1e-7, maxiter=3000, progress=False, certify=False)
        sd = laplace(problem, found.params, rank=NPIX**2, probes=4).sd_log["I"]
        pulls.append((np.log(found.params["I"]) - np.log(values.ravel())) / sd)
    # 6 truths of some twenty independent patches each: the share has an error of about 0.045
    assert 0.55 < np.mean(np.abs(pulls) < 1) < 0.82
    assert 0.8 < np.std(pulls) < 1.25


@pytest.mark.slow
def test_error_map_of_an_image_equals_the_dense_hessian():
    obs, _ = simulated_ring(16)
    smooth = {"simple": 100.0, "tv2": 1.0, "flux": 1e4}
    found = image(obs, preset="eht", npix=16, flux=0.6, restarts=0, data={"vis": 1.0}, regularisers=smooth)
    mapped = error_map(found, rank=100, probes=200)
    # vis alone: the objective's χ² of 1 stands for half of twice as many real numbers as there are visibilities
    assert mapped.scale == len(found.data)
    problem, values = found.problem, mapped.image.values["I"].ravel()
    with arithmetic("float64"):
        hessian = jax.jit(jax.hessian(lambda z: problem.objective.value({"I": jnp.exp(z)})))(np.log(values))
        exact = values * np.sqrt(np.diag(np.linalg.inv(mapped.scale * np.asarray(hessian))))
    ratio = mapped.sd.values["I"].ravel() / exact
    assert np.median(np.abs(ratio - 1)) < 0.03
    assert np.abs(ratio - 1).max() < 0.25
