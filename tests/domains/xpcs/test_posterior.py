"""Posteriors: densities against their definitions, reference posteriors, shards against the whole, and the files."""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit
from shardfit import RunOptions, fit
from shardfit.cli.xpcs.posterior_files import judged, write_posterior
from shardfit.cli.xpcs.shard_sizes import shard_size
from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs import (
    Correlation,
    FitOptions,
    compare_fits,
    curved,
    fit_correlation,
    laminar_flow,
    sample_correlation,
    setup,
    static,
)
from shardfit.domains.xpcs.problem import converted
from shardfit.domains.xpcs.recipes.answer import read_answer
from shardfit.domains.xpcs.recipes.posterior import posterior_problem
from shardfit.domains.xpcs.terms import marginal_term
from shardfit.sampling.posterior import Posterior
from tests.domains.xpcs.cases import FLOW, FOLDER, STATIC, model_of, reference, small

QUIET = RunOptions(progress=False)
FLOWING = laminar_flow()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "missing"), [(static(), False), (laminar_flow(), True), (laminar_flow("theory"), False)]
)
def test_the_density_without_scales_has_the_gradient_of_its_value(model, missing):
    """Derivatives that the model knows of its sums, against those of the sums; any split of rows gives the same."""
    data = small(model, STATIC if model == static() else {**FLOW, "gamma_dot_t0": 0.02}, n_frames=26)
    if missing:
        data.c2[1, 3, :5] = data.c2[1, :5, 3] = np.nan
    ready = setup(data, model, FitOptions(scaling="individual"))
    design = replace(ready.design, precision=np.linspace(0.5, 2.0, len(data.phi)) * ready.design.precision)
    term = marginal_term(ready.problem.objective.terms[0].rows, model, ready.geometry, design)
    assert term.slopes is not None
    x0 = {name: 1.02 * value for name, value in (STATIC if model == static() else FLOW).items()}
    found = []
    for changes in ({"slopes": None}, {}, {"chunk": None}, {"chunk": 3}):
        objective = shardfit.Objective({"c2": replace(term, **changes)})
        for mesh in (None, shardfit.mesh(rows=4)) if not changes else (None,):
            with arithmetic("float64"):
                value, gradient = objective.place(mesh).value_and_grad(x0)
            found.append((float(value), np.array([gradient[name] for name in model.names])))
    for value, gradient in found[1:]:
        assert value == pytest.approx(found[0][0], rel=1e-11)
        np.testing.assert_allclose(gradient, found[0][1], rtol=1e-8)


@pytest.fixture(scope="module")
def bent():
    """A small fit in curved coordinates."""
    data = small(n_frames=24)
    model = curved(static(), data)
    start = {name: float(value) for name, value in converted(static(), model, STATIC).items()}
    ready = setup(data, model, FitOptions(scaling="individual", start=start))
    return read_answer(ready, fit(ready.problem, "lm", certify=False, progress=False))


@pytest.mark.slow
def test_the_marginal_density_is_the_integral_over_scales():
    ready = setup(small(n_frames=16, phi=(20.0,)), static(), FitOptions(scaling="individual", start=STATIC))
    fitted = read_answer(ready, fit(ready.problem, "lm", certify=False, progress=False))
    problem = posterior_problem(fitted)
    places = [fitted.params, {**fitted.params, "D0": 1.02 * fitted.params["D0"]}]
    data, (i, j) = ready.data, np.triu_indices(16, 1)

    def log_integral(params):
        curve = replace(fitted, params=params).curve()[0, i, j]
        design = np.stack([curve, np.ones_like(curve)], axis=1) / (0.01 * np.sqrt(fitted.variance))
        y = data.c2[0, i, j] / (0.01 * np.sqrt(fitted.variance))
        best = np.linalg.lstsq(design, y, rcond=None)[0]
        return -0.5 * np.sum((y - design @ best) ** 2) - 0.5 * np.linalg.slogdet(design.T @ design)[1]

    found = [-float(problem.objective.value(p)) for p in places]
    expected = [log_integral(p) for p in places]
    assert np.isclose(found[1] - found[0], expected[1] - expected[0], rtol=1e-9)


@pytest.mark.slow
def test_priors_on_power_laws_become_densities_of_the_curved_coordinates(bent):
    model, known = bent.setup.model, {"D0": (15000.0, 4000.0), "D_offset": (500.0, 900.0), "alpha": (-0.2, 0.3)}
    with_priors = posterior_problem(bent, known).objective
    with arithmetic("float64"):
        values = jnp.array([bent.params[name] for name in model.names]) * jnp.array([1.01, 0.97, 1.02])

        def law(values):
            return jnp.stack([*converted(model, static(), dict(zip(model.names, values, strict=True))).values()])

        jacobian = np.linalg.slogdet(jax.jacfwd(law)(values))[1]
        amplitude = dict(zip(static().names, law(values).tolist(), strict=True))
        shares = [-0.5 * ((amplitude[n] - m) / s) ** 2 - np.log(s * np.sqrt(2 * np.pi)) for n, (m, s) in known.items()]
        params = dict(zip(model.names, values, strict=True))
        found = -float(with_priors.only("power_laws").value(params))
    # the Gaussians are cut at the usual bounds, which takes next to nothing off these
    assert np.isclose(found, sum(shares) + jacobian, atol=1e-3)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ("strong", "'reference', 'weak'"),
        ({"D1": (0.0, 1.0)}, "no free parameter 'D1'"),
        ({"D0": (1.0, -1.0)}, "sd above"),
    ],
)
def test_wrong_priors_are_refused(bent, priors, message):
    with pytest.raises(ValueError, match=message):
        posterior_problem(bent, priors)
    with pytest.raises(ValueError, match="groups of frames"):
        sample_correlation(bent, shards=1000)


