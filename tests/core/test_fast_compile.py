"""Programs that run once: the compiler's effort follows from how much they compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core import fast_compile
from shardfit.core.fast_compile import FEW, fast_compile_jit, unoptimised_jit


def levels(monkeypatch) -> list[int]:
    """Return the list to which every level that is asked of the compiler is added."""
    asked, less = [], fast_compile._less_optimization

    def watched(level):
        asked.append(level)
        return less(level)

    monkeypatch.setattr(fast_compile, "_less_optimization", watched)
    return asked


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options of the CPU's compiler")
@pytest.mark.parametrize("level", [0, 1])
def test_the_compiler_knows_the_options(level):
    """Options that it does not know are left out without a word: starts would be slow and nothing else would show."""
    if fast_compile.LEVEL not in fast_compile.os.environ.get("XLA_FLAGS", ""):
        assert fast_compile._less_optimization(level)[fast_compile.LEVEL] == level


@pytest.mark.parametrize(("numbers", "level"), [(16, 0), (2 * FEW, 1)])
def test_how_much_is_computed_decides(monkeypatch, numbers, level):
    asked = levels(monkeypatch)
    total = unoptimised_jit(lambda x: jnp.sum(3 * x))
    x = np.ones(numbers, np.float32)
    assert float(total(x)) == float(total(x)) == 3 * numbers
    assert asked == [level]


def test_many_runs_are_optimized_however_little_they_compute(monkeypatch):
    asked = levels(monkeypatch)
    assert float(fast_compile_jit(lambda x: x + 1)(np.float32(1))) == 2
    assert asked == [1]


def test_inside_a_program_it_is_a_part_of_that(monkeypatch):
    asked = levels(monkeypatch)
    double = unoptimised_jit(lambda x: 2 * x)
    assert float(jax.jit(lambda x: double(x) + 1)(np.float32(1))) == 3
    assert asked == []
