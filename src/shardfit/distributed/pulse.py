"""Signs of life: a file that a worker touches while it gets on, and a watch that notices when one no longer does.

A process that waits for ever does not end, so nobody is told; only its silence can be noticed. Times are compared with
the watcher's own clock, for a worker on another machine may have another.
"""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Pulse:
    """A worker's sign of life; `beat` it whenever work gets on."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(os.getpid()))

    def beat(self) -> None:
        """Show that work gets on."""
        os.utime(self.path)


class Watch:
    """Looks at pulses of tasks, by name: for use as `look` of `run_tasks`.

    patience: seconds of silence after which a worker counts as hung. kill: end such a worker, which must be a process
    of this machine that this program started; otherwise raise TimeoutError. silent: the tasks that it has given up.
    """

    def __init__(self, pulses: Mapping[Any, Path], patience: float, kill: bool):
        self.pulses, self.patience, self.kill = pulses, patience, kill
        self.last: dict[Any, tuple[int, float]] = {}
        self.silent: list[Any] = []

    def __call__(self, names: Sequence[Any]) -> None:
        """Look at the tasks that have not ended; one that has not begun has no pulse yet."""
        now = time.monotonic()
        for name in names:
            path = self.pulses[name]
            try:
                beat = path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            before, since = self.last.get(name, (None, now))
            if beat != before:
                self.last[name] = beat, now
            elif now - since > self.patience:
                self._give_up(name, path)

    def _give_up(self, name: Any, path: Path) -> None:
        self.silent.append(name)
        if not self.kill:
            raise TimeoutError(f"{name}: its worker has not responded for {self.patience:g} s.")
        process = int(path.read_text())
        path.unlink()
        del self.last[name]
        os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
