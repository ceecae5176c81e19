"""Several channels as one term: ragged, on any mesh, in blocks and chunks, each with its own χ²."""

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.terms import half_square
from shardfit.domains.vlbi import nufft, transforms
from shardfit.domains.vlbi.nufft import Nufft
from shardfit.domains.vlbi.packing import STEP, pack
from shardfit.domains.vlbi.problem import channel_chi2, imaging_problem
from shardfit.domains.vlbi.products import DataModel
from tests.domains.vlbi.golden import fast_compile_jit, relative
from tests.domains.vlbi.small import EVERY, GRID, small_data, small_maps

needs_nufft = pytest.mark.skipif(not nufft.available(), reason="jax-finufft is not installed")
OPERATORS = ["separable", pytest.param("dense", marks=pytest.mark.slow)]
OPERATORS += [pytest.param(Nufft(1e-13), marks=needs_nufft, id="nufft")]
SPECTRAL = {"alpha": 0.5, "beta": -0.3, "alphap": 0.4, "betap": 0.2, "rm": 0.7}
RATIOS = (-0.2, 0.0, 0.3)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


value_grad_parts = fast_compile_jit(sf.Objective.value_grad_parts)


def channels():
    """Three frequencies with different numbers of times, so of sets, visibilities and closures."""
    sizes = (5, 2, 4)
    return [small_data(n, seed, ratio) for seed, (n, ratio) in enumerate(zip(sizes, RATIOS, strict=True))]


def spectral_maps():
    rng = np.random.default_rng(5)
    return {**small_maps(), **{k: a * rng.normal(size=GRID.n_pixels) for k, a in SPECTRAL.items()}}


def problem(data=None, **changes):
    weights = {name: 0.1 * (i + 1) for i, name in enumerate(EVERY)}
    given = {"data_weights": weights, "reg_weights": {"tv": 1.0}, "flux": 1.0, "beam": 2.0, "mode": "IPV"}
    given |= {"spectral": tuple(SPECTRAL), "operator": "separable", "norm_init": False}
    return imaging_problem(channels() if data is None else data, GRID, spectral_maps(), **{**given, **changes})


@fast_compile_jit
def alone(maps, rows):
    residuals = DataModel(GRID, "separable", EVERY)(maps, rows, {"kept": {}, "index": None})
    return half_square(residuals)


@pytest.fixture(scope="module")
def one_by_one():
    """χ² of every channel from its own rows and its own image."""
    with jax.enable_x64(True):
        moved = (transforms.at_frequency(spectral_maps(), ratio) for ratio in RATIOS)
        found = [alone(m, pack(c, GRID, "separable")) for m, c in zip(moved, channels(), strict=True)]
        return {name: np.array([float(one[name]) for one in found]) for name in EVERY}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_channels_are_those_of_their_own(one_by_one, operator, blocks):
    several = problem(operator=operator, blocks=blocks)
    assert several.objective.n_rows["data"] == 3 * blocks
    found = channel_chi2(several)
    for name in EVERY:
        np.testing.assert_allclose(found[name], one_by_one[name], rtol=1e-11, err_msg=name)


@pytest.fixture(scope="module")
def single():
    with jax.enable_x64(True):
        several = problem(blocks=1)
        return several, value_grad_parts(several.objective, several.x0)


def same(found, expected, limit=1e-12):
    np.testing.assert_allclose(found[0], expected[0], rtol=limit)
    for name in expected[1]:
        assert relative(found[1][name], expected[1][name]) < limit, name
    for name in expected[2]:
        np.testing.assert_allclose(found[2][name], expected[2][name], rtol=limit, err_msg=name)


def test_parts_are_sums_over_channels(single, one_by_one):
    several, (_, _, parts) = single
    for name in EVERY:
        np.testing.assert_allclose(parts[f"data.{name}"], one_by_one[name].sum(), rtol=1e-11, err_msg=name)
        assert parts[f"offset.{name}"] == -3


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("devices", [pytest.param(n, marks=pytest.mark.slow if n != 2 else ()) for n in (1, 2, 3, 4)])
def test_frequencies_on_a_mesh(single, devices, operator):
    """Three channels do not divide over two or four devices."""
    several = problem(operator=operator, blocks=1)
    expected = single[1] if operator == "separable" else value_grad_parts(several.objective, several.x0)
    same(value_grad_parts(several.objective.place(sf.mesh(rows=devices)), several.x0), expected)


def test_chunks_cut_channels(single):
    several = problem(chunk=3)
    term = dict(several.objective.items())["data"]
    assert (term.chunk, term.n_rows) == (1, 3 * 11)  # the largest channel has 33 visibilities
    same(value_grad_parts(several.objective, several.x0), single[1])


@pytest.mark.parametrize(("n", "blocks"), [(8, 1), (9, 1), (3, 8), (2, 4), (1, 8)])
def test_blocks_occupy_the_devices(n, blocks):
    assert jax.device_count() == 8
    given = {"data_weights": {"vis": 1.0}, "reg_weights": {"tv": 1.0}, "flux": 1.0, "beam": 2.0}
    found = imaging_problem([small_data(2)] * n, GRID, np.ones(GRID.shape), spectral=("alpha",), **given)
    assert found.objective.n_rows["data"] == n * blocks


def test_one_image_for_all_channels():
    """Without spectral maps a row is a set of joined visibilities, whatever the channel."""
    maps, sets = small_maps(), channels()
    weights = dict.fromkeys(EVERY, 1.0)
    given = {"reg_weights": {"tv": 1.0}, "flux": 1.0, "beam": 2.0, "mode": "IPV", "operator": "separable"}
    both = imaging_problem(sets, GRID, maps, data_weights=weights, norm_init=False, chunk=12, **given)
    assert dict(both.objective.items())["data"].chunk == 1
    expected = [alone(maps, pack(c, GRID, "separable")) for c in sets]
    assert both.objective.n_rows["data"] == sum(len(pack(c, GRID, "separable")["channel"]) for c in sets) - STEP
    for name, found in channel_chi2(both).items():
        np.testing.assert_allclose(found, [float(one[name]) for one in expected], rtol=1e-12, err_msg=name)


@needs_nufft
def test_batches_of_images_with_points_of_their_own():
    """A survey's batch of parameters over rows that each have their own image and points."""
    given = {"data_weights": {"vis": 1.0}, "reg_weights": {"tv": 1.0}, "flux": 1.0, "beam": 2.0, "blocks": 1}
    found = imaging_problem(channels(), GRID, np.ones(GRID.shape), spectral=("alpha",), operator=Nufft(1e-13), **given)
    rng = np.random.default_rng(2)
    batch = {"I": rng.uniform(0.01, 0.1, (4, 24)), "alpha": rng.normal(size=(4, 24))}

    @fast_compile_jit
    def evaluate(objective, batch):
        return jax.vmap(jax.value_and_grad(objective.value))(batch)

    values, gradients = evaluate(found.objective, batch)
    for i in (0, 3):
        value, gradient = found.objective.value_and_grad({k: a[i] for k, a in batch.items()})
        np.testing.assert_allclose(values[i], value, rtol=1e-12)
        for name in gradient:
            assert relative(gradients[name][i], gradient[name]) < 1e-11
