"""Data: what is checked, cut, selected and cleaned."""

import json
from dataclasses import replace

import numpy as np
import pytest

from shardfit.domains.xpcs import (
    Correlation,
    corrected_diagonal,
    estimate_noise,
    fourier_basis,
    quantile_scales,
    symmetrised,
    without_outliers,
)
from shardfit.domains.xpcs.layout import tiles
from shardfit.domains.xpcs.scaling import coefficients_of, scale_basis, shear_weights
from tests.domains.xpcs.cases import FOLDER, reference, small


def matrices(n=3, nt=10, seed=0):
    return symmetrised(1 + 0.1 * np.random.default_rng(seed).random((n, nt, nt)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c2": np.ones((2, 5, 6))}, "one square matrix per q-bin"),
        ({"c2": np.ones((1, 3, 3))}, "too few for a fit"),
        ({"c2": np.array([["a"]])}, "not real numbers"),
        ({"c2": np.random.default_rng(0).random((3, 9, 9))}, "not symmetric"),
        ({"phi": [0.0, 1.0]}, "one number per matrix"),
        ({"phi": [0.0, np.nan, 1.0]}, "NaN or infinity"),
        ({"q": -1.0}, "not positive"),
        ({"dt": 0.0}, "positive number of seconds"),
        ({"gap": -2.0}, "positive length"),
        ({"sigma": 0.0}, "positive everywhere"),
        ({"sigma": np.ones(7)}, "sigma has shape"),
    ],
)
def test_wrong_data_are_refused(change, message):
    good = {"c2": matrices(), "phi": [0.0, 1.0, 2.0], "q": 0.005, "dt": 0.1}
    Correlation(**good)
    with pytest.raises((ValueError, TypeError), match=message):
        Correlation(**good | change)


def test_frames_and_angles_are_selected():
    data = Correlation(matrices(4, 12), [170.0, -175.0, 5.0, 370.0], 0.005, 0.5, sigma=np.full((4, 12), 0.01))
    part = data.frames(3, 10)
    assert part.n_frames == 8 and part.t[0] == 0 and part.t[-1] == 3.5 and part.sigma.shape == (4, 8)
    assert np.array_equal(part.c2, data.c2[:, 2:10, 2:10])
    assert data.near_angles([(160, -160)]).phi.tolist() == [170.0, -175.0]
    assert data.near_angles([(-10, 10)]).phi.tolist() == [5.0, 370.0]
    assert "All angles are kept" in data.near_angles([(40, 50)]).notes[-1]
    with pytest.raises(ValueError, match="Widen the ranges"):
        data.near_angles([(40, 50)], fallback=False)
    with pytest.raises(ValueError, match="frames 1 to 12"):
        data.frames(5, 40)


@pytest.mark.parametrize("rule", ["basic", "interpolation", "median", "mean", "trimmed"])
def test_the_diagonal_is_replaced_and_nothing_else(rule):
    line = 1 + 0.01 * np.add.outer(np.arange(9.0), np.arange(9.0))
    spoiled = line + np.diag(np.full(9, 5.0))
    fixed = corrected_diagonal(spoiled[None], rule)[0]
    off = ~np.eye(9, dtype=bool)
    assert np.array_equal(fixed[off], line[off])
    inner = np.diag(fixed)[3:-3]
    assert np.allclose(inner, np.diag(line)[3:-3])
    assert np.allclose(np.diag(fixed), np.diag(line), atol=0.05)


@pytest.mark.parametrize("name", ["forward_static_nt20_nphi3", "forward_laminar_nt20_nphi3"])
def test_the_diagonal_equals_the_reference(name):
    case = reference(name)
    fixed = corrected_diagonal(case["g2"])
    assert np.max(np.abs(np.einsum("kii->ki", fixed) - case["g2_diag_corrected_diagonal"])) < 1e-12


def test_half_matrices_are_mirrored():
    whole = matrices(2, 6)
    assert np.allclose(symmetrised(np.triu(whole)), whole)
    assert np.allclose(symmetrised(np.tril(whole)), whole)


def test_half_matrices_with_bad_frames_are_mirrored():
    whole = matrices(2, 6)
    whole[:, 2] = whole[:, :, 2] = np.nan  # marked in both triangles
    for half in (np.triu(whole), np.tril(whole)):
        bad = np.isnan(whole)
        assert np.allclose(symmetrised(np.where(bad, np.nan, half)), whole, equal_nan=True)
    below = np.where(np.tri(6, k=-1, dtype=bool), np.nan, whole)
    assert np.allclose(symmetrised(below), whole, equal_nan=True)


