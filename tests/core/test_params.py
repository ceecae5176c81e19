"""Parameters: transforms, flat coordinates, bounds and how a specification is spread over a pytree."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardfit.core.bounds import box
from shardfit.core.param_checks import check_params
from shardfit.core.params import broadcast_prefix, label_of, make_space
from shardfit.core.transforms import Identity, Interval, Log, Simplex, Softplus, as_transform


@dataclass(frozen=True)
class Cube:
    """A user's own transform."""

    def forward(self, z):
        return z**3

    def inverse(self, x):
        return jnp.cbrt(x)


class Fit(NamedTuple):
    a: object
    w: object


ROUND_TRIPS = [
    (Identity(), [-2.0, 0.0, 3.0]),
    (Log(), [1e-300, 1e-3, 1.0, 1e300]),
    (Softplus(), [1e-12, 0.5, 40.0, 1e6]),
    (Interval(-2.0, 5.0), [-1.999999, 0.0, 4.999999]),
    (Simplex(), [[0.2, 0.3, 0.5], [1e-9, 0.5, 0.5 - 1e-9]]),
    (Cube(), [-8.0, 1.0, 27.0]),
]


@pytest.mark.parametrize("transform, x", ROUND_TRIPS, ids=lambda v: type(v).__name__)
def test_transforms_round_trip(transform, x):
    with jax.enable_x64(True):
        x = np.array(x)
        z = transform.inverse(x)
        assert np.isfinite(z).all()
        np.testing.assert_allclose(transform.forward(z), x, rtol=1e-9)


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.floats(-50, 50))
def test_transforms_stay_in_their_range(z):
    with jax.enable_x64(True):
        assert Log().forward(jnp.float64(z)) > 0
        assert Softplus().forward(jnp.float64(z)) > 0
        assert -2 <= Interval(-2.0, 5.0).forward(jnp.float64(z)) <= 5
        shares = Simplex().forward(jnp.array([z, 0.5]))
        assert (shares >= 0).all()
        assert float(shares.sum()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_interval_needs_two_ends_in_order(ends):
    with pytest.raises(ValueError, match=r"Interval\(.*finite and in ascending order"):
        Interval(*ends)


def test_transforms_by_name_and_their_errors():
    assert as_transform("log") == Log()
    assert as_transform(None) == Identity()
    with pytest.raises(ValueError, match="unknown transform 'sofplus'.*Did you mean 'softplus'"):
        as_transform("sofplus")
    with pytest.raises(TypeError, match="no forward and inverse. Use Log"):
        as_transform(np.exp)

    class Loose(Cube):
        __hash__ = None

    with pytest.raises(TypeError, match="cannot be hashed.*frozen"):
        as_transform(Loose())


# ---- space ----------------------------------------------------------------------------------------------------------

TREES = {
    "dict": {"b": 2.0, "a": np.ones((2, 3))},
    "ordered": OrderedDict(b=np.arange(2.0), a=5.0),
    "list": [1.0, [2.0, np.arange(3.0)]],
    "tuple": (1.0, {"w": (np.ones(2), 3.0)}),
    "namedtuple": Fit(1.0, [np.arange(2.0), 4.0]),
    "array": np.arange(6.0).reshape(2, 3),
    "scalar": np.float64(3.0),
    "with none": {"a": 1.0, "b": None},
}


@pytest.mark.parametrize("kind", TREES)
def test_pack_and_unpack_are_inverse(kind):
    params = check_params(TREES[kind])
    space = make_space(params)
    with jax.enable_x64(True):
        z = space.pack(params)
        back = space.unpack(z)
    assert z.shape == (space.size,) == (len(space.coordinate_labels()),)
    assert space.plain
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)


def test_pack_through_transforms():
    params = {"a": 2.0, "share": np.array([0.2, 0.3, 0.5]), "w": [0.5, 8.0]}
    space = make_space(params, {"a": Log(), "share": "simplex", "w": [Interval(0.0, 1.0), Cube()]})
    assert space.size == 5, "three shares have two coordinates"
    assert not space.plain
    with jax.enable_x64(True):
        z = space.pack(params)
        np.testing.assert_allclose(z, [np.log(2), np.log(0.4), np.log(0.6), 0, 2], atol=1e-14)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), space.unpack(z), params)


