"""Options in groups or one by one, and what imaging_problem refuses, with the remedy it names."""

from dataclasses import replace

import numpy as np
import pytest

import shardfit as sf
from shardfit.check.identity import identity
from shardfit.core.transforms import Log
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.images import blank, check_frequency
from shardfit.domains.vlbi.observation import Stations, make_observation
from shardfit.domains.vlbi.options import Computation, Polarisation, Regularisation, Spectrum, options_of
from shardfit.domains.vlbi.problem import image_maps, imaging_problem
from shardfit.domains.vlbi.tables import data_set
from shardfit.domains.vlbi.transforms import Power
from shardfit.solve.registry import as_solver
from tests.domains.vlbi.small import GRID, small_data, small_maps


def problem(data=None, grid=GRID, prior=None, **changes):
    given = {"data_weights": {"vis": 1.0}, "reg_weights": {"tv": 1.0}, "flux": 1.0, "beam": 2.0}
    prior = np.ones(grid.shape) if prior is None else prior
    return imaging_problem(small_data() if data is None else data, grid, prior, **{**given, **changes})


def test_groups_and_single_fields_say_the_same():
    grouped = options_of({"regularisation": Regularisation(epsilon_tv=1e-3), "computation": Computation(chunk=7)})
    assert grouped == options_of({"epsilon_tv": 1e-3, "chunk": 7})
    assert options_of({"mode": "IQU"}).polarisation == Polarisation("IP", "ball")
    assert options_of({}).polarisation == Polarisation("I", None)


def test_simple_call_needs_no_options():
    found = problem()
    assert image_maps(found)["I"].dtype == np.float64  # whatever the caller's own setting is
    np.testing.assert_allclose(image_maps(found)["I"], 1 / GRID.n_pixels)


def test_regularisers_of_the_logarithm_keep_it():
    assert isinstance(problem().transforms["I"], Power)
    assert isinstance(problem(reg_weights={"tvlog": 1.0}).transforms["I"], Log)
    with pytest.raises(ValueError, match="tvlog measures ln I"):
        problem(reg_weights={"tvlog": 1.0}, transform="power")


def test_plan_says_which_operator_and_why():
    found = sf.plan(problem())
    assert found.notes == {"data": "separable: 410 times cheaper than NUFFT for 33 visibilities on 6 x 4 pixels"}
    assert "term 'data'        separable: 410 times" in str(found)


COARSE = Grid(6, 4, 2.0)
NAN = {**small_maps(), "phi": np.full(GRID.n_pixels, np.nan)}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"grid": COARSE}, r"longest baseline, 0\.2\d+ wavelengths along u or v: at most .*coarse_pixels=True"),
        ({"flux": np.nan}, "flux=nan must be a positive number"),
        ({"beam": -1.0}, "beam=-1.0 must be a positive number"),
        ({"data_weights": {"vis": np.nan}}, r"data_weights\['vis'\]=nan must be a finite number, at least 0"),
        ({"data_weights": {"vis": -1.0}}, r"data_weights\['vis'\]=-1.0 must be a finite number, at least 0"),
        ({"reg_weights": {"tv": np.inf}}, r"reg_weights\['tv'\]=inf must be a finite number"),
        ({"prior": np.full(GRID.shape, np.nan)}, "prior is NaN in 24 pixels"),
        ({"init": np.full(GRID.shape, np.nan)}, "init 'I' holds NaN"),
        ({"init": NAN, "mode": "IP"}, "init 'phi' holds NaN"),
        ({"prior": {"I": np.ones(GRID.shape), "em": 1}}, "prior: unknown map 'em'"),
        ({"data": []}, "data is empty"),
        ({"mf_flux": (1.0, -1.0)}, "mf_flux = \\(1.0, -1.0\\) must be a list of positive numbers in Jy"),
        ({"mf_flux": (1.0,), "reg_weights": {"flux_mf": 1.0}, "data": [small_data()] * 2}, "each of the 2 channels"),
        ({"epsilon_tv": -1.0}, "epsilon_tv = -1.0 must be a number in Jy², zero or positive"),
        ({"major": 0.0}, "major = 0.0 must be a positive number in rad"),
        ({"vflux": np.nan}, "vflux = nan must be a finite number"),
        ({"chunk": 0}, "chunk = 0 must be a whole number, at least 1"),
        ({"blocks": 1.5}, "blocks = 1.5 must be a whole number"),
        ({"operator": "nuft"}, "Did you mean 'nufft'"),
        ({"precision": "float16"}, "precision = 'float16' must be one of float64, float32"),
        ({"fraction": "odd"}, "Did you mean 'odds'"),
        ({"mode": "IP", "transform": "log"}, "needs transform='ball' or 'mcv'"),
        ({"spectral": ("rm",)}, "'rm' needs polarisation"),
        ({"reg_weights": {"tv_alphap": 1.0}}, "'alphap' needs polarisation"),
        ({"spectrum": Spectrum(), "spectral": ("alpha",)}, "spectral belongs to spectrum"),
    ],
)
def test_refusals(changes, text):
    with pytest.raises(ValueError, match=text):
        problem(**changes)


