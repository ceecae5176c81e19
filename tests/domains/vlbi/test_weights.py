"""Weights by cross-validation: nothing of held-out data is in the fit, the rule that chooses, and an image."""

import jax
import numpy as np
import pytest

from shardfit.core.errors import CheckpointError
from shardfit.domains import vlbi
from shardfit.domains.vlbi.packing import pack
from shardfit.domains.vlbi.products import DataModel
from shardfit.domains.vlbi.recipes.preparation import prepare
from shardfit.domains.vlbi.recipes.surveys import imaging_survey
from shardfit.domains.vlbi.recipes.weights import choose, divide
from shardfit.domains.vlbi.tables import split
from shardfit.surveys.control import SurveyControl
from tests.domains.vlbi.small import EVERY, GRID, small_data, small_maps

SMALL = {"preset": "eht", "npix": 16, "flux": 0.6}
PRODUCTS = tuple(name for name in EVERY if not name.endswith("_cov") and name != "calvis")


@pytest.fixture(scope="module")
def obs():
    return vlbi.observe(vlbi.known_image("ring", 32), stop_h=8.0, cadence_s=1200.0)


def chi2(data):
    """χ² per measurement by product."""
    maps = small_maps()
    model = DataModel(GRID, "separable", PRODUCTS)
    rows = pack(data, GRID, "separable")
    kept = {k: maps[k] for k in ("m", "phi", "v")}
    found = model({"I": maps["I"]}, rows, {"kept": kept, "index": None})
    return {name: 0.5 * float(np.sum(np.abs(found[name]) ** 2)) for name in PRODUCTS}


def test_every_measurement_is_in_one_part():
    whole = small_data()
    whole = vlbi.DataSet(whole.u, whole.v, {name: whole.products[name] for name in PRODUCTS})
    held = np.random.default_rng(0).random(len(whole.u)) < 0.3
    parts = split(whole, held)
    with jax.enable_x64(True):
        all_of_it, first, second = (chi2(data) for data in (whole, *parts))
    for name in PRODUCTS:
        n, one, two = (data.products[name].n for data in (whole, *parts))
        assert one + two == n
        assert (one * first[name] + two * second[name]) / n == pytest.approx(all_of_it[name], rel=1e-12)
        legs = np.asarray(whole.products[name].index).reshape(len(whole.products[name].index), -1)
        fitted = np.isfinite(parts[0].products[name].sigma).reshape(len(legs), -1)[:, 0]
        assert not held[legs[fitted]].any()
    with pytest.raises(ValueError, match="has no 'vis'"):
        split(whole, np.zeros(len(whole.u), bool))
    correlated = {name: small_data().products[name] for name in ("cphase_cov",)}
    with pytest.raises(ValueError, match="Use 'cphase'"):
        split(vlbi.DataSet(whole.u, whole.v, correlated), held)


@pytest.mark.parametrize("by", ["scans", "baselines"])
def test_held_out_data_do_not_matter_to_a_fit(obs, by):
    """Other visibilities in their place leave objective and gradient as they are; without a fold they do not."""
    ready = prepare(obs, 0.6, average=True, zero_baseline=0.1e9)
    parts = divide(ready, 4, by=by, seed=1)
    factor = np.where(
        parts == 2, 1.2 + 0.1 * (np.arange(len(ready)) % 7), 1.0
    )  # of the errors too: the order of stations, by signal-to-noise ratio, stays
    turn = np.exp(1j * np.where(parts == 2, np.arange(len(ready)), 0.0))
    changed = ready.replace(vis={"I": ready.vis["I"] * factor * turn}, sigma={"I": ready.sigma["I"] * factor})
    options = {**SMALL, "average": False, "zero_baseline": 0.0, "folds": parts, "precision": "float64"}
    made = [imaging_survey(one, {"fold": (-1, 0, 2)}, **options) for one in (ready, changed)]
    found = {}
    for fold in (-1, 2):
        values = []
        for one in made:
            rows = one.source.rows_at({"fold": fold})
            objective = one.problem.objective
            objective = objective.with_rows(data={**dict(objective.items())["data"].rows, **rows})
            value, slope = objective.value_and_grad(one.problem.x0)
            values.append(np.concatenate([[float(value)], np.asarray(slope["I"])]))
        found[fold] = np.allclose(values[0], values[1], rtol=1e-12, atol=0)
    assert found == {-1: False, 2: True}
    scored = [one.held_out({"fold": 2}, one.problem.x0) for one in made]
    assert all(scored[0][name] != scored[1][name] for name in scored[0])


