"""Where a run stands, from its folder alone: running, silent, ended, or a folder of other runs."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from shardfit.core.success import DOUBTFUL
from shardfit.io.live import NAME as LIVE
from shardfit.io.live import read_live
from shardfit.io.process_liveness import is_alive
from shardfit.report.folders import BEGUN, Kind, kind_of, verdict_in
from shardfit.report.html import Badge
from shardfit.report.provenance import COMMAND, read_command

RUNNING, SILENT, KILLED = Badge("running", "plain"), Badge("silent", "warn"), Badge("killed", "bad")
SILENT_SECONDS = 30.0  # without a word, after which a run is not called running any more
MOST_FOLDERS = 2000  # that are looked at for runs
DEPTH = 4


@dataclass(frozen=True)
class State:
    """A folder as it is now. live: the run's last word; command: what made it; runs: those inside it."""

    folder: Path
    kind: Kind | None
    live: dict[str, Any] | None
    command: dict[str, Any]
    runs: tuple["State", ...] = field(default=())

    @property
    def begun(self) -> bool:
        """Whether a run has been here at all."""
        return self.kind is not None or self.live is not None or bool(self.command) or (self.folder / BEGUN).is_file()

    @property
    def current(self) -> dict[str, Any] | None:
        """The last word of this run, or of the run inside it that is at work."""
        if self.live is not None:
            return self.live
        return max((run.live for run in self.runs if run.live), key=lambda live: live["updated"], default=None)

    @property
    def updated(self) -> float:
        """When something was last written: seconds of the clock."""
        names = (LIVE, COMMAND, "events.jsonl", "ledger.sqlite-wal", "ledger.sqlite", "result.json", "posterior.json")
        times = [0.0]
        for name in names:
            with contextlib.suppress(OSError):
                times.append((self.folder / name).stat().st_mtime)
        return max(*times, *(run.updated for run in self.runs), 0.0)

    @property
    def ended(self) -> int | None:
        """Exit code of the command that made this folder; None before its end, or where none was recorded."""
        code = self.command.get("exit")
        return code if isinstance(code, int) else None

    @property
    def failure(self) -> str:
        """What ended the command that made this folder, as it told it; empty where nothing did."""
        told = self.command.get("error")
        return told if isinstance(told, str) and self.ended is not None else ""

    @cached_property
    def answer(self) -> Badge:
        """The verdict on what this folder holds, in a word; never better than the exit code of its command."""
        try:
            verdict = verdict_in(self.folder)
        except (ValueError, OSError, RuntimeError):  # being written at this moment, or damaged
            return Badge("unreadable", "warn")
        if self.ended and verdict.success:
            return Badge(DOUBTFUL, "warn")
        return Badge(verdict.word, verdict.tone)

    def badge(self, now: float | None = None) -> Badge:
        """Return the state in a word: by the verdict on what was recorded, by its process where it is seen, or by time.

        A process that compiles for minutes writes nothing and is running all the same.
        """
        now = time.time() if now is None else now
        current = self.current
        alive = is_alive(self.command.get("process"))
        if alive is False and self.ended is None:
            return KILLED  # its last word may be new
        if current is not None and now - current["updated"] < SILENT_SECONDS:
            return RUNNING
        if self.ended == 130:
            return Badge("interrupted", "warn")
        if self.ended == 2:
            return Badge("failed", "bad")
        if self.kind is not None and (self.ended is not None or not self.command):
            return self.answer
        if self.ended is not None:
            return Badge("ended", "good" if self.ended == 0 else "warn")
        if alive or now - self.updated < SILENT_SECONDS:
            return RUNNING
        return SILENT


def state_of(folder: Path) -> State:
    """Return the state of a run, with the runs inside it."""
    inner = tuple(_alone(path) for path in _folders(folder))
    return State(folder, kind_of(folder), read_live(folder), read_command(folder), tuple(s for s in inner if s.begun))


def runs_below(folder: Path) -> list[State]:
    """Return the runs of a folder that is itself none, newest first; runs inside runs are theirs."""
    found = [state_of(path) for path in _walk(folder, DEPTH)]
    return sorted(found, key=lambda state: -state.updated)


def _alone(folder: Path) -> State:
    return State(folder, kind_of(folder), read_live(folder), read_command(folder))


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folders in which parts of a run may lie: fits/NN, NN, shards; links are not followed."""
    for path in _children(folder):
        if (path / BEGUN).is_file() or (path / LIVE).is_file():
            yield path
        else:
            yield from (inner for inner in _children(path) if (inner / BEGUN).is_file() or (inner / LIVE).is_file())


def _walk(folder: Path, depth: int, seen: list[int] | None = None) -> Iterator[Path]:
    seen = [0] if seen is None else seen
    for path in _children(folder):
        seen[0] += 1
        if seen[0] > MOST_FOLDERS:
            return
        if _alone(path).begun:
            yield path
        elif depth > 1:
            yield from _walk(path, depth - 1, seen)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink() and p.name[0] not in "._")
    except OSError:
        return []
