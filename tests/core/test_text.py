"""What problems, objectives and results look like in a terminal and a notebook."""

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.text import columns, html_table, number, pair, short


def line(p, rows):
    return rows["y"] - p["slope"] * rows["x"] - p["w"].sum()


@pytest.fixture(scope="module")
def problem():
    rows = {"x": np.linspace(0, 1, 20), "y": np.linspace(1, 3, 20)}
    terms = {"data": sf.residual_term(line, rows), "small": sf.penalty(lambda p: (p["w"] ** 2).sum(), weight=0.25)}
    x0 = {"slope": 1.0, "w": np.zeros(3)}
    bounds, units = {"slope": (0, 5)}, {"slope": "m/s"}
    return sf.Problem(sf.Objective(terms), x0, bounds=bounds, units=units, fixed=["w[1]"], name="<b>line</b>")


def test_a_problem_prints_itself(problem):
    text = repr(problem)
    for expected in ("'<b>line</b>'", "3 free parameters", "m/s", "held", "data", "20 rows", "0.25", "Penalty"):
        assert expected in text
    assert len(text.splitlines()) == 6 and "array([" not in text
    shown = problem._repr_html_()
    assert "&lt;b&gt;line" in shown and "<b>line" not in shown and "<table>" in shown


def test_what_is_traced_prints_itself(problem):
    seen = []

    def value(objective, x):
        seen.append(repr(objective))
        return objective.value(x)

    with jax.enable_x64(True):
        jax.eval_shape(value, problem.objective, problem.x0)
    assert "data" in seen[0]
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.float64), problem.objective)
    assert "small" in repr(shapes)


def test_values_to_the_digits_of_their_errors():
    rows = {"x": np.linspace(0, 1, 50), "y": 2 * np.linspace(0, 1, 50) + 0.1 * np.sin(np.arange(50.0))}
    term = sf.residual_term(lambda p, r: r["y"] - p["a"] * r["x"], rows)
    found = sf.fit(sf.Problem(sf.Objective({"line": term}), {"a": 1.0}), "lm", progress=False)
    (name, value, error, _) = found.table()[0]
    assert (
        name == "a"
        and len(error.lstrip("0.")) == 2
        and len(value) <= len("2.0123")
        and f"{value} ± {error}" in str(found)
    )
    assert "1σ" in found._repr_html_()
    with pytest.raises(ValueError, match="Did you mean 'convergence'"):
        found.plot("convergenc")
    assert found.plot().axes and found.plot("parameters").axes


def test_small_things():
    assert pair(0.123456, 0.00171) == ("0.1235", "0.0017") and number(1234567) == "1,234,567"
    assert short(np.arange(100.0)).startswith("array (100,)") and short(2.5) == "2.5"
    assert columns([("a", "bb"), ("ccc", "d")]) == "  a    bb\n  ccc  d"
    assert html_table(("<x>",), [("&",)]) == "<table><tr><th>&lt;x&gt;</th></tr><tr><td>&amp;</td></tr></table>"


def test_a_notebook_shows_bounds_and_priors(problem):
    assert "<td>0 … 5</td>" in problem._repr_html_() and "<th>prior</th>" not in problem._repr_html_()
    ends = {"slope": (0.5, None), "w": (np.full(3, -1.0), np.ones(3))}
    other = problem.replace(bounds=ends, fixed=None, priors={"slope": sf.Normal(1.0, 2.0), "w": sf.Flat()})
    shown = other._repr_html_()
    assert "≥ 0.5" in shown and "entry by entry" in shown and "Normal(" in shown


def test_columns_without_content_are_left_out():
    assert html_table(("a", "b"), [("1", ""), ("2", "")]).count("<th>") == 1
    assert html_table(("a", "b"), []).count("<th>") == 2
