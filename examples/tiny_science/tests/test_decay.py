import numpy as np

import shardfit as sf
from decay.counts import TRUTH, simulate
from decay.problem import decay_problem


def test_the_known_half_life_comes_back():
    result = sf.fit(decay_problem(simulate(200)), "lm")
    assert result.success
    for name, truth in TRUTH.items():
        assert abs(result.params[name] - truth) < 4 * result.stderr[name]


def test_the_gradient_is_that_of_the_value():
    problem = decay_problem(simulate(), weight=1.0)
    _, gradient = problem.objective.value_and_grad(problem.x0)
    for name in TRUTH:
        step = 1e-4 * problem.x0[name]
        up, down = (problem.objective.value({**problem.x0, name: problem.x0[name] + s}) for s in (step, -step))
        np.testing.assert_allclose(gradient[name], (up - down) / (2 * step), rtol=1e-4)
