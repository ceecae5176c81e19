"""What may be among the parameters: floating numbers; what says how a model is built is refused by its name."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import register_dataclass

from shardfit.core.param_checks import check_params

ONE = jnp.asarray(np.ones(2))


class Series(eqx.Module):
    w: jax.Array
    order: int


class Nested(eqx.Module):
    inner: Series
    scale: float


class Table(eqx.Module):
    w: jax.Array
    index: jax.Array


class Sizes(eqx.Module):
    w: float
    shape: tuple


class Rates(eqx.Module):
    each: list[float]


class Named(NamedTuple):
    a: float
    n: "int"


@register_dataclass
@dataclass
class Plain:
    a: Any
    n: int = 3


class Child(Series):
    b: float


Bare = namedtuple("Bare", "a b")


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (Series(ONE, 2), "order"),
        (Series(ONE, np.int64(2)), "order"),
        (Series(ONE, jnp.int32(2)), "order"),
        (Series(ONE, jnp.arange(3)), "order"),
        (Nested(Series(ONE, 2), 1.0), "inner.order"),
        ({"model": Series(ONE, 2)}, "model.order"),
        ([Child(ONE, 2, 1.0)], r"\[0\].order"),
        (Table(ONE, jnp.arange(3)), "index"),
        (Table(ONE, np.arange(3, dtype=np.uint8)), "index"),
        (Sizes(1.0, (3, 4)), r"shape\[0\]"),
        (Named(1.0, 3), "n"),
        (Plain(1.0), "n"),
        (Plain(1, 2.0), "a"),
        (Bare(1.0, np.arange(2)), "b"),
    ],
)
def test_integers_in_fields_are_refused_by_name(params, name):
    with pytest.raises(TypeError, match=rf"parameter {name} of x0 is an integer.*eqx.partition.*write it as a float"):
        check_params(params)


@pytest.mark.parametrize(
    "params",
    [
        {"a": 1, "b": np.arange(3)},
        [1, (2, np.int64(3))],
        3,
        Bare(1, 2),
        Named(1, 3.0),
        Named(np.int64(1), 3.0),
        Sizes(1, (3.0,)),
        Rates([1, 2]),
        {"layers": [Sizes(2, ())]},
        Series(ONE, None),
        jnp.arange(2),
    ],
)
def test_starts_without_a_point_are_floating(params):
    before, after = jax.tree.leaves(params), jax.tree.leaves(check_params(params))
    assert all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in after)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (True, "is bool, not a number. Keep what is not fitted out"),
        (np.array([True]), "is bool"),
        ("abc", "not a number. Keep"),
        (jnp.sin, "is a function.*eqx.partition"),
        (jax.random.key(0), "is a random key"),
        (np.array([1.0, None]), "is object"),
        (1 + 0j, r"is complex.*1j \* params\['im'\]"),
        (jnp.asarray(np.ones(2) * 1j), "is complex"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), "masked"),
        (np.inf, "not finite"),
    ],
)
def test_what_is_no_number_is_refused_with_the_remedy(leaf, message):
    with pytest.raises((TypeError, ValueError), match=f"parameter a.*{message}"):
        check_params({"a": leaf, "b": 1.0})


def test_masked_arrays_without_masked_numbers_are_arrays():
    assert type(check_params({"a": np.ma.array([1.0, 2.0])})["a"]) is np.ndarray
