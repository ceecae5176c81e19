"""Errors by frames: they cover the truth where points share speckle, and equal those by points where they do not."""

from dataclasses import replace

import numpy as np
import pytest

from shardfit import RunOptions
from shardfit.domains.xpcs import FitOptions, Geometry, fit_correlation, laminar_flow, multi_tau, setup, static
from shardfit.domains.xpcs.recipes.bands import rates_with_bands
from tests.domains.xpcs.cases import STATIC, small

QUIET = RunOptions(progress=False)
START = {"start": {"D0": 15000.0, "alpha": -0.3}, "fixed": {"D_offset": 800.0}}


def fitted(seed=0, errors="frames", **settings):
    data = small(seed=seed, **{"phi": np.linspace(-60, 60, 5), "n_frames": 60, "dt": 0.8, **settings})
    data = data if data.sigma is not None else replace(data, sigma=0.01)
    return fit_correlation(data, static(), FitOptions(errors=errors, **START), QUIET)


@pytest.mark.slow
def test_speckle_makes_errors_larger_and_the_answer_says_so():
    frames, points = (fitted(errors=e, sigma=None, speckles=300) for e in ("frames", "points"))
    assert frames.params == points.params and frames.pieces > 1 and points.pieces is None
    assert frames.stderr["D0"] > 4 * points.stderr["D0"] and frames.stderr["D_offset"] == 0.0
    assert "scatter of frames" in str(frames) and "independent" in str(points)
    assert np.all(np.linalg.eigvalsh(frames.covariance) > -1e-9 * np.max(np.diag(frames.covariance)))
    assert np.all(frames.rates["J"][:, 1] > 3 * points.rates["J"][:, 1])


def test_bins_have_no_frames():
    with pytest.raises(ValueError, match="needs whole two-time maps"):
        setup(multi_tau(small()), static(), FitOptions(errors="frames"))
    with pytest.raises(ValueError, match="must be one of auto, points, frames"):
        FitOptions(errors="frame")


@pytest.mark.slow
def test_errors_of_independent_points_are_the_same_by_frames():
    ratio = [fitted(seed).stderr["D0"] / fitted(seed, "points").stderr["D0"] for seed in range(8)]
    assert 0.7 < np.mean(ratio) < 1.5


@pytest.mark.slow
def test_intervals_by_frames_cover_the_truth_of_speckle():
    inside, by_points = [], []
    for seed in range(100):
        data = fitted(seed, sigma=None, speckles=400)
        far = {name: abs(data.params[name] - STATIC[name]) for name in ("D0", "alpha")}
        inside.append([far[name] < data.stderr[name] for name in far])
        if seed < 20:
            narrow = fitted(seed, "points", sigma=None, speckles=400)
            by_points.append([far[name] < narrow.stderr[name] for name in far])
    covered = np.mean(inside, axis=0)
    assert np.all(
        (covered > 0.6) & (covered < 0.85)
    )  # 0.68 in the limit of many pieces; rather too wide than too narrow
    assert np.all(np.mean(by_points, axis=0) < 0.3)  # errors by points do not hold


def test_bands_of_rates_are_not_zero_where_nothing_is_known():
    model = laminar_flow()
    values = np.array([8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0])
    geometry = Geometry(0.1 * np.arange(6), np.zeros(1), 0.0054, 2e6, 0.1)
    known = np.diag([100.0, 0.01, 10.0, *[0.0] * 3, 0.1])

    def bands(spread, held=(), values=values):
        rates = rates_with_bands(model, geometry, values, spread, np.isin(model.names, held))
        return [np.asarray(rates[name][:, 1]) for name in "JS"]

    diffusion, shear = bands(known)  # at bounds: nothing moves it
    assert np.all(diffusion > 0) and np.all(np.isnan(shear))
    assert np.all(bands(known, ("gamma_dot_t0", "beta", "gamma_dot_t_offset"))[1] == 0)  # held: known
    assert np.all(np.isnan(bands(known + np.diag([0, 0, 0, np.inf, 0, 0, 0]))[1]))  # not determined
    floored = np.array([*values[:3], 1e-6, 0.0, -1e-3, 0.0])
    assert np.all(np.isnan(bands(known + np.diag([0, 0, 0, 1e-9, 0.1, 1e-9, 0]), values=floored)[1]))
