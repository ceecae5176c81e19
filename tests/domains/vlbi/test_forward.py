"""Operators: the visibilities of stored images, each other, and their derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.term_makers import residual_term
from shardfit.domains.vlbi import nufft
from shardfit.domains.vlbi.forward import as_operator, choose, rows_for, visibilities
from shardfit.domains.vlbi.grid import Grid, mask_index
from shardfit.domains.vlbi.nufft import Nufft
from shardfit.domains.vlbi.transforms import embed
from tests.domains.vlbi.golden import arrays, fast_compile_jit, numbers, relative, uas

needs_nufft = pytest.mark.skipif(not nufft.available(), reason="jax-finufft is not installed")
FINE = pytest.param(Nufft(1e-13), marks=needs_nufft, id="nufft")
OPERATORS = ["separable", "dense", FINE]
LIMIT = {"separable": 1e-13, "dense": 1e-13, Nufft(1e-13): 1e-11}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


compiled = fast_compile_jit(visibilities, static_argnums=0)


def matrix(grid, u, v):
    """The definition, in full."""
    phase = u[:, None, None] * grid.x + v[:, None, None] * grid.y[:, None]
    pulse = grid.pulse_factor(u) * grid.pulse_factor(v)
    return pulse[:, None] * np.exp(2j * np.pi * phase).reshape(len(u), -1)


def points(n, reach=0.45, seed=0):
    return np.random.default_rng(seed).uniform(-reach, reach, (2, n))


@pytest.mark.parametrize("pulse", ["triangle", "delta", "rect"])
@pytest.mark.parametrize("kind", OPERATORS)
def test_golden_visibilities(kind, pulse):
    z = arrays("real_101_lo")
    grid = Grid(32, 32, numbers("real_101_lo")["psize_rad"], pulse)
    found = compiled(kind, z["image"], rows_for(grid, z["prep_u"], z["prep_v"], kind))
    name = "model_vis_prep" if pulse == "triangle" else f"model_vis_prep_{pulse}"
    assert relative(found, z[name]) < LIMIT[kind]


@pytest.mark.parametrize("kind", OPERATORS)
def test_golden_image_that_is_not_square(kind):
    z = arrays("real_101_lo")
    grid = Grid(24, 20, uas(5.0))
    found = compiled(kind, z["ns_image"], rows_for(grid, z["prep_u"], z["prep_v"], kind))
    assert relative(found, z["ns_model_vis"]) < LIMIT[kind]


@pytest.mark.parametrize("shape", [(6, 4), (7, 4), (5, 9), (1, 3)])
@pytest.mark.parametrize("kind", ["separable", "dense"])
def test_any_shape_and_gaussian_pulse(kind, shape):
    grid = Grid(*shape, 1.0, "gaussian")
    u, v = points(5)
    image = np.random.default_rng(1).normal(size=grid.shape)
    found = compiled(kind, image, rows_for(grid, u, v, kind))
    assert relative(found, matrix(grid, u, v) @ image.ravel()) < 1e-14


@pytest.mark.parametrize("kind", OPERATORS)
def test_gradient_batch_and_curvature(kind):
    grid = Grid(8, 6, 1.0)
    u, v = points(7)
    rows, full = rows_for(grid, u, v, kind), matrix(grid, u, v)
    images = np.random.default_rng(1).normal(size=(3, *grid.shape))

    def value(image, rows):
        found = visibilities(kind, image, rows)
        return jnp.sum(found.real**2 + found.imag**2)

    model = images.reshape(3, -1) @ full.T
    expected = 2 * np.real(model.conj() @ full).reshape(images.shape)

    @fast_compile_jit
    def all_ways(images, rows):
        batch = jax.vmap(jax.grad(value), (0, None))(images, rows)
        outside = jax.grad(lambda x: jax.vmap(value, (0, None))(x, rows).sum())(images)
        curved = jax.jvp(jax.grad(partial(value, rows=rows)), (images[0],), (images[0],))[1]
        return batch, outside, curved, visibilities(kind, images, rows)

    batch, outside, curved, stack = all_ways(images, rows)
    for found, wanted in ((batch, expected), (outside, expected), (curved, expected[0]), (stack, model)):
        assert relative(found, wanted) < 100 * LIMIT[kind]


@pytest.mark.parametrize("kind", OPERATORS)
def test_float32(kind):
    grid = Grid(8, 6, 1.0)
    u, v = points(7)
    image = np.random.default_rng(1).normal(size=grid.shape)
    with jax.enable_x64(False):
        rows = {k: jnp.asarray(a, np.float32) for k, a in rows_for(grid, u, v, kind).items()}
        found = compiled(kind, jnp.asarray(image, np.float32), rows)
    assert found.dtype == np.complex64
    assert relative(found, matrix(grid, u, v) @ image.ravel()) < 2e-5


@needs_nufft
@pytest.mark.parametrize("devices", [2, 3])
def test_nufft_on_split_rows(devices):
    grid, kind = Grid(8, 6, 1.0), Nufft(1e-13)
    u, v = points(10)
    rows = {"operator": rows_for(grid, u, v, kind), "vis": np.exp(1j * u)}
    term = residual_term(lambda x, r: visibilities(kind, x, r["operator"]) - r["vis"], rows)
    one = sf.Objective({"vis": term})
    image = np.random.default_rng(1).normal(size=grid.shape)
    many = one.place(sf.mesh(rows=devices))
    for a, b in zip(many.value_and_grad(image), one.value_and_grad(image), strict=True):
        assert relative(a, b) < 1e-12


@needs_nufft
def test_nufft_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="even numbers of pixels"):
        rows_for(Grid(7, 6, 1.0), np.zeros(1), np.zeros(1), "nufft")
    with pytest.raises(ValueError, match="times too large"):
        rows_for(Grid(8, 6, 1.0), np.array([0.6]), np.zeros(1), "nufft")
    with pytest.raises(ValueError, match="tolerance"):
        Nufft(tolerance=1.0)


REAL = {}


def conjugated(kind):
    """What an older or broken library might do: the other sign in the exponent."""

    def transform(*args, iflag, **options):
        return REAL[kind](*args, iflag=-iflag, **options)

    return transform


def scaled(kind):
    return lambda *args, **options: 1.0001 * REAL[kind](*args, **options)


def failing(kind):
    def transform(*args, **options):
        raise TypeError("incompatible with this jax")

    return transform


@needs_nufft
@pytest.mark.parametrize(
    ("tolerance", "kind", "broken", "text"),
    [
        (3.1e-9, "nufft2", conjugated, "wrong by"),
        (3.2e-9, "nufft2", scaled, "wrong by"),
        (3.3e-9, "nufft1", conjugated, "wrong by"),  # only the gradient is wrong
        (3.4e-9, "nufft1", scaled, "wrong by"),
        (3.5e-9, "nufft2", failing, "incompatible with this jax"),
    ],
)
def test_wrong_library_is_detected(monkeypatch, tolerance, kind, broken, text):
    """Checks are remembered by settings, so each case has its own tolerance."""
    import jax_finufft

    REAL.update(nufft1=jax_finufft.nufft1, nufft2=jax_finufft.nufft2)
    monkeypatch.setattr(jax_finufft, kind, broken(kind))
    with pytest.raises(RuntimeError, match=rf"{text}.*operator='separable'"):
        rows_for(Grid(8, 6, 1.0), np.zeros(1), np.zeros(1), Nufft(tolerance))


@needs_nufft
def test_check_is_exact_whatever_the_callers_precision():
    with jax.enable_x64(False):
        assert rows_for(Grid(8, 6, 1.0), np.zeros(1), np.zeros(1), Nufft(1e-13))["x"].dtype == np.float64
        nufft.self_test.__wrapped__(Nufft(1e-13))


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(nufft, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'shardfit\[vlbi\]', or use operator='separable'"):
        rows_for(Grid(8, 6, 1.0), np.zeros(1), np.zeros(1), "nufft")
    assert choose("auto", Grid(64, 64, 1.0), 50_000) == (
        "separable",
        "separable: NUFFT would be 3.5 times cheaper, but jax-finufft is missing",
    )


def test_choice_of_operator(monkeypatch):
    monkeypatch.setattr(nufft, "find_spec", lambda name: name)
    chosen, why = choose("auto", Grid(40, 40, 1.0), 2595)
    assert chosen == "separable"
    assert "2,595 visibilities on 40 x 40 pixels" in why
    chosen, why = choose("auto", Grid(128, 128, 1.0), 20_000)
    assert chosen == Nufft()
    assert "times cheaper than the separable product for 20,000 visibilities" in why
    assert choose("auto", Grid(127, 128, 1.0), 20_000)[1].startswith("separable: NUFFT needs even numbers of pixels")
    # a transform for every image: many images of few visibilities do not pay
    assert choose("auto", Grid(128, 128, 1.0), 20_000, images=64)[0] == "separable"
    assert choose("dense", Grid(8, 8, 1.0), 1) == ("dense", "dense: as given")
    assert choose(Nufft(1e-6), Grid(8, 8, 1.0), 1) == (Nufft(1e-6), "nufft: as given")
    for wrong in (lambda: choose("dens", Grid(8, 8, 1.0), 1), lambda: as_operator("dens")):
        with pytest.raises(ValueError, match="Did you mean 'dense'"):
            wrong()
    with pytest.raises(ValueError, match="equal length"):
        rows_for(Grid(8, 8, 1.0), np.zeros(1), np.zeros(2), "dense")


def test_grid_and_mask():
    grid = Grid(3, 2, 1.0)
    assert mask_index(grid, np.ones(6)) is None
    index = mask_index(grid, np.arange(6.0), 2.5)
    assert index.tolist() == [3, 4, 5]
    assert np.array_equal(embed(grid, jnp.ones(3), index), [[0, 0, 0], [1, 1, 1]])
    for bad, text in (({"nx": 0}, "whole number"), ({"pixel_rad": 0.0}, "positive"), ({"pulse": "tri"}, "triangle")):
        with pytest.raises(ValueError, match=text):
            Grid(**{"nx": 3, "ny": 2, "pixel_rad": 1.0, **bad})
    with pytest.raises(ValueError, match="Regrid"):
        mask_index(grid, np.ones(5))
    with pytest.raises(ValueError, match="Lower clipfloor"):
        mask_index(grid, np.ones(6), 2.0)
    with pytest.raises(ValueError, match="NaN in 1 pixels"):
        mask_index(grid, np.array([1, 1, 1, np.nan, 1, 1]))
