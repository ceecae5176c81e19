"""Results on disk: the same numbers back, however often, and nothing that runs code."""

import hashlib
import json
import math
from dataclasses import fields, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.io.results import load_result, save_result


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


@pytest.mark.parametrize(
    "params, expected",
    [(jnp.ones(3), np.ones(3, np.float32)), (Pair(1.0, [np.ones(1)]), {"a": 1.0, "b": [np.ones(1)]})],
)
def test_jax_arrays_and_namedtuples_come_back_plain(tmp_path, params, expected):
    same(load_result(save_result(make(params=params), tmp_path)).params, expected)


@pytest.mark.parametrize(
    "derived, words",
    [
        ({"o": np.array([object()])}, "derived/o: ndarray cannot be stored. Use dicts, lists"),
        ({"o": np.zeros(1, [("x", object)])}, "derived/o: ndarray cannot be stored"),
        ({"s": {1, 2}}, "derived/s: set cannot be stored"),
        ({1: 2.0}, "derived: key 1 cannot be stored"),
        ({"$array": 2.0}, r"derived: key '\$array' cannot be stored"),
    ],
)
def test_what_would_need_pickle_is_refused_and_nothing_written(tmp_path, derived, words):
    save_result(make(), tmp_path)
    before = [(p.name, p.read_bytes()) for p in sorted(tmp_path.iterdir())]
    with pytest.raises(TypeError, match=words):
        save_result(make(derived=derived), tmp_path)
    assert [(p.name, p.read_bytes()) for p in sorted(tmp_path.iterdir())] == before


def test_pickled_arrays_are_not_opened(tmp_path):
    save_result(make(), tmp_path)
    path = tmp_path / "arrays.npz"
    content = json.loads((tmp_path / "result.json").read_text())
    np.savez(path, **{"0/params/a": np.array([{}], object)})
    content["arrays_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="Object arrays cannot be loaded when allow_pickle=False"):
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


@pytest.mark.parametrize("content", ["[]", '{"format": 1}', '{"format": 1, "status": "NEW"}'])
def test_foreign_json_is_said_to_be_damaged(tmp_path, content):
    save_result(make(), tmp_path)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match="the stored result cannot be read"):
        load_result(tmp_path)


def test_another_format_is_named(tmp_path):
    save_result(make(), tmp_path)
    (tmp_path / "result.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="result format 99 is not 1"):
        load_result(tmp_path)


def test_a_loaded_result_prints(tmp_path):
    result = load_result(save_result(make(params={"a": np.float64(2.0)}, stderr=None), tmp_path))
    assert "a = 2" in str(replace(result, note="x"))
