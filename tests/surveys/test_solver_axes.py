"""Options of the solver as axes: points of equal options share a batch, and each is fitted with its own."""

import numpy as np
import pytest

import shardfit as sf
from shardfit.core.errors import CheckpointError
from tests.surveys.small import AXES, problem

CONTROL = sf.SurveyControl(4, progress=False)


def surveyed(run_dir, axes, **options):
    chosen = {"maxiter": 60, "control": CONTROL} | options
    return sf.survey(problem(), axes, run_dir=run_dir, **chosen)


def test_points_are_fitted_with_their_own_options(tmp_path):
    axes = {"soft": AXES["soft"], "memory": sf.solver_axis("memory", (2, 10))}
    with surveyed(tmp_path / "both", axes) as both:
        assert both.complete and len(both) == 6
        for memory in (2, 10):
            with surveyed(tmp_path / str(memory), {"soft": AXES["soft"]}, memory=memory) as one:
                mine = [row for row in both.ledger.rows() if row["axis.memory"] == memory]
                for column in ("value", "evaluations", "steps"):
                    assert [row[column] for row in mine] == [row[column] for row in one.ledger.rows()]
        assert both.last_run["useful"] == sum(both.column("evaluations"))
    with surveyed(tmp_path / "both", axes) as again:
        assert len(again) == 6
    with pytest.raises(CheckpointError, match="axis 'memory' differ"):
        surveyed(tmp_path / "both", {**axes, "memory": sf.solver_axis("memory", (2, 12))})


def test_rates_of_first_order_solvers_alone(tmp_path):
    """Without any other axis, and finished in float64."""
    axes = {"rate": sf.solver_axis("learning_rate", (1e-3, 1e-1))}
    with surveyed(tmp_path, axes, solver="adam", maxiter=5, polish=3) as found:
        assert found.complete
        slow, quick = found.column("value")
        assert quick < slow
        np.testing.assert_array_equal(found.column("attempt"), 2)


def test_a_swept_survey_has_groups_of_its_own(tmp_path):
    axes = {"soft": AXES["soft"], "memory": sf.solver_axis("memory", (2, 10))}
    with surveyed(tmp_path, axes, sweep="soft") as found:
        parents = {row["id"]: row["parent"] for row in found.ledger.rows()}
        memory = {row["id"]: row["axis.memory"] for row in found.ledger.rows()}
        assert sum(parent is not None for parent in parents.values()) == 4
        assert all(parent is None or memory[parent] == memory[i] for i, parent in parents.items())


REFUSED = {
    "unknown": ({"a": sf.solver_axis("memry", (1, 2))}, {}, "no option 'memry'. Did you mean 'memory'"),
    "twice": ({"a": sf.solver_axis("memory", (1, 2))}, {"memory": 3}, "'memory' is set by axis 'a'. Give it once"),
    "value": ({"a": sf.solver_axis("memory", (1, 0))}, {}, "memory=0 must be at least 1"),
    "sweep": ({"a": sf.solver_axis("memory", (1, 2))}, {"sweep": "a"}, "nor with a sweep along them"),
    "halving": ({"a": sf.solver_axis("memory", (1, 2))}, {"halving": sf.Halving(2)}, "neither with halving"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_an_option(tmp_path, case):
    axes, options, words = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=words):
        surveyed(tmp_path / "run", axes, **options)
    assert not (tmp_path / "run").exists()
