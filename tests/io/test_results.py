"""Results on disk: the same numbers back, however often, and nothing that runs code."""

import hashlib
import json
import math
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.io.files import read_json, write_json
from shardfit.io.results import FORMAT, load_result, save_result


class Pair(NamedTuple):
    a: object
    b: object


def make(**more):
    values = {
        "params": {
            "a": np.float64(0.1),
            "nested": [np.arange(6.0).reshape(2, 3), (np.float32(1 / 3), {"z": np.array([1 + 2j, np.nan])})],
            "b/c": np.ones(1),
            "b": {"c": np.zeros(1), "c.npy": np.full(1, 2.0)},
        },
        "value": float("nan"),
        "parts": {"data": 1 / 3, "prior": -math.inf},
        "status": Status.MAX_STEPS,
        "solver": "lbfgsb",
        "steps": 7,
        "evaluations": 9,
        "history": {"value": np.array([np.inf, np.nan, -0.0, 1e-310]), "flag": np.array([True, False])},
        "timings": {"total": 0.1 + 0.2},
        "layout": {"platform": "cpu", "rows": 4, "devices": ("a", "b")},
        "certificate": {"sharded": None, "probe_rows": {"data": 3}},
        "covariance": np.full((2, 2), 1e-300),
        "stderr": [np.zeros((0, 2)), "größer"],
        "units": {"a": "Jy"},
        "derived": {"empty": {}, "flag": True, "none": None},
    }
    return Result(**values | more)


