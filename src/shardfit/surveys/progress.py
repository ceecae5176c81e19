"""The progress of a survey: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from shardfit.io.progress import Line, duration
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.point import SurveyPoint


class SurveyProgress:
    """Shows points done, rate, time left, the lowest value, and failures. wanted: None shows it on a terminal."""

    def __init__(self, title: str, ledger: Ledger, wanted: bool | None, stream: Any = None):
        self.total, self.ledger = ledger.heading.total, ledger
        self._count(ledger)
        self.before, self.began = self.done, None  # of the rate: from the first points on, compiling left out
        stream = stream or sys.stderr
        live = bool(getattr(stream, "isatty", lambda: False)())
        self.line = Line(title, stream) if (live if wanted is None else wanted) else None

    def _count(self, ledger: Ledger) -> None:
        lowest = ledger.rows("WHERE NOT failed ORDER BY value LIMIT 1")
        self.best = lowest[0]["value"] if lowest else float("inf")
        self.done, self.failed = len(ledger.ids()), len(ledger.ids(failed=True))
        self.converged = ledger.converged()

    def __call__(self, records: list[SurveyPoint]) -> None:
        """Take note of new points; a later attempt at one is not a new one."""
        if any(record.attempt > 1 for record in records):
            return self.look(self.ledger)
        self.done += len(records)
        self.failed += sum(record.failed for record in records)
        self.converged += sum(record.converged for record in records)
        self.best = min([self.best, *(r.value for r in records if not r.failed)])
        self._start()
        return self._show()

    def look(self, ledger: Ledger) -> None:
        """Take note of what others have written."""
        earlier = self.done
        self._count(ledger)
        if self.done > earlier:
            self._start()
        self._show()

    def _start(self) -> None:
        if self.began is None:
            self.before, self.began = self.done, time.monotonic()

    def _show(self) -> None:
        if self.line is not None:
            self.line.show(self.text())

    def text(self) -> str:
        """Return the line."""
        since = 0.0 if self.began is None else time.monotonic() - self.began
        rate = (self.done - self.before) / since if since > 0 else 0.0
        left = f", {duration((self.total - self.done) / rate)} left" if rate > 0 and self.done < self.total else ""
        failed = f", {self.failed} failed" if self.failed else ""
        speed = f", {rate:.3g}/s" if rate > 0 else ""
        share = f", {self.converged / self.done:.0%} converged" if self.done else ""
        return f"{self.done:,}/{self.total:,} points{share}{speed}{left}, lowest value {self.best:.6g}{failed}"

    def close(self) -> None:
        """Remove the live line."""
        if self.line is not None:
            self.line.close()
