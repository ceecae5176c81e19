"""Progress of many chains or shards in one line: draws, divergences, R-hat so far, and the time left."""

import threading
import time
from typing import Any

import numpy as np

from shardfit.io.progress import Line, duration
from shardfit.sampling.quality.diagnostics import rhat

LOOK_SECONDS = 2.0  # between two looks at R-hat, which costs more than the rest
ENOUGH = 20  # draws of a chain below which R-hat says nothing


class SamplingProgress:
    """One line for all groups of chains; a context that removes it at the end.

    Example: `with SamplingProgress("decay", NUTS(), groups=2) as show: monitor.progress = show.of_group(0)`.
    """

    def __init__(self, title: str, solver: Any, groups: int, wanted: bool | None = None):
        self.line = None if wanted is False else Line(title)
        self.warmup, self.draws, self.groups = solver.warmup, solver.draws, groups
        self.lock, self.shots = threading.Lock(), {}
        self.began, self.looked, self.mixing = time.monotonic(), 0.0, ""

    def __enter__(self):
        if self.line is not None:
            self.line.show("compiling")
        return self

    def __exit__(self, *_):
        if self.line is not None:
            self.line.close()

    def of_group(self, number: int) -> "_Group | None":
        """Return the display that the monitor of one group updates."""
        return None if self.line is None else _Group(self, number)

    def update(self, number: int, shot: Any) -> None:
        """Show the line with another look at one group."""
        with self.lock:
            if not self.shots:
                self.began = time.monotonic()  # what came before was compiling
            self.shots[number] = shot
            if self.line is not None:
                self.line.show(self._text())

    def _text(self) -> str:
        steps = [shot.step for shot in self.shots.values()]
        done = sum(steps) / (self.groups * (self.warmup + self.draws))
        slowest = min(steps)
        phase = f"draw {slowest - self.warmup}/{self.draws}" if slowest > self.warmup else f"warm-up {slowest}"
        gradients = sum(shot.evaluations for shot in self.shots.values())
        divergences = sum(int(shot.glance.get("divergences", 0)) for shot in self.shots.values())
        left = (time.monotonic() - self.began) * (1 - done) / done if done > 0 else 0.0
        pace = f", {duration(left)} left" if done > 0 else ""
        return f"{phase}, {gradients:,} gradients, {divergences} divergences{self._mixing()}{pace}"

    def _mixing(self) -> str:
        if time.monotonic() - self.looked > LOOK_SECONDS:
            self.looked = time.monotonic()
            parts = [shot.glance.get("draws") for shot in self.shots.values()]
            known = [part for part in parts if part is not None]
            least = min((part.shape[1] for part in known), default=0)
            if least >= ENOUGH and sum(len(part) for part in known) > 1:
                z = np.concatenate([part[:, :least] for part in known])
                self.mixing = f", R-hat {np.max(rhat(z)):.3f}"
        return self.mixing


class ShardProgress:
    """One line for shards that end one by one; a context that removes it at the end."""

    def __init__(self, title: str, total: int, wanted: bool | None = None):
        self.line = None if wanted is False else Line(title)
        self.total, self.done, self.divergences, self.largest = total, 0, 0, 0.0
        self.began = time.monotonic()

    def __enter__(self):
        if self.line is not None and self.total:
            self.line.show(f"0 of {self.total} shards")
        return self

    def __exit__(self, *_):
        if self.line is not None:
            self.line.close()

    def update(self, run: Any) -> None:
        """Show the line with one more shard."""
        if self.line is None:
            return
        self.done += 1
        self.divergences += int(np.sum(run.arrays["diverging"]))
        self.largest = max(self.largest, float(np.max(rhat(run.arrays["z"]))))
        left = duration((time.monotonic() - self.began) * (self.total - self.done) / self.done)
        text = f"{self.done} of {self.total} shards, {self.divergences} divergences, R-hat {self.largest:.3f}"
        self.line.show(f"{text}, {left} left")


class _Group:
    """What the monitor of one group sees of the line."""

    def __init__(self, whole: SamplingProgress, number: int):
        self.whole, self.number = whole, number

    def update(self, shot: Any) -> None:
        """Show a snapshot of this group."""
        self.whole.update(self.number, shot)
