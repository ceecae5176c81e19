"""The whole objective: stored values and gradients, any mesh, a fit, and clear refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.vlbi import nufft
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.nufft import Nufft
from shardfit.domains.vlbi.problem import image_maps, imaging_problem, with_data_weights, with_start
from shardfit.domains.vlbi.tables import data_set
from tests.domains.vlbi.golden import TOLERANCE, arrays, fast_compile_jit, numbers, observation, relative, uas
from tests.domains.vlbi.small import GRID, small_data, small_maps

needs_nufft = pytest.mark.skipif(not nufft.available(), reason="jax-finufft is not installed")
NUFFT = pytest.param(Nufft(1e-12), marks=needs_nufft, id="nufft")
POLARISED = {"IP": "mcv", "P": "mcv", "IV": "vcv", "IPV": "polcv"}
# order of the stored solver vectors
ROWS = {"IP": ("I", "m_share", "phi"), "P": ("m_share", "phi"), "IV": ("I", "v_share")}
ROWS |= {"IPV": ("I", "rho", "phi", "psi"), "mfP": ("m_share", "phi", "alphap", "rm")}
ROWS |= {"mf0": ("I",), "mf1": ("I", "alpha"), "mf2": ("I", "alpha", "beta"), "mf_flux": ("I", "alpha")}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


value_and_grad = fast_compile_jit(sf.Objective.value_and_grad)


@partial(fast_compile_jit, static_argnums=(0, 1))
def solver_gradient(space, names, x, objective):
    chosen = dict(zip(space.labels, space.transforms, strict=True))

    def value(x):
        parts = zip(names, jnp.split(x, len(names)), strict=True)
        return objective.value({name: chosen[name].forward(part) for name, part in parts})

    return jax.value_and_grad(value)(x)


def value_and_solver_gradient(problem, x, names=("I",)):
    """Value and gradient with respect to the stored solver vector, whose maps come in the order of names."""
    return solver_gradient(problem.space, names, jnp.asarray(x), problem.objective)


def round_one(**changes):
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    stored = j["objective"]
    given = {"data_weights": stored["dat"], "reg_weights": stored["reg"], "flux": 0.6, "beam": j["prep_res_rad"]}
    data = data_set(observation("real_101_lo", "prep"), stored["dat"], cp_uv_min=0.1e9, systematic=TOLERANCE)
    grid = Grid(32, 32, j["psize_rad"])
    given |= {"init": z["image"], "operator": "separable", "transform": "log"}
    return imaging_problem(data, grid, z["prior"], **{**given, **changes})


@pytest.mark.parametrize("operator", ["separable", pytest.param("dense", marks=pytest.mark.slow), NUFFT])
def test_golden_round_one(operator):
    z, stored = arrays("real_101_lo"), numbers("real_101_lo")["objective"]
    problem = round_one(operator=operator)
    value, gradient = value_and_solver_gradient(problem, np.log(z["image"].ravel()))
    limit = 1e-8 if isinstance(operator, Nufft) else 1e-12
    np.testing.assert_allclose(value, stored["value"], rtol=limit)
    assert relative(gradient, z["objective_grad"]) < limit
    if operator == "separable":
        parts = fast_compile_jit(sf.Objective.parts)(problem.objective, problem.x0)
        for name, chi2 in stored["chi2"].items():
            np.testing.assert_allclose(parts[f"data.{name}"], chi2, rtol=1e-12)
        start, _ = value_and_solver_gradient(problem, z["objective_init"])
        np.testing.assert_allclose(start, stored["value_at_init"], rtol=1e-12)
        assert relative(image_maps(problem)["I"], z["image"]) < 1e-12


def test_golden_mask():
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    names = ("cphase", "logcamp", "vis")
    data = data_set(observation("real_101_lo", "prep"), names)
    problem = imaging_problem(
        data,
        Grid(32, 32, j["psize_rad"]),
        z["prior"],
        data_weights=dict.fromkeys(names, 1.0),
        reg_weights={"tvlog": 1.0, "tv": 1.0},
        flux=0.6,
        beam=j["prep_res_rad"],
        init=z["image"],
        clipfloor=j["mask_clipfloor"],
        norm_init=False,
    )
    assert problem.x0["I"].shape == (j["mask_n"],)
    _, gradient, parts = fast_compile_jit(sf.Objective.value_grad_parts)(problem.objective, problem.x0)
    for name in names:
        np.testing.assert_allclose(parts[f"data.{name}"], j["masked"][name], rtol=1e-12)
    assert np.isfinite(gradient["I"]).all()
    assert np.array_equal(image_maps(problem)["I"], np.where(z["mask"], z["image"], 0))


def simulated(tag):
    z, j = arrays("sim"), numbers("sim")
    stored = j["objective"][tag]
    given = {"data_weights": stored["dat"], "reg_weights": stored["reg"], "flux": 0.6, "vflux": 0.007}
    maps = {"I": z["eval_I"], "m": z["m"], "phi": z["phi"], "v": z["v"]}
    if tag in POLARISED:
        data = data_set(observation("sim", "pol"), stored["dat"])
        given |= {"mode": tag, "transform": POLARISED[tag], "beam": j["pol_res_rad"]}
    else:
        sets = [observation("sim", f"mf{i}", hz) for i, hz in enumerate(j["freqs_hz"])]
        data = [data_set(obs, stored["dat"], ref_hz=j["ref_hz"]) for obs in sets]
        # targets are not stored: worked back from the golden gradient, they are not an independent check
        given |= {"beam": j["mf0_res_rad"], "mf_flux": (0.58, 0.63)}
        if tag == "mfP":
            spectral = {"alphap": 0.3 * z["alpha"], "betap": 0.2 * z["beta"], "rm": 0.1 + 0.02 * z["beta"]}
            maps = {**maps, "v": 0 * z["v"], "alpha": z["alpha"], "beta": z["beta"], **spectral}
            given |= {"mode": "P", "transform": "mcv", "spectral": ("alphap", "rm"), "fraction": "reference"}
        else:
            maps = {"I": z["eval_I"], "alpha": 0.9 * z["alpha"], "beta": 1.1 * z["beta"]}
            given |= {"spectral": ROWS[tag][1:], "transform": "log"}
    return imaging_problem(data, Grid(20, 20, j["psize_rad"]), maps, operator="separable", **given)


@pytest.mark.parametrize(
    "tag", [pytest.param(tag, marks=pytest.mark.slow if tag not in ("IP", "IPV", "mf1", "mfP") else ()) for tag in ROWS]
)
def test_golden_simulated(tag):
    z, stored = arrays("sim"), numbers("sim")["objective"][tag]
    value, gradient = value_and_solver_gradient(simulated(tag), z[f"obj_{tag}_x"], ROWS[tag])
    np.testing.assert_allclose(value, stored["value"], rtol=1e-12)
    assert relative(gradient, z[f"obj_{tag}_grad"]) < 1e-11


BENCHES = [("direct_2592x1600", 40), ("nfft_2070x1024", 32)]


@pytest.mark.parametrize("operator", ["separable", pytest.param(Nufft(1e-12), marks=[needs_nufft, pytest.mark.slow])])
@pytest.mark.parametrize("kind", [pytest.param("vis", marks=pytest.mark.slow), "clos"])
@pytest.mark.parametrize(("name", "n"), [BENCHES[0], pytest.param(*BENCHES[1], marks=pytest.mark.slow)])
def test_golden_bench(name, n, kind, operator):
    z, j = arrays(f"bench_{name}"), numbers("bench")[f"{name}/{kind}"]
    weights = {"vis": 1.0} if kind == "vis" else {"amp": 0.2, "cphase": 1.0, "logcamp": 1.0}
    # station PV has a tolerance of the M87 pipeline, the other simulated names have none
    data = data_set(observation(f"bench_{name}", ""), weights, cp_uv_min=0.1e9, systematic=TOLERANCE)
    assert {k: p.n for k, p in data.products.items()} == j["n"]
    given = {"flux": 0.6, "beam": j["beam_rad"], "epsilon_tv": 1e-10, "operator": operator, "transform": "log"}
    regs = {"simple": 1.0, "tv": 1.0}
    grid = Grid(n, n, uas(128.0) / n)
    problem = imaging_problem(data, grid, z["prior"], data_weights=weights, reg_weights=regs, **given)
    value, gradient = value_and_solver_gradient(problem, z["x"])
    np.testing.assert_allclose(value, z[f"{kind}_J"], rtol=1e-9)
    assert relative(gradient, z[f"{kind}_grad"]) < 1e-8


def test_golden_eight_frequencies():
    z, j = arrays("bench_freq8_2048"), numbers("bench")["freq8_2048"]
    sets = [observation("bench_freq8_2048", f"ch{i}", float(hz)) for i, hz in enumerate(z["freqs"])]
    data = [data_set(obs, ("vis",), ref_hz=float(z["ref_hz"])) for obs in sets]
    problem = imaging_problem(
        data,
        Grid(64, 32, uas(128.0) / 64),
        {"I": z["prior"][0], "alpha": z["prior"][1]},
        data_weights={"vis": 1.0},
        reg_weights={"simple": 1.0, "tv": 1.0},
        flux=0.6,
        beam=j["beam_rad"],
        epsilon_tv=1e-10,
        spectral=("alpha",),
        operator="separable",
        transform="log",
    )
    value, gradient = value_and_solver_gradient(problem, z["x"], ("I", "alpha"))
    np.testing.assert_allclose(value, z["J"], rtol=1e-9)
    assert relative(gradient, z["grad"]) < 1e-10


EVERYTHING = ("vis", "amp", "logamp", "bs", "cphase", "camp", "logcamp", "cphase_cov", "logcamp_cov")


@pytest.fixture(scope="module")
def multi_product():
    """Every Stokes I product at once on 11 rows, and its value and gradient on one device."""
    data = data_set(observation("real_101_lo", "prep"), EVERYTHING)
    z, j = arrays("real_101_lo"), numbers("real_101_lo")
    weights = {name: 0.1 * (i + 1) for i, name in enumerate(EVERYTHING)}
    given = {"data_weights": weights, "reg_weights": {"tv": 1.0}, "flux": 0.6, "beam": 1.2e-10, "operator": "separable"}
    problem = imaging_problem(data, Grid(32, 32, j["psize_rad"]), z["prior"], init=z["image"], **given)
    with jax.enable_x64(True):
        return problem, value_and_grad(problem.objective, problem.x0)


@pytest.mark.parametrize("devices", [pytest.param(7, marks=pytest.mark.slow), 3, 5])
def test_meshes_agree(multi_product, devices):
    problem, (value, gradient) = multi_product
    assert problem.objective.n_rows["data"] % devices
    placed = problem.objective.place(sf.mesh(rows=devices))
    found = value_and_grad(placed, problem.x0)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    assert relative(found[1]["I"], gradient["I"]) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["IPV", "mf1"])
def test_polarised_and_spectral_meshes_agree(tag):
    problem = simulated(tag)
    value, gradient = value_and_grad(problem.objective, problem.x0)
    found = value_and_grad(problem.objective.place(sf.mesh(rows=3)), problem.x0)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    for name in gradient:
        assert relative(found[1][name], gradient[name]) < 1e-11


@needs_nufft
@pytest.mark.slow
def test_nufft_on_a_mesh():
    problem = round_one(operator=Nufft(1e-12))
    value, gradient = value_and_grad(problem.objective, problem.x0)
    found = value_and_grad(problem.objective.place(sf.mesh(rows=3)), problem.x0)
    np.testing.assert_allclose(found[0], value, rtol=1e-10)
    assert relative(found[1]["I"], gradient["I"]) < 1e-9


def test_fit_improves_the_image():
    problem = round_one(init=None, epsilon_tv=1e-10)
    before = float(problem.objective.value(problem.x0))
    result = sf.fit(problem, "lbfgs", maxiter=60, progress=False, certify=False)
    assert result.value < 0.05 * before
    assert result.parts["data.cphase"] < 5
    assert abs(result.params["I"].sum() - 0.6) < 0.03


def test_weights_and_their_constant(multi_product):
    problem, (value, _) = multi_product
    changed = with_data_weights(problem.objective, cphase=2.0)
    parts = fast_compile_jit(sf.Objective.parts)(problem.objective, problem.x0)
    weight = 0.1 * (EVERYTHING.index("cphase") + 1)
    expected = value + (2.0 - weight) * (parts["data.cphase"] - 1)
    np.testing.assert_allclose(value_and_grad(changed, problem.x0)[0], expected, rtol=1e-12)


OTHER = {
    name: np.linspace(0.1, 0.2, GRID.n_pixels) * (2 if name == "I" else 1) for name in ("I", "m", "phi", "v", "alpha")
}


@pytest.mark.parametrize(
    ("products", "regularisers", "names", "options"),
    [
        (("amp", "cphase"), ("tv",), ("I",), {"clipfloor": 0.15}),  # with a mask
        (("pvis",), ("hw",), ("I", "m", "phi", "v"), {"mode": "P"}),  # keeps I and v
        (("vis",), ("tv", "l2_alpha"), ("I", "alpha"), {"spectral": ("alpha",)}),
    ],
)
@pytest.mark.parametrize("norm_init", [True, False])
def test_another_start(products, regularisers, names, options, norm_init):
    """The same as making the problem anew, without a second trace."""
    given = {"data_weights": dict.fromkeys(products, 1.0), "reg_weights": dict.fromkeys(regularisers, 1.0)}
    given |= {"flux": 0.7, "beam": 2.0, "operator": "separable", **options}
    prior, init = small_maps()["I"], {name: OTHER[name] for name in names}
    problem = imaging_problem(small_data(), GRID, prior, **given)
    anew = imaging_problem(small_data(), GRID, prior, init=init, norm_init=norm_init, **given)
    moved = with_start(problem, init, norm_init=norm_init)
    jax.tree.map(np.testing.assert_array_equal, moved.x0, anew.x0)
    jax.tree.map(np.testing.assert_array_equal, moved.objective, anew.objective)
    assert jax.tree.structure(moved.objective) == jax.tree.structure(problem.objective)
    assert moved.space == problem.space
    with pytest.raises(ValueError, match="must be positive"):
        with_start(problem, {**init, "I": -OTHER["I"]})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"data_weights": {"cphas": 1.0}}, "Did you mean 'cphase'"),
        ({"data_weights": {"vis": 1.0}}, "Make that product"),
        ({"data_weights": {}}, "data_weights is empty"),
        ({"reg_weights": {}}, "reg_weights is empty"),
        ({"reg_weights": {"tsv": 1.0}}, "unknown name 'tsv'"),
        ({"reg_weights": {"hw": 1.0}}, "needs polarisation"),
        ({"reg_weights": {"flux_mf": 1.0}}, "needs mf_flux"),
        ({"epsilontv": 1.0}, "Did you mean 'epsilon_tv'"),
        ({"flux": 0.0}, "positive number"),
        ({"transform": "mcv"}, "needs transform"),
        ({"spectral": ("alfa",)}, "Did you mean 'alpha'"),
        ({"init": np.ones((4, 4))}, "Regrid"),
        ({"init": -np.ones((32, 32))}, "must be positive"),
        ({"init": {"m": np.ones((32, 32))}}, "needs 'I'"),
    ],
)
def test_refusals(changes, text):
    with pytest.raises(ValueError, match=text):
        round_one(**changes)


@pytest.mark.slow
def test_float32_is_close():
    exact = round_one()
    rough = round_one(precision="float32")
    with jax.enable_x64(False):
        value, gradient = rough.objective.value_and_grad(rough.x0)
    wanted = exact.objective.value_and_grad(exact.x0)
    np.testing.assert_allclose(value, wanted[0], rtol=1e-3)
    assert relative(gradient["I"], wanted[1]["I"]) < 1e-2
