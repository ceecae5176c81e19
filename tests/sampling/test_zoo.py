"""Targets with known answers: none may be wrong and converged. The whole zoo is the benchmark suite `zoo`."""

import numpy as np
import pytest

from benchmarks import zoo
from benchmarks.problems.zoo import TARGETS
from shardfit.sampling.density import sampled
from shardfit.sampling.start import find_start

ENDLESS = ("separated classes, flat priors", "a sum alone", "a number unread", "tails of 1 / x", "a wall without end")
TWO = ("two modes of ten numbers", "labels")


def test_there_are_thirty_targets():
    assert len(TARGETS) >= 30
    for target in TARGETS.values():
        assert len(target.mean) == len(target.sd) and np.all(np.array(target.sd) > 0)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_has_no_integral_is_refused_before_chains(name):
    with pytest.raises(ValueError, match="improper"):
        find_start(sampled(TARGETS[name].problem()))


@pytest.mark.parametrize("name", TWO)
def test_modes_are_found(name):
    start = find_start(sampled(TARGETS[name].problem()))
    assert start.modes is not None and len(start.modes) == 2


def test_a_top_that_is_flat_to_rounding_has_a_width():
    start = find_start(sampled(TARGETS["flat top"].problem()))
    assert start.root is not None and 0.1 < np.linalg.norm(start.root, axis=1).max() < 30


def test_a_kink_without_curvature_is_a_start():
    assert np.isfinite(find_start(sampled(TARGETS["laplace"].problem())).z).all()


def test_no_word_is_wrong():
    told = zoo.once(TARGETS["labels"], draws=300, warmup=150)
    assert told["word"] == "flagged" and "2 modes" in told["why"], told
