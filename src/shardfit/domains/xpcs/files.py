"""Files of two-time correlations: APS-U and legacy HDF5, NXxpcs, ESRF, NPZ and NPY. Files may come from a stranger."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import file_not_found_error
from shardfit.core.untrusted import Hdf5, check_array, clear_errors, listing, open_hdf5, read_npy, read_npz
from shardfit.domains.xpcs.bins import Binned, delay_bins
from shardfit.domains.xpcs.cleaning import corrected_diagonal, one_half, symmetrised, upright
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.options import Selection

NPZ_NAMES = ("c2_exp", "t1", "t2", "phi_angles_list", "wavevector_q_list")
FEW, MANY = 5, 10  # legacy rule: with fewer than FEW bins near q, the MANY nearest are taken
SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
APART = 0.1  # what was asked for and what is taken may differ by this fraction before a note says so


def read(path: str | Path, selection: Selection | None = None, **options: Any) -> Correlation:
    """Read correlations of one q from a file, symmetrised, frames cut, diagonal corrected; binned ones as `Binned`.

    options: the fields of Selection, by keyword.

    Example: `read("run7.hdf", q=0.0054, dt=0.1, frames=(1, 500))`.
    """
    wanted = replace(selection or Selection(), **options)
    path = Path(path)
    if not path.is_file():
        raise file_not_found_error(path)
    with path.open("rb") as file:
        head = file.read(8)
    if not head:
        raise ValueError(f"{path} is empty.")
    with clear_errors(path, "correlations"):
        if head.startswith(b"\x93NUMPY"):
            data = _read_npy(path, wanted)
        elif head.startswith(b"PK"):
            data = _read_npz(path, wanted)
        else:
            data = _read_hdf5(path, wanted)
    data = replace(data, gap=wanted.gap, notes=(*data.notes, *_other_q(data, wanted.q)))
    if wanted.frames != (1, -1):
        data = data.frames(*wanted.frames)
    if wanted.diagonal == "keep" or isinstance(data, Binned):
        return data
    diagonal = np.diagonal(data.c2, axis1=1, axis2=2).copy() if data.diagonal is None else data.diagonal
    return replace(data, c2=corrected_diagonal(data.c2, wanted.diagonal), diagonal=diagonal)


def write(path: str | Path, data: Correlation) -> Path:
    """Write correlations as NPZ, in the names that `read` knows."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: correlations are written as NPZ. Name a file that ends in .npz.")
    more = {name: getattr(data, name) for name in ("sigma", "diagonal") if getattr(data, name) is not None}
    values = (data.c2, data.t, data.t, data.phi, data.q)
    np.savez_compressed(path, **dict(zip(NPZ_NAMES, values, strict=True)), **more)
    return path


def from_xarray(found: Any, q: Any = None, dt: float | None = None, **rest: Any) -> Correlation:
    """Return an xarray DataArray, or a Dataset with variables c2 and perhaps sigma, as data.

    Its last two dimensions are the times, one before them, if any, the bins. phi, q and the first time are taken from
    coordinates or attributes of these names (the time's that of its dimension), unless given; rest: gap, sigma, source.
    """
    whole, found = found, found["c2"] if hasattr(found, "data_vars") else found
    time = found.dims[-2]
    if dt is None and time not in found.coords:
        raise ValueError(f"from_xarray: dimension {time!r} has no coordinate, so the frame time is unknown. Give dt.")
    dt = _step("from_xarray", np.asarray(found.coords[time])) if dt is None else dt

    def known(name, other):
        places = (found.coords, found.attrs, getattr(whole, "attrs", {}))
        return next((np.asarray(place[name], float) for place in places if name in place), other)

    q = known("q", None) if q is None else q
    if q is None:
        raise ValueError("from_xarray: no coordinate or attribute q. Give q in 1/Å.")
    c2 = np.asarray(found, np.float64)
    sigma = np.asarray(whole["sigma"], float) if whole is not found and "sigma" in whole else None
    n = 1 if c2.ndim == 2 else len(c2)
    return Correlation(symmetrised(c2), known("phi", np.zeros(n)), q, dt, **{"sigma": sigma, **rest})


