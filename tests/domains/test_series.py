"""Every kind of series in the recipes: interrupted in one of its fits and called again, it ends as if unbroken."""

import dataclasses

import numpy as np
import pytest

from shardfit import RunDir, RunOptions, Status
from shardfit.domains.seismic import Recording
from shardfit.domains.seismic.recipes import InversionOptions, invert
from shardfit.domains.vlbi import fit_shape, recipes
from shardfit.domains.xpcs import FitOptions, fit_correlation, static
from tests.domains.seismic.lens import survey
from tests.domains.xpcs.cases import small
from tests.interrupting import interrupt

IMAGE = {"npix": 16, "maxiter": 6, "restarts": 1}


def sky(freq_hz=230e9):
    total = recipes.known_image("ring", 16)
    linear = {"Q": 0.2 * total.values["I"], "U": 0.1 * total.values["I"]}
    return recipes.observe(total.replace(values={"I": total.values["I"], **linear}, freq_hz=freq_hz), stop_h=4.0)


def correlation(run):
    found = fit_correlation(small(), static(), run=run, starts=2)
    return found.answer(), [found.covariance, list(found.params.values()), found.laws.bic if found.laws else 0]


def bounded(run):
    data = small(static(), {"D0": 3e5, "alpha": -0.3, "D_offset": 0.0}, dt=0.004)
    found = fit_correlation(data, static(), FitOptions(law="full"), run)
    return found.answer(), [found.covariance, list(found.params.values())]


def rounds(run):
    calibrated = (recipes.Round(restarts=1, calibrate=(recipes.SelfCal(),)), recipes.Round(restarts=0))
    found = recipes.image(sky(), **IMAGE, rounds=calibrated, run=run)
    return found.result, [found.image.values["I"], [fit.steps for fit in found.fits]]


def weaker(run):
    found = recipes.image(sky(), npix=16, maxiter=3, restarts=0, run=run)
    return found.result, [found.image.values["I"], [fit.steps for fit in found.fits]]


def polarised(run):
    found = recipes.polarimetric_image(sky(), recipes.known_image("ring", 16), maxiter=6, run=run)
    return found.result, [found.image.values[name] for name in "IQU"]


def spectral(run):
    found = recipes.spectral_image([sky(), sky(345e9)], **IMAGE, fluxes=(0.6, 0.5), run=run)
    return found.result, [found.image.values["I"], found.alpha]


def frames(run):
    found = recipes.movie(sky(), frames=3, **IMAGE, run=run)
    return found.result, [one.values["I"] for one in found.movie.frames]


def bands(run):
    sim, start, truth, wavelet, shots, data = survey()
    options = InversionOptions(learning_rate=10.0, epochs=3, batchsize=5, bands=(15.0, None))
    found = invert(sim, start, Recording(shots, wavelet, data), options, run, truth=truth)
    return found.result, [found.velocity, found.metrics["loss"], found.metrics["model_error"]]


LONG = [(bounded, 2), (rounds, 3), (weaker, 2), (polarised, 2), (spectral, 2), (frames, 4), (bands, 1), (bands, 2)]
KINDS = [  # and which of its fits to interrupt
    (correlation, 2),
    (correlation, 3),
    (rounds, 2),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in LONG),
]


@pytest.mark.parametrize(("kind", "number"), KINDS)
def test_interrupted_and_resumed_is_as_unbroken(kind, number, tmp_path, monkeypatch):
    run = RunOptions(run_dir=RunDir(tmp_path, seconds=0.0), progress=False)
    with monkeypatch.context() as patched:
        interrupt(patched, number)
        assert kind(run)[0].status is Status.INTERRUPTED
    result, arrays = kind(dataclasses.replace(run, resume="must"))
    whole, expected = kind(RunOptions(progress=False))
    for one, other in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (result.value, result.steps, result.status) == (whole.value, whole.steps, whole.status)


def test_shapes_end_with_the_interrupted_start(monkeypatch):
    interrupt(monkeypatch, 2)
    found = fit_shape(recipes.prepare(sky()), "gaussian")
    assert found.result.status is Status.INTERRUPTED
    assert "of all 2 fits" in found.result.message
    assert any("did not converge" in doubt for doubt in found.doubts)
