"""Figures of single points, such as data against model and residuals, drawn when someone looks at the point.

The survey's science draws them, in a process of its own that is started for the first point, kept warm for the next
ones, and ended when a point takes too long or the gallery ends. Points wait in a queue, from which those that nobody
waits for any more are dropped; one that was begun is drawn to its end, for loading the science again would take longer.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shardfit.report.gallery.draw_worker import packed
from shardfit.report.gallery.exports import SAVED, has_config
from shardfit.report.provenance import made_in
from shardfit.sciences import get_science

MOST_SECONDS = 120.0  # for the figures of a point; the first one has to load the science
KEPT = 24  # points whose figures are kept
ENDS = "the server ends."
WORKER = "shardfit.report.gallery.draw_worker"


class Gone(Exception):
    """Nobody waits for the answer any more."""


class CannotDraw(RuntimeError):
    """There are no figures; the text says why."""


class Drawer:
    """Draws the points of one survey, one at a time. why: what stands in the way, empty if nothing is known to."""

    def __init__(self, folder: Path, command: list[str] | None = None, seconds: float = MOST_SECONDS):
        # -P: a file beside a stranger's ledger must not pass for a module
        self.command, self.seconds = command or [sys.executable, "-P", "-m", WORKER], seconds
        self.science, self.settings, self.why = _science_of(folder)
        made = made_in(folder)
        self.place = made if made is not None and made.is_dir() else None  # names of data are relative to it
        self.queue = ThreadPoolExecutor(1, "drawing")
        self.starting = threading.Lock()  # nothing is started once this is closed
        self.closed = False
        self.process: subprocess.Popen | None = None
        self.answers: queue.Queue[str] = queue.Queue()
        self.kept: dict[Any, list[dict[str, str]]] = {}

    def ask(self, key: Any, point: Mapping[str, Any], params: Mapping[str, Any]) -> Future[list[dict[str, str]]]:
        """Return what will be name, caption and PNG (base64) of a point's figures, or CannotDraw.

        Cancelled before its turn it is not drawn. key: what the figures are kept by; point, params: its values of the
        axes, and what was found.
        """
        known: Future[list[dict[str, str]]] = Future()
        if self.why:
            known.set_exception(CannotDraw(self.why))
        elif key in self.kept:
            known.set_result(self.kept[key])
        else:
            with self.starting:
                if not self.closed:
                    return self.queue.submit(self._draw, key, point, params)
            known.set_exception(CannotDraw(ENDS))
        return known

    def _draw(self, key: Any, point: Mapping[str, Any], params: Mapping[str, Any]) -> list[dict[str, str]]:
        if key not in self.kept:
            asked = {"science": self.science, "settings": self.settings, "point": dict(point)}
            asked["params"] = {name: packed(array) for name, array in params.items()}
            found = self._asked(json.dumps(asked))
            self.kept = {**dict(list(self.kept.items())[1 - KEPT :]), key: found}
        return self.kept[key]

    def _asked(self, line: str) -> list[dict[str, str]]:
        process = self._started()
        try:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = self.answers.get(timeout=self.seconds)
        except queue.Empty:
            self._end()
            raise CannotDraw(f"drawing took more than {self.seconds:g} s and was stopped.") from None
        except (OSError, ValueError):  # its pipe is broken, or was closed at the end
            answer = ""
        if not answer:
            self._end()
            raise CannotDraw(ENDS if self.closed else "the drawing process has ended, perhaps because memory ran out.")
        found = json.loads(answer)
        if "error" in found:
            raise CannotDraw(found["error"])
        return found["figures"]

    def _started(self) -> subprocess.Popen:
        with self.starting:
            if self.closed:
                raise CannotDraw(ENDS)
            if self.process is None or self.process.poll() is not None:
                self._end()
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
                env = {**os.environ, "JAX_PLATFORMS": "cpu"}  # the survey may have all of a GPU's memory
                quiet = {"stderr": subprocess.DEVNULL, "env": env, "cwd": self.place}
                # not the terminal's: Ctrl-C there is for the server, which ends this
                self.process = subprocess.Popen(self.command, start_new_session=True, **quiet, **pipes)
                self.answers = queue.Queue()
                threading.Thread(target=_read, args=(self.process.stdout, self.answers), daemon=True).start()
            return self.process

    def _end(self) -> None:
        """End the process that draws."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError, ValueError):  # what was written last has nobody to read it
                    pipe.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """Drop the queue and end the process that draws."""
        with self.starting:
            self.closed = True
            self.queue.shutdown(wait=False, cancel_futures=True)
            self._end()


def _read(lines: Any, answers: queue.Queue) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed
        for line in lines:
            answers.put(line)
    answers.put("")


def _science_of(folder: Path) -> tuple[str, dict[str, Any], str]:
    """Return science and settings of a survey's configuration, and why its points cannot be drawn, '' if they can."""
    if not has_config(folder):
        return "", {}, "This survey was not run from a configuration file, so its data are not known."
    try:
        content = tomllib.loads((folder / SAVED).read_text(encoding="utf-8", errors="replace"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return "", {}, f"{SAVED} cannot be read."
    name = content.get("science")
    if not isinstance(name, str):
        text = "This survey's problem is a function of its own, which the gallery does not run."
        return "", {}, f"{text} `shardfit survey point` does."
    settings = content.get(name, {})
    try:
        get_science(name, "survey")
    except (ValueError, ImportError) as error:
        return name, {}, str(error)
    if not isinstance(settings, dict):
        return name, {}, f"{SAVED} has no settings of science {name!r}."
    return name, settings, ""
