"""Journal of evaluations: append-only, checked, cut back to its last whole record when a crash tore it."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError


class Journal:
    """Records of (checksum of z, value, gradient), replayed in order when a run is resumed."""

    def __init__(self, path: Path, z0: np.ndarray):
        self.path = path
        self.record = np.dtype(
            [("z", "<u4"), ("value", "<f8"), ("gradient", z0.dtype.newbyteorder("<"), z0.shape), ("check", "<u4")]
        )
        self.size = path.stat().st_size // self.record.itemsize if path.exists() else 0
        self.position = 0
        self.reader = open(path, "rb") if self.size else None  # noqa: SIM115 (both files live as long as the run)
        self.writer = None

    def replay(self, z: np.ndarray) -> tuple[float, np.ndarray] | None:
        """Return the next recorded evaluation, or None when the record is used up."""
        if self.position >= self.size:
            return None
        assert self.reader is not None  # size is 0 without a file
        entry = np.frombuffer(self.reader.read(self.record.itemsize), self.record)[0]
        if entry["check"] != _check(entry):
            self.size = self.position  # torn by a crash: evaluate from here on
            return None
        if entry["z"] != zlib.crc32(z.tobytes()):
            raise CheckpointError(
                f"{self.path}: evaluation {self.position} was at another point: the solver no longer takes the path "
                "it took. Another version of a library is the usual cause; use resume='never' to start anew."
            )
        self.position += 1
        return float(entry["value"]), np.array(entry["gradient"])

    def append(self, z: np.ndarray, value: float, gradient: np.ndarray) -> None:
        """Write one evaluation through to the operating system."""
        if self.writer is None:
            self.writer = open(self.path, "r+b" if self.path.exists() else "w+b")  # noqa: SIM115
            self.writer.truncate(self.position * self.record.itemsize)
            self.writer.seek(0, 2)
        entry = np.zeros((), self.record)
        entry["z"], entry["value"], entry["gradient"] = zlib.crc32(z.tobytes()), value, gradient
        entry["check"] = _check(entry)
        self.writer.write(entry.tobytes())
        self.writer.flush()
        self.position += 1
        self.size = self.position

    def close(self) -> None:
        """Release the files."""
        for file in (self.reader, self.writer):
            if file is not None:
                file.close()


def _check(entry: Any) -> int:
    return zlib.crc32(
        np.asarray(entry["gradient"]).tobytes(), zlib.crc32(np.float64(entry["value"]).tobytes(), int(entry["z"]))
    )