def test_scales_with_priors_are_sampled_and_held_ones_stay_held(bent):
    sampled = posterior_problem(bent, {"contrast": (0.3, 0.1)})
    assert sampled.space.size == 3 + 2 * 3
    assert posterior_problem(bent).space.size == 3
    ready = setup(bent.setup.data, static(), FitOptions(scaling="constant", start=STATIC))
    held = read_answer(ready, fit(ready.problem, "lm", certify=False, progress=False, maxiter=3))
    assert posterior_problem(held).space.size == 3
    robust = replace(bent, setup=replace(bent.setup, options=replace(bent.setup.options, loss="huber")))
    with pytest.raises(ValueError, match="Gaussian noise"):
        posterior_problem(robust)


def test_named_priors_say_where_they_lie(bent):
    weak = posterior_problem(bent, "weak")
    assert np.isfinite(float(weak.objective.value(weak.x0)))
    draws = gaussian_draws(bent)
    report = judged(bent, draws, "reference")
    assert any("D0: the prior lies" in text for text in report["warnings"])  # 1000 ± 1000 for a D0 of 15000
    assert not any("prior lies" in text for text in judged(bent, draws, "weak")["warnings"])


def gaussian_draws(fitted, shift=0.0):
    """Draws as chains would give them: the fit's own Gaussian, moved by so many standard errors."""
    names, n = list(fitted.params), len(fitted.contrast)
    rng, inner = np.random.default_rng(0), fitted.covariance[2 * n :, 2 * n :]
    centre = np.array(list(fitted.params.values())) + shift * np.sqrt(np.diag(inner))
    z = rng.multivariate_normal(centre, inner, (4, 250))
    stats = {"diverging": np.zeros((4, 250), bool), "energy": rng.normal(size=(4, 250))}
    return Posterior({name: z[..., i] for i, name in enumerate(names)}, z, stats, None, "nuts", labels=tuple(names))


def test_files_and_diagnostics_of_a_posterior(bent, tmp_path):
    good, moved = gaussian_draws(bent), judged(bent, gaussian_draws(bent, 6.0), None)
    report = judged(bent, good, None)
    assert report["status"] == "converged" and report["divergence_rate"] == 0.0
    assert max(report["r_hat"].values()) < 1.02 and {"D0", "D_offset", "D_ref"} <= {*report["parameters"]}
    assert all(0.5 < report["parameters"][n]["contraction"] < 1 for n in ("D_ref", "D_slope"))
    assert any("posterior and fit differ" in text for text in moved["warnings"])
    folder = write_posterior(tmp_path, bent, good, report, "static")
    for name in ("parameters", "analysis_results_cmc", "diagnostics", "shard_diagnostics"):
        assert json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / "samples.npz") as kept:
        assert kept["posterior_samples"].shape == (4, 250, len(kept["param_names"])) == (4, 250, 5)
        assert kept["r_hat"].shape == (5,) and kept["n_phi"] == 3 and kept["schema_version"] == 1
    with np.load(folder / "fitted_data.npz") as fitted:
        assert fitted["c2_theoretical_scaled"].shape == bent.setup.data.c2.shape


def test_a_ridge_of_draws_is_said():
    ready = setup(small(n_frames=24), static(), FitOptions(start=STATIC))
    plain = read_answer(ready, fit(ready.problem, "lm", certify=False, progress=False))
    assert any("ridge" in text for text in judged(plain, gaussian_draws(plain), None)["warnings"])


def test_sizes_of_shards_are_the_usual_ones():
    for case in json.loads((FOLDER / "sharding.json").read_text())["auto_shard_size"]:
        assert shard_size(case["n_total"], case["n_phi"], case["mode"] == "laminar_flow") == case["size"]


def points_as_correlation(case):
    """The points of a reference posterior; all others are missing."""
    nt, n = len(case["t"]), len(case["phi"])
    c2 = np.full((n, nt, nt), np.nan)
    c2[case["iphi"], case["i1"], case["i2"]] = c2[case["iphi"], case["i2"], case["i1"]] = case["y"]
    numbers = (float(case[name]) for name in ("q", "dt", "sigma", "L"))
    return Correlation(c2, case["phi"], *numbers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["posterior_static_n3000", "posterior_laminar5_n3000"])
