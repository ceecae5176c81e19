"""Journal of evaluations: append-only, checked, cut back to its last whole record when a crash tore it."""

import errno
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError


class Journal:
    """Records of (checksum of z, value, gradient), replayed in order when a run is resumed.

    run: digest of the run, which begins the file. on_failure(error) is called when the disk takes no more; the journal
    then ends, and the run goes on.
    """

    def __init__(self, path: Path, z0: np.ndarray, run: str = "", on_failure: Callable[[OSError], Any] | None = None):
        self.path, self.on_failure = path, on_failure
        self.head = b"shardfit journal 2 " + run.encode() + b"\n"
        self.record = np.dtype(
            [("z", "<u4"), ("value", "<f8"), ("gradient", z0.dtype.newbyteorder("<"), z0.shape), ("check", "<u4")]
        )
        self.size = self.position = 0
        self.reader = self.writer = None
        self.ended = False
        if path.exists():
            self.reader = open(path, "rb")  # noqa: SIM115 (both files live as long as the run)
            head = self.reader.read(len(self.head))
            if head != self.head[: len(head)]:
                self.close()
                raise CheckpointError(f"{path} is damaged or of another run. Use resume='never' to start over.")
            if head == self.head:
                self.size = (path.stat().st_size - len(head)) // self.record.itemsize

    def replay(self, z: np.ndarray) -> tuple[float, np.ndarray] | None:
        """Return the next recorded evaluation, or None when the record is used up."""
        if self.position >= self.size or self.ended:
            return None
        assert self.reader is not None  # size is 0 without a file
        entry = np.frombuffer(self.reader.read(self.record.itemsize), self.record)[0]
        if entry["check"] != _check(entry):
            self.size = self.position  # torn by a crash: evaluate from here on
            return None
        if entry["z"] != zlib.crc32(z.tobytes()):
            raise CheckpointError(
                f"{self.path}: evaluation {self.position} was at another point: the solver no longer takes the path "
                "it took. Another version of a library is the usual cause; use resume='never' to start over."
            )
        self.position += 1
        return float(entry["value"]), np.array(entry["gradient"])

    def append(self, z: np.ndarray, value: float, gradient: np.ndarray) -> None:
        """Write one evaluation through to the operating system."""
        entry = np.zeros((), self.record)
        entry["z"], entry["value"], entry["gradient"] = zlib.crc32(z.tobytes()), value, gradient
        entry["check"] = _check(entry)
        try:
            if not self.ended:
                self._write(entry.tobytes())
        except OSError as error:
            if self.on_failure is None:
                raise
            self.ended = True  # what follows a gap could not be replayed
            self.on_failure(error)
        self.position += 1
        self.size = self.position

    def _write(self, content: bytes) -> None:
        if self.writer is None:
            # without a buffer: what the disk does not take is not tried again when the file is closed
            self.writer = open(self.path, "r+b" if self.path.exists() else "w+b", buffering=0)  # noqa: SIM115
            self.writer.write(self.head)
            self.writer.truncate(len(self.head) + self.position * self.record.itemsize)
            self.writer.seek(0, 2)
        if self.writer.write(content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Release the files."""
        for file in (self.reader, self.writer):
            if file is not None:
                file.close()


def _check(entry: Any) -> int:
    return zlib.crc32(
        np.asarray(entry["gradient"]).tobytes(), zlib.crc32(np.float64(entry["value"]).tobytes(), int(entry["z"]))
    )
