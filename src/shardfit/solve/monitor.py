"""What the host does between segments: history, callback, progress, checkpoints; and what it shows of a run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardfit.core.current import as_they_are
from shardfit.core.status import Status


@dataclass(frozen=True)
class Snapshot:
    """What a callback is given."""

    step: int
    evaluations: int
    value: float
    gradient: float  # largest component, in the coordinates of the solver
    seconds: float
    z: Any = field(repr=False)
    space: Any = field(repr=False)
    slope: Any = field(default=None, repr=False)  # gradient (n,) at the last evaluated coordinates, where kept
    glance: dict[str, Any] = field(default_factory=dict, repr=False)  # what the solver shows besides

    def outside(self) -> "Snapshot":
        """Return the same in coordinates of the parameters, where the solver works in scale-free ones."""
        if not hasattr(self.space, "coordinates"):
            return self
        slope = None if self.slope is None else np.asarray(self.slope) / np.asarray(self.space.scale)
        return replace(self, z=self.space.z(self.z), slope=slope, space=self.space.space)

    @property
    def params(self) -> Any:
        """Best parameters so far."""
        with as_they_are(self.space):  # a callback begins work of its own
            return self.space.host_params(self.z)


class Trace:
    """History of a run, one entry per evaluation."""

    def __init__(self):
        self.columns: dict[str, list[np.ndarray]] = {"value": [], "gradient": [], "step": [], "seconds": []}
        self.began = time.perf_counter()
        self.earlier = 0.0  # seconds spent before a resume
        self.length = 0

    def __len__(self):
        return self.length

    def seconds(self) -> float:
        """Return seconds since the run began, earlier parts included."""
        return self.earlier + time.perf_counter() - self.began

    def extend(self, value: Any, gradient: Any, step: Any, more: dict[str, np.ndarray] | None = None) -> None:
        """Add entries; their times are spread evenly over the time since the last ones. more: columns of their own.

        A column of theirs that an earlier part of the run did not have is left out.
        """
        value = np.atleast_1d(value)
        if not len(value):
            return
        last = self.columns["seconds"][-1][-1] if self.length else 0.0
        seconds = np.linspace(last, self.seconds(), len(value) + 1)[1:]
        for name, column in (("value", value), ("gradient", gradient), ("step", step), ("seconds", seconds)):
            self.columns[name].append(np.atleast_1d(np.asarray(column)))
        for name, column in (more or {}).items():
            if not self.length or name in self.columns:
                self.columns.setdefault(name, []).append(column)
        self.length += len(value)

    def evaluations(self) -> np.ndarray:
        """Return how many evaluations were made up to each entry: one each, unless a column says otherwise."""
        return counted(self.arrays())

    def value(self, entry: int) -> float:
        """Return the value of an entry; NaN where there is none."""
        values = self.arrays()["value"] if self.length > entry else [np.nan] * (entry + 1)
        return float(values[entry])

    def count(self, name: str) -> int:
        """Return how many entries a column has; 0 where there is none."""
        return sum(map(len, self.columns.get(name, ())))

    def change(self, name: str, fn: Callable[[np.ndarray], np.ndarray], first: int = 0) -> None:
        """Replace the entries of a column, where there is one, by fn of them, from the first on."""
        if self.count(name) > first:
            whole = np.concatenate(self.columns[name])
            self.columns[name] = [whole[:first], fn(whole[first:])]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the history as one array per column."""
        return {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in self.columns.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over the history of an earlier part."""
        self.columns = {name: [column] for name, column in arrays.items()}
        self.length = len(arrays["value"])
        self.earlier = float(arrays["seconds"][-1]) if self.length else 0.0
        self.began = time.perf_counter()


def counted(history: Mapping[str, Any]) -> np.ndarray:
    """Return how many evaluations were made up to each entry of a history; searches make many for one entry."""
    length = len(history.get("value", ()))
    told = np.asarray(history.get("evaluation", ()))
    return told if len(told) == length else np.arange(1, length + 1)


class Monitor:
    """Ties a run to a callback, a progress display, a run directory and its live page; each is optional."""

    def __init__(
        self,
        callback: Callable[[Snapshot], Any] | None = None,
        every: int | None = None,
        progress: Any = None,
        store: Any = None,
        live: Any = None,
    ):
        self.callback, self.every, self.progress, self.store = callback, every, progress, store
        self.live = live
        self.diagnose: Callable[[], None] | None = None
        self.trace = Trace()
        self.called_at = 0
        self.stopped_by = ""

    def next_stop(self, step: int) -> float:
        """Return the step at which the loop must come back, for the callback."""
        return np.iinfo(np.int32).max if self.every is None else (step // self.every + 1) * self.every

    def restore(self, run: Any) -> Any:
        """Return the stored run, or the given one when there is none."""
        stored = self.store.load_run(run) if self.store else None
        if self.store:
            self.store.require_same_state(stored)
        if stored is None:
            return run
        run, history = stored
        self.trace.restore(history)
        self.called_at = int(run.state.steps)
        return run

    def save(self, run: Any) -> None:
        """Write a checkpoint now."""
        if self.store:
            self.store.save_run(run, self.trace.arrays())

    def check_start(self, state: Any) -> None:
        """Raise after the first evaluation if the start cannot be evaluated."""
        if len(self.trace) == 1 and self.diagnose is not None:
            known = 0.0 if state.gradient is None else np.asarray(state.gradient)
            finite = np.isfinite(float(state.value)) and bool(np.all(np.isfinite(known)))
            if not finite or int(state.status) == Status.NONFINITE.code:
                self.diagnose()

    def look(self, snapshot: Callable[[], Snapshot], run: Any = None) -> bool:
        """Show progress, call back, save; return whether to stop."""
        due = self.store is not None and run is not None and self.store.due()
        if due:
            self.save(run)
        live = self.live if self.live is not None and self.live.due() else None
        if self.callback is None and self.progress is None and live is None:
            return False
        shot = snapshot().outside()
        if live is not None:
            live.update(shot, self.trace)
        if self.progress is not None:
            self.progress.update(shot)
        if self.callback is not None and self.every is not None and shot.step - self.called_at >= self.every:
            self.called_at = shot.step
            if self.callback(shot) is True:
                self.stopped_by = "stopped by the callback."
                return True
        return False