def same(one, two):
    assert type(one) is type(two) or (isinstance(one, float) and isinstance(two, float)), (one, two)
    if isinstance(one, dict):
        assert list(one) == list(two)
        one, two = list(one.values()), list(two.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            same(a, b)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    elif isinstance(one, float):
        assert np.float64(one).tobytes() == np.float64(two).tobytes()
    else:
        assert one == two


def test_equal_after_repeated_round_trips(tmp_path):
    first = load_result(save_result(make(), tmp_path / "made" / "here"))
    original = make()
    original.params["nested"][1] = (np.array(original.params["nested"][1][0]), original.params["nested"][1][1])
    for name in [f.name for f in fields(Result)]:
        same(getattr(first, name), getattr(original, name))
    again = first
    for i in range(3):
        again = load_result(save_result(again, tmp_path / str(i)))
    for name in [f.name for f in fields(Result)]:
        same(getattr(again, name), getattr(first, name))
    assert (tmp_path / "2" / "result.json").read_bytes() == (tmp_path / "made" / "here" / "result.json").read_bytes()


def test_json_is_strict_and_readable(tmp_path):
    save_result(make(note="said"), tmp_path)

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    content = json.loads((tmp_path / "result.json").read_text(), parse_constant=refuse)
    assert content["status"] == "MAX_STEPS"
    assert content["success"] is False
    assert "said" in content["message"]


@jax.tree_util.register_dataclass
@dataclass
class Decay:
    tau: object
    a: object


TREES = {
    "array": (jnp.ones(3), np.ones(3, np.float32), ""),
    "namedtuple": (Pair(1.0, [np.ones(1)]), {"a": 1.0, "b": [np.ones(1)]}, "Pair"),
    "dataclass": (Decay(np.zeros(2), {"x": 1.0}), {"tau": np.zeros(2), "a": {"x": 1.0}}, "Decay"),
    "numbered": ({3: 1.0, 1: {"x": np.ones(2)}}, {3: 1.0, 1: {"x": np.ones(2)}}, ""),
    "odd keys": ({(1, 2): 1.0, (0, 1): 2.0}, {"(1, 2)": 1.0, "(0, 1)": 2.0}, ""),
}


@pytest.mark.parametrize("kind", TREES)
def test_any_pytree_comes_back_plain_or_in_its_own_structure(tmp_path, kind):
    params, plain, name = TREES[kind]
    save_result(make(params=params, stderr=params), tmp_path)
    alone = load_result(tmp_path)
    same(alone.params, plain)
    assert (f"were a {name} and are read in plain form" in alone.note) == bool(name)
    whole = load_result(tmp_path, like=params)
    assert jax.tree.structure(whole.params) == jax.tree.structure(whole.stderr) == jax.tree.structure(params)
    assert not whole.note
    for one, two in zip(jax.tree.leaves(whole.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="has no parameter"):
        load_result(tmp_path, like={"other": np.ones(7)})


@pytest.mark.parametrize(
    "derived, words",
    [
        ({"o": np.array([object()])}, "derived/o: ndarray cannot be stored. Use dicts, lists"),
        ({"o": np.zeros(1, [("x", object)])}, "derived/o: ndarray cannot be stored"),
        ({"s": {1, 2}}, "derived/s: set cannot be stored"),
        ({(1, 2): 2.0}, r"derived: key \(1, 2\) cannot be stored"),
        ({"$array": 2.0}, r"derived: key '\$array' cannot be stored"),
    ],
)
def test_what_would_need_pickle_is_refused_and_nothing_written(tmp_path, derived, words):
    save_result(make(), tmp_path)
    before = [(p.name, p.read_bytes()) for p in sorted(tmp_path.iterdir())]
    with pytest.raises(TypeError, match=words):
        save_result(make(derived=derived), tmp_path)
    assert [(p.name, p.read_bytes()) for p in sorted(tmp_path.iterdir())] == before


def rewritten(folder, **changes):
    """Change result.json as a stranger could: with a checksum that matches."""
    content = read_json(folder / "result.json")
    content["arrays_sha256"] = hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()
    write_json(folder / "result.json", {**content, **changes})


def test_pickled_arrays_are_not_opened(tmp_path):
    save_result(make(), tmp_path)
    np.savez(tmp_path / "arrays.npz", **{"0/params/a": np.array([{}], object)})
    rewritten(tmp_path)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded when allow_pickle=False"):
        load_result(tmp_path)


def test_compressed_arrays_are_not_opened(tmp_path):
    save_result(make(), tmp_path)
    np.savez_compressed(tmp_path / "arrays.npz", zeros=np.zeros(10**6))
    rewritten(tmp_path)
    with pytest.raises(ValueError, match="it is compressed"):
        load_result(tmp_path)


@pytest.mark.parametrize("changes", [{"value": "9"}, {"history": []}, {"steps": None}, {"parts": {"$array": "none"}}])
def test_wrong_types_are_damage_even_with_a_checksum(tmp_path, changes):
    save_result(make(), tmp_path)
    rewritten(tmp_path, **changes)
    with pytest.raises(ValueError, match="the stored result cannot be read"):
        load_result(tmp_path)


def test_one_changed_digit_is_refused(tmp_path):
    save_result(make(value=8.23), tmp_path)
    path = tmp_path / "result.json"
    path.write_text(path.read_text().replace("8.23", "9.23"))
    with pytest.raises(ValueError, match="its checksum does not match"):
        load_result(tmp_path)


@pytest.mark.parametrize("name", ["result.json", "arrays.npz"])
def test_a_missing_file_is_named(tmp_path, name):
    save_result(make(), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"holds no result: {name} is missing"):
        load_result(tmp_path)


@pytest.mark.parametrize("name", ["result.json", "arrays.npz"])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_said_to_be_damaged(tmp_path, name, keep):
    save_result(make(), tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ValueError, match="the stored result cannot be read.*Fit again, or use a copy"):
        load_result(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b'{"format": 2}', b"[" * 100_000, b"\xff\xfe{}", b"", b"9" * 5000])
def test_foreign_json_is_said_to_be_damaged(tmp_path, content):
    save_result(make(), tmp_path)
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ValueError, match="the stored result cannot be read"):
        load_result(tmp_path)


def test_another_format_is_named(tmp_path):
    save_result(make(), tmp_path)
    rewritten(tmp_path, format=99)
    with pytest.raises(ValueError, match=f"its format is 99, not {FORMAT}"):
        load_result(tmp_path)


def test_a_loaded_result_prints(tmp_path):
    result = load_result(save_result(make(params={"a": np.float64(2.0)}, stderr=None), tmp_path))
    assert "a = 2" in str(replace(result, note="x"))
