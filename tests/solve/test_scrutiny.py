"""What a fit holds against its own answer: noise that is not what was said, active bounds, what no data determine."""

import numpy as np
import pytest

import shardfit as sf

N = 400
T = np.linspace(0.0, 3.0, N)
TRUE = {"height": 2.0, "rate": 0.7}
BENT = 2.0 * np.exp(-0.7 * T)
NOISE = np.random.default_rng(4).standard_normal(N)


def residual(p, rows):
    return (rows["y"] - p["height"] * np.e ** (-p["rate"] * rows["t"])) / rows["sigma"]


def plain(p, rows):
    return rows["y"] - p["height"] * np.e ** (-p["rate"] * rows["t"])


def twin(p, rows):  # only the sum of both heights can be known
    return residual({"height": p["height"] + p["other"], "rate": p["rate"]}, rows)


def problem_of(fn=residual, scatter=0.1, said=0.1, x0=None, weight=1.0, sigma=True, **more):
    rows = {"t": T, "y": BENT + scatter * NOISE} | ({"sigma": np.full(N, said)} if sigma else {})
    objective = sf.Objective({"decay": sf.residual_term(fn, rows, weight=weight)})
    return sf.Problem(objective, x0 or {"height": 1.0, "rate": 1.0}, **more)


TWIN = {"fn": twin, "x0": {"height": 1.0, "other": 1.0, "rate": 1.0}}
BOUND = {"bounds": {"rate": (0.9, 2.0)}}
CASES = {
    "good": ({}, {}, "converged", ""),
    "weighted": ({"weight": 7.0}, {}, "converged", ""),
    "noise ten times larger": ({"scatter": 1.0}, {}, "doubtful", "Reduced χ² is "),
    "noise ten times smaller": ({"scatter": 0.01}, {}, "doubtful", "noise is fitted"),
    "noise not known": ({"scatter": 1.0, "fn": plain, "sigma": False}, {}, "converged", ""),
    "noise not known, said to be": (
        {"scatter": 9.0, "fn": plain, "sigma": False},
        {"absolute_sigma": True},
        "doubtful",
        "Reduced χ²",
    ),
    "noise known, said not to be": ({"scatter": 1.0}, {"absolute_sigma": False}, "converged", ""),
    "bound that costs little": ({"bounds": {"rate": (0.71, 2.0)}}, {}, "converged at a bound", ""),
    "bound in the way": (BOUND | {"scatter": 0.02, "said": 0.02}, {}, "doubtful", "Reduced χ²"),
    "unidentified": (
        {"fn": twin, "x0": {"height": 1.0, "other": 1.0, "rate": 1.0}},
        {},
        "doubtful",
        "do not determine",
    ),
    "few steps": ({}, {"maxiter": 2}, "step limit reached", "step limit"),
}


@pytest.mark.parametrize("case", CASES)
def test_least_squares_says_what_is_wrong(case):
    made, options, word, reason = CASES[case]
    result = sf.fit(problem_of(**made), "lm", certify=False, progress=False, **options)
    verdict = result.verdict()
    assert verdict.word == word, result.message
    assert result.success == (not reason) and reason in " ".join(verdict.reasons)


@pytest.mark.parametrize("case", ["good", "noise ten times larger", "bound that costs little"])
def test_other_solvers_say_the_same(case):
    made, _, word, reason = CASES[case]
    result = sf.fit(problem_of(**made), "lbfgsb", certify=False, progress=False)
    assert result.verdict().word == word and reason in result.message
    assert not result.at_bound or result.at_bound == ("rate",)


def test_error_bars_find_what_the_data_do_not_determine():
    made, *_ = CASES["unidentified"]
    problem = problem_of(**made)
    result = sf.fit(problem, "lbfgs", certify=False, progress=False)
    assert result.success and not sf.error_bars(problem, result).success


def test_what_a_run_directory_gives_back_says_the_same(tmp_path):
    made, *_ = CASES["noise ten times larger"]
    told = sf.fit(problem_of(**made), "lm", run_dir=tmp_path, progress=False)
    for again in (sf.load_result(tmp_path), sf.fit(problem_of(**made), "lm", run_dir=tmp_path, progress=False)):
        assert again.verdict() == told.verdict() and not again.success
