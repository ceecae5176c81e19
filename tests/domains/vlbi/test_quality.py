"""A bad fit is told: in the result, and by the schedule, which keeps the best of its restarts."""

import dataclasses

import numpy as np
import pytest

from shardfit import Status, series
from shardfit.domains.vlbi import recipes
from shardfit.domains.vlbi.recipes.quality import chi2_doubts, flux_doubts, step_doubts

SHORT = {"preset": "eht", "npix": 16, "maxiter": 4, "restarts": 2, "flux": 0.6}


@pytest.fixture(scope="module")
def obs():
    return recipes.observe(recipes.known_image("ring", 32), stop_h=6.0, cadence_s=1200.0)


@pytest.fixture(scope="module")
def short(obs):
    return recipes.image(obs, **SHORT)


def test_a_bad_fit_is_doubtful(short):
    told = " ".join(short.doubts)
    assert "χ² of amp" in told
    assert "does not explain" in told
    assert "limit of 4 steps" in told
    assert all(doubt in short.result.message for doubt in short.doubts)
    assert not short.result.success


@pytest.mark.parametrize(
    ("chi2", "words"),
    [({"vis": 1.3}, ""), ({"vis": 1.6}, "does not explain"), ({"vis": 0.2}, "too large"), ({"vis": np.nan}, "nan")],
)
def test_chi2_far_from_one(chi2, words):
    found = " ".join(chi2_doubts(chi2))
    assert (words in found) if words else not found
    assert bool(chi2_doubts(chi2, tolerance=0.1)) == (words in ("does not explain", "nan"))


@pytest.mark.parametrize(
    ("product", "what", "words"),
    [
        ("amp", "image", "Calibrate"),
        ("cphase", "image", "vlbi weights"),
        ("logcamp", "image", "calibration will not help"),
        ("cphase", "shape", "another shape"),
    ],
)
def test_the_remedy_is_one_for_this_product(product, what, words):
    (told,) = chi2_doubts({product: 9.0}, what=what)
    assert words in told
    assert f"the {what} does not explain" in told
    assert "maxiter" not in told  # steps that ran out are told by themselves


def test_few_measurements_scatter(obs):
    few = recipes.measurements(obs.select(obs.time < obs.time.min() + 0.4), recipes.ImagingOptions())
    n = few.products["logcamp"].n
    assert n < 30
    assert not chi2_doubts({"logcamp": 1.6}, few)
    assert chi2_doubts({"logcamp": 1 + 6 * np.sqrt(2 / n)}, few)


def test_flux_and_steps(short):
    assert not flux_doubts(0.62, 0.6)
    assert "0.4 Jy where 0.6 Jy" in flux_doubts(0.4, 0.6)[0]
    assert not step_doubts(dataclasses.replace(short.result, status=Status.CONVERGED_VALUE))
    assert step_doubts(dataclasses.replace(short.result, status=Status.STALLED))


def test_the_best_restart_is_kept(obs, short, monkeypatch):
    plain, values = series.fit, iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(series, "fit", lambda *a, **k: dataclasses.replace(plain(*a, **k), value=next(values)))
    found = recipes.image(obs, **SHORT)
    assert found.kept == 1
    assert found.result.value == 1.0
    np.testing.assert_array_equal(found.image.values["I"], found.fits[1].image.values["I"])
    assert "of all 3 fits" in found.result.message
    assert found.result.steps == sum(one.steps for one in found.fits)


def test_polarisation_rests_on_stokes_i():
    total = recipes.known_image("ring", 16)
    truth = total.replace(values={"I": total.values["I"], "Q": 0.2 * total.values["I"], "U": 0.1 * total.values["I"]})
    obs = recipes.observe(truth, stop_h=6.0, cadence_s=1800.0)
    wrong = recipes.known_image("double", 16)
    found = recipes.polarimetric_image(obs, wrong, mode="P", maxiter=4, restarts=1)
    assert any("Stokes I explains" in doubt for doubt in found.doubts)
    assert found.result.steps == 8
    assert any("limit of 4 steps" in doubt for doubt in found.doubts)
    right = recipes.polarimetric_image(obs, total, mode="P", maxiter=20, restarts=0)
    assert not any("Stokes I explains" in doubt for doubt in right.doubts)
