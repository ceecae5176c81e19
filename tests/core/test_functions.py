"""Functions of the same code with equal closures share programs, and none sees what another's closure became."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.functions import shared

X = np.linspace(0.0, 2.0, 12)


def scaled(constant, power=2):
    return lambda p, rows: constant * p - rows["y"] ** power


def problem_of(residual, seed=0):
    y = 3.0 + 0.01 * np.random.default_rng(seed).normal(size=X.size)
    return sf.Problem(sf.Objective({"d": sf.residual_term(residual, {"y": y})}), 1.0)


@pytest.mark.parametrize("value", [1, 2.5, "text", None, (1, (2.0, "a")), np.float64(2.0), np.arange(3.0), 1j, np.nan])
def test_equal_closures_are_one(value):
    again = value.copy() if isinstance(value, np.ndarray) else value
    assert shared(scaled(value)) is shared(scaled(again))
    assert shared(shared(scaled(value))) is shared(scaled(value))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (1.0, 1.0 + 1e-15),
        (np.arange(3.0), np.arange(3)),
        (np.arange(3.0), np.arange(3.0).reshape(3, 1)),
        (np.float32(1), np.float64(1)),
        ((1, 2), (1, 2, 3)),
        ([1.0], [1.0]),  # a list may change
        (scaled(1.0), scaled(2.0)),
        (functools.partial(scaled, 1), functools.partial(scaled, 2)),
    ],
)
def test_other_closures_are_not(one, other):
    assert shared(scaled(one)) is not shared(scaled(other))


def test_defaults_keywords_and_code_tell_functions_apart():
    def made(default, key):
        def fn(p, rows, scale=default, *, shift=key):
            return p * scale + shift

        return fn

    assert shared(made(1.0, 2.0)) is shared(made(1.0, 2.0))
    assert len({shared(made(1.0, 2.0)), shared(made(1.5, 2.0)), shared(made(1.0, 2.5))}) == 3
    assert shared(made(1.0, 2.0))(3.0, None) == 5.0
    assert shared(lambda p: p + 1) is not shared(lambda p: p + 2)


def test_partials_and_functions_inside_closures():
    def outer(fn):
        return lambda p: fn(p)

    assert shared(outer(scaled(1.0))) is shared(outer(scaled(1.0)))
    assert shared(outer(scaled(1.0))) is not shared(outer(scaled(2.0)))
    assert shared(functools.partial(scaled(1.0), 2)) is shared(functools.partial(scaled(1.0), 2))
    assert shared(functools.partial(scaled(1.0), 2)) is not shared(functools.partial(scaled(1.0), 3))


def test_what_cannot_be_shared_stands_for_itself():
    count = 0

    def counts(p):
        nonlocal count
        count += 1
        return p

    def recursive(n):
        return n if n == 0 else recursive(n - 1)

    class Model:
        def __call__(self, p, rows):
            return p - rows["y"]

    for fn in (counts, recursive, Model(), np.exp):
        assert shared(fn) is fn


def test_a_shared_function_keeps_what_its_closure_was():
    array = np.array([1.0, 2.0])
    early = shared(scaled(array))
    array[0] = 5.0
    assert shared(scaled(np.array([1.0, 2.0]))) is early
    assert early(1.0, {"y": 0.0}).tolist() == [1.0, 2.0]
    assert shared(scaled(array)) is not early


def test_new_functions_of_the_same_code_are_not_traced_again():
    traced = []

    def made(power):
        def residual(p, rows):
            traced.append(power)
            return p**power - rows["y"]

        return residual

    assert sf.fit(problem_of(made(2)), "lm").success
    traced.clear()
    second = sf.fit(problem_of(made(2), seed=1), "lm")
    assert not traced and second.success
    assert float(second.params) == pytest.approx(np.sqrt(3.0), rel=0.01)
    assert second.certificate["probe_rows"] == {"d": X.size}
    assert float(sf.fit(problem_of(made(3)), "lm").params) == pytest.approx(3.0 ** (1 / 3), rel=0.01)
    assert set(traced) == {3}


def test_a_variable_of_a_closure_that_changed_is_seen_by_the_next_fit():
    factor, offset = 1.0, np.zeros(1)

    def residual(p, rows):
        return factor * p + offset[0] - rows["y"]

    problem = problem_of(residual)
    first = float(sf.fit(problem, "lm").params)
    factor = 2.0
    assert float(sf.fit(problem, "lm").params) == pytest.approx(first / 2)
    offset[0] = 1.0
    assert float(sf.fit(problem, "lm").params) == pytest.approx((first - 1) / 2)


def test_a_start_that_is_not_finite_is_an_error_after_many_good_fits():
    residual = scaled(1.0, 1)
    for seed in range(3):
        assert sf.fit(problem_of(residual, seed), "lm").success

    def logarithm(p, rows):
        return jnp.log(p) - rows["y"]

    with pytest.raises(sf.NonFiniteError):
        sf.fit(problem_of(logarithm).replace(x0=-1.0), "lm", certify=False)