def _read_npy(path: Path, wanted: Selection) -> Correlation:
    c2 = read_npy(path)
    if wanted.q is None or wanted.dt is None:
        raise ValueError(f"{path}: an NPY file holds matrices only. Say q (1/Å) and dt (s) of them.")
    c2 = c2[None] if c2.ndim == 2 else c2
    return Correlation(symmetrised(c2), np.zeros(len(c2)), wanted.q, wanted.dt, source=path.name)


def _read_npz(path: Path, wanted: Selection) -> Correlation:
    arrays = read_npz(path, NPZ_NAMES, ("sigma", "diagonal"))
    c2, t1 = arrays["c2_exp"], arrays["t1"]
    t1 = t1[:, 0] if t1.ndim == 2 and t1.shape[1] > 1 and t1[0, 0] == t1[0, 1] else t1  # times of every point
    t1 = t1[0] if t1.ndim == 2 else t1
    if c2.ndim != 3 or len(t1) != c2.shape[1] or len(t1) < 2:
        raise ValueError(f"{path}: c2_exp has shape {c2.shape}, but t1 {arrays['t1'].shape}.")
    q, phi = np.ravel(arrays["wavevector_q_list"]), np.ravel(arrays["phi_angles_list"])
    q = np.full(len(phi), q[0]) if len(q) == 1 else q
    dt, notes = _dt(path, wanted.dt, _step(path, t1))
    kept: dict[str, Any] = {name: arrays.get(name) for name in ("sigma", "diagonal")}
    data = Correlation(symmetrised(c2), phi, q, dt, source=path.name, notes=notes, **kept)
    return data.take(np.flatnonzero(_is_nearest(path, data.q, wanted.q)))


def _read_hdf5(path: Path, wanted: Selection) -> Correlation:
    with open_hdf5(path, "xpcs") as source:
        for marker, reader in LAYOUTS.items():
            if source.has(marker):
                return reader(source, wanted)
        raise ValueError(
            f"{path}: no correlations are found. Known are APS-U (xpcs/twotime/correlation_map, xpcs/multitau), APS "
            "legacy (exchange/C2T_all), NXxpcs (entry/twotime/two_time_corr_func) and ESRF (entry_0000/correlations); "
            f"at its top are {listing(source.file)}."
        )


def _halves(source: Hdf5, address: str, keys: list[str]) -> np.ndarray:
    """Return the matrices of a group by key, each mirrored from its filled half."""
    stack = _matrices(source, address, keys)
    for k, matrix in enumerate(stack):
        stack[k] = symmetrised(matrix)
    return stack


def _matrices(source: Hdf5, address: str, keys: list[str]) -> np.ndarray:
    """Return the matrices of a group by key."""
    first = source.read(f"{address}/{keys[0]}", (2,))
    check_array(source.path, address, (len(keys), *first.shape), first.dtype)
    stack = np.empty((len(keys), *first.shape))
    for k, key in enumerate(keys):
        matrix = first if k == 0 else source.read(f"{address}/{key}", (2,))
        if matrix.shape != first.shape or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"{source.path}: {address}/{key} has shape {matrix.shape}, others {first.shape}.")
        stack[k] = matrix
    return stack


def _aps_u(source: Hdf5, wanted: Selection) -> Correlation:
    """Read two-time matrices of the APS-U layout, whose bins are numbered from 1."""
    q, phi = _aps_u_bins(source)
    bins = np.ravel(source.read("xpcs/twotime/processed_bins", (1, 2)))
    keys = source.keys("xpcs/twotime/correlation_map")
    number = bins.astype(np.int64) - 1
    if len(keys) != len(bins):
        raise ValueError(f"{source.path}: {len(keys)} matrices for {len(bins)} processed bins.")
    if np.any(number < 0) or np.any(number >= len(q)) or np.any(number + 1 != bins):
        raise ValueError(f"{source.path}: processed_bins must be whole numbers from 1 to {len(q)}.")
    chosen = np.flatnonzero(_is_nearest(source.path, q[number], wanted.q))
    c2 = _halves(source, "xpcs/twotime/correlation_map", [keys[k] for k in chosen])
    dt, notes = _dt(source.path, wanted.dt, _aps_u_step(source, "twotime"))
    return Correlation(c2, phi[number[chosen]], q[number[chosen]], dt, source=source.path.name, notes=notes)


