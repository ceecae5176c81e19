"""A rank without rows takes part, and may alone have other data; ranks with rows of different types are named."""

import json

import numpy as np
import pytest

import shardfit as sf
from tests.processes import uneven

pytestmark = pytest.mark.processes


@pytest.mark.slow
def test_a_rank_without_rows(launch, tmp_path):
    done = launch(3, "uneven.py", tmp_path, "alike")
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert found[0] == found[1] == found[2]
    objective = uneven.objective_of(uneven.read(), uneven.others())
    value, gradient = objective.value_and_grad(uneven.POINT, key=7)
    assert found[0]["n"] == {"drawn": uneven.N, "line": 40}
    assert found[0]["value"] == pytest.approx(float(value), rel=1e-12)
    for name, slope in gradient.items():
        assert found[0]["gradient"][name] == pytest.approx(float(slope), rel=1e-10)
    alone = sf.fit(sf.Problem(objective.freeze(7), uneven.POINT), "lbfgs", maxiter=5, progress=False, certify=False)
    assert found[0]["final"] == pytest.approx(alone.value, rel=1e-9)


@pytest.mark.slow
def test_ranks_with_other_types_are_named(launch, tmp_path):
    done = launch(3, "uneven.py", tmp_path, "mixed")
    assert done.returncode != 0
    assert "rows of rank 2 differ from those of rank 0 in names, types or shapes" in done.stderr


def test_no_rows_at_all_are_refused_where_a_process_is_alone():
    with pytest.raises(ValueError, match="zero rows"):
        uneven.objective_of({"x": np.zeros((0, 2))}, uneven.others())
