"""Files of two-time correlations: APS-U and legacy HDF5, NXxpcs, NPZ and NPY. Files may come from a stranger.

Shapes and types are looked at before any number is read; links into other files are refused; nothing is unpickled.
"""

import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.free_memory import host_available_bytes
from shardfit.domains.xpcs.cleaning import corrected_diagonal, symmetrised
from shardfit.domains.xpcs.data import Correlation

MAX_FRAMES, MAX_BINS = 32_768, 16_384
NPZ_NAMES = ("c2_exp", "t1", "t2", "phi_angles_list", "wavevector_q_list")
FEW, MANY = 5, 10  # legacy rule: with fewer than FEW bins near q, the MANY nearest are taken


@dataclass(frozen=True)
class Selection:
    """What is wanted of a file. q: 1/Å, None: the only one there; dt: s, None: as the file says; gap: Å;
    frames: first and last, from 1, −1: to the end.

    q_tolerance: legacy files list one q per bin; those within this fraction of the nearest are taken.
    diagonal: rule of `corrected_diagonal`, or 'keep'.
    """

    q: float | None = None
    dt: float | None = None
    gap: float | None = None
    frames: tuple[int, int] = (1, -1)
    q_tolerance: float = 0.1
    diagonal: str = "basic"


def read(path: str | Path, selection: Selection | None = None, **options: Any) -> Correlation:
    """Read correlations of one q from a file, symmetrised, frames cut, diagonal corrected.

    options: the fields of Selection, by keyword.

    Example: `read("run7.hdf", q=0.0054, dt=0.1, frames=(1, 500))`.
    """
    wanted = replace(selection or Selection(), **options)
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"\x93NUMPY"):
        data = _read_npy(path, wanted)
    elif head.startswith(b"PK"):
        data = _read_npz(path, wanted)
    else:
        data = _read_hdf5(path, wanted)
    data = replace(data, gap=wanted.gap)
    if wanted.frames != (1, -1):
        data = data.frames(*wanted.frames)
    if wanted.diagonal == "keep":
        return data
    return replace(data, c2=corrected_diagonal(data.c2, wanted.diagonal))


def write(path: str | Path, data: Correlation) -> Path:
    """Write correlations as NPZ, in the names that `read` knows."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: correlations are written as NPZ. Name a file that ends in .npz.")
    sigma = {} if data.sigma is None else {"sigma": data.sigma}
    values = (data.c2, data.t, data.t, data.phi, data.q)
    np.savez_compressed(path, **dict(zip(NPZ_NAMES, values, strict=True)), **sigma)
    return path


# ---- NumPy ----------------------------------------------------------------------------------------------------------


def _read_npy(path: Path, wanted: Selection) -> Correlation:
    with _clear_errors(path, "a NumPy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        _check_shape(path, "the array", array.shape, array.dtype)
        c2 = np.array(array, np.float64)
    if wanted.q is None or wanted.dt is None:
        raise ValueError(f"{path}: an NPY file holds matrices only. Say q (1/Å) and dt (s) of them.")
    c2 = c2[None] if c2.ndim == 2 else c2
    return Correlation(symmetrised(c2), np.zeros(len(c2)), wanted.q, wanted.dt, source=path.name)


def _read_npz(path: Path, wanted: Selection) -> Correlation:
    with _clear_errors(path, "an NPZ file"), zipfile.ZipFile(path) as archive:
        present = {name.removesuffix(".npy") for name in archive.namelist()}
        missing = [name for name in NPZ_NAMES if name not in present]
        if missing:
            raise ValueError(f"{path}: no {', '.join(missing)}; it holds {_listing(present)}.")
        arrays = {name: _member(archive, path, name) for name in (*NPZ_NAMES, *({"sigma"} & present))}
    c2, t1 = arrays["c2_exp"], np.ravel(arrays["t1"])
    if c2.ndim != 3 or len(t1) != c2.shape[1] or len(t1) < 2:
        raise ValueError(f"{path}: c2_exp has shape {c2.shape}, but t1 {arrays['t1'].shape}.")
    q, phi = np.ravel(arrays["wavevector_q_list"]), np.ravel(arrays["phi_angles_list"])
    q = np.full(len(phi), q[0]) if len(q) == 1 else q
    dt = wanted.dt or float(t1[1] - t1[0])
    data = Correlation(symmetrised(c2), phi, q, dt, arrays.get("sigma"), source=path.name)
    return data.take(np.flatnonzero(_is_nearest(path, data.q, wanted.q)))


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> np.ndarray:
    """Read one array of an NPZ after its header was found harmless."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
    _check_shape(path, name, shape, dtype)
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


# ---- HDF5 -----------------------------------------------------------------------------------------------------------


