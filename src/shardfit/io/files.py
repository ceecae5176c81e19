"""Files that are either the old or the new one whenever the machine stops, and that notice when they were changed."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from shardfit.core.errors import name_path_in_errors
from shardfit.core.untrusted import all_members

CHECK = "sha256"  # of all the rest of a file


def write_atomic(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write beside the target, force to disk, then rename over it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with name_path_in_errors(path, partial), open(str(partial), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def to_json(content: Mapping[str, Any]) -> str:
    """Return a JSON object with its checksum."""
    return json.dumps({**content, CHECK: _json_digest(content)}, indent=1, allow_nan=False)


def from_json(text: str | bytes, where: Any) -> dict[str, Any]:
    """Return what to_json was given; raise ValueError if it was damaged or edited. where: what the error names."""
    try:
        content = json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is damaged ({error}).") from None
    if not isinstance(content, dict):
        raise ValueError(f"{where} is damaged (it holds no JSON object).")
    if content.pop(CHECK, None) != _json_digest(content):
        raise ValueError(f"{where} is damaged, edited, or of an older version (its checksum does not match).")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum."""
    write_atomic(path, lambda file: file.write(to_json(content).encode()))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise ValueError if it is damaged or was edited."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error}).") from None
    return from_json(text, path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as npz with their checksum; anything that would need pickling is refused."""
    content: dict[str, Any] = {**arrays, CHECK: _arrays_digest(arrays), "allow_pickle": False}
    write_atomic(path, lambda file: np.savez(file, **content))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an npz file; raise ValueError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("it is compressed, which arrays written here never are")
            arrays = all_members(archive, path)
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile and NumPy raise anything on damage, from KeyError to MemoryError
        raise ValueError(f"{path} is damaged ({error or type(error).__name__}).") from None
    check = arrays.pop(CHECK, None)
    if check is None or not np.array_equal(check, _arrays_digest(arrays)):
        raise ValueError(f"{path} is damaged (its checksum does not match).")
    return arrays


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, CHECK).hexdigest()


def _json_digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _arrays_digest(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        total.update(f"{name}\0{array.dtype.str}{array.shape}".encode())
        total.update(array.tobytes())
    return np.frombuffer(total.digest(), np.uint8)
