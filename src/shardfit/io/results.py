"""Results on disk: `result.json` for people and programs, `arrays.npz` for numbers; nothing is pickled."""

import functools
import hashlib
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.core.params import label_of
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.io.files import read_arrays, read_json, write_arrays, write_json

FORMAT = 3
ARRAY, TUPLE, FLOAT, DICT = "$array", "$tuple", "$float", "$dict"
MARKS = (ARRAY, TUPLE, FLOAT, DICT)
TREES = ("params", "stderr")  # stored by their leaves' paths, given back in the structure of x0
KINDS = {
    "value": float | int,
    "steps": int,
    "evaluations": int,
    "dof": int | None,
    **dict.fromkeys(("solver", "problem", "precision", "note"), str),
    **dict.fromkeys(("parts", "history", "timings", "layout", "units", "derived", "state"), dict),
}


def save_result(result: Result, folder: str | Path, run: str = "") -> Path:
    """Write result.json and arrays.npz into a folder, made if need be; load_result gives the same Result back.

    run: digest of the run that the result belongs to, where it belongs to one.
    """
    folder = Path(folder)
    content, arrays = encoded(result)
    folder.mkdir(parents=True, exist_ok=True)
    # two files cannot be replaced at once: without result.json there is no result, so no pair is ever torn
    (folder / "result.json").unlink(missing_ok=True)
    write_arrays(folder / "arrays.npz", arrays)
    write_json(folder / "result.json", {**content, "run": run, "arrays_sha256": _digest(folder)})
    return folder


def load_result(folder: str | Path, like: Any = None) -> Result:
    """Read a Result back. like: a pytree such as the problem's x0, whose structure the parameters get.

    Without it they come in plain form: dicts, lists, tuples and NumPy arrays; the note says where that differs.
    """
    return read_result(folder, like)[0]