def _read_hdf5(path: Path, wanted: Selection) -> Correlation:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"reading {path} needs h5py: pip install 'shardfit[xpcs]'.") from error
    with _clear_errors(path, "an HDF5 file"), h5py.File(path, "r") as file:
        source = _Source(path, file)
        for marker, reader in LAYOUTS.items():
            if source.has(marker):
                return reader(source, wanted)
        raise ValueError(
            f"{path}: no two-time correlations are found. Known are APS-U (xpcs/twotime/correlation_map), APS legacy "
            f"(exchange/C2T_all) and NXxpcs (entry/twotime/two_time_corr_func); at its top are {_listing(file)}."
        )


class _Source:
    """An open HDF5 file, read with limits."""

    def __init__(self, path: Path, file: Any):
        self.path, self.file = path, file

    def has(self, address: str) -> bool:
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
        _check_shape(self.path, address, shape, kind)
        return np.asarray(found[()], np.float64)

    def halves(self, address: str, keys: list[str]) -> np.ndarray:
        """Return the matrices of a group by key, each mirrored from its filled half."""
        first = self.read(f"{address}/{keys[0]}", (2,))
        _check_shape(self.path, address, (len(keys), *first.shape), first.dtype)
        stack = np.empty((len(keys), *first.shape))
        for k, key in enumerate(keys):
            matrix = first if k == 0 else self.read(f"{address}/{key}", (2,))
            if matrix.shape != first.shape or matrix.shape[0] != matrix.shape[1]:
                raise ValueError(f"{self.path}: {address}/{key} has shape {matrix.shape}, others {first.shape}.")
            stack[k] = symmetrised(matrix)
        return stack

    def keys(self, address: str) -> list[str]:
        """Return the sorted names in a group."""
        group = self.find(address)
        names = sorted(group) if hasattr(group, "keys") else []
        if not 0 < len(names) <= MAX_BINS:
            raise ValueError(f"{self.path}: {address} holds {len(names)} matrices; 1 to {MAX_BINS} are expected.")
        return names


def _aps_u(source: _Source, wanted: Selection) -> Correlation:
    """Read the APS-U layout: bins number (q, phi) from 1, phi running first."""
    q, phi = (np.ravel(source.read(f"xpcs/qmap/dynamic_v_list_dim{i}", (1, 2))) for i in (0, 1))
    bins = np.ravel(source.read("xpcs/twotime/processed_bins", (1, 2)))
    keys = source.keys("xpcs/twotime/correlation_map")
    number = bins.astype(np.int64) - 1
    if len(keys) != len(bins):
        raise ValueError(f"{source.path}: {len(keys)} matrices for {len(bins)} processed bins.")
    if np.any(number < 0) or np.any(number >= len(q) * len(phi)) or np.any(number + 1 != bins):
        raise ValueError(f"{source.path}: processed_bins must be whole numbers from 1 to {len(q) * len(phi)}.")
    of_q, of_phi = np.divmod(number, len(phi))
    chosen = np.flatnonzero(_is_nearest(source.path, q[of_q], wanted.q))
    c2 = source.halves("xpcs/twotime/correlation_map", [keys[k] for k in chosen])
    dt = _dt(source.path, wanted.dt)
    return Correlation(c2, phi[of_phi[chosen]], q[of_q[chosen]], dt, source=source.path.name)


def _aps_legacy(source: _Source, wanted: Selection) -> Correlation:
    """Read the legacy layout: one q and phi per matrix; every matrix keeps its own q."""
    q, phi = (np.ravel(source.read(f"xpcs/{name}", (1, 2))[..., :]) for name in ("dqlist", "dphilist"))
    keys = source.keys("exchange/C2T_all")
    if not len(q) == len(phi) == len(keys):
        raise ValueError(f"{source.path}: {len(keys)} matrices, but {len(q)} q and {len(phi)} phi.")
    nearest = _nearest(source.path, q, wanted.q)
    chosen = np.flatnonzero(np.abs(q - nearest) <= wanted.q_tolerance * nearest)
    notes: tuple[str, ...] = ()
    if len(chosen) < FEW:
        order = np.argsort(np.abs(q - nearest), kind="stable")[:MANY]
        notes = (
            f"Only {len(chosen)} bins lie within {wanted.q_tolerance:.0%} of q: the {len(order)} nearest are used.",
        )
        chosen = np.sort(order)
    c2 = source.halves("exchange/C2T_all", [keys[k] for k in chosen])
    return Correlation(c2, phi[chosen], q[chosen], _dt(source.path, wanted.dt), source=source.path.name, notes=notes)