def test_noise_is_measured_beside_a_signal_and_outliers():
    data = small(n_frames=60, sigma=0.02)
    c2 = data.c2.copy()
    c2[:, 5, 40] = c2[:, 40, 5] = 9.0
    spoiled = replace(data, c2=c2, sigma=None)
    assert np.allclose(estimate_noise(spoiled), 0.02, rtol=0.06)
    clean = without_outliers(spoiled)
    assert np.isnan(clean.c2[:, 5, 40]).all() and "outliers" in clean.notes[-1]
    assert np.sum(np.isnan(clean.c2)) < 30


@pytest.mark.parametrize("seed", [11, 12])
def test_quantile_scales_equal_the_reference(seed):
    known = json.loads((FOLDER / "scaling.json").read_text())
    case = reference(f"scaling_data_seed{seed}")
    (entry,) = (each for each in known if each["dataset"]["seed"] == seed)
    data = Correlation(case["c2"], case["phi"], 0.0054, float(case["t"][1] - case["t"][0]))
    contrast, offset = quantile_scales(data)
    assert np.allclose(contrast, entry["contrast"], atol=1e-12) and np.allclose(offset, entry["offset"], atol=1e-12)


def test_fourier_series_equals_the_reference():
    case = reference("fourier")
    assert np.allclose(fourier_basis(np.rad2deg(case["phi_rad"])), case["basis"], atol=1e-14)


def test_scaling_modes():
    phi = np.linspace(-80, 80, 7)
    sizes = {"auto": 1, "individual": 7, "fourier": 5, "constant": 7}
    assert {mode: scale_basis(mode, phi).shape[1] for mode in sizes} == sizes
    assert scale_basis("auto", phi[:2]).shape == (2, 2)
    assert np.allclose(scale_basis("fourier", phi) @ coefficients_of(fourier_basis(phi), np.full(7, 0.3)), 0.3)
    assert np.isclose(shear_weights(phi).mean(), 1)
    with pytest.raises(ValueError, match="needs 5 angles"):
        scale_basis("fourier", phi[:4])
    with pytest.raises(ValueError, match="individual"):
        scale_basis("individal", phi)


@pytest.mark.parametrize("nt", [10, 11, 66])
def test_tiles_hold_every_pair_once(nt):
    data = Correlation(matrices(3, nt), [0.0, 1.0, 2.0], 0.005, 0.1)
    rows, precision, counts = tiles(data, level=1.0)
    pairs = nt * (nt - 1) // 2
    assert counts.tolist() == [pairs] * 3 and precision.tolist() == [1e4] * 3
    upper = data.c2[:, *np.triu_indices(nt, 1)]
    assert np.allclose(np.sum(rows["w"][:, None] * (rows["y"] + 1.0), axis=(0, 2)), upper.sum(axis=1))
    assert np.allclose(np.sum(rows["w"][:, None] * rows["y"] ** 2, axis=(0, 2)), np.sum((upper - 1) ** 2, axis=1))


@pytest.mark.parametrize("shape", [(3, 10, 10), (3, 10), (1, 10)])
def test_tiles_leave_out_missing_points_and_carry_noise(shape):
    c2 = matrices(3, 10)
    c2[1, 2, 7] = c2[1, 7, 2] = np.nan
    sigma = 0.01 * (1 + np.random.default_rng(2).random(shape))
    sigma = symmetrised(sigma) if len(shape) == 3 else sigma
    rows, precision, counts = tiles(Correlation(c2, [0.0, 1.0, 2.0], 0.005, 0.1, sigma), level=0.0)
    assert counts.tolist() == [45, 44, 45] and precision.tolist() == [1.0] * 3
    i, j = np.triu_indices(10, 1)
    per_frame = np.broadcast_to(sigma, (3, 10)) if len(shape) == 2 else None
    variance = sigma[:, i, j] ** 2 if per_frame is None else 0.5 * (per_frame[:, i] ** 2 + per_frame[:, j] ** 2)
    expected = np.nansum(c2[:, i, j] ** 2 / variance, axis=1)
    assert np.allclose(np.sum(rows["w"] * rows["y"] ** 2, axis=(0, 2)), expected)
