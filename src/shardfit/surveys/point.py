"""One point of a survey, and how the ledger keeps it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardfit.core.status import Status
from shardfit.surveys.heading import Heading, axis_column, part_column
from shardfit.surveys.integrity import checksum, row_check

STOPPED = "STOPPED_EARLY"  # a point that successive halving gave up
RUNG_FIELDS = ("id", "axes", "status", "value", "parts", "steps", "evaluations", "seconds", "reason", "attempt", "rung")
OWN_COLUMNS = ("id", "status", "steps", "evaluations", "seconds", "reason", "attempt", "rung", "parent", "finished")
CONVERGED = tuple(status.name for status in Status if status.converged)
FAILURES = (Status.NONFINITE.name, Status.FAILED.name)


@dataclass(frozen=True, eq=False)
class SurveyPoint:
    """One point, from the design, where it has a number and a value by axis, to the ledger, where it has an answer.

    status, value, parts, steps, evaluations: how it ended; seconds: its share of the time; reason: of a failure.
    attempt: which one this is; rung: of successive halving; parent: the point whose answer is its start. params: bytes
    of the fitted parameters as the heading lays them out; picture: (ny, nx) where stored by itself. z: coordinates
    where it begins, None for the problem's own start, or where it ended. payload: arrays that the solver hands over,
    which a ledger does not keep. finished: seconds since the epoch, None for now.
    """

    id: int
    axes: Mapping[str, Any]
    status: str = ""
    value: float = float("nan")
    parts: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    reason: str = ""
    attempt: int = 1
    rung: int = 0
    parent: int | None = None
    params: bytes = b""
    picture: np.ndarray | None = None
    z: np.ndarray | None = None
    payload: Mapping[str, np.ndarray] = field(default_factory=dict)
    finished: float | None = None

    @property
    def failed(self) -> bool:
        """Whether nothing usable was found; a point at its step limit, or given up early, is not a failure."""
        return self.status in FAILURES or not np.isfinite(self.value)

    @property
    def converged(self) -> bool:
        """Whether a tolerance was met."""
        return self.status in CONVERGED

    def after(self, earlier: "SurveyPoint") -> "SurveyPoint":
        """Return this point, which went on from where an earlier one ended, with the work of both."""
        sums = {name: getattr(self, name) + getattr(earlier, name) for name in ("steps", "evaluations", "seconds")}
        return replace(self, **sums)


def bytes_of(picture: np.ndarray | None) -> bytes | None:
    """Return a picture as it is stored."""
    return None if picture is None else picture.astype("<f4").tobytes()


def array_of(picture: bytes | None) -> np.ndarray | None:
    """Return a stored picture, flat."""
    return None if picture is None else np.frombuffer(picture, "<f4")


def row_of(record: SurveyPoint, heading: Heading) -> dict[str, Any]:
    """Return a point by column, as SQLite gives it back."""
    numbers = {part_column(n): _stored(v) for n, v in record.parts.items()} | {"value": _stored(record.value)}
    axes = {axis_column(n): int(v) if isinstance(v, bool) else v for n, v in record.axes.items()}
    row = axes | numbers | {n: getattr(record, n) for n in ("failed", *OWN_COLUMNS)}
    row["finished"] = record.finished or time.time()
    kinds = {"INTEGER": int, "REAL": float, "TEXT": str}
    for name, declared in heading.columns().items():
        kind = kinds.get(declared.partition(" ")[0])
        if kind is not None and row[name] is not None:
            row[name] = kind(row[name])
    return row


def arrays_of(record: SurveyPoint, row: Mapping[str, Any]) -> tuple:
    """Return number, checksums, parameters and picture of a point whose row is given."""
    content = record.params, bytes_of(record.picture)
    return record.id, row_check(row), checksum(record.id, *content), *content


def _stored(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None  # SQLite has no NaN; infinity would sort before all numbers


def number_of(value: Any) -> float:
    """Return a stored number, NaN where there is none."""
    return float("nan") if value is None else float(value)