def _aps_u_bins(source: Hdf5) -> tuple[np.ndarray, np.ndarray]:
    """Return q and phi of every bin that has pixels, in the order of their numbers.

    Cells of the map are (q, phi), phi running first. Those without a pixel, behind a beamstop for instance, have no
    number; `dynamic_index_mapping` says which cell each number stands for.
    """
    axes = source.texts("xpcs/qmap/map_names")
    if axes not in ([], ["q", "phi"]):
        raise ValueError(f"{source.path}: its bins are a map of {' and '.join(axes)}; maps of q and phi can be read.")
    q, phi = (np.ravel(source.read(f"xpcs/qmap/dynamic_v_list_dim{i}", (1, 2))) for i in (0, 1))
    cells = np.arange(len(q) * len(phi))
    mapped = source.read_or("xpcs/qmap/dynamic_index_mapping", cells, (1, 2))
    cell = np.ravel(mapped).astype(np.int64)
    if not np.isin(mapped, cells).all() or len(np.unique(cell)) != len(cell):
        raise ValueError(
            f"{source.path}: xpcs/qmap/dynamic_index_mapping must give a cell of its own, from 0 to {len(cells) - 1}, "
            f"to every bin: {len(q)} q × {len(phi)} phi."
        )
    return q[cell // len(phi)], phi[cell % len(phi)]


def _aps_u_step(source: Hdf5, analysis: str) -> float | None:
    """Return the time between correlated frames, s: of the detector's, some are left out and some averaged first."""
    frame_time = _frame_time(source)
    for name in ("stride_frame", "avg_frame"):
        every = float(np.ravel(source.read_or(f"xpcs/{analysis}/config/{name}", np.ones(1), (0, 1, 2)))[0])
        if every < 1 or every != int(every):
            raise ValueError(f"{source.path}: xpcs/{analysis}/config/{name} is {every:g}, not a number of frames.")
        frame_time = frame_time and frame_time * every
    return frame_time


def _aps_legacy(source: Hdf5, wanted: Selection) -> Correlation:
    """Read the legacy layout: one q and phi per matrix; every matrix keeps its own q."""
    q, phi = (np.ravel(source.read(f"xpcs/{name}", (1, 2))[..., :]) for name in ("dqlist", "dphilist"))
    keys = source.keys("exchange/C2T_all")
    if not len(q) == len(phi) == len(keys):
        raise ValueError(f"{source.path}: {len(keys)} matrices, but {len(q)} q and {len(phi)} phi.")
    nearest = _nearest(source.path, q, wanted.q)
    chosen = np.flatnonzero(np.abs(q - nearest) <= wanted.q_tolerance * nearest)
    dt, notes = _dt(source.path, wanted.dt)
    if len(chosen) < FEW:
        order = np.argsort(np.abs(q - nearest), kind="stable")[:MANY]
        notes = (
            f"Only {len(chosen)} bins lie within {wanted.q_tolerance:.0%} of q: the {len(order)} nearest are used.",
        )
        chosen = np.sort(order)
    c2 = _halves(source, "exchange/C2T_all", [keys[k] for k in chosen])
    return Correlation(c2, phi[chosen], q[chosen], dt, source=source.path.name, notes=notes)


def _nexus(source: Hdf5, wanted: Selection) -> Correlation:
    """Read NXxpcs: an array with q first or last, or one key per bin."""
    address, masks = "entry/twotime/two_time_corr_func", "entry/instrument/masks"
    if hasattr(source.find(address), "keys"):
        c2 = _matrices(source, address, source.keys(address))
    else:
        c2 = source.read(address, (2, 3))
        c2 = c2[None] if c2.ndim == 2 else c2
        mode = source.attribute(address, "storage_mode")
        last = mode == "one_array_q_last" or (not mode and c2.shape[0] == c2.shape[1] != c2.shape[2])
        c2 = np.moveaxis(c2, -1, 0) if last else c2
    origin, half = (source.attribute(address, name) for name in ("time_origin_location", "populated_elements"))
    c2 = symmetrised(one_half(upright(c2, origin), half, origin))
    if source.attribute(address, "baseline_reference") in ("0", "0.0"):
        c2 = c2 + 1.0
    q = source.read_or(f"{masks}/dynamic_q_list", wanted.q)
    if q is None:
        raise ValueError(f"{source.path}: {masks}/dynamic_q_list is missing. Say q (1/Å).")
    if source.has(f"{masks}/dynamic_q_list"):
        q = q * _per_angstrom(source, f"{masks}/dynamic_q_list")
    phi = source.read_or(f"{masks}/dynamic_phi_list", np.zeros(len(c2)))
    dt, notes = _dt(source.path, wanted.dt, _frame_time(source))
    data = Correlation(c2, phi, q, dt, source=source.path.name, notes=notes)
    return data.take(np.flatnonzero(_is_nearest(source.path, data.q, wanted.q)))


def _frame_time(source: Hdf5) -> float | None:
    instrument = source.find("entry/instrument")
    for name in sorted(instrument) if hasattr(instrument, "keys") else ():
        address = f"entry/instrument/{name}/frame_time"
        if source.has(address):
            units = source.attribute(address, "units").strip().replace("\u03bc", "µ")
            if units in SECONDS:
                return float(np.ravel(source.read(address, (0, 1, 2)))[0]) * SECONDS[units]
    return None


def _per_angstrom(source: Hdf5, address: str) -> float:
    """Return what wave vectors are multiplied by to be in 1/Å, by the attribute `units`."""
    units = source.attribute(address, "units").strip()
    if "nm" in units or "nano" in units:
        return 0.1
    if not units or any(name in units.lower() for name in ("ang", "å", "a^", "1/a", "a-1")):
        return 1.0
    raise ValueError(f"{source.path}: {address} is in {units!r}, which is not known. Known are 1/angstrom and 1/nm.")


def _aps_multi_tau(source: Hdf5, wanted: Selection) -> Binned:
    """Read g2 of whole runs in the APS-U layout: delays in frames, (n_delay, n_bin), bins numbered as in `_aps_u`."""
    delay = source.read("xpcs/multitau/delay_list", (1, 2))
    delay = delay[:, 0] if delay.ndim == 2 and delay.shape[1] < delay.shape[0] else np.ravel(delay)
    g2, error = (source.read(f"xpcs/multitau/normalized_g2{end}", (2,)).T for end in ("", "_err"))
    q, phi = _aps_u_bins(source)
    if g2.shape != error.shape or g2.shape != (len(q), len(delay)):
        raise ValueError(
            f"{source.path}: g2 {g2.shape} and its error {error.shape} must be {len(q)} bins, as the map of q and phi "
            f"has, by {len(delay)} delays."
        )
    chosen = np.flatnonzero(_is_nearest(source.path, q, wanted.q))
    dt, notes = _dt(source.path, wanted.dt, _aps_u_step(source, "multitau"))
    g2, error = g2[chosen], error[chosen]
    good = np.isfinite(error) & (error > 0)
    bins = {"phi": phi[chosen], "q": q[chosen], "n_frames": int(np.max(delay)) + 2}
    note = "g2 are means over a run whose length the file does not say: the longest delay + 1 is taken."
    rest = {"sigma": np.where(good, error, 1.0), "source": source.path.name, "notes": (note, *notes)}
    return delay_bins(np.where(good, g2, np.nan), delay * dt, None, dt, **bins, **rest)


def _esrf(source: Hdf5, wanted: Selection) -> Binned:
    """Read the result files of ESRF ID02: ttcf (bin, age, lag) of one analysis, age and lag in seconds, q in 1/nm."""
    analyses = [
        key for key in source.keys("entry_0000/correlations") if source.has(f"entry_0000/correlations/{key}/twotime")
    ]
    if len(analyses) != 1 and wanted.analysis not in analyses:
        raise ValueError(f"{source.path} holds the analyses {listing(analyses)}. Say which: analysis='…'.")
    place = f"entry_0000/correlations/{wanted.analysis or analyses[0]}"
    lag, age = (np.ravel(source.read(f"{place}/twotime/{name}", (1, 2))) for name in ("lag", "age"))
    ttcf, q = source.read(f"{place}/twotime/ttcf", (3,)), 0.1 * np.ravel(source.read(f"{place}/parameters/q", (1, 2)))
    if ttcf.shape != (len(q), len(age), len(lag)):
        raise ValueError(f"{source.path}: ttcf {ttcf.shape} must be {len(q)} q × {len(age)} ages × {len(lag)} lags.")
    chosen = np.flatnonzero(_is_nearest(source.path, q, wanted.q))
    steps = np.diff(np.unique(lag[np.isfinite(lag)]))
    dt, _ = _dt(source.path, wanted.dt, float(steps.min()) if steps.size else None)
    there = np.ix_(chosen, np.isfinite(age), np.isfinite(lag))
    rest = {"phi": np.zeros(len(chosen)), "q": q[chosen], "source": source.path.name}
    return delay_bins(ttcf[there], lag[np.isfinite(lag)], age[np.isfinite(age)], dt, **rest)


LAYOUTS: dict[str, Callable[[Hdf5, Selection], Correlation]] = {
    "xpcs/twotime/correlation_map": _aps_u,
    "exchange/C2T_all": _aps_legacy,
    "entry/twotime/two_time_corr_func": _nexus,
    "entry_0000/correlations": _esrf,
    "xpcs/multitau/normalized_g2": _aps_multi_tau,
}


def _nearest(path: Path, q: np.ndarray, wanted: float | None) -> float:
    if not np.all(np.isfinite(q)) or not np.all(q > 0):
        raise ValueError(f"{path}: its list of q holds values that are not positive numbers.")
    if wanted is None and not np.allclose(q, q[0], rtol=1e-9):
        raise ValueError(f"{path} holds several q ({listing(np.unique(q))}). Say which: q=… in 1/Å.")
    nearest = float(q[0] if wanted is None else q[np.argmin(np.abs(q - wanted))])
    if wanted is not None and not 0.5 < nearest / wanted < 2:
        raise ValueError(
            f"{path} has no q near {wanted:g} 1/Å: it holds {listing(np.unique(q))}. Give one of these; a q in 1/nm "
            "is ten times as large as in 1/Å."
        )
    return nearest


def _is_nearest(path: Path, q: np.ndarray, wanted: float | None) -> np.ndarray:
    return np.isclose(q, _nearest(path, q, wanted), rtol=1e-9, atol=0.0)


def _other_q(data: Correlation, wanted: float | None) -> tuple[str, ...]:
    """Return a note where the q that is taken is not the one that was asked for."""
    nearest = data.q[np.argmin(np.abs(data.q - (wanted or 0.0)))]
    if wanted is None or abs(nearest - wanted) <= APART * wanted:
        return ()
    return (f"q = {wanted:g} 1/Å was asked for; the nearest in the file, {nearest:g} 1/Å, is used.",)


def _step(where: Any, times: np.ndarray) -> float:
    """Return the time between frames, which must be the same for all."""
    steps = np.diff(times)
    steps = steps / np.timedelta64(1, "s") if steps.dtype.kind == "m" else steps.astype(float)
    if not np.all(np.abs(steps - steps.mean()) <= 0.01 * abs(steps.mean())):
        raise ValueError(
            f"{where}: frames are {steps.min():g} to {steps.max():g} s apart; models take frames at equal steps. "
            "Leave out what does not fit, or give points one by one: Binned(..., first=i, second=j)."
        )
    return float(steps.mean())


def _dt(path: Path, wanted: float | None, stored: float | None = None) -> tuple[float, tuple[str, ...]]:
    """Return the time between frames, s, and a note where the file contradicts what was asked for."""
    if wanted is None and stored is None:
        raise ValueError(f"{path} does not say the time between frames. Give dt in seconds.")
    if wanted is None or stored is None or abs(wanted - stored) <= 0.01 * stored:
        return float(wanted if wanted is not None else stored), ()  # type: ignore[arg-type]
    return wanted, (f"dt = {wanted:g} s was asked for and is used; the file says {stored:g} s between frames.",)