def test_labels_read_like_code():
    space = make_space({"a": 1.0, "w": [np.ones(2), {"c": np.ones((1, 2))}]})
    assert space.labels == ("a", "w[0]", "w[1].c")
    assert space.coordinate_labels() == ["a", "w[0][0]", "w[0][1]", "w[1].c[0,0]", "w[1].c[0,1]"]
    assert make_space(np.ones(2)).coordinate_labels() == ["x[0]", "x[1]"]
    assert label_of(jax.tree_util.tree_flatten_with_path(Fit(1, 2))[0][1][0]) == "w"


def test_equal_structure_gives_equal_spaces():
    one, two = (make_space({"a": v, "w": np.full(3, v)}, {"a": Interval(0.0, 9.0)}) for v in (1.0, 2.0))
    assert one == two
    assert hash(one) == hash(two)
    assert one != make_space({"a": 1.0, "w": np.ones(3)}, {"a": Interval(0.0, 8.0)})
    assert one != make_space({"a": 1.0, "w": np.ones(4)}, {"a": Interval(0.0, 9.0)})


# ---- spreading a specification --------------------------------------------------------------------------------------

NESTED = {"a": 1.0, "w": [2.0, (3.0, np.ones(2))]}
SPREADS = {
    "none": ("bounds", None, NESTED, [None] * 4),
    "one for all": ("bounds", (0, 9), NESTED, [(0, 9)] * 4),
    "by name": ("bounds", {"a": (0, 1)}, NESTED, [(0, 1), None, None, None]),
    "pair for a subtree": ("bounds", {"w": (0, 9)}, NESTED, [None, (0, 9), (0, 9), (0, 9)]),
    "list of entries": ("bounds", {"w": [(0, 1), None]}, NESTED, [None, (0, 1), None, None]),
    "nested list": ("bounds", {"w": [None, [(2, 3), (4, 5)]]}, NESTED, [None, None, (2, 3), (4, 5)]),
    "pair for two": ("bounds", (0, 1), (1.0, 2.0), [(0, 1), (0, 1)]),
    "list for two": ("bounds", [(0, 1), (2, 3)], (1.0, 2.0), [(0, 1), (2, 3)]),
    "tuple of units": ("units", ("s", "m"), (1.0, 2.0), ["s", "m"]),
    "unit for all": ("units", "Jy", NESTED, ["Jy"] * 4),
    "namedtuple": ("bounds", Fit((0, 1), None), Fit(0.5, 2.0), [(0, 1), None]),
    "namedtuple by name": ("bounds", {"w": (0, 1)}, Fit(0.5, [2.0, 3.0]), [None, (0, 1), (0, 1)]),
    "ordered dict": ("units", {"a": "m", "b": "s"}, OrderedDict(b=1.0, a=2.0), ["s", "m"]),
    "array": ("bounds", (0, 1), np.ones(3), [(0, 1)]),
    "number names": ("bounds", {1: (0, 1)}, {0: 1.0, 1: 2.0}, [None, (0, 1)]),
    "no leaf for none": ("bounds", (0, 1), {"a": 1.0, "b": None}, [(0, 1)]),
}


@pytest.mark.parametrize("case", SPREADS)
def test_spread(case):
    what, spec, params, expected = SPREADS[case]
    assert broadcast_prefix(what, spec, params) == expected
    assert len(expected) == len(jax.tree.leaves(params))


@pytest.mark.parametrize("what", ["bounds", "transforms", "units"])
def test_spread_names_what_does_not_fit(what):
    with pytest.raises(
        ValueError, match=f"{what}: no parameter 'contrst'.*Did you mean 'contrast'.*Known: contrast, tau"
    ):
        broadcast_prefix(what, {"contrst": None}, {"contrast": 1.0, "tau": 2.0})
    with pytest.raises(ValueError, match=f"{what}: 3 entries for 2 parameters. Give one each, or one for all"):
        broadcast_prefix(what, [None] * 3, [1.0, 2.0])


# ---- bounds ---------------------------------------------------------------------------------------------------------


def box_of(params, bounds, transforms=None):
    with jax.enable_x64(True):
        found = box(make_space(params, transforms), check_params(params), bounds)
    return None if found is None else tuple(np.asarray(side).tolist() for side in found)


