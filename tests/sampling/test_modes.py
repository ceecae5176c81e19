"""Densities of several modes: they are found before chains begin, and chains that stay in theirs are no success."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.sampling.density import sampled
from shardfit.sampling.dispersed import dispersed
from shardfit.sampling.start import find_start, read_start, write_start

FAR = np.array([[-5.0, 0.0], [5.0, 0.0]]), np.log([0.3, 0.7])
ONE = np.array([[1.0, 2.0], [1.0, 2.0]]), np.log([0.5, 0.5])
NEAR = np.array([[-1.3, 0.0], [1.3, 0.0]]), np.log([0.5, 0.5])
QUICK = {"chains": 4, "warmup": 150, "draws": 300, "progress": False}


def mixture(x, means, logs):
    return -jnp.log(jnp.sum(jnp.exp(logs - 0.5 * jnp.sum((x - means) ** 2, axis=1))))


def of(case, x0=(5.0, 0.0), **more):
    return sf.Problem(sf.Objective({"modes": sf.penalty(mixture, *case)}), np.array(x0), **more)


@pytest.mark.parametrize("start", ["fit", "x0", np.array([[5.0, 0.0]] * 4)], ids=["fit", "x0", "points"])
def test_two_modes_are_no_success_wherever_chains_begin(start):
    found = sf.sample(of(FAR), start=start, **QUICK)
    assert found.verdict().status == "not_converged"
    assert "2 modes" in found.note and "0.7 at x[0] = 5" in found.note and "0.3 at x[0] = -5" in found.note
    told = "chains stay in theirs" if isinstance(start, str) and start == "fit" else "hardly visit mode 2 of 2"
    assert told in str(found.verdict()) and "weights by Laplace 0.7, 0.3" in str(found.verdict())
    np.testing.assert_allclose(found.extra["mode_weight"], [0.7, 0.3], atol=1e-3)


@pytest.mark.parametrize("case", [ONE, NEAR], ids=["one", "near"])
def test_modes_that_chains_cross_are_a_success(case):
    found = sf.sample(of(case, (0.0, 0.0)), **QUICK | {"warmup": 150, "draws": 300, "target_accept": 0.8})
    assert "stay in theirs" not in str(found.verdict()) and "hardly visit" not in str(found.verdict())
    assert found.summary()["rhat"].max() < 1.03
    mean = np.exp(case[1]) @ case[0]
    np.testing.assert_allclose(found.mean(), mean, atol=0.25)


def test_points_are_parameters():
    """Of one array, of a dict, of numbers in a row; with logarithms as coordinates, and with numbers that are held."""

    def loss(p):
        return 0.5 * jnp.sum((p["a"] - 1) ** 2) + 0.5 * (p["s"] - 2) ** 2

    problem = sf.Problem(
        sf.Objective({"d": sf.penalty(loss)}), {"a": np.ones(2), "s": 1.0}, transforms={"s": "log"}, fixed=["a[1]"]
    )
    target = sampled(problem)
    points = {"a": np.array([[0.5, 1.0], [2.0, 1.0]]), "s": np.array([1.0, np.e])}
    expected = [[0.5, 0.0], [2.0, 1.0]]
    for given in (points, np.array([[0.5, 1.0], [2.0, np.e]])):
        start = find_start(target, how=given).for_chains(2, 0)
        np.testing.assert_allclose(start.of_group(0, 1)["points"], expected, atol=1e-12)
        np.testing.assert_allclose(start.of_group(1, 2)["points"], expected[1:], atol=1e-12)
    with pytest.raises(ValueError, match="2 points for 4 chains"):
        start.for_chains(4, 0)
    for wrong in (np.zeros((2, 3)), {"a": np.zeros((2, 2))}, {"a": np.zeros((2, 2)), "s": np.zeros(3)}, "prior"):
        with pytest.raises(ValueError, match="start"):
            find_start(target, how=wrong)
    with pytest.raises(ValueError, match="outside the range"):
        find_start(target, how={"a": np.ones((2, 2)), "s": np.array([1.0, -1.0])})


def test_a_start_is_kept_with_its_modes(tmp_path):
    start = find_start(sampled(of(FAR))).for_chains(4, 3)
    assert start.points is not None and sorted(np.sign(start.points[:, 0])) == [-1, -1, 1, 1]
    write_start(tmp_path / "start.npz", start, "run")
    again = read_start(tmp_path / "start.npz", "run")
    assert again is not None and again.modes is not None and start.modes is not None
    np.testing.assert_array_equal(again.points, start.points)
    np.testing.assert_array_equal(again.modes.weight, start.modes.weight)
    np.testing.assert_array_equal(again.modes.roots, start.modes.roots)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_modes_are_found_in_any_unit(scale):
    start = find_start(
        sampled(sf.Problem(sf.Objective({"d": sf.penalty(scaled, scale, *FAR)}), np.array([5 * scale, 0])))
    )
    assert start.modes is not None and len(start.modes) == 2


def scaled(x, scale, means, logs):
    return mixture(x / scale, means, logs)


def test_dispersed_points_follow_priors_and_ends():
    def none(p):
        return 0.5 * p["wide"] ** 2

    problem = sf.Problem(
        sf.Objective({"d": sf.penalty(none)}),
        {"wide": 0.0, "share": 0.5, "held": np.zeros(3)},
        priors={"wide": sf.Normal(1000.0, 300.0), "share": sf.Uniform(0.0, 1.0), "held": sf.Normal(0.0, 1.0)},
        fixed=["held[1]"],
    )
    target = sampled(problem)
    labels = target.space.coordinate_labels()
    points = dispersed(target, target.z0(), None, 256, 0)
    assert points.shape == (256, 4) and np.isfinite(points).all()
    wide, share = points[:128, labels.index("wide")], 1 / (1 + np.exp(-points[:, labels.index("share")]))
    assert abs(wide.mean() - 1000) < 100 and 250 < wide.std() < 350
    assert abs(share.mean() - 0.5) < 0.08 and abs(share.std() - 0.29) < 0.05


def schools(p, y, sigma):
    tau, away = jnp.exp(p["log_tau"]), p["theta"] - p["mu"]
    value = 0.5 * jnp.sum(((y - p["theta"]) / sigma) ** 2) + 0.5 * jnp.sum((away / tau) ** 2)
    return value + y.size * p["log_tau"] + 0.5 * (p["mu"] / 5) ** 2 + jnp.log1p((tau / 5) ** 2) - p["log_tau"]


def test_a_corner_without_a_mode_is_no_start():
    """A centred hierarchy grows without end towards equal effects: chains begin before the corner."""
    data = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    problem = sf.Problem(
        sf.Objective({"schools": sf.penalty(schools, *data)}), {"mu": 0.0, "log_tau": 0.0, "theta": np.zeros(8)}
    )
    start = find_start(sampled(problem))
    assert "no mode like a Gaussian" in start.note
    labels = problem.space.coordinate_labels()
    assert -4 < start.z[labels.index("log_tau")] < 4
    assert np.linalg.norm(start.root, axis=1).max() < 30


def flat_top(x):
    return jnp.sum(jnp.logaddexp(20 * (x - 3), 0) + jnp.logaddexp(-20 * (x + 3), 0))


def test_a_flat_top_has_a_width():
    start = find_start(sampled(sf.Problem(sf.Objective({"top": sf.penalty(flat_top)}), np.zeros(2))))
    assert 0.1 < np.linalg.norm(start.root, axis=1).max() < 10


def ring(x):
    return 0.5 * ((jnp.sqrt(jnp.sum(x**2) + 1e-12) - 5) / 0.2) ** 2


def test_a_bent_ridge_is_as_wide_as_it_is():
    start = find_start(sampled(sf.Problem(sf.Objective({"ring": sf.penalty(ring)}), np.array([4.0, 1.0]))))
    assert start.modes is not None
    assert 0.5 < np.linalg.norm(start.modes.roots, axis=2).max() < 3


@pytest.mark.parametrize("seed", range(3))
def test_modes_fifty_widths_apart_are_found(seed):
    far = of((np.array([[-50.0, 0.0], [50.0, 0.0]]), FAR[1]), x0=(50.1, 0.1))
    start = find_start(sampled(far), seed=seed)
    assert start.modes is not None and len(start.modes) == 2
