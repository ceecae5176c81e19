"""The forward model against reference numbers, and its layouts against each other."""

import math
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs import (
    Ageing,
    Ahead,
    CurvedPower,
    Geometry,
    Grid,
    Homodyne,
    Knots,
    Model,
    Points,
    PowerLaw,
    Stretched,
    TwoComponent,
    laminar_flow,
    static,
)
from tests.domains.xpcs.cases import FLOW, FOLDER, STATIC, model_of, reference

QUICK = ("forward_laminar_floors_nt40_nphi5", "forward_static_negalpha_nt20_nphi3")
FORWARD = [
    pytest.param(path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
    for path in sorted(FOLDER.glob("forward_*.npz"))
]
OTHERS = [
    "flow_floor",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("flow_steep", "flow_two", "flow_zero_shear", "static_clipped", "static_up", "static_four")
    ),
]
TWO = dict.fromkeys(TwoComponent().names, 0.0) | {
    "D0_ref": 500.0, "alpha_ref": -0.2, "D0_sample": 9000.0, "alpha_sample": -0.3, "v0": 40.0, "f0": 0.4, "f3": 0.1,
    "phi0": 3.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide():
    with arithmetic("float64"):
        yield


def geometry_of(case):
    return Geometry(*(jnp.asarray(case[name], float) for name in ("t", "phi", "q", "L", "dt")))


def small_geometry(nt=20, q=0.0054):
    return Geometry(
        jnp.arange(nt) * 0.1, jnp.array([-30.0, 10.0, 85.0]), jnp.asarray(q), jnp.asarray(2e6), jnp.asarray(0.1)
    )


@pytest.mark.parametrize("name", OTHERS)
def test_other_cases_of_the_package(name):
    """Few frames and angles, angles beyond ±90°, other q, gaps and frame times, steep and floored rates."""
    case = {key.partition("/")[2]: v for key, v in reference("other_cases").items() if key.startswith(f"{name}/")}
    model, where = model_of(case["params"]), geometry_of(case)

    def total(params):
        g2 = case["offset"] + case["contrast"] * model.curve(params, where, Grid())
        return jnp.sum(case["weights"] * g2), g2

    gradient, g2 = jax.jit(jax.grad(total, has_aux=True))(jnp.asarray(case["params"]))
    assert np.max(np.abs(g2 - case["g2"])) < 1e-12
    assert np.max(np.abs(gradient - case["gradient"])) <= 1e-9 * np.max(np.abs(case["gradient"]))


@pytest.mark.parametrize("name", FORWARD)
def test_reference_values_and_gradients(name):
    case = reference(name)
    model, where, params = model_of(case["params"]), geometry_of(case), jnp.asarray(case["params"])

    @jax.jit
    def everything(params, where):
        def misfit(params):
            g2 = case["offset"] + case["contrast"] * model.curve(params, where, Grid())
            target = jax.lax.stop_gradient(case["offset"] + 0.5 * (g2 - case["offset"]))
            return jnp.sum((g2 - target) ** 2), g2

        (value, whole), gradient = jax.value_and_grad(misfit, has_aux=True)(params)
        return whole, value, gradient, model.rates(params, where.t)["J"]

    whole, value, gradient, rate = everything(params, where)
    chosen = case.get("g2_angles", slice(None))
    assert np.max(np.abs(np.asarray(whole)[chosen] - case["g2"])) < 1e-12
    assert np.allclose(rate, case["rate_D"], rtol=1e-14)
    assert np.isclose(value, case["chi2_value"], rtol=1e-12)
    assert np.max(np.abs(gradient - case["chi2_grad"])) < 1e-9 * np.max(np.abs(case["chi2_grad"]))


@pytest.mark.parametrize("name", ["pointwise_static_n1000", "pointwise_laminar_n2000"])
def test_points_equal_reference_and_grid(name):
    case = reference(name)
    params = jnp.asarray(case["params"])
    model, where = model_of(params), geometry_of(case)
    points = Points(*(jnp.asarray(case[key]) for key in ("i1", "i2", "iphi")))
    f, grid = jax.jit(lambda p, w: [model.curve(p, w, pairs) for pairs in (points, Grid())])(params, where)
    f, grid = np.asarray(f), np.asarray(grid)
    assert np.max(np.abs(case["offset"] + case["contrast"] * f - case["g2"])) < 1e-12
    assert np.max(np.abs(f - grid[case["iphi"], case["i1"], case["i2"]])) < 1e-13


TF = (True, False)
MODELS = {
    "static": (static(), STATIC),
    "flow": (laminar_flow(), FLOW),
    "theory": (laminar_flow("theory"), FLOW),
    "two_component": (TwoComponent(), TWO),
}


@pytest.mark.parametrize("nt", [12, 13])
@pytest.mark.parametrize("kind", MODELS)
def test_frames_ahead_are_the_upper_triangle(kind, nt):
    model, params = MODELS[kind]
    where, values = small_geometry(nt), model.values(params)
    both = Grid(), Ahead(jnp.arange(nt))
    grid, ahead = map(np.asarray, jax.jit(lambda v, w: [model.curve(v, w, pairs) for pairs in both])(values, where))
    ahead = ahead.reshape(3, nt, nt // 2)
    seen = np.zeros((nt, nt), int)
    for i in range(nt):
        partners = (i + 1 + np.arange(nt // 2)) % nt
        assert np.allclose(ahead[:, i], grid[:, np.minimum(i, partners), np.maximum(i, partners)], atol=1e-14)
        seen[i, partners] += 1
    seen = (seen + seen.T)[np.triu_indices(nt, 1)]
    assert set(seen) == ({1} if nt % 2 else {1, 2}) and np.sum(seen == 2) == (0 if nt % 2 else nt // 2)


@pytest.mark.parametrize(
    ("kind", "several_q", "per_angle"),
    [
        ("static", False, True),
        ("flow", True, False),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in product(("static", "flow", "theory"), TF, TF)),
    ],
)
def test_factored_sums_equal_derivatives_column_by_column(kind, several_q, per_angle):
    model, params = MODELS[kind]
    where = small_geometry(q=[0.004, 0.0054, 0.007] if several_q else 0.0054)
    values, rng = model.values(params), np.random.default_rng(0)
    y = jnp.asarray(rng.normal(size=(3, 50)))
    weight = jnp.asarray(rng.random((3, 50) if per_angle else 50))
    pairs = Ahead(jnp.arange(5))

    @jax.jit
    def both(values, where):
        own = model.grams(model.sums(values, where, pairs, y, weight), values, where)
        return own, Model.sums(model, values, where, pairs, y, weight)

    own, generic = map(np.asarray, both(values, where))
    size = np.sqrt(np.einsum("kaa->ka", generic))
    assert np.max(np.abs(own - generic) / (size[:, :, None] * size[:, None, :])) < 1e-12


RATES = [
    (PowerLaw(), (9e3, -0.3, 100.0)),
    (CurvedPower(1.0), (9e3, -0.3, -0.2)),
    (CurvedPower(1.0), (9e3, 0.0, -0.2)),
    (Ageing(1.0), (9e3, 2e3, 0.7)),
    (Stretched(1.0), (9e3, 0.7, 0.8, 500.0)),
    (Knots((0.0, 0.8, 1.9)), (9e3, 5e3, 2e3)),
    (Knots((0.0, 0.5, 1.2, 1.9), cubic=True), (9e3, 5e3, 4e3, 2e3)),
]


@pytest.mark.parametrize(("rate", "values"), RATES)
def test_every_rate_has_right_derivatives_in_a_model(rate, values):
    assert len(rate.table) == len(values)
    check_derivatives(Homodyne(rate), values)


@pytest.mark.parametrize("kind", ["flow", "theory", "two_component"])
def test_every_model_has_right_derivatives(kind):
    model, params = MODELS[kind]
    check_derivatives(model, [params[name] for name in model.names])


def check_derivatives(model, values):
    """Compare derivatives with central differences, to 1e-5 of each."""
    where, values, ranges = small_geometry(), jnp.array(values), list(model.table.values())

    @jax.jit
    def mean(v):
        return jnp.mean(model.curve(v, where, Grid()))

    gradient = jax.grad(mean)(values)
    for i, unit in enumerate(np.eye(len(values))):
        size = ranges[i].upper - ranges[i].lower
        step = 1e-5 * max(1e-2, abs(float(values[i])), 1e-4 * size * (size > 1e4))
        slope = (mean(values + step * unit) - mean(values - step * unit)) / (2 * step)
        assert np.isclose(gradient[i], slope, rtol=1e-5, atol=1e-10)


def test_curved_power_is_the_power_law_in_other_coordinates():
    t, curved = jnp.linspace(0.05, 5.0, 40), CurvedPower(0.7)
    power = (8000.0, -0.25, 300.0)
    there = curved.from_power_law(power)
    assert np.allclose(curved(there, t), PowerLaw()(power, t), rtol=1e-12)
    assert np.allclose(curved.power_law(there), power, rtol=1e-12)


def test_a_spline_goes_through_its_knots_like_scipys():
    from scipy.interpolate import CubicSpline

    knots, values = (0.0, 0.5, 1.2, 1.9), np.array([9.0, 5.0, 4.0, 2.0])
    t = np.linspace(0.0, 1.9, 30)
    expected = CubicSpline(knots, values, bc_type="natural")(t)
    assert np.allclose(Knots(knots, cubic=True)(values, jnp.asarray(t)), expected, atol=1e-12)


def test_conventions_agree_at_small_shear():
    where, factor = small_geometry(), np.pi / np.sqrt(2)
    weak = FLOW | {"gamma_dot_t0": 1e-6, "gamma_dot_t_offset": 0.0}
    compat, theory = laminar_flow(), laminar_flow("theory")
    strong = weak | {"gamma_dot_t0": 1e-6 * factor}
    one, other = jax.jit(lambda: [m.curve(m.values(p), where, Grid()) for m, p in ((compat, strong), (theory, weak))])()
    assert np.allclose(one, other, atol=1e-9)


def by_hand(params, q, phi, i, j, dt=0.1):
    """Return the two-component curve at a pair of frames where no rate changes with time: numbers, no arrays."""
    f, r = {}, {}
    for frame in (i, j):
        f[frame] = params["f0"] * math.exp(params["f1"] * (frame * dt - params["f2"])) + params["f3"]
        r[frame] = 1 - f[frame]
    lag = (j - i) * dt
    still, moving = (math.exp(-0.5 * q * q * params[f"D0_{part}"] * lag) for part in ("ref", "sample"))
    phase = q * math.cos(math.radians(phi + params["phi0"])) * params["v0"] * lag
    mixed = 2 * r[i] * f[i] * r[j] * f[j] * still * moving * math.cos(phase)
    whole = (r[i] * r[j] * still) ** 2 + (f[i] * f[j] * moving) ** 2 + mixed
    return whole / ((f[i] ** 2 + r[i] ** 2) * (f[j] ** 2 + r[j] ** 2))


@pytest.mark.parametrize(
    "changes", [{}, {"f1": 0.3, "f2": 0.7}, {"f1": -0.4, "f2": -1.1}, {"v0": -60.0}, {"f0": 0.2, "f3": 0.45}]
)
def test_two_components_equal_the_formula_for_constant_rates(changes):
    params = TWO | {"alpha_ref": 0.0, "alpha_sample": 0.0, "v0": 400.0, "f1": 0.2, "f2": 0.3} | changes
    model, where, frames = TwoComponent(), small_geometry(), ((2, 5), (0, 19), (7, 8))
    i, j = (jnp.array([pair[end] for pair in frames] * 3) for end in (0, 1))
    points = Points(i, j, jnp.repeat(jnp.arange(3), 3))
    curve = np.asarray(model.curve(model.values(params), where, points))
    expected = [by_hand(params, 0.0054, phi, *pair) for phi in (-30.0, 10.0, 85.0) for pair in frames]
    # the fraction is kept between 0 and 1 smoothly, which moves it by up to a millionth inside
    assert np.max(np.abs(curve - expected)) < 5e-6