def read_result(folder: str | Path, like: Any = None) -> tuple[Result, str]:
    """Return a stored Result and the digest of its run; raise ValueError for damage of any kind."""
    folder = Path(folder)
    for name in ("result.json", "arrays.npz"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no result: {name} is missing.")
    try:
        content = read_json(folder / "result.json")
        if content.get("format") != FORMAT:
            raise ValueError(f"its format is {content.get('format')}, not {FORMAT}: read it with its own version")
        if content["arrays_sha256"] != _digest(folder):
            raise ValueError("arrays.npz is damaged, or of another fit")
        result = _result_of(content, read_arrays(folder / "arrays.npz"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise ValueError(f"{folder}: the stored result cannot be read ({error}). Fit again, or use a copy.") from None
    if like is not None:
        result = replace(result, **{n: _rebuilt(like, getattr(result, n), folder) for n in TREES})
    elif content["plain_form_of"]:
        note = f"The parameters were a {content['plain_form_of']} and are read in plain form; like=x0 rebuilds them."
        result = replace(result, note=" ".join(filter(None, (result.note, note))))
    return result, str(content["run"])


def encoded(result: Result) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a result as JSON and arrays; raise TypeError for what cannot be stored."""
    arrays: dict[str, np.ndarray] = {}
    values = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "status"}
    plain = values | {name: _plain(values[name]) for name in TREES}
    content = {name: _encode(value, name, arrays) for name, value in plain.items()}
    kinds = {type(node).__name__ for node in _nodes(result.params) if not _is_plain(node)}
    content |= {"format": FORMAT, "status": result.status.name, "success": result.success, "message": result.message}
    return content | {"plain_form_of": min(kinds, default="")}, arrays


def require_storable(problem: Any) -> None:
    """Raise, before any work, for parameters or derived quantities that a run directory cannot hold."""
    with np.errstate(all="ignore"):  # only the kind of what decode returns matters here
        derived = {} if problem.decode is None else problem.decode(problem.x0)
    for name, value in (("params", _plain(problem.x0)), ("derived", derived)):
        _encode(value, name, {})


def _digest(folder: Path) -> str:
    with open(folder / "arrays.npz", "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _result_of(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> Result:
    names = {f.name for f in fields(Result)} - {"status"}
    values = {name: _decode(content[name], arrays) for name in names}
    for name, kind in KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is {type(values[name]).__name__}")
    return Result(status=Status[content["status"]], **values)


# ---- pytrees ----------------------------------------------------------------------------------------------------


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """Return (key, child) of a pytree node one level down; None for a leaf."""
    below = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[0]
    if any(not path for path, _ in below):
        return None
    return [(_key(path[0]), child) for path, child in below]


def _key(entry: Any) -> Any:
    key = next((getattr(entry, n) for n in ("key", "name", "idx") if hasattr(entry, n)), str(entry))
    return key if key is None or isinstance(key, str | int | float) else str(key)


def _nodes(tree: Any):
    children = _children(tree)
    if children is not None:
        yield tree
        for _, child in children:
            yield from _nodes(child)


def _is_plain(node: Any) -> bool:
    return node is None or type(node) in (dict, list, tuple)


def _plain(tree: Any) -> Any:
    """Return a pytree as dicts, lists and tuples."""
    children = _children(tree)
    if children is None or tree is None:
        return tree
    if type(tree) in (list, tuple):
        return type(tree)(_plain(child) for _, child in children)
    if type(tree) is dict:  # in its own order, which JAX sorts
        return {_key(jax.tree_util.DictKey(key)): _plain(child) for key, child in tree.items()}
    return {key: _plain(child) for key, child in children}


def _rebuilt(like: Any, stored: Any, folder: Path) -> Any:
    """Return stored leaves in the structure of `like`."""
    if stored is None:
        return None
    leaves = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(like)[0]:
        try:
            found = functools.reduce(lambda node, entry: node[_key(entry)], path, stored)
        except (LookupError, TypeError):
            found = None
        if found is None or np.shape(found) != np.shape(leaf):
            what = f"has no parameter {label_of(path)!r} of shape {np.shape(leaf)}"
            raise ValueError(f"{folder}: the stored result {what}. Pass the x0 that was fitted.")
        leaves.append(found)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


# ---- JSON -------------------------------------------------------------------------------------------------------


def _encode(value: Any, path: str, arrays: dict) -> Any:
    if isinstance(value, dict):
        return _encode_dict(value, path, arrays)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _encode(dict(zip(value._fields, value, strict=True)), path, arrays)  # type: ignore[attr-defined]
    if isinstance(value, list | tuple):
        items = [_encode(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
        return {TUPLE: items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: str(value)}
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"{path}: {type(value).__name__} cannot be stored. Use dicts, lists, tuples and arrays.")
    name = f"{len(arrays)}/{path}"  # numbered: keys may themselves hold a slash
    arrays[name] = array
    return {ARRAY: name}


def _encode_dict(value: dict, path: str, arrays: dict) -> dict:
    for key in value:
        if key in MARKS or not (key is None or isinstance(key, str | int | float)):
            raise TypeError(
                f"{path}: key {key!r} cannot be stored. Use numbers, or text other than {', '.join(MARKS)}."
            )
    items = [(key, _encode(v, f"{path}/{key}", arrays)) for key, v in value.items()]
    return dict(items) if all(isinstance(key, str) for key in value) else {DICT: [list(item) for item in items]}


def _decode(value: Any, arrays: dict) -> Any:
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {ARRAY}:
        return arrays[value[ARRAY]]
    if set(value) == {TUPLE}:
        return tuple(_decode(v, arrays) for v in value[TUPLE])
    if set(value) == {FLOAT}:
        return float(value[FLOAT])
    if set(value) == {DICT}:
        return {key: _decode(v, arrays) for key, v in value[DICT]}
    return {key: _decode(v, arrays) for key, v in value.items()}
