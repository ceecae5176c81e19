"""Gathers and models on disk; the suffix of a file decides how it is read and written.

.sgy, .segy: SEG-Y. .npz: arrays by name, everything kept. .npy and raw binary (.bin, .raw, .dat, .f32): one array in
C order, mapped into memory, not read; raw binary needs its shape. Files are replaced whole or not at all.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardfit.core.errors import file_not_found_error, name_path_in_errors, suggestion
from shardfit.core.untrusted import clear_errors, read_all_npz
from shardfit.domains.seismic import segy
from shardfit.domains.seismic.gathers import Gathers

SEGY, RAW = (".sgy", ".segy"), (".bin", ".raw", ".dat", ".f32")
KNOWN = (*SEGY, ".npz", ".npy", *RAW)
PLACES = ("sources", "receivers", "live")  # of gathers, where they are known
MODEL_NAMES = ("velocity", "vp")
NOT_METRES = 20.0  # m/s: a model that stays below is in km/s


class Model(NamedTuple):
    """velocity: (nz, nx) m/s; dh: (dz, dx) in metres, None where the file does not tell it."""

    velocity: np.ndarray
    dh: tuple[float, ...] | None


def load_gathers(
    path: str | Path, *, dt: float | None = None, shape: Any = None, dtype: Any = "<f4", by: int = 9
) -> Gathers:
    """Read shot gathers. dt: seconds, where the file does not tell it; shape, dtype: of raw binary.

    by: header byte that numbers the shots of SEG-Y. Samples are not looked at: who uses them reads and checks them.

    Example: `load_gathers("line.sgy")`, `load_gathers("line.bin", dt=0.002, shape=(50, 200, 1500))`.
    """
    kind = _kind(path)
    with clear_errors(Path(path), "gathers"):
        if kind in SEGY:
            found = segy.read_gathers(path, by)
        elif kind == ".npz":
            arrays = read_all_npz(Path(path))
            if "traces" not in arrays:
                raise ValueError(f"{path} holds no array 'traces' but {', '.join(arrays) or 'nothing'}.")
            step = dt if "dt" not in arrays else float(arrays["dt"])
            found = Gathers(arrays["traces"], _known_dt(path, step), *(arrays.get(name) for name in PLACES))
        else:
            found = Gathers(_mapped(path, kind, shape, dtype), _known_dt(path, dt))
    if dt is not None and abs(found.dt - dt) > 1e-9:
        raise ValueError(f"{path} has dt={found.dt:g} s, but {dt:g} s was given. Resample it, or leave dt out.")
    return found


def save_gathers(path: str | Path, gathers: Gathers) -> Path:
    """Write shot gathers; .npy and raw binary keep the traces only."""
    kind = _kind(path, exists=False)
    with _replacing(path) as partial:
        if kind in SEGY:
            if gathers.sources is not None and gathers.sources.shape[-1] > 2:
                raise ValueError(f"{path}: SEG-Y is written of lines (z, x). Use .npz for three dimensions.")
            segy.write_gathers(partial, gathers)
        elif kind == ".npz":
            arrays = {name: getattr(gathers, name) for name in PLACES if getattr(gathers, name) is not None}
            _write_npz(partial, traces=gathers.traces, dt=np.float64(gathers.dt), **arrays)
        else:
            _write_plain(partial, kind, gathers.traces)
    return Path(path)


def load_model(path: str | Path, *, shape: Any = None, dtype: Any = "<f4", of: str = "vp") -> Model:
    """Read a velocity model. shape, dtype: of raw binary; of: the parameter of a medium that it is, see `propagate`.

    Example: `load_model("vp.npz").velocity`.
    """
    kind, dh = _kind(path), None
    with clear_errors(Path(path), "a model"):
        if kind in SEGY:
            velocity, dh = segy.read_model(path)
        elif kind == ".npz":
            arrays = read_all_npz(Path(path))
            name = next((name for name in (*MODEL_NAMES, *arrays) if name in arrays), None)
            if name is None:
                raise ValueError(f"{path} holds no array.")
            velocity = arrays[name]
            if "dh" not in arrays and {"dz", "dx"} <= set(arrays) and velocity.ndim == 2:
                arrays["dh"] = np.array([float(arrays["dz"]), float(arrays["dx"])])
            if "dh" in arrays:
                dh = tuple(map(float, np.broadcast_to(arrays["dh"], velocity.ndim)))
                if not all(0 < step < np.inf for step in dh):
                    raise ValueError(f"{path}: dh = {dh} m is no spacing of a grid. Correct it in the file.")
        else:
            velocity = _mapped(path, kind, shape, dtype)
        _check_model(path, velocity, of)
        return Model(np.array(velocity), dh)


def save_model(path: str | Path, velocity: Any, dh: Any, of: str = "vp") -> Path:
    """Write a velocity model (nz, nx) with its spacing in metres; .npy and raw binary keep the speeds only."""
    kind, velocity = _kind(path, exists=False), np.asarray(velocity)
    _check_model(path, velocity, of)
    if kind in SEGY and velocity.ndim > 2:
        raise ValueError(f"{path}: SEG-Y holds sections (nz, nx). Use .npz for three dimensions.")
    with _replacing(path) as partial:
        if kind in SEGY:
            segy.write_model(partial, velocity, dh)
        elif kind == ".npz":
            _write_npz(partial, velocity=velocity, dh=np.asarray(dh, float))
        else:
            _write_plain(partial, kind, velocity)
    return Path(path)


def _kind(path: str | Path, exists: bool = True) -> str:
    kind = Path(path).suffix.lower()
    if kind not in KNOWN:
        raise ValueError(f"{path}: unknown kind of file {kind!r}.{suggestion(kind, KNOWN)}")
    if exists and not Path(path).is_file():
        raise file_not_found_error(path)
    return kind


def _known_dt(path: str | Path, dt: float | None) -> float:
    if dt is None:
        raise ValueError(f"{path} does not contain its time step. Give dt in seconds.")
    return dt


def _check_model(path: str | Path, values: np.ndarray, of: str) -> None:
    """Raise for what cannot be this parameter: vs may be zero, it is water; epsilon and delta may be negative."""
    if values.ndim not in (2, 3):
        raise ValueError(f"{path}: a model is (nz, nx) or (nz, ny, nx); this array has shape {values.shape}.")
    if 0 in values.shape:
        raise ValueError(f"{path}: this model of shape {values.shape} has no cells.")
    speed = of in ("vp", "vs")
    name = "the velocity" if speed else of
    low = {"vs": values < 0, "epsilon": values <= -0.5, "delta": values <= -0.5}.get(of, values <= 0)
    what = {"vs": "negative", "epsilon": "not above -1/2", "delta": "not above -1/2"}.get(of, "not positive")
    for bad, why in ((~np.isfinite(values), "not finite"), (low, what)):
        if bad.any():
            cell = tuple(map(int, np.argwhere(bad)[0]))
            raise ValueError(f"{path}: {name} is {why} at cell {cell}: {values[cell]}.")
    if speed and values.max() < NOT_METRES:
        raise ValueError(f"{path}: speeds reach {values.max():g} only. They must be in m/s; km/s times 1000 is that.")
    if of == "rho" and values.max() < NOT_METRES:
        raise ValueError(f"{path}: rho reaches {values.max():g} only. It must be in kg/m³; g/cm³ times 1000 is that.")


def _mapped(path: str | Path, kind: str, shape: Any, dtype: Any) -> np.ndarray:
    if kind == ".npy":
        with clear_errors(Path(path), "a NumPy file"):
            return np.load(path, mmap_mode="r", allow_pickle=False)
    if shape is None:
        raise ValueError(f"{path}: raw binary does not contain its shape. Give shape, and dtype if it is not {dtype}.")
    expected, actual = int(np.prod(shape)) * np.dtype(dtype).itemsize, Path(path).stat().st_size
    if expected != actual:
        raise ValueError(
            f"{path} has {actual} bytes, but shape {tuple(shape)} of {np.dtype(dtype).name} takes {expected}. Correct "
            "shape or dtype."
        )
    return np.memmap(path, dtype, "r", shape=tuple(shape))


def _write_npz(path: Path, **arrays: Any) -> None:
    with open(path, "wb") as file:
        np.savez(file, **arrays, allow_pickle=False)


def _write_plain(path: Path, kind: str, array: Any) -> None:
    with open(path, "wb") as file:
        if kind == ".npy":
            np.save(file, array, allow_pickle=False)
        else:
            np.ascontiguousarray(array, "<f4").tofile(file)


@contextlib.contextmanager
def _replacing(path: str | Path) -> Iterator[Path]:
    """Give a path beside the target, renamed over it when all went well."""
    target = Path(path)
    partial = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        with name_path_in_errors(target):
            yield partial
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
