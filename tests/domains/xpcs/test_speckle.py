"""The likelihood of speckle: weights, blocks and errors against densities, brute force and simulated measurements."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import wishart

from benchmarks.problems.speckles import DT, Speckles, correlations, times
from shardfit import RunOptions
from shardfit.domains.xpcs import (
    Correlation,
    FitOptions,
    fit_correlation,
    multi_tau,
    read,
    setup,
    static,
    together,
    write,
)
from shardfit.domains.xpcs.problem import takes_speckle
from shardfit.domains.xpcs.recipes.posterior import posterior_problem
from shardfit.domains.xpcs.recipes.speckle import columns_of
from shardfit.domains.xpcs.speckle.blocks import MOST, averaged_maps, shows_shot_noise
from shardfit.domains.xpcs.speckle.noise import Bin, gradient_covariances, measured_noise
from shardfit.domains.xpcs.speckle.weights import shot_from_scatter, whitening
from tests.domains.xpcs.cases import small

QUIET = RunOptions(progress=False)
Q = 0.0054


def law(t):
    return 15000.0 * t**-0.3


def curve(frames, rate=law):
    """f of diffusion by sums written out here."""
    r = rate(times(frames))
    path = DT * np.concatenate([[0.0], np.cumsum(0.5 * (r[1:] + r[:-1]))])
    return np.exp(-(Q**2) * np.abs(path[:, None] - path))


def measured(frames=24, seed=0, **settings):
    made = Speckles(law, frames=frames, **{"pixels": 300, **settings})
    return Correlation(correlations(made, seed), made.phi, Q, DT)


# ---- blocks and the diagonal ----------------------------------------------------------------------------------------


def test_blocks_are_means_of_pairs_of_different_frames_and_so_is_the_model():
    frames, rng = MOST + 22, np.random.default_rng(0)
    noise = rng.normal(size=(2, frames, frames))
    data = Correlation(1 + 0.3 * curve(frames) + 0.01 * (noise + np.swapaxes(noise, 1, 2)), [0.0, 30.0], Q, DT)
    maps = averaged_maps(data, np.arange(frames) ** 1.5)
    stops = np.cumsum(maps.widths).astype(int)
    assert stops[-1] == frames and len(stops) == MOST and maps.widths.max() > 1
    ready = setup(data, static(), FitOptions(likelihood="speckle"))
    f = columns_of(ready, {"D0": 15000.0, "alpha": -0.3, "D_offset": 0.0})[:, 0]
    own = averaged_maps(data)
    for place, blocks, values, exact in ((1, maps, maps.y, data.c2), (0, own, f, np.stack([curve(frames)] * 2))):
        stops = np.cumsum(blocks.widths).astype(int)
        for a, b in ((0, 0), (3, 40), (MOST - 1, MOST - 1), (5, 6)):
            i, j = np.arange(stops[a] - blocks.widths[a], stops[a]), np.arange(stops[b] - blocks.widths[b], stops[b])
            part = exact[place][np.ix_(i.astype(int), j.astype(int))]
            mean = part[i[:, None] != j].mean() if i.size * j.size > 1 or a != b else None
            if mean is not None:
                assert np.isclose(values[place, a, b], mean, atol=1e-12 if values is maps.y else 2e-4)
    assert not maps.seen[0][np.diag(maps.widths == 1)].any()  # a frame with itself is no correlation


def test_the_diagonal_is_kept_by_files_cuts_and_groups(tmp_path):
    data = measured(seed=1, phi=(0.0, 40.0))
    raw = np.diagonal(data.c2, axis1=1, axis2=2)
    write(tmp_path / "raw.npz", data)
    kept = read(tmp_path / "raw.npz")
    assert np.array_equal(kept.diagonal, raw) and not np.allclose(np.diagonal(kept.c2, axis1=1, axis2=2), raw)
    write(tmp_path / "kept.npz", kept)
    again = read(tmp_path / "kept.npz", frames=(3, 20)).take([1])
    assert np.array_equal(again.diagonal, raw[1:, 2:20])
    both, _ = together({"a": kept, "b": again})
    assert np.array_equal(both.diagonal[2, :18], raw[1, 2:20]) and np.isnan(both.diagonal[2, 18:]).all()
    assert shows_shot_noise(kept) and shows_shot_noise(data)
    corrected = replace(kept, diagonal=None)
    assert not shows_shot_noise(corrected)
    assert np.isnan(averaged_maps(corrected).shot).all() and np.allclose(averaged_maps(kept).shot, raw.mean(1))
    with pytest.raises(ValueError, match="one number per frame"):
        replace(kept, diagonal=raw[:, :5])


def test_which_likelihood_is_taken():
    data, known = measured(), small()
    assert takes_speckle(data, FitOptions()) and takes_speckle(replace(data, sigma=0.01), FitOptions())
    assert not takes_speckle(known, FitOptions()) and takes_speckle(replace(known, sigma=None), FitOptions())
    assert takes_speckle(known, FitOptions(likelihood="speckle"))
    asked: Any
    for asked in ({"loss": "huber"}, {"errors": "frames"}, {"triangle": "both"}, {"scaling": "constant"}):
        assert not takes_speckle(data, FitOptions(**asked))
        with pytest.raises(ValueError, match="does not go with"):
            FitOptions(likelihood="speckle", **asked)
    with pytest.raises(ValueError, match="likelihood"):
        FitOptions(likelihood="wishart")
    with pytest.raises(ValueError, match="needs whole two-time maps"):
        setup(multi_tau(known), static(), FitOptions(likelihood="speckle"))


# ---- weights --------------------------------------------------------------------------------------------------------


def test_with_every_element_the_slope_is_that_of_the_wishart_density():
    n, pixels, shot, contrast = 6, 40, 0.8, 0.3
    rng, f = np.random.default_rng(3), curve(n)
    truth = contrast * f + shot * np.eye(n)
    sample = wishart(pixels, truth / pixels).rvs(random_state=rng)
    maps = replace(averaged_maps(measured(n)), y=sample[None], seen=np.ones((1, n, n), bool))
    maps = replace(maps, shot=np.array([shot + contrast]))
    found = whitening(maps, f[None], np.array([contrast]), np.zeros(1))
    assert np.allclose(found.roots[0] @ truth @ found.roots[0].T, np.eye(n))

    def density(step, along):
        return wishart(pixels, (truth + step * along) / pixels).logpdf(sample)

    for along in (f, np.eye(n), f * np.log(f)):
        by_density = (density(1e-5, along) - density(-1e-5, along)) / 2e-5
        white = [found.roots[0] @ each @ found.roots[0].T for each in (along, sample - truth)]
        assert np.isclose(0.5 * pixels * np.sum(white[0] * white[1]), by_density, rtol=1e-6)


def test_shot_noise_is_found_without_a_diagonal():
    data = measured(60, seed=5, pixels=2000)
    maps = averaged_maps(data)
    residual = maps.y[0] - 1 - 0.25 * curve(60)
    np.fill_diagonal(residual, 0.0)
    found = shot_from_scatter(residual, 0.25 * curve(60), np.ones(60))
    assert 0.7 < found / (maps.shot[0] - 1.25) < 1.4


def test_independent_noise_gives_the_weights_of_least_squares():
    noise = 0.02 * np.random.default_rng(4).normal(size=(40, 40))
    data = Correlation(1 + 0.3 * curve(40) + np.triu(noise, 1) + np.triu(noise, 1).T, 0.0, Q, DT)
    maps = averaged_maps(replace(data, diagonal=np.full((1, 40), np.nan)))
    found = whitening(maps, curve(40)[None], np.array([0.3]), np.ones(1))
    whitened = found.roots[0] @ found.roots[0].T * found.shot[0]
    assert np.max(np.abs(whitened - np.eye(40))) < 0.05


# ---- errors ---------------------------------------------------------------------------------------------------------


def bins_at_truth(frames=20, contrast=0.25, shot=1.0):
    f = curve(frames)
    seen = ~np.eye(frames, dtype=bool)
    root = np.linalg.inv(np.linalg.cholesky(contrast * f + shot * np.eye(frames)))
    columns = np.stack([f, np.ones_like(f), contrast * f * np.log(f)])
    return Bin(f, contrast, np.full(frames, shot), np.ones(frames), seen, root, np.zeros_like(f), columns)


@pytest.mark.parametrize(("counts", "shot"), [(1.0, 1.0), (20.0, 0.05)])
def test_gradients_of_simulated_measurements_scatter_as_computed(counts, shot):
    each, pixels, number = bins_at_truth(shot=shot), 150, 400
    made = Speckles(law, frames=20, pixels=pixels, counts=counts)
    inner = each.root.T @ each.root
    pulls = each.seen * (inner @ (each.seen * each.columns) @ inner)
    gradients = np.array([np.sum(pulls * (correlations(made, s)[0] - 1), axis=(1, 2)) for s in range(number)])
    noise = measured_noise([each._replace(residual=correlations(made, 7)[0] - 1 - 0.25 * each.f)])
    computed, _ = gradient_covariances(each, pixels, noise._replace(sharing=1.0), noise.draws[0], 2.0)
    ratio = np.sqrt(np.diag(np.cov(gradients.T)) / np.diag(computed))
    assert np.all(np.abs(ratio - 1) < 0.12)  # 400 measurements know a standard deviation to 3.5 %


def test_pixels_are_counted_and_speckles_that_they_share_are_noticed():
    fitted = fit_correlation(measured(40, phi=(0.0, 30.0, 60.0)), static(), FitOptions(law="power"), QUIET)
    assert fitted.success and fitted.quality == "good"
    assert fitted.noise is not None
    assert np.all(np.abs(fitted.noise.pixels / 300 - 1) < 0.2) and fitted.noise.sharing < 1.6
    assert "scatter of speckle" in str(fitted) and "σ was not given" not in str(fitted)
    shared = measured(40, phi=(0.0, 30.0, 60.0), modes=1, width=6.0, seed=2)
    wide = fit_correlation(shared, static(), FitOptions(law="power"), QUIET)
    assert wide.noise is not None and wide.noise.sharing > 1.8


def test_a_model_that_does_not_hold_is_seen_and_says_so():
    made = Speckles(law, phi=(0.0, 45.0, 90.0), shear=lambda t: np.full_like(t, 3e-4), frames=60, pixels=600)
    data = Correlation(correlations(made, 1), made.phi, Q, DT)
    wrong = fit_correlation(data, static(), FitOptions(law="power"), QUIET)
    assert wrong.structure is not None and wrong.structure.chi2 > 5 * wrong.structure.dof
    assert wrong.quality == "poor" and not wrong.success and "structure" in str(wrong)


def test_least_squares_gets_errors_by_the_same_theory_and_posteriors_count_pixels():
    data = measured(40, phi=(0.0, 30.0, 60.0))
    speckle = fit_correlation(data, static(), FitOptions(law="power"), QUIET)
    points, plain = (
        fit_correlation(data, static(), FitOptions(law="power", likelihood="points", errors=each), QUIET)
        for each in ("speckle", "points")
    )
    assert points.params == plain.params and points.noise is not None
    assert speckle.noise is not None and np.allclose(points.noise.pixels, speckle.noise.pixels, rtol=0.1)
    assert points.stderr["D0"] > 1.4 * plain.stderr["D0"]
    assert 0.9 * speckle.stderr["D0"] < points.stderr["D0"]  # no weights do better
    problem = posterior_problem(speckle)
    start, width = {**problem.x0}, 3 * speckle.stderr["alpha"]
    up, down = (float(problem.objective.value({**start, "alpha": start["alpha"] + step})) for step in (width, -width))
    middle = float(problem.objective.value(start))

    assert up > middle < down
    joint = posterior_problem(speckle, {"contrast": (0.25, 0.1)})
    assert np.isfinite(float(joint.objective.value(joint.x0)))
    with pytest.raises(ValueError, match="plain least squares"):
        setup(data, static(), FitOptions(likelihood="points", errors="speckle", loss="huber"))
