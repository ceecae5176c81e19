"""Stellar mass function: stored numbers, gradients, layouts, solvers, resuming."""

import jax
import numpy as np
import optax
import pytest

import shardfit as sf
from shardfit.core.transforms import Above, Below, Identity, TanInterval, within
from shardfit.domains.population import smf
from shardfit.domains.population.halos import blocks, log_masses, upweights
from shardfit.stats.scan import trajectory
from tests.reference import REFERENCE


@pytest.fixture(scope="module")
def golden():
    """Values of diffopt 2.0.0 in float64 with 10 000 halos."""
    with np.load(REFERENCE / "population" / "smf.npz") as stored:
        return {name: stored[name] for name in stored.files}


@pytest.fixture(scope="module")
def small():
    return smf.problem("A", 1003, chunk=128)


def pair(variant, params):
    return np.array([float(params["efficiency"]), float(params[smf.VARIANTS[variant].scatter])])


@pytest.mark.parametrize("variant", ["A", "B"])
def test_golden(golden, variant):
    problem = smf.problem(variant, int(golden["num_halos"]))
    (survey,) = problem.objective.terms[0].args
    np.testing.assert_allclose(survey["target"], golden[f"target_{variant}"], rtol=1e-10)
    columns = (golden[f"{variant}_{name}"] for name in ("params", "sumstats", "loss", "grad"))
    for x, counts, loss, slope in zip(*columns, strict=True):
        params = smf.VARIANTS[variant].params(x)
        np.testing.assert_allclose(smf.model_function(problem, params), counts, rtol=1e-10)
        value, gradient = problem.objective.value_and_grad(params)
        # at the truth the loss is a mean of squares of almost nothing: what is left is the rounding of the counts
        np.testing.assert_allclose(value, loss, rtol=1e-10, atol=1e-19)
        np.testing.assert_allclose(pair(variant, gradient), slope, rtol=1e-10, atol=1e-13)


def test_golden_parts_of_three(golden):
    n = int(golden["num_halos"])
    truth = smf.VARIANTS["A"].params(golden["A_params"][0])
    (survey,) = smf.problem("A", n).objective.terms[0].args
    edges = np.append(0, np.cumsum([len(part) for part in np.array_split(np.arange(n), 3)]))
    for start, stop, counts in zip(edges[:-1], edges[1:], golden["A_partial_sumstats_3ranks"], strict=True):
        rows = {"logm": log_masses(n, slice(start, stop))}
        term = sf.statistic_term(smf.galaxies_above, rows, survey, loss=smf.log_misfit)
        with jax.enable_x64(True):
            found = smf.mass_function(sf.Objective({"smf": term}).totals(truth)["smf"], survey)
        np.testing.assert_allclose(found, counts, rtol=1e-10)


def test_golden_adam(golden):
    problem = smf.problem("A", int(golden["num_halos"]))
    rate = float(golden["A_adam_lr"])
    result = sf.fit(problem, optax.adam(rate), maxiter=10, keep=1, certify=False, progress=False)
    way = trajectory(problem, result.history)
    found = np.stack([way.params["efficiency"], way.params["log_scatter"]], axis=1)
    np.testing.assert_allclose(found, golden["A_adam_params_first11"], rtol=1e-10)
    np.testing.assert_allclose(way.values, golden["A_adam_loss_first11"], rtol=1e-10)


def test_single_precision_follows_double():
    params = {"efficiency": -1.9, "log_scatter": -0.4}
    double, single = (smf.problem("A", 20_000, precision=p) for p in ("float64", "float32"))
    wanted, found = smf.model_function(double, params), smf.model_function(single, params)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-4 * wanted.max())


