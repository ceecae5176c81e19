"""Figures and page of a posterior: what they draw, whatever a method leaves out."""

from dataclasses import replace

import numpy as np
import pytest

from shardfit.cli import main
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import residual_term
from shardfit.report import chain_figures, style
from shardfit.report.data_figures import chance_of, data_check, residuals_at_draws
from shardfit.report.posterior import report_posterior
from shardfit.report.rank_figures import calibration_ranks
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.calibration import Calibration
from shardfit.sampling.store import save_posterior

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def small_figures(monkeypatch):
    monkeypatch.setattr(style, "DPI", 40)  # drawing is most of the time


@pytest.fixture
def posterior():
    z = np.random.default_rng(0).normal(size=(3, 60, 3))
    stats = {"energy": (z**2).sum(-1), "diverging": z[..., 0] > 2.5, "accept": np.full((3, 60), 0.8)}
    draws = {"held": np.ones((3, 60)), "tau": np.exp(z[..., 0]), "w": z[..., 1:]}
    return Posterior(draws, z, stats, None, "nuts", problem="a <decay>", units={"tau": "s"}, note="Flat & improper.")


@pytest.mark.parametrize("weighted", [False, True])
def test_every_figure_draws_what_varies(posterior, weighted):
    if weighted:
        posterior = replace(posterior, weights=np.full((3, 60), 1 / 180))
    trace = chain_figures.trace(posterior)
    assert [axes.get_ylabel() for axes in trace.axes[::2]] == ["tau (s)", "w[0]", "w[1]"]
    assert len(trace.axes[0].lines) == 3
    assert len(chain_figures.rank(posterior, ["w"]).axes) == 2
    pair = chain_figures.pair(posterior, truth={"tau": 1.0})
    assert [axes.get_xlabel() for axes in pair.axes[-3:]] == ["tau (s)", "w[0]", "w[1]"]
    both = chain_figures.forest({"one": posterior, "other": posterior})
    assert [label.get_text() for label in both.axes[1].get_yticklabels()] == ["w[0]", "w[1]"]
    assert "BFMI" in chain_figures.energy(posterior).axes[0].texts[0].get_text()


def test_densities_integrate_to_one(posterior):
    x, y = chain_figures.trace(posterior).axes[2].lines[0].get_data()
    assert np.trapezoid(y, x) == pytest.approx(1.0, abs=0.05)


def test_predictive_bands_hold_the_predictions():
    x = np.array([2.0, 0.0, 1.0])
    predictions = x + np.random.default_rng(1).normal(size=(2, 500, 3))
    figure = chain_figures.predictive(x, x, 0.1, predictions)
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(-1.645, abs=0.2) and band.max() == pytest.approx(3.645, abs=0.2)
    with pytest.raises(ValueError, match=r"not \(chains, draws, 3\)"):
        chain_figures.predictive(x, x, 0.1, predictions[0])


def test_unknown_names_and_missing_energies_are_explained(posterior):
    with pytest.raises(ValueError, match="Did you mean 'tau'"):
        chain_figures.trace(posterior, ["tua"])
    with pytest.raises(ValueError, match="keeps no energies"):
        chain_figures.energy(replace(posterior, stats={}))


def test_the_command_writes_the_page(posterior, tmp_path, capsys):
    extra = {"pareto_k": 0.3, "refits": {"refit": np.arange(2), "steps": np.array([1.001, 1.25])}, "max_depth": 10}
    save_posterior(replace(posterior, extra=extra), tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert "report.html" in capsys.readouterr().out
    text = (tmp_path / "report.html").read_text()
    for expected in (
        "a &lt;decay&gt;",
        "not converged",
        "Flat &amp; improper.",
        "<td>tau</td>",
        "1.25",
        "Pareto k of the weights",
    ):
        assert expected in text
    drawn = sorted(path.stem for path in (tmp_path / "figures").iterdir())
    assert drawn == ["energy", "forest", "pair", "rank", "trace"]


def test_a_single_number_without_statistics_has_a_page(tmp_path):
    z = np.random.default_rng(2).normal(size=(1, 50, 1))
    weights = np.full((1, 50), 0.02)
    save_posterior(Posterior(z[..., 0], z, {}, weights, "rto"), tmp_path)
    text = report_posterior(tmp_path).read_text()
    assert "<td>x</td>" in text and "50 of 50" in text and "Chains" not in text


def test_ranks_of_a_calibration_are_drawn_with_their_bands():
    ranks = np.random.default_rng(3).integers(0, 100, size=(60, 10))
    ranks[:, 4] //= 2
    found = Calibration(tuple("abcdefghij"), ranks, 99, "a method", np.ones(60), np.zeros(60))
    figure = calibration_ranks(found)
    named = [axes.get_ylabel() for axes in figure.axes[::2]]
    assert len(named) == 8 and "e" in named  # the worst are among those that are drawn
    assert figure.axes[2 * named.index("e") + 1].texts[0].get_text().startswith("too high")


def test_data_at_the_draws():
    """Residuals are those of the draws, and χ² that noise explains has a chance that says so."""
    rows = {"y": np.random.default_rng(0).normal(size=400)}
    problem = Problem(Objective({"level": residual_term(lambda p, r: r["y"] - p["a"], rows)}), {"a": 0.0})
    a = 0.05 * np.random.default_rng(1).normal(size=(2, 50))
    drawn = Posterior({"a": a}, a[..., None], {}, None, "nuts")
    found = residuals_at_draws(problem, drawn, draws=10)["level"]
    np.testing.assert_allclose(found[0], rows["y"] - a[0, 0])
    assert found.shape == (10, 400)
    assert 0.05 < chance_of(found) < 0.95
    assert chance_of(1.3 * found) < 1e-3 < 0.999 < chance_of(0.7 * found)
    assert len(data_check({"level": found}).axes) == 2
    weighted = replace(drawn, weights=np.where(np.arange(100).reshape(2, 50) == 7, 1.0, 1e-12))
    np.testing.assert_allclose(residuals_at_draws(problem, weighted, draws=3)["level"][2], rows["y"] - a[0, 7])