def test_reference_posteriors(name):
    case = reference(name)
    model = model_of(range(7) if "laminar" in name else range(3))
    held = dict(zip(case["fixed"].tolist(), case["fixed_values"].tolist(), strict=True))
    start = {n: v for n, v in (FLOW if "laminar" in name else STATIC).items() if n not in held}
    fitted = fit_correlation(points_as_correlation(case), model, FitOptions(fixed=held, start=start), QUIET)
    posterior = sample_correlation(fitted, 1000, run=QUIET, chains=4, warmup=500)
    assert posterior.verdict()
    errors = dict(zip(posterior.names, posterior.summary()["mcse"], strict=True))
    for i, parameter in enumerate(case["names"].tolist()):
        if parameter in posterior.draws and parameter not in held:
            draws, sd = np.asarray(posterior.draws[parameter]), case["std"][i]
            allowed = 4 * np.hypot(errors[parameter], case["mcse"][i]) + 0.05 * sd
            assert abs(draws.mean() - case["mean"][i]) < allowed
            assert abs(draws.std() / sd - 1) < 0.1


@pytest.mark.slow
def test_shards_combine_to_the_posterior_of_all_points():
    data = small(n_frames=82, phi=(-60.0, -20.0, 0.0, 20.0, 45.0, 85.0), dt=0.05)
    fitted = fit_correlation(data, curved(static(), data), FitOptions(), QUIET)
    assert 19_000 < fitted.setup.n_points < 21_000
    whole = sample_correlation(fitted, 1000, run=QUIET, chains=4, warmup=500)
    parts = sample_correlation(fitted, 1000, run=QUIET, shards=4, chains=4, warmup=500)
    sd = whole.sd()
    for name, mean in whole.mean().items():
        assert abs(parts.mean()[name] - mean) < 0.2 * sd[name]
        assert abs(parts.sd()[name] / sd[name] - 1) < 0.1

    def correlations(posterior):
        spread = posterior.covariance()
        return spread / np.sqrt(np.outer(np.diag(spread), np.diag(spread)))

    assert np.max(np.abs(correlations(parts) - correlations(whole))) < 0.05


@pytest.mark.slow
def test_the_usual_priors_in_the_usual_coordinates_are_not_called_converged_silently():
    data = small(n_frames=40)
    fitted = fit_correlation(data, static(), FitOptions(scaling="individual", law="full"), QUIET)
    posterior = sample_correlation(fitted, 300, "reference", QUIET, chains=4, warmup=300)
    report = judged(fitted, posterior, "reference")
    assert any("ridge" in text or "prior lies" in text for text in report["warnings"])


@pytest.mark.slow
def test_the_posterior_agrees_with_the_fit():
    data = small(n_frames=40)
    fitted = fit_correlation(data, curved(static(), data), FitOptions(scaling="individual"), QUIET)
    posterior = sample_correlation(fitted, 500, run=QUIET, chains=4, warmup=300)
    assert not posterior.stats["diverging"].any()
    for name, value in fitted.params.items():
        draws = np.asarray(posterior.draws[name])
        assert abs(draws.mean() - value) < 0.2 * fitted.stderr[name]
        assert abs(draws.std() / fitted.stderr[name] - 1) < 0.15


def test_more_parameters_must_earn_their_place():
    def fitted(chi2, parameters, n=1000, stderr=()):
        ready = SimpleNamespace(n_points=n, options=FitOptions())
        return SimpleNamespace(chi2=chi2, dof=n - parameters, setup=ready, scatter=1.0, noise=None, stderr=dict(stderr))

    found = compare_fits({"flow": fitted(1008.0, 9), "still": fitted(1010.0, 5)})
    assert found.names == ("still", "flow") and np.isclose(found.difference[1], 4 * np.log(1000) - 2, atol=0.1)
    assert compare_fits({"still": fitted(2000.0, 5), "flow": fitted(1000.0, 9)}).names[0] == "flow"
    # a parameter at a bound is one too
    bounded = compare_fits({"still": fitted(1010.0, 5), "flow": fitted(1008.0, 5, stderr={"beta": np.nan})})
    assert bounded.names[0] == "still" and np.isclose(bounded.difference[1], np.log(1000) - 2, atol=0.1)
    # the same in other units of the noise
    scaled = compare_fits({"flow": fitted(10080.0, 9), "still": fitted(10100.0, 5)})
    assert np.allclose(scaled.bic, found.bic)
    with pytest.raises(ValueError, match="same points"):
        compare_fits({"one": fitted(1.0, 2), "other": fitted(1.0, 2, 900)})


@pytest.mark.slow
def test_the_simpler_model_wins_unless_the_data_want_more():
    phi = (-60.0, 0.0, 30.0)
    for truth, best in ((STATIC, "still"), (FLOW, "flow")):
        data = small(model_of(truth), truth, n_frames=40, phi=phi)
        fits = {
            name: fit_correlation(data, model, None, QUIET) for name, model in (("still", static()), ("flow", FLOWING))
        }
        found = compare_fits(fits)
        assert found.names[0] == best and found.difference[1] > 5 and best in str(found)
    with pytest.raises(ValueError, match="two or more"):
        compare_fits({"still": fits["still"]})