def _nexus(source: _Source, wanted: Selection) -> Correlation:
    """Read NXxpcs: an array with q first or last, or one key per bin."""
    address, masks = "entry/twotime/two_time_corr_func", "entry/instrument/masks"
    found = source.find(address)
    if hasattr(found, "keys"):
        c2 = source.halves(address, source.keys(address))
    else:
        c2 = source.read(address, (2, 3))
        c2 = c2[None] if c2.ndim == 2 else c2
        mode = _text(found.attrs.get("storage_mode"))
        last = mode == "one_array_q_last" or (not mode and c2.shape[0] == c2.shape[1] != c2.shape[2])
        c2 = symmetrised(_upright(np.moveaxis(c2, -1, 0) if last else c2))
    if float(found.attrs.get("baseline_reference", 1)) == 0:
        c2 = c2 + 1.0
    n = len(c2)
    q = source.read(f"{masks}/dynamic_q_list") if source.has(f"{masks}/dynamic_q_list") else None
    if q is None and wanted.q is None:
        raise ValueError(f"{source.path}: {masks}/dynamic_q_list is missing. Say q (1/Å).")
    if q is not None and "nm" in _text(source.find(f"{masks}/dynamic_q_list").attrs.get("units")):
        q = 0.1 * q
    phi = source.read(f"{masks}/dynamic_phi_list") if source.has(f"{masks}/dynamic_phi_list") else np.zeros(n)
    dt = _dt(source.path, wanted.dt, _frame_time(source))
    data = Correlation(c2, phi, wanted.q if q is None else q, dt, source=source.path.name)
    return data.take(np.flatnonzero(_is_nearest(source.path, data.q, wanted.q)))


def _upright(c2: np.ndarray) -> np.ndarray:
    """Return matrices with time running down, whichever corner the origin was stored in."""
    flipped = c2[:, ::-1]
    if not np.allclose(c2, np.swapaxes(c2, 1, 2), equal_nan=True) and np.allclose(
        flipped, np.swapaxes(flipped, 1, 2), equal_nan=True
    ):
        return flipped
    return c2


def _frame_time(source: _Source) -> float | None:
    instrument = source.find("entry/instrument")
    for name in sorted(instrument) if hasattr(instrument, "keys") else ():
        address = f"entry/instrument/{name}/frame_time"
        if source.has(address):
            value = float(np.ravel(source.read(address, (0, 1)))[0])
            return value * (1e-3 if _text(source.find(address).attrs.get("units")) == "ms" else 1.0)
    return None


LAYOUTS: dict[str, Callable[[_Source, Selection], Correlation]] = {
    "xpcs/twotime/correlation_map": _aps_u,
    "exchange/C2T_all": _aps_legacy,
    "entry/twotime/two_time_corr_func": _nexus,
}


# ---- checks ---------------------------------------------------------------------------------------------------------


@contextmanager
def _clear_errors(path: Path, what: str):
    """Turn whatever a damaged file makes its library raise into one clear error."""
    try:
        yield
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from None
    except (OSError, KeyError, RuntimeError, TypeError, EOFError, NotImplementedError, AttributeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read as {what} ({type(error).__name__}: {text}). Is it complete?") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, SyntaxError, MemoryError, ArithmeticError) as error:
        raise ValueError(f"{path} is damaged, or not {what} ({type(error).__name__}).") from None


def _check_shape(path: Path, name: str, shape: Any, dtype: Any) -> None:
    if getattr(dtype, "kind", "O") not in "fiu":
        raise ValueError(f"{path}: {name} is of type {dtype}, not real numbers.")
    if any(size > MAX_FRAMES for size in shape[-2:]) or (len(shape) == 3 and shape[0] > MAX_FRAMES):
        raise ValueError(f"{path}: {name} has shape {tuple(shape)}; at most {MAX_FRAMES} frames or bins are read.")
    needed, there = 8 * float(np.prod([float(s) for s in shape])), host_available_bytes()
    if needed > 0.8 * there:
        raise ValueError(
            f"{path}: {name} needs {needed / 1e9:.1f} GB of memory, {there / 1e9:.1f} are free. Select fewer bins or "
            "frames, or use a larger machine."
        )


def _listing(names: Any) -> str:
    names = sorted(map(str, names))
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "") if names else "nothing"


def _nearest(path: Path, q: np.ndarray, wanted: float | None) -> float:
    if not np.all(np.isfinite(q)) or not np.all(q > 0):
        raise ValueError(f"{path}: its list of q holds values that are not positive numbers.")
    if wanted is not None:
        return float(q[np.argmin(np.abs(q - wanted))])
    if not np.allclose(q, q[0], rtol=1e-9):
        raise ValueError(f"{path} holds several q ({_listing(np.unique(q))}). Say which: q=… in 1/Å.")
    return float(q[0])


def _is_nearest(path: Path, q: np.ndarray, wanted: float | None) -> np.ndarray:
    return np.isclose(q, _nearest(path, q, wanted), rtol=1e-9, atol=0.0)


def _dt(path: Path, wanted: float | None, stored: float | None = None) -> float:
    if wanted is None and stored is None:
        raise ValueError(f"{path} does not say the time between frames. Give dt in seconds.")
    return float(wanted if wanted is not None else stored)  # type: ignore[arg-type]


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
