"""sample: from a problem to a posterior; the same draws after kills, on any devices; clear refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.check.certificate import _memories
from shardfit.core.functions import shared_problem
from shardfit.core.transforms import TanInterval
from shardfit.sampling.chains.placement import _counted, choose_width
from shardfit.sampling.density import caveats, sampled
from shardfit.sampling.start import find_start

RNG = np.random.default_rng(1)
T = np.linspace(0, 5, 40)
ROWS = {"t": T, "y": 2 * np.exp(-0.7 * T) + 0.1 * RNG.normal(size=T.size)}
START = {"a": 1.0, "k": 1.0}
PRIORS = {"a": sf.Normal(0.0, 5.0), "k": sf.LogNormal(0.0, 1.0)}
QUICK = {"chains": 2, "warmup": 100, "draws": 100, "progress": False}


def residual(params, rows):
    return (rows["y"] - params["a"] * jnp.exp(-params["k"] * rows["t"])) / 0.1


def problem(**more):
    more = {"priors": PRIORS} | more
    return sf.Problem(sf.Objective({"decay": sf.residual_term(residual, ROWS)}), START, **more)


@pytest.fixture(scope="module")
def posterior():
    return sf.sample(problem(units={"k": "1/s"}), chains=4, warmup=200, draws=500, progress=False)


def by_quadrature():
    """Means and standard deviations of a and k, by summing the density over a grid of parameters."""
    a, k = np.meshgrid(np.linspace(1.6, 2.4, 301), np.linspace(0.5, 0.95, 301), indexing="ij")
    model = a[..., None] * np.exp(-k[..., None] * T)
    value = 0.5 * np.sum(((ROWS["y"] - model) / 0.1) ** 2, -1)
    value += 0.5 * (a / 5) ** 2 + 0.5 * np.log(k) ** 2 + np.log(k)
    weight = np.exp(value.min() - value)
    weight /= weight.sum()
    means = [float((weight * x).sum()) for x in (a, k)]
    return means, [float(np.sqrt((weight * (x - m) ** 2).sum())) for x, m in zip((a, k), means, strict=True)]


def test_moments_are_those_of_the_density(posterior):
    means, sds = by_quadrature()
    summary = posterior.summary()
    for i in range(2):
        assert abs(summary["mean"][i] - means[i]) < 5 * summary["mcse"][i]
        assert abs(summary["sd"][i] / sds[i] - 1) < 0.12
    assert posterior.verdict() and posterior.draws["k"].shape == (4, 500)
    assert "1/s" in str(posterior) and posterior.extra["useful_gradients"] > 0.8


@pytest.mark.slow
def test_groups_give_the_same_draws_on_any_devices():
    options = {**QUICK, "width": 1, "start": "x0", "chains": 4, "draws": 40}
    alone = sf.sample(problem(), **options)
    spread = sf.sample(problem(), mesh=sf.mesh(rows=1, runs=4), **options)
    np.testing.assert_array_equal(alone.z, spread.z)


def test_rows_and_runs_are_split():
    split = sf.sample(problem(), mesh=sf.mesh(rows=2, runs=2), **QUICK | {"chains": 4})
    means, sds = by_quadrature()
    assert np.all(np.abs(split.summary()["mean"] - means) < 0.5 * np.array(sds))


def test_runs_go_on_and_grow(tmp_path):
    whole = sf.sample(problem(), run_dir=tmp_path / "run", **QUICK)
    again = sf.sample(problem(), run_dir=tmp_path / "run", **QUICK)
    np.testing.assert_array_equal(whole.z, again.z)
    longer = sf.sample(problem(), run_dir=tmp_path / "run", **QUICK | {"draws": 150})
    assert longer.z.shape == (2, 150, 2)
    np.testing.assert_array_equal(longer.z[:, :100], whole.z)
    assert len(np.unique(longer.z[0, :, 0])) > 120
    with pytest.raises(sf.CheckpointError, match="target_accept"):
        sf.sample(problem(), run_dir=tmp_path / "run", target_accept=0.9, **QUICK)
    with pytest.raises(sf.CheckpointError, match="prior"):
        sf.sample(problem(priors=PRIORS | {"a": sf.Normal(0.0, 4.0)}), run_dir=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "config.json").unlink()  # what else is there still says whose it is
    with pytest.raises(sf.CheckpointError, match=r"start.npz is of another run.*resume='never'"):
        sf.sample(problem(priors=PRIORS | {"a": sf.Normal(0.0, 4.0)}), run_dir=tmp_path / "run", **QUICK)
    anew = sf.sample(problem(), run_dir=tmp_path / "run", resume="never", **QUICK)
    np.testing.assert_array_equal(anew.z, whole.z)


def test_float64_where_64_bit_is_off_and_on():
    assert not jax.config.jax_enable_x64
    narrow = sf.sample(problem(), **QUICK)
    assert narrow.z.dtype == np.float64
    with jax.enable_x64(True):
        wide = sf.sample(problem(), **QUICK)
    np.testing.assert_array_equal(narrow.z, wide.z)


def test_what_has_no_posterior_is_named():
    with pytest.raises(ValueError, match="k has no prior"):
        sf.sample(problem(priors={"a": sf.Normal(0.0, 5.0)}))
    with pytest.raises(ValueError, match="unknown method"):
        sf.sample(problem(), "gibbs")
    with pytest.raises(ValueError, match="all parameters are held"):
        sf.sample(problem(fixed=["a", "k"]))

    def undefined(params, rows):
        return rows["y"] / jnp.sqrt(params["a"] - 3)

    with pytest.raises(sf.NonFiniteError, match="term 'decay' is"):
        sf.sample(sf.Problem(sf.Objective({"decay": sf.residual_term(undefined, ROWS)}), {"a": 1.0}))

    def together(params, rows):
        return rows["y"] - (params["a"] + params["k"]) * rows["t"]

    for start in ("fit", "x0"):
        with pytest.raises(ValueError, match="improper: neither data nor priors say anything of a, k"):
            sf.sample(sf.Problem(sf.Objective({"decay": sf.residual_term(together, ROWS)}), START), start=start)


def test_what_is_assumed_is_said():
    bare = sf.sample(problem(priors=None, bounds={"k": (0.1, 3.0)}), **QUICK)
    assert "No priors are declared" in bare.note
    assert np.all((bare.draws["k"] > 0.1) & (bare.draws["k"] < 3.0))


def test_coordinates_with_heavy_tails_are_named():
    heavy = problem(transforms={"a": TanInterval(0.0, 5.0)})
    assert "Coordinates of a have heavy tails" in caveats(heavy)
    assert "heavy" not in caveats(problem())


def test_what_a_program_tells_is_asked_once():
    """A second call neither counts the operations of its gradient nor examines the model again."""
    target = sampled(problem())
    choose_width(target, 4, None)
    before = _counted.cache_info()
    choose_width(target, 4, None)
    assert _counted.cache_info()._replace(hits=0) == before._replace(hits=0)
    start, again = find_start(target), find_start(target, seed=5)
    np.testing.assert_array_equal(start.root, again.root)
    (memory,) = _memories[shared_problem(target)].values()
    assert len(memory.starts) == 1


def test_an_interrupt_of_the_fit_ends_the_call(monkeypatch):
    def interrupted(self, function, z0, *box):
        function(z0)
        raise KeyboardInterrupt

    monkeypatch.setattr("shardfit.solve.lbfgsb.LBFGSB.minimise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find_start(sampled(problem()))


@pytest.mark.slow
@pytest.mark.processes
def test_workers_draw_what_one_process_draws(tmp_path):
    options = {**QUICK, "warmup": 50, "draws": 40}
    alone = sf.sample(problem(), width=1, run_dir=tmp_path / "alone", **options)
    shared = sf.sample_parts(problem, run_dir=tmp_path / "shared", workers=2, **options)
    np.testing.assert_array_equal(alone.z, shared.z)


def test_an_option_that_is_none_is_named():
    with pytest.raises(TypeError, match="no option 'warm_up'. Did you mean 'warmup'"):
        sf.sample(problem(), warm_up=10)