def test_gradient_against_differences(small):
    params, step = {"efficiency": -2.2, "log_scatter": -0.3}, 1e-6
    gradient = small.objective.value_and_grad(params)[1]
    for name in params:
        up, down = (float(small.objective.value({**params, name: params[name] + s})) for s in (step, -step))
        np.testing.assert_allclose(gradient[name], (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(
    "devices", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_same_on_any_devices(small, devices):
    value, gradient = small.objective.value_and_grad(small.x0)
    found, slope = small.objective.place(sf.mesh(rows=devices)).value_and_grad(small.x0)
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(pair("A", slope), pair("A", gradient), rtol=1e-10)


def test_adam_is_the_same_on_three_devices(small):
    runs = [
        sf.fit(small, "adam", maxiter=100, keep=1, mesh=mesh, certify=False, progress=False)
        for mesh in (None, sf.mesh(rows=3))
    ]
    np.testing.assert_allclose(runs[1].history["x"], runs[0].history["x"], rtol=1e-9)
    np.testing.assert_allclose(runs[1].history["value"], runs[0].history["value"], rtol=1e-9)


@pytest.mark.parametrize(
    ("variant", "solver"),
    [
        *(("A", solver) for solver in ("lbfgsb", "lbfgs", "adam")),
        ("B", "lbfgsb"),
        *(pytest.param("B", solver, marks=pytest.mark.slow) for solver in ("lbfgs", "adam")),
    ],
)
def test_fits_reach_the_truth_from_the_published_start(variant, solver):
    # the gradient vanishes at a perfect fit: a millionth of that at the start takes more steps of a fixed rate
    result = sf.fit(smf.problem(variant), solver, maxiter=3000, certify=False, progress=False)
    assert result.success
    # the published target of B is in single precision
    np.testing.assert_allclose(pair(variant, result.params), smf.VARIANTS[variant].truth, atol=1e-4)


def test_made_on_the_mesh():
    mesh = sf.mesh(rows=2)
    whole, split = smf.problem("A", 1001, chunk=100), smf.problem("A", 1001, chunk=100, mesh=mesh)
    np.testing.assert_allclose(split.objective.value(split.x0), whole.objective.value(whole.x0), rtol=1e-12)
    assert sf.fit(split, "lbfgsb", mesh=mesh, certify=False, progress=False).success


def test_halos_can_be_made_in_parts():
    whole = log_masses(1000, top=0.95)
    parts = [log_masses(1000, part, top=0.95) for part in blocks(1000, 300)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole[0] == 10.0
    np.testing.assert_allclose(whole, np.log10(1e10 / (1 - np.linspace(0, 0.95, 1000))), rtol=1e-15)


def test_upweights_stand_for_all():
    rng = np.random.default_rng(0)
    many = rng.triangular(11, 11.001, 14, 5000)
    few = np.linspace(11, 14, 490)
    weights = upweights(few, many)
    assert weights.shape == few.shape
    np.testing.assert_allclose(weights.sum(), 5000, rtol=1e-12)


def test_complaints():
    with pytest.raises(ValueError, match="unknown stellar mass function 'C'"):
        smf.problem("C")
    with pytest.raises(ValueError, match="at least 2"):
        smf.problem("A", 1)


def test_golden_bijections():
    import json

    cases = json.loads((REFERENCE / "population" / "bounds.json").read_text())
    kinds = set()
    with jax.enable_x64(True):
        for case in cases:
            transform = within(*(case["bounds"] or (None, None)))
            kinds.add(type(transform))
            np.testing.assert_allclose(transform.inverse(case["x"]), case["u"], rtol=1e-10)
            np.testing.assert_allclose(transform.forward(case["u"]), case["x"], rtol=1e-13)
            np.testing.assert_allclose(jax.grad(transform.forward)(case["u"]), case["dx_du"], rtol=1e-10)
    assert kinds == {TanInterval, Above, Below, Identity}


@pytest.mark.parametrize("transform", [Above(0.0), Below(0.0)])
def test_bijections_keep_their_digits_near_the_bound(transform):
    x = np.float32([1e-3, 1e-2, 0.1, 1.0, 30.0]) * (1 if isinstance(transform, Above) else -1)
    np.testing.assert_allclose(transform.forward(transform.inverse(x)), x, rtol=1e-6)


@pytest.mark.parametrize(("transform", "x"), [(Above(1.0), 1.0), (Below(1.0), 1.0), (TanInterval(0.0, 1.0), 1.0)])
def test_a_start_on_a_bound_is_refused(transform, x):
    with pytest.raises(ValueError, match="x0 of a lies outside"):
        sf.Problem(sf.Objective({"p": sf.penalty(lambda p: p["a"] ** 2)}), {"a": x}, transforms={"a": transform})
