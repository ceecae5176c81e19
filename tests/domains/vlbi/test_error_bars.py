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
from shardfit.domains.vlbi.recipes import (
    errors_under_regularisers,
    image,
    known_image,
    observe,
    top_set_errors,
)
from shardfit.domains.vlbi.recipes.quality import Unexplained
from shardfit.domains.vlbi.recipes.surveys import imaging_survey
from shardfit.domains.vlbi.simulation import EHT2017, Night, simulate
from shardfit.domains.vlbi.tables import data_set
from shardfit.stats.laplace import laplace
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.ranking import below
from shardfit.surveys.run import survey

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
@pytest.mark.parametrize("name", ["ring", "double"])
def test_errors_of_an_image_equal_the_dense_hessian(name):
    smooth = {"simple": 3.0, "tv2": 0.03, "flux": 1e4}
    found = image(calibrated(name), **SMALL, regularisers=smooth)
    mapped = errors_under_regularisers(found)
    assert 0.8 < mapped.chi2["vis"] < 1.3
    # vis alone: the objective's χ² of 1 stands for half of twice as many real numbers as there are visibilities
    assert mapped.scale == len(found.data)
    problem, values = found.problem, mapped.image.values["I"].ravel()
    with arithmetic("float64"):
        hessian = jax.jit(jax.hessian(lambda z: problem.objective.value({"I": jnp.exp(z)})))(np.log(values))
        exact = values * np.sqrt(np.diag(np.linalg.inv(mapped.scale * np.asarray(hessian))))
    np.testing.assert_allclose(mapped.sd.values["I"].ravel(), exact, rtol=1e-6)
    around = laplace(
        problem.replace(transforms={"I": sf.Log()}), mapped.laplace._params, scale=mapped.scale, rank=100, probes=200
    )
    ratio = around.sd["I"] / exact
    assert np.median(np.abs(ratio - 1)) < 0.03
    assert np.abs(ratio - 1).max() < 0.25


SMALL = {"npix": 16, "fov_uas": 128.0, "flux": 0.6, "data": {"vis": 1.0}, "restarts": 0}


def calibrated(name: str, seed: int = 0):
    """Data without gain errors, with noise of 3 % on top of the thermal one, both in the data and in their errors."""
    obs = observe(known_image(name, 64), gains=0.0, random_phase=False, seed=seed, noise=False, cadence_s=2400.0)
    sigma = np.hypot(obs.sigma["I"], 0.03 * np.abs(obs.vis["I"]))
    noise = np.random.default_rng(seed).normal(size=(2, len(sigma)))
    return obs.replace(vis={"I": obs.vis["I"] + sigma * (noise[0] + 1j * noise[1])}, sigma={"I": sigma})


@pytest.mark.slow
def test_data_that_are_not_explained_give_no_error_bars():
    strong = {"simple": 1e5, "flux": 1e4}
    found = image(calibrated("double"), **SMALL, regularisers=strong, maxiter=30)
    with pytest.raises(Unexplained, match=r"far above 1 at the minimum \(vis .*preset m87"):
        errors_under_regularisers(found, rank=5, probes=2, maxiter=100)


@pytest.mark.parametrize("name", [pytest.param("ring", marks=pytest.mark.slow), "double"])
def test_top_set_and_its_regularisers_cover_the_truth(tmp_path, name):
    axes = {"prior_fwhm_uas": (40.0, 60.0), "simple": (0.1, 1.0), "tv2": (0.1, 1.0)}
    options = {**{k: v for k, v in SMALL.items() if k != "restarts"}, "regularisers": {"flux": 1e4}}
    made = imaging_survey(calibrated(name), axes, **options)
    found = survey(made.problem, made.axes, run_dir=tmp_path, control=SurveyControl(8, progress=False), **made.options)
    chosen = below(found, {"data.vis": 1.5})
    assert len(chosen) > 1
    images = [made.image(one) for one in found.pictures(chosen)]
    one = min(chosen, key=lambda i: abs(found.column("data.vis")[i] - 1))
    under = made.errors({axis: found.column(axis)[one] for axis in axes}, found.params(one))
    assert under.chi2["vis"] < 1.5
    for fwhm in (12 * UAS, 20 * UAS):  # pixels of 8 µas are triangles, and no samples of the sky
        errors = top_set_errors(images, under, fwhm_rad=fwhm)
        truth = known_image(name, 64).blur(fwhm).values["I"].reshape(16, 4, 16, 4).sum((1, 3))
        z = ((errors.mean.values["I"] - truth) / errors.sd.values["I"])[truth > 0.1 * truth.max()]
        assert np.mean(np.abs(z) < 1) >= 0.68
        assert np.all(errors.sd.values["I"] >= errors.spread.values["I"])
    with pytest.raises(ValueError, match="has no spread"):
        top_set_errors(images[:1], under)
