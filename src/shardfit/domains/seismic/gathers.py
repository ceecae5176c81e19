"""Recorded shots: traces with the time step and where sources and receivers stood, in metres."""

from dataclasses import dataclass
from typing import Any

import numpy as np

NEAR = 1e-3  # cells: positions this close to a cell are on it; files round to millimetres


@dataclass(frozen=True, eq=False)
class Gathers:
    """Shot gathers. traces: (shots, receivers, nt), may be a memory map; dt: seconds.

    sources: (shots, 2) and receivers: (shots, receivers, 2) are (z, x) in metres, or (z, y, x), z downwards; None where
    a file does not tell them. live: (shots, receivers), False for traces that are dead or only fill up a shot;
    None: all are live.
    """

    traces: Any
    dt: float
    sources: np.ndarray | None = None
    receivers: np.ndarray | None = None
    live: np.ndarray | None = None

    def __post_init__(self):
        if self.traces.ndim != 3:
            raise ValueError(f"traces have shape {self.traces.shape}; they must be (shots, receivers, nt).")
        if not (self.dt > 0 and np.isfinite(self.dt)):
            raise ValueError(f"dt={self.dt!r} s must be positive. Give the time step of the traces.")
        shots, receivers, _ = self.traces.shape
        axes = 2 if self.sources is None or np.shape(self.sources)[-1] != 3 else 3
        expected = {"sources": (shots, axes), "receivers": (shots, receivers, axes), "live": (shots, receivers)}
        for name, shape in expected.items():
            found = getattr(self, name)
            if found is not None and np.shape(found) != shape:
                raise ValueError(f"{name} have shape {np.shape(found)}; for these traces it must be {shape}.")
            if found is not None and not np.isfinite(found).all():
                raise ValueError(f"{name} are not finite everywhere. Give the positions in metres.")

    def cells(self, dh: Any, origin: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and receivers in cells of a grid. origin: (z, x) of its first cell in metres.

        Example: `acquisition(sim, *gathers.cells(sim.dh))`.
        """
        if self.sources is None or self.receivers is None:
            raise ValueError("these gathers have no positions. Read SEG-Y or NPZ, or give sources and receivers.")
        for name, numbers in (("dh", dh), ("origin", origin)):
            if np.size(numbers) not in (1, self.sources.shape[-1]):
                raise ValueError(f"{name} = {numbers} for positions of {self.sources.shape[-1]} numbers each.")
        return in_cells(self.sources, dh, origin), in_cells(self.receivers, dh, origin)

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the traces for a `Recording`: 0 for what is not live; None where all are."""
        return None if self.live is None else np.asarray(self.live, float)

    def some(self, shots: Any) -> "Gathers":
        """Return some of the shots. shots: a slice, mask or list of numbers."""
        known = (None if p is None else p[shots] for p in (self.sources, self.receivers, self.live))
        return Gathers(self.traces[shots], self.dt, *known)


def in_cells(positions: Any, dh: Any, origin: Any = 0.0) -> np.ndarray:
    """Return positions (..., 2 or 3) in cells from metres; those close to a cell are put on it."""
    cells = (np.asarray(positions, float) - np.asarray(origin)) / np.asarray(dh, float)
    whole = np.rint(cells)
    return np.where(np.abs(cells - whole) < NEAR, whole, cells)
