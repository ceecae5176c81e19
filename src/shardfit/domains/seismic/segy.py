"""SEG-Y through segyio: gathers by field record with positions from the trace headers, and models one trace a column.

Both byte orders are recognised by the format code. Coordinates are scaled by the header's scalar (negative: divide) and
feet become metres. z is downwards from the datum: depth minus surface elevation for sources, minus elevation for
receivers. Positions of a line that does not run along x are projected on it.
A model's sample interval is millimetres of depth in the field for microseconds, as is common.
"""

import contextlib
import logging
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra
from shardfit.domains.seismic.gathers import Gathers
from shardfit.domains.seismic.recording import unnamed_map

log = logging.getLogger(__name__)
SAMPLE_BYTES = {1: 4, 2: 4, 3: 2, 5: 4, 6: 8, 8: 1, 10: 4, 11: 2, 16: 1}  # by format code
FORMATS = {"ibm": 1, "ieee": 5}
TEXT, HEADER, TRACE_HEADER = 3200, 400, 240  # bytes
MILLIMETRES = -1000  # scalar written: positions are kept as whole millimetres
FOOT = 0.3048
# identification codes, bytes 29-30; auxiliary: dummies, breaks, signatures
LIVE, DEAD, AUXILIARY = 1, 2, (3, 4, 5, 6, 7, 8, 9, 10)
IN_MEMORY = 1 << 30  # bytes of traces
CROOKED = 0.1  # of its length, that positions may lie off a straight line
MOST = 65535  # of 16-bit fields: samples, microseconds


def read_gathers(path: str | Path, by: int = 9) -> Gathers:
    """Read shot gathers. by: first byte of the header word that numbers the shots; 9 is the field record, 17 the shot.

    Shots are read one at a time; more than memory should hold go to a file without a name in the temporary folder, and
    come back as a memory map. Traces that are no recordings (time breaks, gun signatures) are left out. Dead ones, and
    those that fill up a shot with fewer receivers than others, are zero and not `live`.

    Example: `read_gathers("line.sgy")`.
    """
    with _opened(path) as file:
        _check_word(path, by)
        kinds = file.attributes(29)[:]
        index = _grouped(file.attributes(by)[:], np.isin(kinds, AUXILIARY))
        if not index.size:
            raise ValueError(f"{path}: no trace is a recording: all identification codes (bytes 29-30) are auxiliary.")
        filled = index >= 0
        live = filled & (kinds[index] != DEAD)
        if not live.any():
            raise ValueError(f"{path}: all traces are marked dead (identification code 2 in bytes 29-30).")
        dt = 1e-6 * _interval(path, file, np.sort(index[live]))
        foot = FOOT if file.bin[3255] == 2 else 1.0
        sources, receivers = (p[index] * foot for p in _positions(path, file, index[live]))
        sources, receivers = _of_shots(path, sources, receivers, live, filled)
        _say(path, np.isin(kinds, AUXILIARY).sum(), (filled & ~live).sum(), (~filled).sum())
        traces = _streamed(file, index, live)
    return Gathers(traces, dt, sources, receivers, None if live.all() else live)


