"""Results on disk: `result.json` for people and programs, `arrays.npz` for numbers; nothing is pickled."""

import hashlib
import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.io.files import read_arrays, write_arrays, write_atomic

FORMAT = 1
DAMAGE = (json.JSONDecodeError, UnicodeDecodeError, LookupError, AttributeError)  # of a truncated or foreign file
ARRAY, TUPLE, FLOAT = "$array", "$tuple", "$float"


def save_result(result: Result, folder: str | Path) -> Path:
    """Write result.json and arrays.npz into a folder, made if need be; load_result gives the same Result back."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    content = {f.name: _encode(getattr(result, f.name), f.name, arrays) for f in fields(result) if f.name != "status"}
    content |= {"format": FORMAT, "status": result.status.name, "success": result.success, "message": result.message}
    write_arrays(folder / "arrays.npz", arrays)
    # two files cannot be replaced at once: the digest tells a pair that belongs together from one torn by a crash
    content["arrays_sha256"] = _digest(folder)
    text = json.dumps(content, indent=1, allow_nan=False)
    write_atomic(folder / "result.json", lambda file: file.write(text.encode()))
    return folder


def load_result(folder: str | Path) -> Result:
    """Read a Result back; params come as dicts, lists, tuples and NumPy arrays."""
    folder = Path(folder)
    for name in ("result.json", "arrays.npz"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no result: {name} is missing.")
    try:
        content = json.loads((folder / "result.json").read_text())
        return _result_of(content, folder)
    except DAMAGE as error:
        raise ValueError(
            f"{folder}: the stored result cannot be read ({error!r}). Fit again, or use a copy."
        ) from error


def _digest(folder: Path) -> str:
    with open(folder / "arrays.npz", "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _result_of(content: Any, folder: Path) -> Result:
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{folder}: result format {content.get('format')} is not {FORMAT}; read it with its own version."
        )
    if content["arrays_sha256"] != _digest(folder):
        raise LookupError("arrays.npz is damaged, or of another fit")
    arrays = read_arrays(folder / "arrays.npz")
    known = {f.name for f in fields(Result)} - {"status"}
    values = {name: _decode(content[name], arrays) for name in known if name in content}
    return Result(status=Status[content["status"]], **values)


def _encode(value: Any, path: str, arrays: dict) -> Any:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key in (ARRAY, TUPLE, FLOAT):
                raise TypeError(f"{path}: key {key!r} cannot be stored. Use text other than {ARRAY}, {TUPLE}, {FLOAT}.")
        return {key: _encode(v, f"{path}/{key}", arrays) for key, v in value.items()}
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
    return {key: _decode(v, arrays) for key, v in value.items()}
