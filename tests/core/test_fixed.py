"""Parameters that are held: how they are named, that they leave the coordinates, and what is refused."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Interval, Log, Objective, Problem, penalty, residual_term
from shardfit.core.fixed import hold

X0 = {"a": 1.0, "stars": {"age": 2.0, "mass": np.array([3.0, 4.0])}, "w": np.arange(6.0).reshape(2, 3)}


class Pair(NamedTuple):
    a: object
    w: object


def squares(p):
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p))


def problem(x0=X0, **fields):
    return Problem(Objective({"sum": penalty(squares)}), x0, **fields)


def unpacked(made, z):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, made.space.unpack(jnp.asarray(z)))


@pytest.mark.parametrize(
    "fixed, held, values",
    [
        ("a", ["a"], {}),
        (["a", "stars.mass"], ["a", "stars.mass"], {}),
        ({"stars"}, ["stars.age", "stars.mass"], {}),
        ("w[1,2]", ["w[1,2]"], {}),
        ({"a": 7.0, "stars.mass": [8, 9]}, ["a", "stars.mass"], {"a": 7.0, "stars.mass": [8.0, 9.0]}),
        ({"stars": {"mass": 5.0}}, ["stars.mass"], {"stars.mass": [5.0, 5.0]}),
        ({"a": True, "stars": False, "w[0,0]": -1.0}, ["a", "w[0,0]"], {}),
        ({"stars.mass": [False, True]}, ["stars.mass[1]"], {}),
        ({"a": False, "stars": {"age": True, "mass": [True, True]}, "w": np.eye(2, 3) > 0},
         ["stars.age", "stars.mass", "w[0,0]", "w[1,1]"], {}),
        (None, [], {}),
    ],
)  # fmt: skip
def test_names_paths_values_and_booleans(fixed, held, values):
    made = problem(fixed=fixed)
    assert made.space.held_labels() == held
    free = made.space.coordinate_labels()
    assert made.space.size == len(free) == len(made.z0()) == 10 - sum(
        {"stars.mass": 2}.get(name, 1) for name in held
    )  # fmt: skip
    for name, value in values.items():
        leaf = made.x0["a"] if name == "a" else made.x0["stars"]["mass"]
        np.testing.assert_array_equal(leaf, value)
    moved = unpacked(made, made.z0() + 100.0)
    for path, leaf in jax.tree_util.tree_flatten_with_path(moved)[0]:
        start = made.x0
        for key in path:
            start = start[key.key]
        by_number = np.isclose(leaf, start)
        label = ".".join(key.key for key in path)
        for index in np.ndindex(leaf.shape):
            element = label + (f"[{','.join(map(str, index))}]" if index else "")
            assert by_number[index] == (label in held or element in held), element


def test_booleans_follow_any_structure():
    assert problem(np.ones(3), fixed=np.array([True, False, True])).space.held_labels() == ["x[0]", "x[2]"]
    assert problem(np.ones(3), fixed="x[1]").space.held_labels() == ["x[1]"]
    pair = problem(Pair(1.0, np.ones(2)), fixed=Pair(True, [False, True]))
    assert pair.space.held_labels() == ["a", "w[1]"]
    assert problem([1.0, 2.0], fixed="[1]").space.held_labels() == ["[1]"]


@pytest.mark.parametrize(
    "fixed, message",
    [
        ("stars.mas", "fixed: no parameter 'stars.mas'. Did you mean 'stars.mass'"),
        ({"stars": 1.0}, r"'stars' names several parameters \(stars.age, stars.mass\). Give each a value by its name"),
        ("w[2,0]", r"no number 'w\[2,0\]': w has shape \(2, 3\)"),
        ({"stars.mass": [1.0, 2.0, 3.0]}, r"stars.mass has shape \(2,\), not \(3,\)"),
        ({"a": np.nan}, "the value of a is not finite"),
        ({"a": "x0"}, "the value of a is <U2. Give a number, or True"),
        (3, "fixed=3 is not understood. Give names"),
        ({"w": [[True, False]] * 3}, r"w has shape \(2, 3\), not \(3, 2\)"),
    ],
)
def test_what_cannot_be_held_is_named(fixed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        problem(fixed=fixed)


def test_equal_bounds_hold_element_by_element():
    made = problem({"a": 1.0, "w": np.array([1.0, 2.0, 3.0])}, bounds={"a": (1, 1), "w": ([0, 2, None], [9, 2, None])})
    assert made.space.held_labels() == ["a", "w[1]"]
    assert made.box is not None
    np.testing.assert_array_equal(made.box, [[0, -np.inf], [9, np.inf]])
    assert problem({"a": 1.0, "b": 2.0}, bounds={"a": (1, 1)}).box is None, "any solver may take it"


def test_transforms_apply_to_what_is_free():
    made = problem({"a": 0.0, "w": np.array([1.0, 2.0, 4.0])}, fixed=["a", "w[1]"], transforms={"a": Log(), "w": "log"})
    np.testing.assert_allclose(made.z0(), np.log([1.0, 4.0]))
    back = unpacked(made, np.log([10.0, 20.0]))
    np.testing.assert_allclose(back["w"], [10, 2, 20])
    assert back["w"][1] == 2.0, "held exactly, not through exp and log"
    assert back["a"] == 0.0, "a leaf held whole may lie outside its transform's range"
    with pytest.raises(ValueError, match=r"w\[0\] lies outside its transform's range"):
        problem({"w": np.array([0.0, 2.0])}, fixed="w[0]", transforms="log")
    with pytest.raises(ValueError, match="w has a transform that mixes its numbers.*Hold all of them or none"):
        problem({"w": np.full(2, 0.5)}, fixed="w[0]", transforms="simplex")
    assert problem({"w": np.full(2, 0.5)}, fixed="w", transforms="simplex").space.size == 0


def test_a_held_value_must_lie_inside_its_bounds():
    with pytest.raises(ValueError, match=r"x0 of a is 3, outside its bounds \[0, 2\]"):
        problem({"a": 1.0, "b": 1.0}, fixed={"a": 3.0}, bounds={"a": (0, 2)})
    # bounds and a transform exclude each other only where there is something to move
    problem({"a": 1.0, "b": 1.0}, fixed="a", bounds={"a": (0, 2)}, transforms={"a": Interval(0.0, 2.0)})


def test_held_values_are_data():
    made = [problem({"a": 1.0, "b": 2.0}, fixed={"a": value}) for value in (3.0, 4.0)]
    assert jax.tree.structure(made[0].space) == jax.tree.structure(made[1].space)
    assert made[0].space != made[1].space
    traces = []

    @jax.jit
    def value(space, z):
        traces.append(1)
        return squares(space.unpack(z))

    with jax.enable_x64(True):
        assert [float(value(p.space, p.z0())) for p in made] == [13.0, 20.0]
    assert len(traces) == 1


def test_replace_frees_again():
    made = problem({"a": 1.0, "b": 2.0}, fixed={"a": 3.0})
    assert made.replace(fixed=None).space.coordinate_labels() == ["a", "b"]
    assert made.replace(fixed={"b": 5.0}).x0 == {"a": 3.0, "b": 5.0}


def test_derivatives_see_free_numbers_only():
    term = residual_term(lambda p, r: p["a"] * r["x"] + p["w"][0] - p["w"][1], {"x": np.arange(4.0)})
    made = Problem(Objective({"line": term}), {"a": 2.0, "w": np.array([1.0, 5.0])}, fixed="w[1]")
    from shardfit.core.gram import gram

    with jax.enable_x64(True):
        equations = gram(made.objective, made.space, jnp.asarray(made.z0()), None)
    np.testing.assert_allclose(equations.matrix, [[14, 6], [6, 4]])


def test_hold_leaves_its_argument_alone():
    params = {"a": np.array(1.0)}
    hold({"a": 2.0}, params)
    assert params["a"] == 1.0


def test_moved_names_what_differs_from_the_held():
    made = problem(fixed=["a", "w[0,0]"])
    assert made.space.moved(made.x0) == []
    assert made.space.moved(made.x0 | {"stars": {"age": 9.0, "mass": np.zeros(2)}, "w": made.x0["w"] + 1}) == ["w"]
