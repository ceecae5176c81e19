"""Gains that suit a model best, found at every evaluation: against the solver of self-calibration, and as a product."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.vlbi import gain_solver
from shardfit.domains.vlbi.best_gains import Sets, best_gains, cost
from shardfit.domains.vlbi.problem import imaging_problem
from shardfit.domains.vlbi.recipes import image, known_image, observe
from shardfit.domains.vlbi.tables import LEAST_GAIN, calibrated_product, data_set, split

NPIX = 16
TOLERANCE = 0.2


def stamps(n_sets=5, n_stations=5, seed=0, noise=0.05):
    """Return sets of one array at several times, with the stations of their baselines."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n_stations, 1)
    shape = n_sets, len(first)
    model = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    gains = np.exp(TOLERANCE * rng.standard_normal((n_sets, n_stations)))
    gains = gains * np.exp(2j * np.pi * rng.random(gains.shape))
    data = gains[:, first] * gains[:, second].conj() * model
    data += noise * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
    weight = np.full(shape, 1 / noise)
    weight[0, 3:] = 0.0  # a station is missing at times
    ends = [np.broadcast_to(np.eye(n_stations)[end], (*shape, n_stations)) for end in (first, second)]
    sets = Sets(data, model, weight, *ends, np.full((n_sets, n_stations), 1 / TOLERANCE))
    return Sets(*map(np.asarray, sets)), first, second


def test_gains_are_those_of_self_calibration():
    """The other solver is NumPy's, with steps and derivatives of its own."""
    sets, first, second = stamps()
    n_sets, _ = sets.data.shape
    rows = gain_solver.Intervals(
        first=np.tile(first, (n_sets, 1)),
        second=np.tile(second, (n_sets, 1)),
        data=sets.data,
        model=sets.model,
        weight=sets.weight,
        active=np.ones((n_sets, 2, 5), bool),
        limits=np.full((n_sets, 2, 5), TOLERANCE),
    )
    with jax.enable_x64(True):
        x = np.asarray(best_gains(sets))
        found = np.asarray(cost(x, sets))
    _, _, expected, converged = gain_solver.solve(rows)
    assert converged.all()
    assert found == pytest.approx(expected, rel=1e-9)
    assert np.abs(x[1:, 0]).max() < 4 * TOLERANCE


def test_a_set_does_not_see_its_neighbours():
    sets, *_ = stamps()
    with jax.enable_x64(True):
        together = np.asarray(best_gains(sets))
        alone = [np.asarray(best_gains(Sets(*(part[k : k + 1] for part in sets))))[0] for k in range(2)]
    assert together[:2] == pytest.approx(np.array(alone), abs=1e-9)


@pytest.fixture(scope="module")
def sky():
    return known_image("crescent", NPIX)


@pytest.fixture(scope="module")
def obs(sky):
    return observe(sky, gains=TOLERANCE, seed=2)


def test_the_true_image_has_the_chi2_of_its_noise_whatever_the_gains(sky, obs):
    measured = data_set(obs, ("calvis", "amp"), systematic=TOLERANCE)
    problem = problem_of(measured, sky)
    parts = problem.objective.parts(problem.x0)
    assert float(parts["data.calvis"]) == pytest.approx(1.0, abs=0.15)
    wrong = problem_of(measured, sky.blur(2 * obs.nominal_resolution).normalise(sky.flux))
    assert float(wrong.objective.parts(wrong.x0)["data.calvis"]) > 2


def problem_of(measured, start):
    weights = {name: 1.0 for name in measured.products}
    values = np.maximum(start.values["I"], 1e-6)
    return imaging_problem(
        measured, start.grid, values, data_weights=weights, reg_weights={"simple": 1.0}, flux=0.6, beam=1e-10
    )


def test_its_gradient_is_right_on_any_mesh(sky, obs):
    """A fit checks derivatives at its start and its answer, and blocks and shards against each other."""
    problem = problem_of(data_set(obs, ("calvis",), systematic=TOLERANCE), sky.blur(0.3 * obs.nominal_resolution))
    alone = sf.fit(problem, "lbfgs", maxiter=3, progress=False)
    assert alone.certificate["finite_difference"]["data"] < 1e-4
    spread = sf.fit(problem, "lbfgs", maxiter=3, mesh=sf.mesh(rows=2), progress=False)
    assert spread.value == pytest.approx(alone.value, rel=1e-9)


def test_how_many_measurements_gains_leave(obs):
    """Phases of all stations but one are free: of three stations, a closure phase and three amplitudes are left."""
    _, at = obs.stamps
    here = [obs.stations.index(name) for name in ("AA", "LM", "AZ")]  # of three sites
    among = np.isin(obs.ant1, here) & np.isin(obs.ant2, here)
    three = obs.select(among & (at == np.argmax(np.bincount(at[among]))))
    assert len(three) == 3
    product = calibrated_product(three, systematic=np.array([0.0] * len(obs.stations)))
    assert product.n == 2
    assert product.tolerance == pytest.approx(LEAST_GAIN)
    whole = data_set(obs, ("calvis",))
    kept, held = split(whole, at % 2 == 0)
    assert kept.products["calvis"].n + held.products["calvis"].n == pytest.approx(whole.products["calvis"].n, abs=1)
    with pytest.raises(ValueError, match="Hold whole times"):
        split(whole, np.arange(len(obs)) % 2 == 0)
    with pytest.raises(ValueError, match="calvis"):
        calibrated_product(obs, snrcut=1e9)


@pytest.mark.slow  # the path is that of the test of wrong gains; here it is how good the image becomes
def test_an_image_with_gains_of_its_own_is_nearer_to_the_truth():
    sky = known_image("crescent", 32)
    obs = observe(sky, gains=0.2, seed=4)
    options = {"npix": 32, "fov_uas": 128.0}
    found, plain = image(obs, **options), image(obs, **options, follow=False)

    def missed(one):
        from shardfit.domains import vlbi

        shown = vlbi.align([one.image.normalise(sky.flux)], sky)[0].values["I"]
        return np.linalg.norm(shown - sky.values["I"]) / np.linalg.norm(sky.values["I"])

    assert "calvis" in found.chi2
    assert missed(found) < 0.8 * missed(plain)
    assert not replace(found, doubts=()).doubts
