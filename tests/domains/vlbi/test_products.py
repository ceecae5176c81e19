"""Data products: stored χ² and gradients, packing, zero visibilities, finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from shardfit.core.terms import half_square
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.packing import ALIGNED, CLOSURES, _least_members, fill, groups, pack
from shardfit.domains.vlbi.products import RESIDUALS, DataModel, stokes_needed
from shardfit.domains.vlbi.tables import (
    DataSet,
    Product,
    closure_product,
    data_set,
    debias_amplitude,
    inflate,
    visibility_product,
)
from tests.domains.vlbi.golden import TOLERANCE, arrays, fast_compile_jit, numbers, observation, relative
from tests.domains.vlbi.small import EVERY, GRID, small_data, small_maps

VARIANTS = {
    "default": {},
    "maxset": {"count": "max"},
    "debias": {"debias": True},
    "sysnoise": {"systematic": 0.03, "systematic_cphase_deg": 2.0},
    "sysdict": {"systematic": TOLERANCE},
    "cpuvmin": {"cp_uv_min": 0.1e9},
    "snrcut": {"snrcut": 5.0},
    "uniform": {"weighting": "uniform"},
}
POLARISED = ("pvis", "m", "vvis")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def chi2(model, maps, rows):
    return half_square(model(maps, rows, {"kept": {}, "index": None, "log_ratio": 0.0}))


@partial(fast_compile_jit, static_argnums=0)
def values_and_gradients(model, maps, rows):
    return chi2(model, maps, rows), jax.jacrev(chi2, 1)(model, maps, rows)


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_chi2(variant):
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    names = tuple(k.split("/")[0] for k in j["chi2"] if k.endswith(f"/{variant}") and "diag" not in k)
    data = data_set(observation("real_101_lo", "prep"), names, **VARIANTS[variant])
    grid = Grid(32, 32, j["psize_rad"])
    rows = pack(data, grid, "separable")
    found, gradient = values_and_gradients(DataModel(grid, "separable", names), {"I": z["image"].ravel()}, rows)
    for name in names:
        stored = j["chi2"][f"{name}/{variant}"]
        assert data.products[name].n == stored["n"]
        np.testing.assert_allclose(found[name], stored["chi2"], rtol=1e-12, err_msg=name)
        assert relative(gradient[name]["I"], z[f"grad_{name}_{variant}"]) < 1e-12, name


def test_golden_covariance():
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    names = ("cphase_cov", "logcamp_cov")
    data = data_set(observation("real_101_lo", "prep"), names)
    grid = Grid(32, 32, j["psize_rad"])
    found = fast_compile_jit(chi2, static_argnums=0)(
        DataModel(grid, "separable", names), {"I": z["image"].ravel()}, pack(data, grid, "separable")
    )
    for name in names:
        np.testing.assert_allclose(found[name], j["cov"][name.removesuffix("_cov")]["chi2"], rtol=1e-10)
    with pytest.raises(ValueError, match="minimal set"):
        pack(data_set(observation("real_101_lo", "prep"), names, count="max"), grid, "separable")


def test_golden_polarised():
    z, j = arrays("sim"), numbers("sim")
    grid = Grid(20, 20, j["psize_rad"])
    data = data_set(observation("sim", "pol"), POLARISED)
    model, rows = DataModel(grid, "separable", POLARISED), pack(data, grid, "separable")

    def of_rows(phys, rows):
        intensity, rho, phi, psi = phys
        maps = {"I": intensity, "m": rho * jnp.cos(psi), "phi": phi, "v": rho * jnp.sin(psi)}
        return chi2(model, maps, rows)

    found, gradient = fast_compile_jit(lambda p, r: (of_rows(p, r), jax.jacrev(of_rows)(p, r)))(z["phys"], rows)
    for name in POLARISED:
        assert data.products[name].n == j["chi2"][name]["n"]
        np.testing.assert_allclose(found[name], j["chi2"][name]["chi2"], rtol=1e-12)
        assert relative(gradient[name], z[f"grad_{name}"]) < 1e-12
    for name, value, sigma in (("pvis", "pvis", "psigma"), ("m", "m", "msigma"), ("vvis", "vvis", "vsigma")):
        product = data.products[name]
        for mine, stored in ((product.value, z[f"prod_{value}"]), (product.sigma, z[f"prod_{sigma}"])):
            np.testing.assert_allclose(np.sort(np.abs(mine).ravel()), np.sort(np.abs(stored)), rtol=1e-12)


def test_gradients_are_finite_differences():
    model, rows = DataModel(GRID, "separable", EVERY), pack(small_data(), GRID, "separable")
    maps = small_maps()
    step = {k: 1e-6 * np.random.default_rng(2).normal(size=a.shape) for k, a in maps.items()}
    above, below = ({k: maps[k] + s * step[k] for k in maps} for s in (1, -1))
    (high, _), (low, _) = (values_and_gradients(model, x, rows) for x in (above, below))
    _, gradient = values_and_gradients(model, maps, rows)
    for name in EVERY:
        slope = sum(np.vdot(gradient[name][k], step[k]) for k in step)
        np.testing.assert_allclose((high[name] - low[name]) / 2, slope, rtol=2e-4, err_msg=name)


@pytest.mark.parametrize("level", [0.0, 0.2])
def test_finite_where_visibilities_are_zero(level):
    """A black image, and a flat one whose odd part has zero visibilities."""
    model, rows = DataModel(GRID, "separable", EVERY), pack(small_data(), GRID, "separable")
    maps = {**small_maps(), "I": np.full(GRID.n_pixels, level)}
    for leaf in jax.tree.leaves(values_and_gradients(model, maps, rows)):
        assert np.isfinite(leaf).all()


def test_value_does_not_depend_on_packing():
    data, maps = small_data(), small_maps()
    expected, _ = values_and_gradients(DataModel(GRID, "separable", EVERY), maps, pack(data, GRID, "separable"))
    for names in (ALIGNED, CLOSURES):
        some = DataSet(data.u, data.v, {name: data.products[name] for name in names})
        model = DataModel(GRID, "dense", names)
        found = fast_compile_jit(chi2, static_argnums=0)(model, maps, pack(some, GRID, "dense"))
        for name in names:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)


def test_covariance_of_single_closures_is_their_variance():
    data, maps = small_data(), small_maps()
    plain, share = data.products["logcamp"], data.products["logcamp_cov"].share
    exact = Product(plain.index, plain.value, np.sqrt((share[plain.index] ** 2).sum(1)), plain.sign)
    full = Product(plain.index, plain.value, plain.sigma, plain.sign, share)
    names = ("logcamp", "logcamp_cov")
    same = DataSet(data.u, data.v, dict(zip(names, (exact, full), strict=True)))
    found = fast_compile_jit(chi2, static_argnums=0)(DataModel(GRID, "dense", names), maps, pack(same, GRID, "dense"))
    np.testing.assert_allclose(found["logcamp"], found["logcamp_cov"], rtol=1e-12)


def test_rows_are_filled():
    data = small_data()
    sets = groups(len(data.u), {name: data.products[name] for name in EVERY if name != "calvis"})
    assert sorted(map(len, sets)) == [1] * 8 + [5] * 5  # baseline 2-3 is in no closure, three stand alone
    slots = fill(sets, 5)
    assert slots.shape == (7, 5)
    assert sorted(slots[slots >= 0]) == list(range(len(data.u)))
    only = groups(len(data.u), {"cphase": data.products["cphase"]})
    assert sum(map(len, only)) == 25


@pytest.mark.parametrize(("nodes", "edges"), [(50, 20), (1000, 600), (300, 900), (5, 0)])
def test_joined_sets_are_those_of_scipy(nodes, edges):
    pairs = np.random.default_rng(0).integers(0, nodes, (edges, 2))
    joined = coo_array((np.ones(edges), tuple(pairs.T)), shape=(nodes, nodes))
    labels = np.unique(_least_members(nodes, pairs), return_inverse=True)[1]
    np.testing.assert_array_equal(labels, connected_components(joined, directed=False)[1])


def test_noise_on_arrays():
    assert debias_amplitude(np.array([5.0, 1.0]), np.array([3.0, 2.0])).tolist() == [4.0, 0.0]
    sigma, kept = inflate(np.ones(2), np.ones(2), np.array([0.5, -1.0]), np.array([0, 0]), np.array([0, 1]))
    assert kept.tolist() == [True, False]
    np.testing.assert_allclose(sigma[0] ** 2, 1.5)
    cut = visibility_product("amp", np.array([3.0, 1.0]), np.array([1.0, 1.0]), snrcut=2.0, systematic=1.0)
    assert cut.index.tolist() == [0]  # the cut sees sigma before it is inflated
    np.testing.assert_allclose(cut.sigma**2, 19.0)


def test_products_and_registry_agree():
    assert set(RESIDUALS) == set(EVERY)
    assert stokes_needed(("m", "cphase")) == ("I", "Q", "U")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: pack(DataSet(d.u, d.v, {"cphas": d.products["cphase"]}), GRID, "dense"), "Did you mean 'cphase'"),
        (lambda d: pack(DataSet(d.u[:3], d.v[:3], d.products), GRID, "dense"), "not among the 3"),
        (lambda d: Product(np.arange(2), np.ones(2), np.zeros(2)), "no positive sigma"),
        (lambda d: Product(np.arange(0), np.ones(0), np.ones(0)), "no measurements"),
        (lambda d: Product(np.arange(3), np.ones(2), np.ones(2)), "fit together"),
        (lambda d: closure_product("cphase_cov", [[0, 1, 2]], [[1, 1, 1]], [0.0], [1.0]), "needs share"),
        (lambda d: inflate(np.ones(1), np.ones(1), np.ones(2)), "needs the stations"),
        (lambda d: visibility_product("vis", np.ones(1), np.ones(1), weighting="equal"), "unknown weighting"),
    ],
)
def test_refusals(make, text):
    with pytest.raises(ValueError, match=text):
        make(small_data())
