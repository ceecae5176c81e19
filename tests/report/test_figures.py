import numpy as np
import pytest

from shardfit.report import figures
from shardfit.report.style import png_bytes

pytest.importorskip("matplotlib")
RNG = np.random.default_rng(0)
X = np.linspace(0.0, 1.0, 200)

FIGURES = {
    "convergence": lambda result: figures.convergence(result),
    "convergence of two": lambda result: figures.convergence({"one": result, "two": result}),
    "parameters": lambda result: figures.parameters(result),
    "pulls": lambda result: figures.pulls(result, result.params),
    "residuals": lambda result: figures.residual_histogram(RNG.standard_normal(1000)),
    "data": lambda result: figures.data_and_model(X, X, X, 0.1),
    "binned": lambda result: figures.data_and_model(X[::-1], X, X, 0.1, bins=10),
    "coverage": lambda result: figures.coverage(["a", "b"], {1.0: [0.6, 0.7], 2.0: [0.9, 1.0]}, 50),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figure_has_labelled_axes_and_no_global_state(name, result):
    from matplotlib._pylab_helpers import Gcf

    figure = FIGURES[name](result)
    assert any(axes.get_xlabel() for axes in figure.axes)
    assert png_bytes(figure).startswith(b"\x89PNG")
    assert not Gcf.figs  # nothing was handed to pyplot


def test_equal_figures_give_equal_bytes(result):
    assert png_bytes(figures.parameters(result)) == png_bytes(figures.parameters(result))


def test_binned_data_keep_their_weighted_mean():
    sigma = RNG.uniform(0.5, 2.0, X.size)
    _, mean, _, error = figures._binned(X, X**2, X, sigma, 5)
    weight = 1 / sigma**2
    assert np.isclose(np.sum(mean / error**2), np.sum(weight * X**2))
    assert np.isclose(np.sum(1 / error**2), np.sum(weight))


@pytest.mark.parametrize("draw", [figures.parameters, lambda r: figures.pulls(r, r.params)])
def test_missing_errors_are_explained(draw, result):
    bare = type(result)(**{**vars(result), "stderr": None})
    with pytest.raises(ValueError, match="no standard errors.*'lm'"):
        draw(bare)


def test_empty_history_is_explained(result):
    bare = type(result)(**{**vars(result), "history": {}})
    with pytest.raises(ValueError, match="no result has a history"):
        figures.convergence(bare)


def test_searches_are_drawn_against_evaluations_without_an_empty_panel(result):
    """A generation is many evaluations; what differs by rounding from the lowest is the lowest."""
    values = np.array([3.0, 2.0, 1.0 + 2e-16, 1.0])
    history = {"value": values, "gradient": np.full(4, np.nan), "evaluation": 100 * np.arange(1, 5)}
    figure = figures.convergence(type(result)(**{**vars(result), "value": 1.0, "history": history}))
    (axes,) = figure.axes
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [100, 200])
    assert axes.get_xlabel() == "evaluations"
