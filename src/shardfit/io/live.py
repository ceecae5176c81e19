"""What a run says of itself while it works: `live.json` in its folder, from which `shardfit serve` draws its page.

It is replaced at most once a second and removed at the end; nothing that a run needs to go on is in it. A run that was
killed leaves its last word.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NAME = "live.json"
EVERY_SECONDS = 1.0
MOST_PLACES = 400  # of a curve
MOST_BYTES = 1 << 20
LATEST = 1e12  # seconds of the clock, and anything else that is counted


class Live:
    """The running word of one run. folder None: nothing is written."""

    def __init__(self, folder: str | Path | None, title: str, unit: str = "steps"):
        self.folder, self.title, self.unit = None if folder is None else Path(folder), title, unit
        self.began, self.told = time.time(), time.monotonic()

    def due(self) -> bool:
        """Return whether it is time to speak; making up what to say may cost more than saying it."""
        return self.folder is not None and time.monotonic() - self.told >= EVERY_SECONDS

    def publish(
        self,
        done: float,
        total: float | None,
        *,
        left: float | None = None,
        numbers: Mapping[str, Any] | None = None,
        curves: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Write how far the run is: done of total, seconds left, numbers by name, curves by name (x, y, what x counts).

        A disk that is full must not end a run for the sake of a picture: what cannot be written is left out.
        """
        self.told = time.monotonic()
        content = {
            "title": self.title,
            "unit": self.unit,
            "began": self.began,
            "updated": time.time(),
            "process": os.getpid(),
            "done": _plain(done),
            "total": None if total is None else _plain(total),
            "left": None if left is None else _plain(left),
            "numbers": {name: _plain(value) for name, value in (numbers or {}).items()},
            "curves": {name: [*thinned(x, y), across] for name, (x, y, across) in (curves or {}).items()},
        }
        assert self.folder is not None
        with contextlib.suppress(OSError):
            partial = self.folder / f".{NAME}.{os.getpid()}"
            partial.write_text(json.dumps(content), encoding="utf-8")
            os.replace(partial, self.folder / NAME)

    def close(self) -> None:
        """Remove it: from now on the answer speaks."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / NAME).unlink(missing_ok=True)


def read_live(folder: str | Path) -> dict[str, Any] | None:
    """Return the last word of a run; None if there is none, or none that can be understood."""
    path = Path(folder) / NAME
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.is_symlink() or path.stat().st_size > MOST_BYTES:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"title": str, "unit": str, "updated": float, "began": float, "numbers": dict, "curves": dict}
        if isinstance(content, dict) and all(isinstance(content.get(n), kind) for n, kind in kinds.items()):
            times = all(0 <= content[name] < LATEST for name in ("began", "updated"))
            numbers = (_is_number(content.get(name)) for name in ("done", "total", "left"))
            return content if times and all(numbers) else None
    return None


def _is_number(value: Any) -> bool:
    """Whether a file may hold it as a number: None stands for one that is not known."""
    return value is None or (isinstance(value, int | float) and abs(value) < LATEST)


def thinned(x: Any, y: Any) -> list[list[float | None]]:
    """Return a curve as [x, y] with at most so many places as a picture can show; NaN is None."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_PLACES)).astype(int)) if len(x) else []
    return [[_plain(value) for value in column[chosen]] if len(x) else [] for column in (x, y)]


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int):
        return value
    number = float(value)
    return number if np.isfinite(number) else None
