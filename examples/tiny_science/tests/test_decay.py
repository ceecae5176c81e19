import pytest
from decay.counts import TRUTH, simulate
from decay.problem import decay_problem

import shardfit as sf


@pytest.mark.parametrize("solver", ["lm", "lbfgsb"])
def test_the_known_half_life_comes_back(solver):
    result = sf.fit(decay_problem(simulate(200)), solver)
    assert result.success
    assert result.params["half_life"] == pytest.approx(TRUTH["half_life"], rel=0.05)


def test_error_bars_hold_the_truth():
    result = sf.fit(decay_problem(simulate(200, seed=1)), "lm")
    for name, truth in TRUTH.items():
        assert abs(result.params[name] - truth) < 4 * result.stderr[name]