def test_group_of_the_wrong_kind():
    with pytest.raises(TypeError, match=r"spectrum is tuple. Give Spectrum\(\.\.\.\)"):
        problem(spectrum=("alpha",))


def test_coarse_pixels_can_be_meant():
    assert problem(grid=COARSE, coarse_pixels=True).x0["I"].size == 24
    with pytest.raises(ValueError, match="times too large"):
        problem(grid=Grid(6, 4, 4.0), coarse_pixels=True, operator="nufft")


def test_odd_grid_is_refused_by_nufft_only():
    odd = Grid(5, 4, 1.0)
    assert problem(grid=odd).x0["I"].size == 20
    with pytest.raises(ValueError, match="even numbers of pixels, not 4 x 5"):
        problem(grid=odd, operator="nufft")


def test_channels_of_one_image_share_their_reference():
    one = replace(small_data(), ref_hz=220e9)
    other = replace(small_data(), ref_hz=240e9)
    assert (
        problem([one, other]).objective.n_rows["data"] == 72
    )  # one image for both, so 66 sets: the reference means nothing
    for given in ({"spectral": ("alpha",)}, {"prior": {"I": np.ones(24), "beta": np.ones(24)}}):
        with pytest.raises(ValueError, match=r"different frequencies \(220, 240 GHz\).*one ref_hz"):
            problem([one, other], **given)
    lacking = replace(one, products={"amp": one.products["amp"]})
    with pytest.raises(ValueError, match="channel 1 holds amp"):
        problem([one, lacking])


def observed(n=6, freq_hz=230e9, **products):
    """Two stations, or one baseline of Stokes I: no closures, no polarisation."""
    vis = {"I": np.ones(n) + 0j, **{k: v[0] for k, v in products.items()}}
    sigma = {"I": np.full(n, 0.1), **{k: v[1] for k, v in products.items()}}
    rows = {"time": np.arange(n), "tint": np.ones(n), "ant1": np.zeros(n), "ant2": np.ones(n)}
    rows |= {"u": np.full(n, 1e9), "v": np.zeros(n)}
    stations = Stations(("AA", "LM"), np.zeros((2, 3)), np.ones(2))
    return make_observation(
        **rows, vis=vis, sigma=sigma, stations=stations, freq_hz=freq_hz, bandwidth_hz=1e9, mjd=57854
    )


@pytest.mark.parametrize(
    ("product", "settings", "text"),
    [
        ("vis", {"snrcut": 100.0}, "none of 6 measurements of 'vis' is left. Lower the signal-to-noise cut"),
        ("amp", {"systematic": {"LM": -1.0}}, "none of 6 measurements of 'amp' is left"),
        ("cphase", {}, "no 'cphase' can be formed"),
        ("logcamp", {}, "no 'logcamp' can be formed"),
        ("pvis", {}, "'pvis' needs Stokes Q, which these data do not carry"),
        ("vvis", {}, "'vvis' needs Stokes V"),
        ("vis", {"ref_hz": -1.0}, "ref_hz=-1.0 must be a positive frequency"),
        ("cphas", {}, "Did you mean 'cphase'"),
    ],
)
def test_data_that_hold_nothing(product, settings, text):
    with pytest.raises(ValueError, match=text):
        data_set(observed(), (product,), **settings)


def test_flagged_polarisation_is_absent():
    gone = {k: (np.zeros(6), np.full(6, np.inf)) for k in "QU"}
    with pytest.raises(ValueError, match="needs Stokes Q"):
        data_set(observed(**gone), ("pvis",))


def test_image_and_data_of_different_bands():
    image = blank(8, 100 * UAS, freq_hz=230e9)
    check_frequency(image, observed(freq_hz=230.5e9))
    with pytest.raises(ValueError, match=r"image is of 230 GHz, the data of 227\.1 GHz.*ref_hz=image\.freq_hz"):
        check_frequency(image, observed(freq_hz=227.1e9))


@pytest.mark.parametrize("changes", [{"reg_weights": {"tv2": 1.0}}, {"norm_reg": False}])
def test_another_regulariser_is_another_run(changes):
    """Weight, start and data are equal: only what is computed tells the two apart."""
    one, other = (identity(made, as_solver(None), 0).facts for made in (problem(), problem(**changes)))
    assert {name for name in one if one[name] != other.get(name)} <= {"model of term 'reg'", "weight of term 'reg'"}
    assert one["model of term 'reg'"] != other["model of term 'reg'"]