INF = np.inf
BOXES = [
    (1.0, None, None, None),
    (1.0, (0, None), None, ([0.0], [INF])),
    (1.0, [0, 2], None, ([0.0], [2.0])),
    ({"a": 1.0, "w": np.ones(2)}, {"w": (0, [2, 3])}, None, ([-INF, 0, 0], [INF, 2, 3])),
    (np.ones(2), [(0, 1), (1, 2)], None, ([0.0, 1.0], [1.0, 2.0])),  # one pair per entry, as scipy writes it
    (np.ones(3), [None, (0, None), (None, 5)], None, ([-INF, 0, -INF], [INF, INF, 5])),
    (np.ones(2), [0, 9], None, ([0.0, 0.0], [9.0, 9.0])),
    (np.ones((2, 2)), (0, np.array([[1, 2], [3, 4]])), None, ([0.0] * 4, [1.0, 2.0, 3.0, 4.0])),
    (1.0, (1, np.e), "log", ([0.0], [1.0])),
    (1.0, (0, None), "log", None),
    (1.0, (-1, 1), "log", ([-INF], [0.0])),
    ({"s": np.full(2, 0.5), "x": 1.0}, {"x": (0, 2)}, {"s": "simplex"}, ([-INF, 0.0], [INF, 2.0])),
    (1.0, (0, np.log1p(np.exp(3.0))), "softplus", ([-INF], [3.0])),
]


@pytest.mark.parametrize("params, bounds, transform, expected", BOXES)
def test_box_in_solver_coordinates(params, bounds, transform, expected):
    found = box_of(params, bounds, transform)
    assert found == (expected and tuple(pytest.approx(side) for side in expected))


@pytest.mark.parametrize(
    "params, bounds, transform, words",
    [
        (1.0, (2, 1), None, "bounds of x: lower 2.0 must not exceed upper 1.0"),
        (1.0, (np.nan, 1), None, "bounds of x: lower nan"),
        ({"w": np.ones(3)}, {"w": (0, [1, 2])}, None, r"bounds of w are .*that fit its shape \(3,\)"),
        ({"a": 1.0}, {"a": 5}, None, r"bounds of a are 5; give \(lower, upper\)"),
        ({"a": 1.0}, {"a": ("low", "high")}, None, "bounds of a are"),
        (np.ones(2), [(0, 1), (3, 2)], None, r"bounds of x\[1\]: lower 3.0 must not exceed"),
        (0.5, (0, 1), Interval(0.0, 1.0), r"x: bounds and transform Interval.* cannot be combined. Use one"),
        ({"a": 5.0}, {"a": (0, 2)}, None, r"x0 of a is 5, outside its bounds \[0, 2\]. Move one"),
        ({"w": np.array([[1.0, 9.0]])}, {"w": (None, 3)}, None, r"x0 of w\[0,1\] is 9, outside its bounds \[-inf, 3\]"),
        ({"a": 5.0}, {"a": (1, 2)}, "log", r"x0 of a is 5, outside its bounds \[1, 2\]"),
        ({"a": 5.0}, {"a": (None, -1)}, "log", r"x0 of a is 5, outside its bounds \[-inf, -1\]"),
    ],
)
def test_bad_bounds_name_the_parameter(params, bounds, transform, words):
    with pytest.raises(ValueError, match=words):
        box_of(params, bounds, transform)


def test_a_float32_start_may_lie_on_its_bound():
    params = {"a": np.float32(0.1)}
    assert box(make_space(params), params, {"a": (None, 0.1)}) is not None


# ---- starts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x0, error, words",
    [
        ({}, ValueError, "x0 has no parameters. Pass a number"),
        ({"a": np.nan}, ValueError, "parameter a of x0 is not finite"),
        ({"w": [1.0, np.array([1, np.inf])]}, ValueError, r"parameter w\[1\] of x0 is not finite"),
        ({"a": 1j}, TypeError, "parameter a is complex. Fit two real parameters"),
        ({"a": "one"}, TypeError, "parameter a is .*not a number"),
        ({"a": True}, TypeError, "parameter a is bool, not a number"),
        (np.array([None]), TypeError, "parameter x0 is object, not a number"),
    ],
)
def test_bad_starts_name_the_parameter(x0, error, words):
    with pytest.raises(error, match=words):
        check_params(x0)


def test_whole_numbers_become_floating():
    found = check_params({"a": 3, "b": np.float32(1.0)})
    assert (found["a"].dtype, found["b"].dtype) == (np.float64, np.float32)