def _of_shots(
    path: str | Path, sources: np.ndarray, receivers: np.ndarray, live: np.ndarray, filled: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return sources (shots, 2) and receivers (shots, most, 2) of traces; raise where a source moves within a shot.

    Headers of dead traces are often empty: where their source is not the shot's, or there is no trace at all, they are
    put where the first live one is.
    """
    first = np.where(live.any(1), live.argmax(1), 0)
    shots = np.arange(len(first))
    own, place = sources[shots, first], receivers[shots, first]
    elsewhere = (sources != own[:, None]).any(-1)
    moved = np.argwhere((elsewhere & live).any(1))
    if moved.size:
        raise ValueError(
            f"{path}: the source moves within gather {moved[0, 0]}. Its traces are of several shots: group by "
            "another header word, e.g. by=17 (the energy source point)."
        )
    return own, np.where((filled & ~elsewhere)[..., None], receivers, place[:, None])


def _check_word(path: str | Path, by: int) -> None:
    with require_extra("SEG-Y", "seismic"):
        import segyio

    words = sorted(int(word) for word in segyio.tracefield.keys.values())
    if by not in words:
        near = sorted(sorted(words, key=lambda word: abs(word - by))[:4])
        raise ValueError(
            f"{path}: no word of a trace header begins at byte {by}. Common are 9 (field record) and 17 (energy source "
            f"point); the nearest are {', '.join(map(str, near))}."
        )


def _grouped(numbers: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Return the traces of every shot (shots, most), in the order of the file; -1 fills up."""
    chosen = np.flatnonzero(~left_out)
    _, shot, counts = np.unique(numbers[chosen], return_inverse=True, return_counts=True)
    index = np.full((len(counts), counts.max(initial=0)), -1)
    for k in range(len(counts)):
        index[k, : counts[k]] = chosen[shot == k]
    return index


def _streamed(file: Any, index: np.ndarray, live: np.ndarray) -> np.ndarray:
    """Return traces (shots, receivers, nt), read shot by shot."""
    shape = (*index.shape, len(file.samples))
    large = math.prod(shape) * 4 > IN_MEMORY
    traces = unnamed_map(shape, np.float32) if large else np.zeros(shape, np.float32)
    for shot, receiver in np.argwhere(live):
        traces[shot, receiver] = file.trace[int(index[shot, receiver])]
    return traces


def _say(path: str | Path, auxiliary: int, dead: int, missing: int) -> None:
    counts = (auxiliary, dead, missing)
    names = ("auxiliary traces are left out", "dead traces", "traces fill up short shots")
    parts = [f"{count} {what}" for count, what in zip(counts, names, strict=True) if count]
    if parts:
        log.warning("%s: %s; what is not live has no weight", path, ", ".join(parts))


def write_gathers(path: str | Path, gathers: Gathers, number_format: str = "ieee") -> None:
    """Write shot gathers, field records from 1; traces that are not live are marked dead.

    number_format: 'ieee' or 'ibm'. Positions are kept to a millimetre.
    """
    with require_extra("SEG-Y", "seismic"):
        import segyio

    if gathers.sources is None or gathers.receivers is None:
        raise ValueError(f"{path}: SEG-Y needs positions; these gathers have none.")
    micro = gathers.dt * 1e6
    if abs(micro - round(micro)) > 1e-6 or not 0 < round(micro) <= MOST:
        raise ValueError(f"{path}: SEG-Y keeps dt in whole microseconds up to {MOST}; got {micro:g}. Write .npz.")
    shots, receivers, _ = gathers.traces.shape
    source, receiver = (np.rint(1e3 * np.asarray(p)).astype(int) for p in (gathers.sources, gathers.receivers))
    field, fixed = segyio.TraceField, {segyio.TraceField.ElevationScalar: MILLIMETRES}
    fixed |= {field.SourceGroupScalar: MILLIMETRES, field.CoordinateUnits: 1, field.TRACE_SAMPLE_INTERVAL: round(micro)}
    kinds = np.where(np.ones((shots, receivers), bool) if gathers.live is None else gathers.live, LIVE, DEAD)
    headers = [
        fixed
        | {field.TraceIdentificationCode: kinds[shot, trace]}
        | {field.FieldRecord: shot + 1, field.EnergySourcePoint: shot + 1, field.TraceNumber: trace + 1}
        | {field.SourceDepth: source[shot, 0], field.SourceX: source[shot, 1]}
        | {field.ReceiverGroupElevation: -receiver[shot, trace, 0], field.GroupX: receiver[shot, trace, 1]}
        for shot in range(shots)
        for trace in range(receivers)
    ]
    traces = (trace for shot in gathers.traces for trace in np.asarray(shot, np.float32))
    _write(path, headers, traces, gathers.traces.shape[-1], round(micro), number_format)


def read_model(path: str | Path) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Read a model (nz, nx) and its (dz, dx) in metres, None where the headers do not tell it."""
    with _opened(path) as file:
        columns = np.asarray(file.trace.raw[:], np.float32)
        deep = _said(file)
        across = np.diff(_scaled(file, 181, 71))
    even = across.size and across[0] > 0 and np.allclose(across, across[0], rtol=1e-3)
    return columns.T.copy(), (1e-3 * deep, float(across[0])) if even and deep > 0 else None


def write_model(path: str | Path, velocity: np.ndarray, dh: Any, number_format: str = "ieee") -> None:
    """Write a model (nz, nx), one trace per column."""
    with require_extra("SEG-Y", "seismic"):
        import segyio

    deep, across = 1e3 * np.broadcast_to(np.asarray(dh, float), 2)
    if not 0 < round(deep) <= MOST:
        raise ValueError(
            f"{path}: SEG-Y keeps a depth step of at most {MOST / 1e3:g} m; got {deep / 1e3:g}. Write .npz."
        )
    field = segyio.TraceField
    headers = [
        {field.TraceNumber: k + 1, field.CDP: k + 1, field.CDP_X: round(k * across), field.CoordinateUnits: 1}
        | {field.SourceGroupScalar: MILLIMETRES, field.TRACE_SAMPLE_INTERVAL: round(deep)}
        for k in range(velocity.shape[1])
    ]
    _write(path, headers, np.ascontiguousarray(velocity.T, np.float32), velocity.shape[0], round(deep), number_format)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """Open a file after its size was compared with its headers, for what segyio says of a torn file helps nobody."""
    with require_extra("SEG-Y", "seismic"):
        import segyio
    endian = _checked(Path(path))
    try:
        file = segyio.open(str(path), ignore_geometry=True, endian=endian)
    except (RuntimeError, OSError) as error:
        raise ValueError(f"{path} cannot be read as SEG-Y ({error}).") from None
    with file:
        yield file


def _checked(path: Path) -> str:
    """Return the byte order of a file; raise if it is no SEG-Y, or shorter or longer than its headers say."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(TEXT)
        head = file.read(HEADER)
    if len(head) < HEADER:
        raise ValueError(f"{path} is not SEG-Y: it has {size} bytes, the headers alone take {TEXT + HEADER}.")
    found = {name: struct.unpack(f"{mark}HHHHHH", head[16:28]) for name, mark in (("big", ">"), ("little", "<"))}
    known = [name for name, fields in found.items() if fields[4] in SAMPLE_BYTES]
    if not known:
        raise ValueError(
            f"{path} is not SEG-Y, or damaged: its format code is {found['big'][4]} in either byte order, known are "
            f"{', '.join(map(str, SAMPLE_BYTES))}. Raw binary needs another suffix, such as .bin, and a shape."
        )
    samples, code = found[known[0]][2], found[known[0]][4]
    extra = struct.unpack({"big": ">h", "little": "<h"}[known[0]], head[304:306])[0]
    body, length = size - TEXT - HEADER - TEXT * max(extra, 0), TRACE_HEADER + samples * SAMPLE_BYTES[code]
    if samples == 0 or body <= 0 or body % length:
        raise ValueError(
            f"{path} is truncated, or its traces differ in length: {size} bytes hold {body / length:.3f} traces of "
            f"{samples} samples. Copy it again, or write traces of equal length."
        )
    return known[0]


def _said(file: Any) -> int:
    """Return microseconds between samples, 0 where the headers do not tell."""
    return (file.bin[3217] or file.header[0][117]) & MOST  # segyio takes the field as signed


def _interval(path: str | Path, file: Any, used: np.ndarray) -> int:
    """Return microseconds between samples of the traces that are used, which begin with the shot."""
    said, own = file.bin[3217] & MOST, np.unique(file.attributes(117)[:][used] & MOST)
    own = own[own > 0]
    if not said and not own.size:
        raise ValueError(f"{path}: the headers have no sample interval. Set bytes 3217-3218, e.g. with segyio.")
    if said and (own != said).any():
        log.warning(
            "%s: the file header has %d µs between samples, trace headers have %s; the first is taken",
            path,
            said,
            ", ".join(map(str, own[:3])),
        )
    elif own.size > 1:
        raise ValueError(f"{path}: trace headers have {own[0]} and {own[1]} µs between samples. Resample to one.")
    delay = file.attributes(109)[:][used]
    if delay.any():
        raise ValueError(
            f"{path}: recording begins {delay[delay != 0][0]} ms after the shot. Pad the traces to time 0."
        )
    return int(said or own[0])


def _positions(path: str | Path, file: Any, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sources and receivers (traces, 2) in the file's unit. used: traces that are checked."""
    if (file.attributes(89)[:][used] > 1).any():
        raise ValueError(f"{path}: coordinates are angles (bytes 89-90). Project them to metres first.")
    depth = _scaled(file, 49, 69) - _scaled(file, 45, 69)
    deep = depth, -_scaled(file, 41, 69)
    plan = [np.stack([_scaled(file, x, 71), _scaled(file, x + 4, 71)], -1) for x in (73, 81)]  # (x, y)
    if any(np.ptp(p[used, 1]) > 0 for p in plan):
        along = _along(path, plan, used)
    else:
        along = [p[:, 0] for p in plan]
    sources, receivers = (np.stack(pair, -1) for pair in zip(deep, along, strict=True))
    return sources, receivers


def _along(path: str | Path, plan: list[np.ndarray], used: np.ndarray) -> list[np.ndarray]:
    """Return distances of sources and receivers (traces,) along the straight line next to all of them.

    plan: (x, y) of both. The source of the first trace keeps its x, so that little changes where the line is nearly
    along x.
    """
    all_of = np.concatenate([p[used] for p in plan])
    away = all_of - all_of.mean(0)
    direction = np.linalg.svd(away, full_matrices=False)[2][0]
    direction = direction * np.sign(direction[np.argmax(np.abs(direction) > 0.1)])  # towards larger x, or y
    off = np.abs(away @ np.array([-direction[1], direction[0]])).max()
    length = np.ptp(away @ direction)
    if off > CROOKED * length:
        raise ValueError(
            f"{path}: positions are up to {off:.4g} off a straight line {length:.4g} long, so this is no 2-D line (y "
            "of sources and receivers: bytes 77, 85). Choose the traces of a straight part first."
        )
    first = plan[0][used[0]]
    # one product after the other: equal positions stay equal to the bit
    found = [(p - first)[:, 0] * direction[0] + (p - first)[:, 1] * direction[1] + first[0] for p in plan]
    ends = np.concatenate([p[used] for p in found])
    log.warning(
        "%s: positions are projected on a straight line %.2f° from the x axis, %.1f to %.1f along it, at most %.3g "
        "off; origin and positions in the model are along it",
        path,
        np.degrees(np.arctan2(direction[1], direction[0])),
        ends.min(),
        ends.max(),
        off,
    )
    return found


def _scaled(file: Any, byte: int, scalar_byte: int) -> np.ndarray:
    values, scalar = file.attributes(byte)[:].astype(float), file.attributes(scalar_byte)[:].astype(float)
    size = np.where(scalar == 0, 1.0, np.abs(scalar))
    return np.where(scalar < 0, values / size, values * size)


def _write(path: str | Path, headers: list, traces: Any, samples: int, interval: int, number_format: str) -> None:
    with require_extra("SEG-Y", "seismic"):
        import segyio

    if number_format not in FORMATS:
        raise ValueError(f"{path}: number format {number_format!r} must be one of {', '.join(FORMATS)}.")
    if samples > MOST:
        raise ValueError(f"{path}: SEG-Y traces have at most {MOST} samples; got {samples}. Write .npz.")
    spec: Any = segyio.spec()
    spec.format, spec.samples, spec.tracecount = FORMATS[number_format], np.arange(samples), len(headers)
    with segyio.create(str(path), spec) as file:
        file.bin.update(hdt=interval, dto=interval, hns=samples, mfeet=1)
        for k, (header, trace) in enumerate(zip(headers, traces, strict=True)):
            file.header[k] = header
            file.trace[k] = trace
