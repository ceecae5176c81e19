"""What a page asks of a survey's ledger: facts, progress, columns page by page, pictures, the mean of a selection.

The ledger is opened read-only and may come from a stranger.
"""

import shlex
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.report.gallery.columns import encode
from shardfit.report.gallery.drawing import Drawer, Gone
from shardfit.report.gallery.exports import configuration, has_config
from shardfit.report.gallery.selection import RANK, Selection
from shardfit.report.gallery.thumbnails import limits_of, png
from shardfit.surveys.heading import axis_column, part_column, quoted, summed
from shardfit.surveys.marks import marks
from shardfit.surveys.reading import Survey

MOST_POINTS = 25_000  # points sent at once
RECENT = 400  # points that tell the throughput
MOST_STACKED = 5_000  # pictures in a mean that is shown: about half a second
QUIET_SECONDS = 60.0  # without a new point before a survey counts as paused
TOGETHER_SECONDS = 0.05
KEPT_STACKS = 4
AT_ONCE = 500  # rows of a table in one query
TEXTS = ("status", "reason")


@dataclass(frozen=True, eq=False)
class Stack:
    """Mean and standard deviation (of the population) of `count` pictures, pixel by pixel."""

    count: int
    mean: np.ndarray
    sd: np.ndarray

    def shown(self) -> dict[str, Any]:
        """Return both as PNG (in base64), with their highest values."""
        highest = {"mean": limits_of(self.mean)[1], "sd": limits_of(self.sd)[1]}
        pictures = {"mean": png(self.mean), "sd": png(self.sd, "viridis", limits=(0.0, highest["sd"]))}
        texts = {name: b64encode(content).decode() for name, content in pictures.items()}
        return {"count": self.count, "highest": highest, **texts}


