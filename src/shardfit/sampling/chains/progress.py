"""Progress of many chains or shards in one line: draws, divergences, R-hat so far, and the time left."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardfit.io.live import Live
from shardfit.io.progress import Line, duration
from shardfit.sampling.quality.diagnostics import rhat

LOOK_SECONDS = 2.0  # between two looks at R-hat, which costs more than the rest
SHOWN = 4  # numbers whose paths the live page shows
ENOUGH = 20  # draws of a chain below which R-hat says nothing


class SamplingProgress:
    """One line for all groups of chains; a context that removes it at the end.

    Example: `with SamplingProgress("decay", NUTS(), groups=2) as show: monitor.progress = show.of_group(0)`.
    """

    def __init__(
        self,
        title: str,
        solver: Any,
        groups: int,
        wanted: bool | None = None,
        folder: Any = None,
        labels: Sequence[str] = (),
    ):
        self.line, self.live = None if wanted is False else Line(title), Live(folder, title, "transitions")
        self.warmup, self.draws, self.groups, self.labels = solver.discarded, solver.draws, groups, tuple(labels)
        self.lock, self.shots = threading.Lock(), {}
        self.began, self.looked = time.monotonic(), 0.0
        self.mixing: list[tuple[int, float]] = []  # transitions of all chains, and R-hat of the draws among them

    def __enter__(self):
        if self.line is not None:
            self.line.show("compiling")
        return self

    def __exit__(self, *_):
        self.live.close()
        if self.line is not None:
            self.line.close()

    def of_group(self, number: int) -> "_Group | None":
        """Return the display that the monitor of one group updates."""
        return None if self.line is None and self.live.folder is None else _Group(self, number)

    def update(self, number: int, shot: Any) -> None:
        """Show the line with another look at one group."""
        with self.lock:
            if not self.shots:
                self.began = time.monotonic()  # what came before was compiling
            self.shots[number] = shot
            self._look()
            if self.line is not None:
                self.line.show(self._text())
            if self.live.due():
                self._tell()

    def _text(self) -> str:
        slowest = min(shot.step for shot in self.shots.values())
        phase = f"draw {slowest - self.warmup}/{self.draws}" if slowest > self.warmup else f"warm-up {slowest}"
        mixing = f", R-hat {self.mixing[-1][1]:.3f}" if self.mixing else ""
        left = self._left()
        pace = "" if left is None else f", {duration(left)} left"
        return f"{phase}, {self._gradients():,} gradients, {self._divergences()} divergences{mixing}{pace}"

    def _tell(self) -> None:
        """Tell the live page: how far, what mixes badly, and the paths of a few numbers."""
        total = self.groups * (self.warmup + self.draws)
        numbers: dict[str, Any] = {"gradients": self._gradients(), "divergences": self._divergences()}
        curves: dict[str, Any] = {}
        if self.mixing:
            numbers["R-hat"] = self.mixing[-1][1]
            curves["R-hat, largest"] = (*zip(*self.mixing, strict=True), "transitions of all chains")
        z = self._drawn()
        if z is not None:
            at = np.arange(1, z.shape[1] + 1)
            for i, label in enumerate(self.labels[:SHOWN]):
                curves[f"{label} in the coordinates sampled, first chain"] = at, z[0, :, i], "draws"
        done = sum(shot.step for shot in self.shots.values())
        self.live.publish(done, total, left=self._left(), numbers=numbers, curves=curves)

    def _left(self) -> float | None:
        done = sum(shot.step for shot in self.shots.values()) / (self.groups * (self.warmup + self.draws))
        return (time.monotonic() - self.began) * (1 - done) / done if done > 0 else None

    def _gradients(self) -> int:
        return sum(shot.evaluations for shot in self.shots.values())

    def _divergences(self) -> int:
        return sum(int(shot.glance.get("divergences", 0)) for shot in self.shots.values())

    def _drawn(self) -> np.ndarray | None:
        """Return the draws (chains, n, numbers) that all groups have; None before there are enough."""
        parts = [shot.glance.get("draws") for shot in self.shots.values()]
        known = [part for part in parts if part is not None]
        least = min((part.shape[1] for part in known), default=0)
        return np.concatenate([part[:, :least] for part in known]) if least >= ENOUGH else None

    def _look(self) -> None:
        """Look at R-hat now and then."""
        if time.monotonic() - self.looked > LOOK_SECONDS:
            self.looked = time.monotonic()
            z = self._drawn()
            if z is not None and len(z) > 1:
                self.mixing.append((sum(shot.step for shot in self.shots.values()), float(np.max(rhat(z)))))


class ShardProgress:
    """One line for shards that end one by one; a context that removes it at the end."""

    def __init__(self, title: str, total: int, wanted: bool | None = None, folder: Any = None):
        self.line, self.live = None if wanted is False else Line(title), Live(folder, title, "shards")
        self.total, self.done, self.divergences, self.largest = total, 0, 0, 0.0
        self.began = time.monotonic()

    def __enter__(self):
        if self.line is not None and self.total:
            self.line.show(f"0 of {self.total} shards")
        return self

    def __exit__(self, *_):
        self.live.close()
        if self.line is not None:
            self.line.close()

    def update(self, run: Any) -> None:
        """Show the line with one more shard."""
        if self.line is None and self.live.folder is None:
            return
        self.done += 1
        self.divergences += int(np.sum(run.arrays["diverging"]))
        self.largest = max(self.largest, float(np.max(rhat(run.arrays["z"]))))
        left = (time.monotonic() - self.began) * (self.total - self.done) / self.done
        if self.line is not None:
            text = f"{self.done} of {self.total} shards, {self.divergences} divergences, R-hat {self.largest:.3f}"
            self.line.show(f"{text}, {duration(left)} left")
        if self.live.due():
            numbers = {"divergences": self.divergences, "R-hat": self.largest}
            self.live.publish(self.done, self.total, left=left, numbers=numbers)


class _Group:
    """What the monitor of one group sees of the line."""

    def __init__(self, whole: SamplingProgress, number: int):
        self.whole, self.number = whole, number

    def update(self, shot: Any) -> None:
        """Show a snapshot of this group."""
        self.whole.update(self.number, shot)
