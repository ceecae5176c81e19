"""Files that are either the old or the new one, whenever the machine stops."""

import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def write_atomic(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write beside the target, force to disk, then rename over it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(partial, "wb") as file:
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


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as npz; anything that would need pickling is refused."""
    content: dict[str, Any] = {**arrays, "allow_pickle": False}
    write_atomic(path, lambda file: np.savez(file, **content))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an npz file; raise ValueError if it is damaged."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
            return dict(content)
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}).") from None
