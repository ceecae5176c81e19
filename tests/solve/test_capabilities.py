"""What solvers declare: one check for fits, surveys and plans, and a page that says the same."""

import re
from pathlib import Path

import numpy as np
import pytest

import shardfit as sf
from shardfit.solve.base import Solver
from shardfit.solve.capabilities import require
from shardfit.solve.registry import CLASSES, RATES, as_solver
from tests.solve.cases import least_squares_problem, penalty_problem, stochastic_problem

PAGE = Path(__file__).resolve().parents[2] / "docs" / "choosing-a-solver.md"
NEEDS = {"value_and_grad": "value and gradient", "gram": "residual terms", "value": "the value, and finite bounds"}


def table():
    """Yield (solver name, cells) of the page's first table."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 7:
            for name in re.findall(r'"([a-z-]+)"', cells[1]):
                yield name, cells[2:]


def test_the_page_lists_every_named_solver_with_its_declarations():
    listed = dict(table())
    assert set(listed) == {*CLASSES, *RATES}
    for name, (needs, bounds, random, surveys, errors) in listed.items():
        solver = as_solver(name)
        assert needs == NEEDS[solver.needs], name
        assert bounds == ("yes" if solver.bounded else "by transform"), name
        facts = (solver.stochastic, solver.slots, solver.error_bars)
        assert (random, surveys, errors) == tuple("yes" if fact else "no" for fact in facts), name


class Free(sf.LBFGS):
    name, bounded = "free", False


@pytest.mark.parametrize("use", ["fit", "survey", "plan"])
@pytest.mark.parametrize(
    ("problem", "solver", "message"),
    [
        (lambda: least_squares_problem(bounds={"a": (0, 5)}), Free(), "'free' does not support bounds. Use .*'lm'"),
        (stochastic_problem, "lbfgs", "'noisy' draws new random numbers"),
        (penalty_problem, "lm", "'valley' has none"),
        (lambda: 3, "lbfgs", "needs a Problem, not int"),
    ],
)
def test_every_use_refuses_the_same(use, problem, solver, message, tmp_path):
    problem, solver = problem(), as_solver(solver)
    with pytest.raises((TypeError, ValueError), match=message):
        require(problem, solver, use)
    with pytest.raises((TypeError, ValueError), match=message):
        if use == "survey":
            sf.survey(problem, {}, run_dir=tmp_path, solver=solver)
        else:
            {"fit": sf.fit, "plan": sf.plan}[use](problem, solver)


def test_a_solver_of_ones_own_is_asked_by_its_declarations_alone():
    class Guess(Solver):
        name = "guess"

        def solve(self, task):
            return sf.Finish(task.z0 + 1, None, sf.Status.COMPLETED, 1, 1, note="A guess.")

    result = sf.fit(penalty_problem(), Guess(), progress=False)
    np.testing.assert_allclose(result.params, penalty_problem().x0 + 1)
    assert result.status is sf.Status.COMPLETED and "A guess." in result.message
    with pytest.raises(ValueError, match="'guess' does not support bounds"):
        sf.fit(least_squares_problem(bounds={"a": (0, 5)}), Guess())


def test_a_value_that_is_not_the_objectives_is_an_error():
    class Wrong(Solver):
        name = "wrong"

        def solve(self, task):
            return sf.Finish(task.z0, 1.0, sf.Status.CONVERGED_VALUE, 1, 1)

    with pytest.raises(sf.ParityError, match="ended with the value 1, but the objective is") as raised:
        sf.fit(penalty_problem(), Wrong(), progress=False)
    kept = raised.value.result  # nothing that was computed is lost
    assert kept.status is sf.Status.FAILED and not kept.success
    np.testing.assert_array_equal(kept.params, penalty_problem().x0)
