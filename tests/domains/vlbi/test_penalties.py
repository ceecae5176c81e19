"""Regularisers: stored values and gradients, edges, flat maps, finite differences."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.vlbi import penalties, penalties_pol, penalties_spectral
from shardfit.domains.vlbi.grid import Grid, mask_index
from shardfit.domains.vlbi.penalties import Scales
from tests.domains.vlbi.golden import arrays, fast_compile_jit, numbers, relative, uas

NAMES = tuple(penalties.PENALTIES)
GEOMETRY = {"flux": 0.6, "beam": 3.0, "vflux": 0.1, "major": 4.0, "minor": 3.0, "pa": 0.4}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def scales(grid, prior, index=None, **changes):
    values = np.asarray(prior).ravel() if index is None else np.asarray(prior).ravel()[index]
    fields = {**GEOMETRY, "epsilon_tv": 0.0, "alpha_a": 1.0, "prior": values, "index": index, "grid": grid}
    return Scales(**{**fields, **changes})


def alone(name, image, s):
    return penalties.evaluate((name,), image, s)[name]


@partial(fast_compile_jit, static_argnums=0)
def stokes_i(names, image, s):
    """Values and gradients of several regularisers: one compilation serves many tests."""
    return {name: jax.value_and_grad(partial(alone, name))(image, s) for name in names}


@fast_compile_jit
def polarised(rows, s):
    def value(name, rows):
        intensity, rho, phi, psi = rows
        maps = {"I": intensity, "m": rho * jnp.cos(psi), "phi": phi, "v": rho * jnp.sin(psi)}
        return penalties_pol.evaluate(name, maps, s)

    return {name: jax.value_and_grad(partial(value, name))(rows) for name in penalties_pol.PENALTIES}


def gaussian_prior(grid, flux, fwhm):
    def blob(x0):
        values = np.exp(-4 * np.log(2) * ((grid.x - x0) ** 2 + (grid.y[:, None] - x0) ** 2) / fwhm**2)
        return values / values.sum()

    return flux * blob(0.0) + 1e-3 * flux * blob(fwhm)


def golden_scales(case, grid, prior, index=None, **changes):
    stored = numbers(case)["reg_params"]
    given = {"flux": stored["flux"], "beam": stored["beam_size"] / grid.pixel_rad, "pa": stored.get("PA", 0.0)}
    given |= {k: stored[k] / grid.pixel_rad for k in ("major", "minor") if k in stored}
    given |= {"vflux": stored.get("vflux", 0.6)}
    return scales(grid, prior, index, **{**given, **changes})


@pytest.mark.parametrize("kind", ["norm", "raw", "norm_eps1e-6", "norm_alpha3"])
def test_golden_stokes_i(kind):
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    grid = Grid(32, 32, j["psize_rad"])
    options = {"raw": {"norm": False}, "norm_eps1e-6": {"epsilon_tv": 1e-6}, "norm_alpha3": {"alpha_a": 3.0}}
    s = golden_scales("real_101_lo", grid, z["prior"], **options.get(kind, {}))
    checked = [name for name in NAMES if f"{name}/{kind}" in j["reg"]]
    assert kind.startswith("norm_") or checked == list(NAMES)
    found = stokes_i(NAMES, z["image"].ravel(), s)
    for name in checked:
        (value, gradient), stored = found[name], j["reg"][f"{name}/{kind}"]
        atol = 1e-30 if name == "flux" else 0.0  # the image has the target flux
        np.testing.assert_allclose(value, stored["val"], rtol=1e-12, atol=atol, err_msg=name)
        if kind == "norm" and name != "flux":
            assert relative(gradient, z[f"reggrad_{name}"]) < 1e-12, name
        elif "gnorm" in stored:
            np.testing.assert_allclose(np.linalg.norm(gradient), stored["gnorm"], rtol=1e-12, atol=1e-12, err_msg=name)


def test_golden_image_that_is_not_square():
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    grid = Grid(24, 20, uas(5.0))
    s = golden_scales("real_101_lo", grid, gaussian_prior(grid, 0.6, uas(45.0)))
    found = fast_compile_jit(lambda image, s: penalties.evaluate(NAMES, image, s))(z["ns_image"].ravel(), s)
    for name, stored in j["ns"]["reg"].items():
        np.testing.assert_allclose(found[name], stored, rtol=1e-12, atol=1e-30, err_msg=name)


def test_golden_mask():
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    grid = Grid(32, 32, j["psize_rad"])
    index = mask_index(grid, z["prior"], j["mask_clipfloor"])
    assert np.array_equal(index, np.flatnonzero(z["mask"]))
    names = tuple(name for name in NAMES if f"maskgrad_{name}" in z)
    assert len(names) == 7
    found = stokes_i(names, z["image"].ravel()[index], golden_scales("real_101_lo", grid, z["prior"], index))
    for name, (value, gradient) in found.items():
        np.testing.assert_allclose(value, j["masked"][name], rtol=1e-12, err_msg=name)
        assert relative(gradient, z[f"maskgrad_{name}"]) < 1e-12, name


@pytest.mark.parametrize("kind", ["norm", "raw"])
def test_golden_polarised(kind):
    z, j = arrays("sim"), numbers("sim")
    s = golden_scales("sim", Grid(20, 20, j["psize_rad"]), z["eval_I"], norm=kind == "norm")
    for name, (value, gradient) in polarised(z["phys"], s).items():
        np.testing.assert_allclose(value, j["reg"][f"{name}/{kind}"]["val"], rtol=1e-12, err_msg=name)
        if kind == "norm":
            assert relative(gradient, z[f"reggrad_{name}"]) < 1e-12, name
        np.testing.assert_allclose(np.linalg.norm(gradient), j["reg"][f"{name}/{kind}"]["gnorm"], rtol=1e-12)


SMALL = Grid(5, 4, 1e-10)
MASK = np.array([0, 1, 2, 5, 6, 7, 8, 10, 11, 13, 18], np.int32)
EVERY = (*NAMES, *penalties_pol.PENALTIES, "tv_alpha", "l2_alpha")


@cache
def small_case(masked):
    """Compiled values and gradients of every regulariser as a function of one vector, and a point."""
    index = MASK if masked else None
    n = len(MASK) if masked else SMALL.n_pixels
    rng = np.random.default_rng(3)
    s = scales(SMALL, rng.uniform(0.02, 0.05, SMALL.n_pixels), index)
    other = {"I": rng.uniform(0.01, 0.05, n), "phi": rng.normal(size=n), "v": rng.uniform(0.01, 0.1, n)}

    def value(name, x):
        if name in penalties.PENALTIES:
            return alone(name, x, s)
        if name in penalties_pol.PENALTIES:
            return penalties_pol.evaluate(name, {**other, "m": x, "v": x * other["v"]}, s)
        return penalties_spectral.evaluate(name, {"alpha": x}, {"alpha": other["phi"]}, s)

    both = fast_compile_jit(lambda x: {name: jax.value_and_grad(partial(value, name))(x) for name in EVERY})
    return both, rng.uniform(0.01, 0.05, n)


@pytest.mark.parametrize("masked", [False, True], ids=["full", "mask"])
def test_gradients_are_finite_differences(masked):
    both, x = small_case(masked)
    step = 1e-5 * np.random.default_rng(4).normal(size=x.size)
    above, at, below = both(x + step), both(x), both(x - step)
    for name in EVERY:
        slope = (above[name][0] - below[name][0]) / 2
        np.testing.assert_allclose(slope, at[name][1] @ step, rtol=1e-5, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("level", [0.0, 0.03, 1.0])
def test_flat_maps_have_a_gradient(level):
    both, x = small_case(False)
    undefined = ("tvlog", "tv2log", "rgauss") if level == 0 else ()  # logarithm, centroid of nothing
    for name, (value, gradient) in both(np.full_like(x, level)).items():
        assert name in undefined or (np.isfinite(value) and np.isfinite(gradient).all()), name


def test_only_bottom_and_right_edges_count():
    s = scales(Grid(4, 3, 1.0), np.ones(12), norm=False)
    corner = {place: np.zeros((3, 4)) for place in ((0, 0), (2, 3))}
    for place, image in corner.items():
        image[place] = 1.0
    assert alone("tv2", corner[0, 0].ravel(), s) == 2.0
    assert alone("tv2", corner[2, 3].ravel(), s) == 4.0


def test_spectral_norms():
    grid = Grid(4, 3, 1.0)
    values, zero = np.arange(12.0), {"alpha": np.zeros(12)}
    raw, norm = (scales(grid, np.ones(12), beam=2.0, norm=flag) for flag in (False, True))
    for name, factor in (("l2_alpha", 1 / 12), ("tv_alpha", 2 / 12)):
        found = [penalties_spectral.evaluate(name, {"alpha": values}, zero, s) for s in (raw, norm)]
        np.testing.assert_allclose(found[1], factor * found[0])
