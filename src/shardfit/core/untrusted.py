"""Files of arrays that may come from a stranger: NPY, NPZ and HDF5.

Shapes and types are looked at before any number is read; links into other files are refused; nothing is unpickled; and
whatever a damaged file makes its library raise becomes one ValueError that names the file.
"""

import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra
from shardfit.core.free_memory import host_available_bytes

MAX_SIDE = 32_768  # of the last two axes, and of the first of three
MAX_NAMES = 16_384  # in one group
ARCHIVE = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error)
SHARE = 0.8  # of free memory that one array may take


@contextmanager
def clear_errors(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a damaged file makes its library raise into one clear error. what: 'an HDF5 file', for instance."""
    try:
        yield
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from None
    except (OSError, LookupError, RuntimeError, TypeError, EOFError, AttributeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read as {what} ({type(error).__name__}: {text}). Is it complete?") from None
    except (*ARCHIVE, TokenError, SyntaxError, MemoryError, ArithmeticError) as error:
        raise ValueError(f"{path} is damaged, or not {what} ({type(error).__name__}).") from None


def check_array(path: Path, name: str, shape: Any, dtype: Any) -> None:
    """Raise if an array is not of real numbers, or larger than this machine should read."""
    if getattr(dtype, "kind", "O") not in "fiu":
        raise ValueError(f"{path}: {name} is of type {dtype}, not real numbers.")
    if any(size > MAX_SIDE for size in shape[-2:]) or (len(shape) == 3 and shape[0] > MAX_SIDE):
        raise ValueError(f"{path}: {name} has shape {tuple(shape)}; at most {MAX_SIDE} frames or bins are read.")
    needed, there = 8 * float(np.prod([float(s) for s in shape])), host_available_bytes()
    if needed > SHARE * there:
        raise ValueError(
            f"{path}: {name} needs {needed / 1e9:.1f} GB of memory, {there / 1e9:.1f} are free. Select fewer bins or "
            "frames, or use a larger machine."
        )


def listing(names: Any) -> str:
    """Return the first few of some names, for messages."""
    names = sorted(map(str, names))
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "") if names else "nothing"


def read_npy(path: Path) -> np.ndarray:
    """Return the array of an NPY file."""
    with clear_errors(path, "a NumPy file"), open(path, "rb") as file:
        _check_header(path, "the array", *_header(file), path.stat().st_size)
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False), np.float64)


def read_npz(path: Path, needed: tuple[str, ...], welcome: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Return arrays of an NPZ file: those that are needed, and those that are welcome if they are there."""
    with clear_errors(path, "an NPZ file"), zipfile.ZipFile(path) as archive:
        present = {name.removesuffix(".npy") for name in archive.namelist()}
        missing = [name for name in needed if name not in present]
        if missing:
            raise ValueError(f"{path}: no {', '.join(missing)}; it holds {listing(present)}.")
        names = (*needed, *(name for name in welcome if name in present))
        return {name: _member(archive, path, name) for name in names}


def read_all_npz(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an NPZ file, of any type that needs no unpickling."""
    with clear_errors(path, "an NPZ file"), zipfile.ZipFile(path) as archive:
        return all_members(archive, path)


def all_members(archive: zipfile.ZipFile, path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an open NPZ file; memory is taken only for what is there."""
    names = [name.removesuffix(".npy") for name in archive.namelist()[:MAX_NAMES]]
    return {name: _member(archive, path, name, numbers=False) for name in names}


def _member(archive: zipfile.ZipFile, path: Path, name: str, numbers: bool = True) -> np.ndarray:
    """Read one array of an NPZ after its header was found harmless. numbers: it must be of real ones."""
    with archive.open(f"{name}.npy") as file:
        _check_header(path, name, *_header(file), archive.getinfo(f"{name}.npy").file_size, numbers)
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and type of the array in an open NPY file."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    return shape, dtype


def _check_header(path: Path, name: str, shape: tuple, dtype: np.dtype, size: int, numbers: bool = True) -> None:
    """Raise for an array that should not be read, before memory is taken for it. size: bytes of its file."""
    if numbers:
        check_array(path, name, shape, dtype)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{path} is damaged: {name} says that it has shape {shape}, the file holds less.")


@contextmanager
def open_hdf5(path: Path, extra: str) -> Iterator["Hdf5"]:
    """Open an HDF5 file for reading. extra: the optional dependencies that bring h5py, as in 'xpcs'."""
    with require_extra(f"reading {path}", extra):
        import h5py
    with clear_errors(path, "an HDF5 file"), h5py.File(path, "r") as file:
        yield Hdf5(path, file)


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names by the numbers in them; longer digits are larger numbers."""
    words = re.split("([0-9]+)", name)
    return [(len(word.lstrip("0")), word.lstrip("0")) if k % 2 else (0, word) for k, word in enumerate(words)]


class Hdf5:
    """An open HDF5 file, read with limits."""

    def __init__(self, path: Path, file: Any):
        self.path, self.file = path, file

    def has(self, address: str) -> bool:
        """Whether anything is at an address."""
        return self.find(address) is not None

    def find(self, address: str) -> Any:
        """Return what is at an address, None if nothing is; a link into another file is refused on the way."""
        import h5py

        here = self.file
        for word in address.split("/"):
            if not isinstance(here, h5py.Group):
                return None
            link = here.get(word, getlink=True)
            if link is None:
                return None
            if isinstance(link, h5py.ExternalLink):
                raise ValueError(f"{self.path}: {address} is a link into another file, which is not followed.")
            here = here.get(word)
        return here

    def read(self, address: str, ndim: tuple[int, ...] = (1,)) -> np.ndarray:
        """Return an array of one of these numbers of axes, after a look at its shape and type."""
        found = self.find(address)
        if found is None:
            raise ValueError(f"{self.path}: {address} is missing.")
        shape, kind = getattr(found, "shape", None), getattr(found, "dtype", None)
        if shape is None or len(shape) not in ndim:
            raise ValueError(
                f"{self.path}: {address} has shape {shape}; {' or '.join(map(str, ndim))} axes are needed."
            )
        if found.is_virtual or found.external:
            raise ValueError(f"{self.path}: {address} keeps its numbers in another file, which is not followed.")
        check_array(self.path, address, shape, kind)
        return np.asarray(found[()], np.float64)

    def read_or(self, address: str, other: Any, ndim: tuple[int, ...] = (1,)) -> Any:
        """Return an array, or something else where there is none."""
        return self.read(address, ndim) if self.has(address) else other

    def texts(self, address: str) -> list[str]:
        """Return a short list of texts, empty if there is none."""
        found = self.find(address)
        if found is None:
            return []
        if len(getattr(found, "shape", ())) != 1 or len(found) > 100 or found.dtype.kind not in "SO":
            raise ValueError(f"{self.path}: {address} must be a short list of texts.")
        return [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in found[()]]

    def attribute(self, address: str, name: str) -> str:
        """Return an attribute as text, empty if there is none."""
        value = self.find(address).attrs.get(name)
        return value.decode(errors="replace") if isinstance(value, bytes) else str("" if value is None else value)

    def keys(self, address: str) -> list[str]:
        """Return the names in a group, which must not be empty, sorted with their numbers as numbers: c2_2, c2_10."""
        group = self.find(address)
        names = sorted(group, key=_with_numbers) if hasattr(group, "keys") else []
        if not 0 < len(names) <= MAX_NAMES:
            raise ValueError(f"{self.path}: {address} holds {len(names)} entries; 1 to {MAX_NAMES} are expected.")
        return names
