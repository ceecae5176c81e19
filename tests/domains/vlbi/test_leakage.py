"""Leakage: terms that were put in come out, and data without them are those of the sky."""

import numpy as np
import pytest

from shardfit.domains.vlbi import recipes
from shardfit.domains.vlbi.leakage import apply_leakage, solve_leakage
from shardfit.domains.vlbi.simulation import EHT2017, Gains, Night, simulate

TOTAL = recipes.known_image("ring", 24)
TRUTH = TOTAL.replace(values={n: s * TOTAL.values["I"] for n, s in zip("IQUV", (1.0, 0.2, -0.1, 0.01), strict=True)})
NIGHT = Night(stop_h=12, cadence_s=900.0)


def data(leakage, noise, seed=2):
    return simulate(TRUTH, EHT2017, NIGHT, gains=Gains(leakage=leakage), noise=noise, seed=seed)


def test_terms_come_back():
    found = solve_leakage(data(1e-4, noise=False), TRUTH)
    draw = np.random.default_rng([2, 1]).normal(size=(2, 2, len(EHT2017)))
    right, left = 1e-4 * (draw[0] + 1j * draw[1])
    seen = np.isfinite(found.right)
    np.testing.assert_allclose(found.right[seen], right[seen], atol=3e-8)  # of second order
    np.testing.assert_allclose(found.left[seen], left[seen], atol=3e-8)


def test_corrected_data_are_those_of_the_sky():
    noisy = data(0.05, noise=True)
    found = solve_leakage(noisy, TRUTH)
    before, after = (recipes.chi2(o, TRUTH, ("pvis",))["pvis"] for o in (noisy, apply_leakage(noisy, found)))
    assert before > 5
    assert after < 1.2


def test_errors_hold():
    pulls = []
    for seed in range(4):
        noisy = data(1e-9, noise=True, seed=seed)
        found = solve_leakage(noisy, TRUTH)
        there = np.isfinite(found.error)
        for terms in (found.right[there], found.left[there]):
            pulls += [*(terms / found.error[there]).real, *(terms / found.error[there]).imag]
    pulls = np.array(pulls)
    assert 0.75 < np.sqrt(np.mean(pulls**2)) < 1.15  # about 120 numbers; the larger of two errors is given


def test_offset_between_the_hands():
    clean = data(0.0, noise=False)
    rl = (clean.vis["Q"] + 1j * clean.vis["U"]) * np.exp(0.3j)
    lr = (clean.vis["Q"] - 1j * clean.vis["U"]) * np.exp(-0.3j)
    turned = clean.replace(vis={**clean.vis, "Q": (rl + lr) / 2, "U": 1j * (lr - rl) / 2})
    found = solve_leakage(turned, TRUTH, offset=True)
    assert found.offset == pytest.approx(np.exp(0.3j), abs=1e-9)
    back = apply_leakage(turned, found)
    np.testing.assert_allclose(back.vis["Q"], clean.vis["Q"], atol=1e-9)


def test_what_is_needed():
    with pytest.raises(ValueError, match="Q and U are needed"):
        solve_leakage(data(0.0, noise=False), TOTAL)
