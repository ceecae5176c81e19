"""Consensus of posteriors of several modes, of which shards see one each, or none."""

from typing import Any

import numpy as np
import pytest

import shardfit as sf


def of_square(params, rows):
    return (rows["y"] - params["m"] ** 2) / 2.0


def test_modes_that_no_shard_has_visited_are_weighed_or_told():
    """The sign of m is known from its prior alone, of which every shard has a part."""
    y = 1.0 + 2.0 * np.random.default_rng(0).normal(size=200)
    objective = sf.Objective({"d": sf.residual_term(of_square, {"y": y})})
    problem = sf.Problem(objective, {"m": 1.0}, priors={"m": sf.Normal(-1.0, 1.0)})
    m = np.linspace(-3, 3, 4001)
    value = np.array([np.sum((y - x**2) ** 2) / 8 + 0.5 * (x + 1) ** 2 for x in m])
    weight = np.exp(value.min() - value)
    settings: dict[str, Any] = {"chains": 2, "warmup": 100, "draws": 150}
    found = sf.consensus(problem, 2, **settings)
    assert found.mean()["m"] == pytest.approx(np.average(m, weights=weight), abs=0.03)
    told = sf.consensus(problem, 2, correct=False, **settings).verdict()
    assert told.status == "not_converged" and "hardly visit mode" in str(told)
