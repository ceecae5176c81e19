"""Progress of a fit: a live line on a terminal, plain lines elsewhere, nothing for short runs."""

import math
import os
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from shardfit.io.live import Live

CELL_SECONDS = 0.5  # between two looks of a notebook's cell
PLAIN_SECONDS = 10.0  # between plain lines; a run shorter than this prints none


def in_notebook() -> bool:
    """Return whether a kernel of Jupyter runs this process: what is printed there stays in its cell."""
    kernel = sys.modules.get("ipykernel.zmqshell")
    shell = sys.modules.get("IPython")
    return kernel is not None and shell is not None and isinstance(shell.get_ipython(), kernel.ZMQInteractiveShell)


class Line:
    """A line of text that is kept up to date: live on a terminal, elsewhere printed now and then.

    alone: False where others write to the terminal too, as groups of processes do: lines are printed there as well.
    """

    def __init__(self, title: str, stream: Any = None, alone: bool = True):
        self.title, self.stream = title, stream or sys.stderr
        self.live = alone and bool(getattr(self.stream, "isatty", lambda: False)())
        self.notebook = stream is None and in_notebook()
        self.shown = time.monotonic()
        self.display: Any = None
        self.silent = os.environ.get("SHARDFIT_PROGRESS") == "off"

    def show(self, text: str) -> None:
        """Show a text after the title; nothing where the environment says SHARDFIT_PROGRESS=off."""
        if self.silent:
            return
        if self.notebook:
            self._in_cell(text)
        elif self.live:
            self._live(text)
        elif time.monotonic() - self.shown >= PLAIN_SECONDS:
            self.shown = time.monotonic()
            print(f"{self.title}: {text}", file=self.stream, flush=True)

    def _in_cell(self, text):
        display: Any = import_module("IPython.display").display  # a notebook has it
        if time.monotonic() - self.shown < CELL_SECONDS and self.display is not None:
            return
        self.shown = time.monotonic()
        content = {"text/plain": f"{self.title}  {text}" if text else ""}
        if self.display is None:
            self.display = display(content, raw=True, display_id=True)
        else:
            self.display.update(content, raw=True)

    def _live(self, text):
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self.display is None:
            console = Console(file=self.stream)
            self.display = Live(console=console, refresh_per_second=8, transient=True)
            self.display.start()
        self.display.update(Text.assemble((self.title, "bold"), "  ", text))

    def close(self) -> None:
        """Remove the live line."""
        if self.display is None:
            return
        if self.notebook:
            self.display.update({"text/plain": ""}, raw=True)
        else:
            self.display.stop()
        self.display = None


class Progress:
    """Shows step, value, gradient, rate, and the time left to the step limit: convergence ends a run earlier."""

    def __init__(self, title: str, limit: int, stream: Any = None, alone: bool = True):
        self.line, self.limit = Line(title, stream, alone), limit
        self.began = time.monotonic()
        self.first_step: int | None = None
        self.line.show("compiling")

    def update(self, shot: Any) -> None:
        """Show a snapshot (step, evaluations, value, gradient)."""
        if self.first_step is None:  # rates count from here: what came before was compiling
            self.first_step, self.began = shot.step, time.monotonic()
        self.line.show(self._text(shot))

    def _text(self, shot):
        elapsed = time.monotonic() - self.began
        done = shot.step - (self.first_step or 0)
        pace = ""
        if done > 0 and elapsed > 0:
            rate = done / elapsed
            pace = f", {rate:.3g} steps/s, at most {duration((self.limit - shot.step) / rate)} left"
        slope = "" if math.isnan(shot.gradient) else f", gradient {shot.gradient:.1e}"  # a swarm has none
        done = f"step {shot.step}/{self.limit}, {shot.evaluations} evaluations"
        return f"{done}, value {shot.value:.6g}{slope}{pace}"

    def close(self) -> None:
        """Remove the live line."""
        self.line.close()


class FitLive:
    """Tells the live page of a run directory where a fit stands."""

    def __init__(self, folder: Any, title: str, limit: int):
        self.live, self.limit = Live(folder, title), limit
        self.first: tuple[int, float] | None = None

    def due(self) -> bool:
        """Return whether it is time to speak."""
        return self.live.due()

    def update(self, shot: Any, trace: Any) -> None:
        """Write a snapshot and the history so far."""
        now = time.monotonic()
        self.first = (shot.step, now) if self.first is None else self.first  # what came before was compiling
        done, spent = shot.step - self.first[0], now - self.first[1]
        left = spent / done * (self.limit - shot.step) if done > 0 else None
        numbers = {"value": shot.value, "evaluations": shot.evaluations, "seconds": shot.seconds}
        if not math.isnan(shot.gradient):
            numbers["gradient"] = shot.gradient
        if done > 0 and spent > 0:
            numbers["steps per second"] = done / spent
        history = trace.arrays()
        at = trace.evaluations()
        best = np.fmin.accumulate(history["value"]) if len(at) else history["value"]
        curves: dict[str, tuple] = {"lowest value": (at, best, "evaluations")}
        if np.isfinite(history["gradient"]).any():
            curves["largest entry of the gradient"] = (at, history["gradient"], "evaluations")
        self.live.publish(shot.step, self.limit, left=left, numbers=numbers, curves=curves)

    def close(self) -> None:
        """The fit has ended."""
        self.live.close()


def duration(seconds: float) -> str:
    """Return a time in the two largest units: '1 h 5 min', '12 s'."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
