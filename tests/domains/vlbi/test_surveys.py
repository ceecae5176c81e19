"""Surveys of images: every axis changes the result, a point equals the image made alone, truths train a Top Set."""

import numpy as np
import pytest

from shardfit import fit
from shardfit.domains.vlbi.packing import measured_rows
from shardfit.domains.vlbi.problem import imaging_problem
from shardfit.domains.vlbi.recipes.imaging import PRESETS
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import prepare
from shardfit.domains.vlbi.recipes.rounds import measurements, prior_image
from shardfit.domains.vlbi.recipes.simulated import known_image, observe
from shardfit.domains.vlbi.recipes.surveys import OBSERVED, PAPER_IV, imaging_survey, training_data
from shardfit.domains.vlbi.recipes.top_set import top_set
from shardfit.surveys.axes import Start, apply
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import grid
from shardfit.surveys.run import survey

AXES = {
    "flux": (0.6, 0.5),
    "prior_fwhm_uas": (40, 60),
    "systematic": (0.02, 0.05),
    "data": (OBSERVED, "disk"),
    "bootstrap": (-1, 3),
    "epsilon_tv": (1e-10, 1e-7),
    "tv": (1.0, 10.0),
    "cphase": (1.0, 2.0),
}
SMALL = {"preset": "eht", "npix": 16, "flux": 0.6}


@pytest.fixture(scope="module")
def obs():
    return observe(known_image("ring", 32), stop_h=6.0, cadence_s=1200.0)


@pytest.fixture(scope="module")
def made(obs):
    others = {name: seen for name, (seen, _) in training_data(obs, ("disk",), **SMALL).items()}
    return imaging_survey(obs, AXES, others=others, precision="float64", **SMALL)


@pytest.fixture(scope="module")
def one_by_one(made, tmp_path_factory):
    """Return a survey that changes one axis at a time, the unchanged point first."""
    from shardfit.surveys.designs import table

    first = {name: values[0] for name, values in AXES.items()}
    points = [first, *({**first, name: values[1]} for name, values in AXES.items())]
    where = tmp_path_factory.mktemp("survey")
    design = table(made.axes, points)
    return survey(
        made.problem,
        made.axes,
        run_dir=where,
        design=design,
        control=SurveyControl(3),
        maxiter=20,
        picture=made.picture,
    )


@pytest.mark.parametrize("name", AXES)
def test_every_axis_changes_the_image(one_by_one, name):
    number = 1 + list(AXES).index(name)
    before, after = one_by_one.picture(0), one_by_one.picture(number)
    assert np.abs(after - before).max() > 1e-4 * before.max()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("flux", {"flux": 0.5}),
        ("prior_fwhm_uas", {"prior_fwhm_uas": 60.0}),
        ("systematic", {"systematic": 0.05}),
        ("epsilon_tv", {"epsilon_tv": 1e-7}),
        ("tv", {"regularisers": {"simple": 100.0, "tv": 10.0, "tv2": 1.0, "flux": 1e4}}),
        ("cphase", {"data": {"amp": 0.2, "cphase": 2.0, "logcamp": 1.0}}),
    ],
)
def test_a_point_equals_the_problem_made_for_it(obs, made, name, changes):
    options = options_from("eht", PRESETS, {"npix": 16, "flux": 0.6, **changes})
    ready = prepare(obs, options.flux, **options.preparation)
    start = prior_image(ready, options.flux, options)
    alone = imaging_problem(
        measurements(ready, options),
        start.grid,
        start.values["I"],
        data_weights=options.data,
        reg_weights=options.regularisers,
        flux=options.flux,
        beam=ready.nominal_resolution,
        operator="dense",
        epsilon_tv=options.epsilon_tv,
    )
    point = apply(Start(made.problem.objective, made.problem.x0), made.axes, {name: AXES[name][1]})
    np.testing.assert_allclose(point.params["I"], alone.x0["I"], rtol=1e-12)
    value, gradient = point.objective.value_and_grad(alone.x0)
    wanted, slope = alone.objective.value_and_grad(alone.x0)
    np.testing.assert_allclose(value, wanted, rtol=1e-11)
    np.testing.assert_allclose(gradient["I"], slope["I"], rtol=1e-9, atol=1e-9 * np.abs(slope["I"]).max())


