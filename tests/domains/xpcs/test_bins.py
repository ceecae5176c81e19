"""Bins of pairs: point lists equal the whole map, means over bins, delays and ages, the reference's small-data path."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import RunOptions, fit
from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs import (
    Binned,
    Bins,
    FitOptions,
    delay_bins,
    estimate_noise,
    fit_correlation,
    laminar_flow,
    multi_tau,
    setup,
    static,
)
from shardfit.domains.xpcs.forward import averaged
from shardfit.domains.xpcs.problem import geometry_of
from shardfit.domains.xpcs.recipes.answer import read_answer
from tests.domains.xpcs.cases import FLOW, STATIC, measured, model_of, reference, small

QUIET = RunOptions(progress=False)


@arithmetic("float64")
def model_of_bins(data, model, truth, contrast=0.3):
    """What the model says of binned data with offset 1."""
    pairs, geometry = (jax.tree.map(jnp.asarray, each) for each in (data.pairs, geometry_of(data, model)))
    curve = jax.jit(lambda geometry, pairs: averaged(model.curve(model.values(truth), geometry, pairs), pairs))
    return 1 + contrast * np.asarray(curve(geometry, pairs))


def test_a_list_of_all_points_is_the_whole_map():
    data = small(laminar_flow(), n_frames=12)
    i, j = np.triu_indices(12, 1)
    rest = {"gap": data.gap, "first": i, "second": j, "frame_count": 12}
    listed = Binned(data.c2[:, i, j], data.phi, data.q, data.dt, data.sigma, **rest)
    options = FitOptions(scaling="individual", start=FLOW)
    grams = [
        (ready.n_points, ready.problem.objective.place().gram(ready.problem.x0))
        for ready in (setup(each, laminar_flow(), options) for each in (data, listed))
    ]
    assert grams[0][0] == grams[1][0] == 3 * 66
    for one, other in zip(*(jax.tree.leaves(gram) for _, gram in grams), strict=True):
        assert np.allclose(one, other, rtol=1e-7, atol=1e-9 * np.max(np.abs(one)))


@pytest.mark.parametrize("model", [static(), laminar_flow()], ids=["static", "flow"])
def test_the_model_is_averaged_over_bins(model):
    truth = FLOW if len(model.names) == 7 else STATIC
    data = small(model, n_frames=64, sigma=1e-12)
    binned = [multi_tau(data, per_level=8, ages=8, nodes=nodes) for nodes in (1, 4)]
    off = [np.max(np.abs(each.c2 - model_of_bins(each, model, truth))) for each in binned]
    assert off[1] < 0.3 * off[0] and off[1] < 2e-3  # of a contrast of 0.3
    assert binned[0].c2.shape[1] < 0.15 * 64 * 63 / 2


def test_delays_and_ages():
    model, dt = static(), 0.1
    data = small(n_frames=40, sigma=1e-12, phi=(0.0,))
    delay, age = np.array([0.2, 0.4, 1.0]), np.array([1.0, 2.0, 3.0])
    i, j = ((age[:, None] + side * delay) / dt for side in (-0.5, 0.5))
    c2 = data.c2[:, i.round().astype(int), j.round().astype(int)]
    known = {"phi": data.phi, "q": data.q}
    binned = delay_bins(c2, delay, age, dt, **known)
    assert binned.c2.shape == (1, 9) and np.allclose(binned.lag, np.tile(delay, 3))
    assert np.max(np.abs(binned.c2 - model_of_bins(binned, model, STATIC))) < 1e-9
    whole = np.stack([[np.mean(np.diagonal(data.c2[0], lag)) for lag in (1, 4, 16)]])
    run = delay_bins(whole, np.array([1, 4, 16]) * dt, None, dt, n_frames=40, nodes=32, **known)
    assert np.max(np.abs(run.c2 - model_of_bins(run, model, STATIC))) < 5e-4
    with pytest.raises(ValueError, match="need n_frames"):
        delay_bins(whole, delay, None, dt, **known)
    with pytest.raises(ValueError, match="bins × ages × delays"):
        delay_bins(c2[:, :2], delay, age, dt, **known)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": [0, 1]}, "a bin of s pairs"),
        ({"second": [1, 2, 12]}, "frames from 0 to 9"),
        ({"second": [1, 2, np.nan]}, "frames from 0 to 9"),
        ({"frame_count": 2}, "too few"),
        ({"sigma": np.ones((2, 2))}, "sigma has shape"),
        ({"q": -1.0}, "not positive"),
    ],
)
def test_wrong_bins_are_refused(change, message):
    good = {"c2": np.ones((2, 3)), "phi": [0.0, 1.0], "q": 0.005, "dt": 0.1}
    good |= {"first": [0, 1, 2], "second": [1, 2, 3], "frame_count": 10}
    Binned(**good)
    with pytest.raises(ValueError, match=message):
        Binned(**good | change)


def test_bins_cannot_be_cut_by_frame_but_by_angle():
    binned = multi_tau(small(n_frames=16))
    assert binned.take([1]).c2.shape == (1, binned.c2.shape[1]) and binned.take([1]).sigma.shape == (1, binned.n_pairs)
    with pytest.raises(ValueError, match="before averaging"):
        binned.frames(1, 8)
    with pytest.raises(ValueError, match="per frame or point"):
        multi_tau(replace(small(n_frames=16), sigma=np.full((3, 16), 0.01)))
    with pytest.raises(ValueError, match="means over bins"):
        estimate_noise(binned)
    ends = Bins(jnp.array([[0.5]]), jnp.array([[3.0]])).ends(jnp.arange(4.0) ** 2)
    assert [float(end[0, 0]) for end in ends] == [0.5, 9.0]


@pytest.mark.slow
def test_averaged_data_give_the_answer_of_the_whole_map():
    data = small(n_frames=96, sigma=0.02)
    options = FitOptions(fixed={"D_offset": 800.0})
    whole, binned = (fit_correlation(each, static(), options, QUIET) for each in (data, multi_tau(data, 16, 12)))
    assert binned.success and binned.setup.n_points < 0.2 * whole.setup.n_points
    for name in ("D0", "alpha"):
        assert abs(binned.params[name] - STATIC[name]) < 4 * binned.stderr[name]
        assert abs(binned.params[name] - whole.params[name]) < 1.5 * binned.stderr[name]
        assert binned.stderr[name] < 1.5 * whole.stderr[name]


@pytest.mark.parametrize("given", [{"loss": "huber"}, {"scaling": "fourier"}])
def test_compat_grid_refuses_what_it_would_not_use(given):
    ((name, value),) = given.items()
    with pytest.raises(ValueError, match=f"compat 'grid' .* so that {name} '{value}' would not be used"):
        FitOptions(compat="grid", **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit_static_nt40_nphi3", "fit_laminar_nt60_nphi5"])
def test_compat_grid_is_what_the_reference_minimises(name):
    case = reference(name)
    model, tag = model_of(case["init"]), "refcompat_individual_soft_l1_unweighted_diag"
    start = dict(zip(model.names, case["init"].tolist(), strict=True))
    ready = setup(measured(case), model, FitOptions(start=start, compat="grid"))
    found = read_answer(ready, fit(ready.problem, "lm", certify=False, progress=False, ftol=1e-15))
    values = np.r_[found.contrast, found.offset, list(found.params.values())]
    errors = np.sqrt(np.diag(case[f"{tag}_cov"]))
    assert found.setup.n_points == case[f"{tag}_n"]
    assert np.isclose(found.result.value, case[f"{tag}_cost"], rtol=1e-9)
    assert np.max(np.abs(values - case[f"{tag}_x"]) / errors) < 1e-3
