"""Data of other arrays pass through unharmed: the true image explains them before and after preparation."""

import numpy as np
import pytest

from shardfit.domains.vlbi import recipes
from shardfit.domains.vlbi.closures import triangles
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.recipes.rounds import measurements
from shardfit.domains.vlbi.simulation import Night, simulate
from tests.domains.vlbi.arrays import CASES, observed

PRODUCTS = ("vis", "amp", "cphase", "logcamp")


@pytest.fixture(scope="module", params=CASES)
def seen(request):
    return request.param, *observed(request.param)


def test_prepared_data_have_the_chi2_of_the_truth(seen):
    _, obs, truth = seen
    ready = recipes.prepare(obs, truth.flux)
    found = recipes.chi2(ready, truth, PRODUCTS)
    assert found["vis"] == pytest.approx(1.0, abs=5 / np.sqrt(len(obs)))
    assert found == pytest.approx(recipes.chi2(obs, truth, PRODUCTS), rel=0.3)  # other closures: stations are reordered
    assert len(ready) == len(obs)


def test_what_imaging_is_given_by_default(seen):
    _, obs, truth = seen
    options = ImagingOptions()
    ready = recipes.prepare(obs, truth.flux, **options.preparation)
    measured = measurements(ready, options)
    assert measured.products["cphase"].n == len(triangles(ready))
    np.testing.assert_array_equal(measured.products["amp"].sigma, ready.sigma["I"])
    about = {"cp_uv_min": options.cp_uv_min, "systematic": options.tolerance}
    assert recipes.chi2(ready, truth, ("vis",), **about)["vis"] == pytest.approx(1.0, abs=5 / np.sqrt(len(obs)))


def test_only_sites_with_several_stations_have_short_baselines(seen):
    name, obs, _ = seen
    limit = recipes.co_located(obs)
    short = {pair for pair, d in zip(obs.baseline_names, obs.uv_distance, strict=True) if d < limit}
    assert short == ({"AA-AP", "JC-SM"} if name == "eht2022" else set())


def test_extended_flux_is_taken_out_where_a_site_sees_it(seen):
    name, obs, truth = seen
    wide = obs.uv_distance < recipes.co_located(obs)
    both = obs.replace(vis={"I": obs.vis["I"] * np.where(wide, 2.0, 1.0)}, sigma=obs.sigma)
    ready = recipes.prepare(both, truth.flux, zero_baseline="auto")
    found = recipes.chi2(ready, truth, ("amp",))["amp"]
    if name == "eht2022":
        assert recipes.chi2(recipes.prepare(both), truth, ("amp",))["amp"] > 100
    assert found < 1.6  # scaled by a median of noisy amplitudes


def test_flux_is_estimated_from_the_array_s_own_short_baselines(seen):
    _, obs, truth = seen
    assert recipes.compact_flux(obs) == pytest.approx(truth.flux, rel=0.25)


def test_field_and_prior_follow_the_resolution(seen):
    _, obs, truth = seen
    options = ImagingOptions().sized(obs)
    width = obs.nominal_resolution
    start = recipes.rounds.prior_image(obs, truth.flux, options)
    assert start.pixel_rad * start.shape[0] == pytest.approx(8 * width)
    start.grid.check_baselines(obs.u, obs.v)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"zero_baseline": "auto"}, "zero_baseline needs flux"),
        ({"zero_baseline": "short", "flux": 1.0}, "'auto'"),
        ({"zero_baseline": -1.0, "flux": 1.0}, "zero for none"),
        ({"systematic": -0.1}, "must not be negative"),
        ({"average": -5.0}, "must be positive"),
    ],
)
def test_bad_preparation(change, expected):
    obs, _ = observed("eht2022")
    with pytest.raises(ValueError, match=expected):
        recipes.prepare(obs, **change)


def test_chi2_of_polarised_products_and_other_bands(seen):
    _, obs, truth = seen
    planes = {name: share * truth.values["I"] for name, share in zip("IQUV", (1.0, 0.2, -0.1, 0.05), strict=True)}
    polarised = truth.replace(values=planes)
    data = simulate(polarised, obs.stations, Night(stop_h=12, cadence_s=7200), seed=4)
    found = recipes.chi2(data, polarised, ("vis", "pvis", "vvis", "m", "v"))
    for value in found.values():
        assert value == pytest.approx(1.0, abs=5 / np.sqrt(len(data)))
    unpolarised = polarised.replace(values={**planes, "Q": 0 * planes["I"], "U": 0 * planes["I"]})
    assert recipes.chi2(data, unpolarised, ("pvis",))["pvis"] > 2
    with pytest.raises(ValueError, match="'vvis' needs Stokes V"):
        recipes.chi2(data, truth, ("vvis",))
    other = truth.replace(freq_hz=1.5 * truth.freq_hz)
    with pytest.raises(ValueError, match="GHz"):
        recipes.chi2(data, other, ("vis",))
    assert recipes.chi2(data, other, ("vis",), any_frequency=True)