def test_a_point_equals_its_own_fit(made, one_by_one):
    # few steps: rounding, which differs between batches and single fits, grows tenfold in four of them
    number = 1 + list(AXES).index("systematic")
    point = apply(Start(made.problem.objective, made.problem.x0), made.axes, {"systematic": 0.05})
    alone = fit(made.problem.replace(objective=point.objective), "lbfgs", maxiter=20, certify=False)
    assert one_by_one.column("value")[number] == pytest.approx(alone.value, rel=1e-10)


def test_the_published_grid_has_7500_points(obs):
    assert len(grid(imaging_survey(obs, PAPER_IV, **SMALL).axes)) == 7500


def test_bootstrap_keeps_the_total_weight(made):
    term = dict(made.problem.objective.items())["data"]
    changed = apply(Start(made.problem.objective, made.problem.x0), made.axes, {"bootstrap": 3})
    rows = dict(changed.objective.items())["data"].rows
    real = measured_rows({"amp": term.rows["amp"]})
    ratio = rows["amp"]["weight"].max(axis=1)[real] / term.rows["amp"]["weight"].max(axis=1)[real]
    assert len(real) < len(rows["amp"]["weight"]) and np.sum(np.square(ratio)) == pytest.approx(len(ratio))


@pytest.mark.slow
def test_training_finds_choices_that_bring_truths_back(obs, tmp_path):
    data = training_data(obs, ("ring", "double"), **SMALL)
    axes = {"data": ("ring", "double"), "simple": (1, 1e4)}
    others = {name: seen for name, (seen, _) in data.items()}
    training = imaging_survey(obs, axes, others=others, **SMALL)
    trained = survey(
        training.problem,
        training.axes,
        run_dir=tmp_path / "t",
        control=SurveyControl(4),
        maxiter=60,
        picture=training.picture,
    )
    real = imaging_survey(obs, {"simple": (1, 1e4)}, **SMALL)
    found = survey(
        real.problem, real.axes, run_dir=tmp_path / "r", control=SurveyControl(2), maxiter=60, picture=real.picture
    )
    truths = {name: truth for name, (_, truth) in data.items()}
    kept = top_set(trained, found, real, truths, {"data.cphase": 1e9})
    # with an overwhelming prior the image is the prior, which is none of the truths
    assert 1 not in kept


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"tvv": (1,)}, "Did you mean 'tv'"),
        ({"flux": (0.0,)}, "must be positive"),
        ({"tv": (-1.0,)}, "zero or more"),
        ({"data": ("moon",)}, "no observation is named 'moon'"),
        ({"tv": (float("nan"),)}, "zero or more"),
    ],
)
def test_wrong_axes_are_refused(obs, axes, message):
    with pytest.raises(ValueError, match=message):
        imaging_survey(obs, axes, **SMALL)


def test_figures_of_a_point_are_of_its_own_data(made, one_by_one, obs, tmp_path, monkeypatch):
    """What is drawn has the residuals whose χ² is in the ledger: with other errors, and of a known image."""
    from shardfit.domains.vlbi.recipes import survey_config

    monkeypatch.setattr(survey_config, "_observation", lambda data, seed: obs)
    settings = {"data": "some.uvfits", **SMALL}
    for name in ("systematic", "data"):
        number = 1 + list(AXES).index(name)
        (row,) = one_by_one.ledger.rows("WHERE id = ?", (number,))
        point = {axis: row[f"axis.{axis}"] for axis in AXES if axis != "bootstrap"}
        drawn = survey_config.figures(settings, point, one_by_one.params(number))
        assert list(drawn) == ["image", "amplitudes", "closure_phases", "closure_amplitudes"]
        low = drawn["closure_amplitudes"][1].axes[1]
        assert np.mean(low.lines[-1].get_ydata() ** 2) == pytest.approx(row["part.data.logcamp"], rel=1e-4)