def test_parts_are_whole_scans_or_baselines(obs):
    for by, unit in (("scans", obs.time), ("baselines", 10 * obs.ant1 + obs.ant2)):
        parts = divide(obs, 4, by=by)
        assert set(parts) == {0, 1, 2, 3}
        assert all(len(set(parts[unit == one])) == 1 for one in np.unique(unit))
        assert np.array_equal(parts, divide(obs, 4, by=by, seed=0))
        assert not np.array_equal(parts, divide(obs, 4, by=by, seed=1))
    with pytest.raises(ValueError, match="too few"):
        divide(obs.select(obs.time < obs.time.min() + 0.4), 5)
    with pytest.raises(ValueError, match="Did you mean 'scans'"):
        divide(obs, 3, by="scan")


def test_the_simplest_of_those_alike_is_chosen():
    easy, hard = np.array([1.0, 2.0, 4.0]), np.array([0.02, -0.02, 0.03])
    scores = np.stack([easy, easy + hard, easy + 0.5, np.full(3, np.nan)])
    training = np.stack([easy, easy + 0.1, easy + 0.3, easy + 9])
    mean, error, best, taken = choose(scores, training)
    assert best == 0
    assert taken == 1  # within its error of the best, and it fits its own data less closely
    assert error[0] == 0 and error[2] == 0  # folds that are harder for all do not count
    assert np.isinf(mean[3])


@pytest.mark.slow
def test_an_image_with_weights_that_predict(obs, tmp_path):
    axes = {"simple": (1.0, 1000.0), "tv": (1.0, 100.0)}
    options = {**SMALL, "folds": 3, "control": SurveyControl(8, progress=False), "restarts": 0}
    found = vlbi.cross_validate(obs, axes, run_dir=tmp_path, **options)
    assert dict(found.weights) == {"simple": 1.0, "tv": 1.0}
    assert found.scores.shape == (4, 3)
    assert found.mean[0] < 0.5 * found.mean[-1]
    assert (found.training < found.mean).all()
    assert found.image.options.regularisers["simple"] == 1.0
    assert found.products == ("cphase", "logcamp")
    assert any("smallest value of simple" in doubt for doubt in found.doubts)
    again = vlbi.cross_validate(obs, axes, run_dir=tmp_path, **options)  # from the ledger
    np.testing.assert_array_equal(again.scores, found.scores)
    with pytest.raises(CheckpointError, match="axis 'simple'"):
        vlbi.cross_validate(obs, {**axes, "simple": (1.0, 10.0)}, run_dir=tmp_path, **options)
    pytest.importorskip("matplotlib")
    from shardfit.domains.vlbi import plots

    assert len(plots.scores(found).axes) == 2


@pytest.mark.parametrize(
    ("axes", "change", "expected"),
    [
        ({"simple": (1.0, 2.0)}, {"folds": 1}, "at least 2"),
        ({"simple": (1.0, 2.0)}, {"score": ("cfase",)}, "Did you mean 'cphase'"),
        ({"simple": (1.0, 2.0)}, {"preset": "m87"}, "rounds of self-calibration"),
        ({"systematic": (0.0, 0.02)}, {}, "cannot be judged"),
        ({"sinple": (1.0, 2.0)}, {}, "Did you mean 'simple'"),
        ({}, {}, "axes are weights"),
    ],
)
def test_refusals(obs, tmp_path, axes, change, expected):
    with pytest.raises(ValueError, match=expected):
        vlbi.cross_validate(obs, axes, run_dir=tmp_path, **{**SMALL, **change})


def test_a_fold_needs_parts(obs):
    with pytest.raises(ValueError, match="needs folds="):
        imaging_survey(obs, {"fold": (-1, 0)}, **SMALL)