class Points:
    """The points of a survey, read-only. Made by `open`; may be used by several threads."""

    def __init__(self, survey: Survey):
        self.survey, self.ledger, self.heading = survey, survey.ledger, survey.heading
        self.stacks: dict[Any, Stack] = {}
        self.drawer = Drawer(survey.run_dir)
        self.leaving = threading.Event()

    @classmethod
    def open(cls, folder: str | Path) -> "Points":
        """Open the survey of a run directory."""
        return cls(Survey(folder))

    def give_up(self) -> None:
        """End what threads do for this survey at the moment: queries, means, figures."""
        self.leaving.set()
        self.drawer.close()
        self.ledger.connection.interrupt()

    def close(self) -> None:
        """Let go of the ledger, and of the process that draws."""
        self.give_up()
        self.survey.close()

    def facts(self) -> dict[str, Any]:
        """Return what does not change: name, size, columns with label, unit, kind and role."""
        heading = self.heading
        return {
            "name": str(heading.name),
            "total": heading.total,
            "shape": heading.shape,
            "extent": heading.extent,
            "extent_unit": heading.extent_unit,
            "picture_unit": heading.picture_unit,
            "configured": has_config(self.survey.run_dir),
            "rank": RANK if self.ranked else "value",
            "columns": [self._about(key) for key in self.keys()],
        }

    @property
    def ranked(self) -> bool:
        """Whether points are ranked by a sum of columns, which is then one more column."""
        return self.heading.rank != ("value",)

    def keys(self) -> list[str]:
        """Return the names of all columns."""
        return [*self.heading.columns(), *([RANK] if self.ranked else [])]

    def marked(self) -> dict[str, Any]:
        """Return tags with the points that have them, and notes by point."""
        found = marks(self.ledger)
        names = sorted({name for tags, _ in found.values() for name in tags})
        tags = {name: [number for number, (have, _) in found.items() if name in have] for name in names}
        return {"tags": tags, "notes": {number: text for number, (_, text) in found.items() if text}}

    def point(self, number: int) -> dict[str, Any]:
        """Return one point, its checksum compared: axes, how to run it again, its tags and note.

        why: what stands in the way of its figures.
        """
        rows = self.ledger.rows("WHERE id = ?", (number,))
        if not rows:
            raise KeyError(f"point {number} is not finished.")
        self.ledger.params(number)  # raises where what was found does not match its checksum
        tags, note = marks(self.ledger).get(number, ((), ""))
        folder = self.survey.run_dir
        return {
            "axes": {name: rows[0][axis_column(name)] for name in self.heading.axes},
            "command": f"shardfit survey point {shlex.quote(str(folder))} {number}" if has_config(folder) else "",
            "configuration": "".join(configuration(self.survey, [number])),
            "tags": list(tags),
            "note": note,
            "why": self.drawer.why,
        }

    def figures(self, number: int) -> Future[list[dict[str, str]]]:
        """Return what will be the figures of a point: name, caption, PNG in base64; see `Drawer`."""
        rows = self.ledger.rows("WHERE id = ?", (number,))
        if not rows:
            raise KeyError(f"point {number} is not finished.")
        point = {name: rows[0][axis_column(name)] for name in self.heading.axes}
        return self.drawer.ask((number, rows[0]["finished"]), point, self.ledger.params(number))

    def progress(self) -> dict[str, Any]:
        """Return how many points are done, how fast they come, whether they still come, and in the end the verdict."""
        counts = "count(*), coalesce(sum(failed), 0), coalesce(sum(status LIKE 'CONVERGED%'), 0)"
        done, failed, converged = self._all(f"SELECT {counts} FROM points")[0]
        recent = [t for (t,) in self._all("SELECT finished FROM points ORDER BY finished DESC LIMIT ?", RECENT) if t]
        rate = _rate(recent)
        age = max(0.0, time.time() - recent[0]) if recent else None
        left = max(0, self.heading.total - done)
        if not left:
            state = "complete"
        elif age is None:
            state = "waiting"
        else:
            state = "running" if age < max(QUIET_SECONDS, 20 / rate if rate else 0.0) else "paused"
        eta = left / rate if rate and state == "running" else None
        counted = {"done": done, "failed": failed, "converged": converged}
        verdict = self.survey.verdict() if state == "complete" else None
        badge = None if verdict is None else (verdict.word, verdict.tone)  # a doubtful one is false
        return {**counted, "state": state, "badge": badge, "rate": rate, "eta": eta, "age": age}

    def page(self, after: tuple[float, int] = (-1.0, -1), limit: int = MOST_POINTS) -> dict[str, Any]:
        """Return the columns of the points finished after (time, number), in that order, at most `limit`."""
        ordered = "WHERE (coalesce(finished, 0), id) > (?, ?) ORDER BY coalesce(finished, 0), id LIMIT ?"
        return self.columns(ordered, [*after, limit])

    def columns(self, sql: str, values: list[Any], *, single: bool = False) -> dict[str, Any]:
        """Return the columns of the points that `sql` (what follows FROM points) finds."""
        keys = self.keys()
        rows = self._all(f"SELECT {', '.join(map(self._expression, keys))} FROM points {sql}", *values)
        by_key: dict[str, tuple] = dict(zip(keys, zip(*rows, strict=True) if rows else [()] * len(keys), strict=True))
        exact = {"id", "finished", *map(axis_column, self.heading.axes)}
        encoded = {
            key: encode(column, self.kind(key), single=single and key not in exact) for key, column in by_key.items()
        }
        last = [by_key["finished"][-1] or 0.0, by_key["id"][-1]] if rows else None
        return {"count": len(rows), "last": last, "columns": encoded}

    def _expression(self, key: str) -> str:
        return summed(self.heading.rank) if key == RANK else quoted(key)

    def kind(self, key: str) -> str:
        """Return 'text' or 'number'; an axis is what its first value is."""
        if not key.startswith("axis."):
            return "text" if key in TEXTS else "number"
        kinds = self._all(f"SELECT typeof({quoted(key)}) FROM points WHERE {quoted(key)} IS NOT NULL LIMIT 1")
        return "text" if kinds and kinds[0][0] in ("text", "blob") else "number"

    def select(self, selection: Selection) -> list[int]:
        """Return the numbers of the selected points in their order."""
        sql, values = selection.sql()
        return [number for (number,) in self._all(f"SELECT id FROM points {sql}", *values)]

    def count(self, selection: Selection) -> int:
        """Return how many points are selected, whatever the limit."""
        where, values = selection.where()
        return self._all(f"SELECT count(*) FROM points {where}", *values)[0][0]

    def rows(self, selection: Selection) -> Iterator[list[str]]:
        """Return a header and the selected points as texts, for a table in a file; which they are is asked at once."""
        return self._rows(self.select(selection))

    def _rows(self, ids: Sequence[int]) -> Iterator[list[str]]:
        keys = self.keys()
        yield [_cell(key) for key in keys]
        chosen = ", ".join(map(self._expression, keys))
        for first in range(0, len(ids), AT_ONCE):
            some = ids[first : first + AT_ONCE]
            marks = ", ".join("?" * len(some))
            found = {
                row[0]: row[1:] for row in self._all(f"SELECT id, {chosen} FROM points WHERE id IN ({marks})", *some)
            }
            for number in some:
                yield [_cell(value) for value in found[number]]

    def picture(self, point: int) -> np.ndarray:
        """Return the picture of a point; raise KeyError where there is none."""
        if self.heading.shape is None:
            raise KeyError("this survey keeps no pictures.")
        return self.survey.picture(point)

    def stack(
        self,
        selection: Selection,
        *,
        align: bool = False,
        most: int | None = None,
        gone: Callable[[], bool] = lambda: False,
    ) -> Stack:
        """Return mean and standard deviation of the selected pictures, of the first `most` in their order.

        align: shift them to the first. The last few stacks are kept. Raises Gone as soon as gone() says so.
        """
        ids = tuple(self.select(selection)[:most])
        key = (ids, align, self.ledger.told("last run"))
        if key not in self.stacks:
            ended = lambda: gone() or self.leaving.is_set()  # noqa: E731
            made = Stack(len(ids), *self.survey.mean_and_sd(_until(ended, ids), align=align))
            self.stacks = {**dict(list(self.stacks.items())[1 - KEPT_STACKS :]), key: made}
        return self.stacks[key]

    def _about(self, key: str) -> dict[str, str]:
        heading = self.heading
        axes = {axis_column(n): (n, unit) for n, unit in heading.axes.items()}
        if key in axes:
            label, unit = axes[key]
            return {"key": key, "label": label, "unit": str(unit), "kind": self.kind(key), "role": "axis"}
        if key == RANK:
            label = "misfit of the data"
            return {"key": key, "label": label, "unit": "", "kind": "number", "role": "value"}
        part = {part_column(n): n for n in heading.parts}.get(key)
        role = "part" if part is not None else "value" if key == "value" else "run"
        return {"key": key, "label": key if part is None else part, "unit": "", "kind": self.kind(key), "role": role}

    def _all(self, sql: str, *values: Any) -> list[tuple]:
        return self.ledger.select(sql, values)


def _until(gone: Callable[[], bool], ids: Sequence[int]) -> Iterator[int]:
    for number in ids:
        if gone():
            raise Gone
        yield number


def _rate(times: list[float]) -> float | None:
    """Return points per second from the times they were finished, latest first, since the last pause."""
    gaps = -np.diff(times)
    if not gaps.size:
        return None
    between = gaps[gaps > TOGETHER_SECONDS]  # points of one batch end together: their gaps say nothing
    usual = float(np.median(between if between.size else gaps))
    pauses = np.flatnonzero(gaps > max(QUIET_SECONDS, 20 * usual))
    steady = gaps[: pauses[0]] if pauses.size else gaps
    return steady.size / float(steady.sum()) if steady.sum() > 0 else None


def _cell(value: Any) -> str:
    """Return a value for a CSV file; a text that a spreadsheet would take for a formula is marked as text."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    return "'" + value if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
