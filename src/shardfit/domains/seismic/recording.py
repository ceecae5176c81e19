"""Recorded shots on the grid: where they were, what the source sent out, and the traces.

Traces stay where they are, a NumPy array or a memory map. `read_once` goes through them a single time, block by block:
what is checked, filtered or measured is done on the way.
"""

import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.domains.seismic.arrays import HostSeries, HostTraces, Response
from shardfit.domains.seismic.bands import filtered
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.simulation import Simulation

BLOCK = 1 << 24  # samples looked at in one go


@dataclass(frozen=True, eq=False)
class Recording:
    """Shots and their traces.

    Attributes
    ----------
    shots
        places of sources and receivers, from `acquisition`.
    wavelet
        (nt,), (shots, nt) or (shots, sources, nt).
    observed
        (shots, receivers, nt), NumPy or a memory map.
    weights
        (shots,), (shots, receivers) or (shots, receivers, nt); 0 removes. None: all count alike.

    Example: `Recording(shots, ricker(5.0, sim.dt, sim.nt), data)`.

    """

    shots: Shots
    wavelet: HostSeries
    observed: HostTraces
    weights: Any = None

    def __post_init__(self):
        object.__setattr__(self, "wavelet", np.asarray(self.wavelet))
        if not isinstance(self.observed, np.ndarray):  # np.asarray would make a memory map forget what it is
            object.__setattr__(self, "observed", np.asarray(self.observed))
        if self.observed.ndim != 3 or self.observed.shape[:2] != self.shots.receivers.cells.shape[:2]:
            expected = ", ".join(map(str, self.shots.receivers.cells.shape[:2]))
            raise ValueError(
                f"observed has shape {self.observed.shape}, expected ({expected}, nt): (shots, receivers, nt)."
            )
        if self.observed.dtype.kind != "f":
            raise TypeError(f"observed is {self.observed.dtype}. Give real floating-point numbers.")
        self._check_wavelet()
        self._check_weights()

    @property
    def n_shots(self) -> int:
        """Number of shots."""
        return len(self.shots.sources.cells)

    def check(self, sim: Simulation) -> None:
        """Raise unless the time axis is the simulation's."""
        for name, array in (("observed", self.observed), ("wavelet", self.wavelet)):
            if array.shape[-1] != sim.nt:
                raise ValueError(
                    f"{name} has shape {array.shape}, expected {(*array.shape[:-1], sim.nt)}: the simulation has "
                    f"nt={sim.nt} samples."
                )

    def wavelet_rows(self) -> HostSeries:
        """Return the wavelet of every shot, (shots, nt) or (shots, sources, nt)."""
        if self.wavelet.ndim > 1:
            return self.wavelet
        return np.broadcast_to(self.wavelet, (self.n_shots, self.wavelet.size))

    def weight_rows(self) -> np.ndarray | None:
        """Return weights as given, but zero for receivers that only pad a shot; None where all are 1."""
        real = np.any(np.asarray(self.shots.receivers.weights) != 0, axis=-1)
        if self.weights is None:
            return None if real.all() else real.astype(float)
        if real.all():
            return self.weights
        dims = max(2, self.weights.ndim)
        weights = self.weights.reshape(self.weights.shape + (1,) * (dims - self.weights.ndim))
        return weights * real.reshape(real.shape + (1,) * (dims - 2))

    def _check_wavelet(self) -> None:
        shape, n = self.wavelet.shape, self.n_shots
        if len(shape) not in (1, 2, 3) or (len(shape) > 1 and shape[0] != n):
            raise ValueError(
                f"wavelet has shape {shape}; give (nt,), (shots, nt) or (shots, sources, nt) with {n} shots."
            )
        if not np.isfinite(self.wavelet).all():
            raise ValueError("wavelet holds NaN or infinity. Give finite samples.")

    def _check_weights(self) -> None:
        if self.weights is None:
            return
        weights = self.weights if isinstance(self.weights, np.ndarray) else np.asarray(self.weights, float)
        shape = self.observed.shape
        if weights.shape not in (shape[:1], shape[:2], shape):
            raise ValueError(f"weights have shape {weights.shape}; give {shape[:1]}, {shape[:2]} or {shape}.")
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError("weights must not be negative, NaN or infinite. Use 0 to remove.")
        object.__setattr__(self, "weights", weights)


def by_sample(weights: Any) -> Any:
    """Return weights of shots, traces or samples as an array that broadcasts over traces (shots, receivers, nt)."""
    return weights.reshape(weights.shape + (1,) * (3 - weights.ndim))


def read_once(
    observed: HostTraces, dtype: Any, response: Response | None = None, weights: np.ndarray | None = None
) -> tuple[HostTraces, float]:
    """Return the traces, filtered where a response is given, and their root mean square; raise for NaN or silence.

    weights: as `Recording.weight_rows` gives them; what they remove, such as traces full of spikes, has no share in the
    root mean square. Filtered traces are of this dtype; those of a memory map go to a file without a name in the
    temporary folder (TMPDIR names another), which vanishes with them.
    """
    kept = observed if response is None else _storage(observed, dtype)
    squares, count = 0.0, 0
    for part in _parts(observed):
        block = observed[part]
        if response is not None:
            kept[part] = block = filtered(np.asarray(block, dtype), response)
        sums = np.einsum("srt,srt->s", block, block, dtype=np.float64)
        if not np.isfinite(sums).all():
            shot = part.start + int(np.argmin(np.isfinite(sums)))
            raise ValueError(f"observed holds NaN or infinity in shot {shot}. Set bad traces and their weights to 0.")
        if weights is not None:
            counts = by_sample(weights[part]) > 0
            counts = np.broadcast_to(counts.astype(block.dtype), block.shape)
            sums = np.einsum("srt,srt,srt->s", block, block, counts, dtype=np.float64)
            count += int(np.einsum("srt->", counts, dtype=np.float64))
        squares += float(sums.sum())
    if not squares > 0:
        raise ValueError("observed is zero everywhere, or all of it has weight 0. Give recorded data.")
    return kept, (squares / (observed.size if weights is None else count)) ** 0.5


def _parts(observed: np.ndarray) -> Iterator[slice]:
    n, receivers, nt = observed.shape
    step = max(1, BLOCK // (receivers * nt))
    return (slice(first, min(n, first + step)) for first in range(0, n, step))


def _storage(observed: np.ndarray, dtype: Any) -> np.ndarray:
    if not isinstance(observed, np.memmap):
        return np.empty(observed.shape, dtype)
    return unnamed_map(observed.shape, dtype)


def unnamed_map(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return a memory map of a file without a name in the temporary folder, whose room is taken at once."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        with tempfile.TemporaryFile() as file:
            if hasattr(os, "posix_fallocate"):  # a map without room behind it ends the process when it is written
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "w+", shape=shape)
    except OSError as error:
        where = tempfile.gettempdir()
        raise OSError(
            error.errno, f"{error.strerror}: no room for {size / 1e6:,.0f} MB in {where}. Set TMPDIR to another folder"
        ) from error
