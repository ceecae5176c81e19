"""Runs in processes of their own, to be killed, starved and misled; the only ones that start JAX are these.

Importing takes seconds: children are forked before JAX has made anything, and share the cache of compiled programs.
"""

import errno
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reliability.fuzzing import verdict
from benchmarks.reliability.kinds import Refused

LONGEST = 900.0  # seconds that a run may take, on a machine however busy
POLL = 0.01
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
Hook = Callable[[], None]


@dataclass(frozen=True)
class Ended:
    """How a process ended: 'done', 'refused' with a clear error, 'killed', or a defect such as 'KeyError'.

    text: its last words; writes: how many there were.
    """

    how: str
    text: str = ""
    seconds: float = 0.0  # of a processor
    writes: int = 0


class Child:
    """A process that does some work. prepare: called in it before the work, to make it fail."""

    def __init__(self, work: Callable[[], Any], log: Path, prepare: Hook | None = None):
        self.source, target = os.pipe()
        self.log = log
        self.pid = os.fork()
        if not self.pid:
            os.close(self.source)
            _do(work, log, prepare, target)
        os.close(target)

    def seconds(self) -> float:
        """Return the seconds of a processor that it has used so far."""
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def kill_after(self, seconds: float) -> None:
        """Kill it once it has used so many seconds of a processor, unless it has ended by then."""
        while self.seconds() < seconds and not self._is_over():
            time.sleep(POLL)
        os.kill(self.pid, signal.SIGKILL)

    def _is_over(self) -> bool:
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z"

    def wait(self) -> Ended:
        """Wait for its end, and return it."""
        began = time.monotonic()
        while not self._is_over():
            if time.monotonic() - began > LONGEST:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return Ended("hang", f"no end after {LONGEST:g} s")
            time.sleep(POLL)
        _, status, used = os.wait4(self.pid, 0)
        with os.fdopen(self.source, "rb") as pipe:
            told = pipe.read()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            how = "killed" if number == signal.SIGKILL else "crash"
            return Ended(how, f"signal {number}", used.ru_utime + used.ru_stime)
        return Ended(**json.loads(told), seconds=used.ru_utime + used.ru_stime)


WRITES = [0]  # of this process: renamed files, lines of journals, transactions of ledgers


def count_writes(at: int | None = None, before: bool = True) -> None:
    """Count what this process writes; kill it before or after the write of a number, None: never."""
    from shardfit.io.journal import Journal
    from shardfit.surveys.ledger import Ledger

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **options: Any) -> Any:
            WRITES[0] += 1
            if before and WRITES[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            found = function(*arguments, **options)
            if WRITES[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return inner

    for owner, name in ((os, "replace"), (os, "fsync"), (Ledger, "write"), (Journal, "append")):
        setattr(owner, name, counted(getattr(owner, name)))


def small_files(most: int) -> None:
    """Refuse to let any file of this process grow beyond so many bytes, as a quota does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def jumping_clocks(seed: int) -> None:
    """Let the clock of this process jump by years, back and forth, and its stopwatches forward by hours."""
    import random

    rng, true, ahead = random.Random(seed), time.time, [0.0]

    def wrong() -> float:
        return true() + (rng.uniform(-1, 1) * 3e8 if rng.random() < 0.3 else 0.0)

    def forward(watch: Callable[[], float]) -> Callable[[], float]:
        def inner() -> float:
            ahead[0] += rng.uniform(0, 1e4) if rng.random() < 0.05 else 0.0
            return watch() + ahead[0]

        return inner

    time.time = wrong
    time.monotonic, time.perf_counter = forward(time.monotonic), forward(time.perf_counter)


def _do(work: Callable[[], Any], log: Path, prepare: Hook | None, target: int) -> None:
    """Do the work in this process, tell how it ended, and end."""
    how, text = "done", ""
    try:
        with open(log, "a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        (prepare or count_writes)()
        work()
    except Refused as error:
        how, text = "refused", f"{error}: {log.read_text()[-300:]}"
    except BaseException as error:
        # a disk that is full is named by the system's own error, with the file
        full = isinstance(error, OSError) and error.errno in FULL and error.filename is not None
        how, text = ("refused", str(error)) if full else verdict(error, named=False)
        traceback.print_exc()
    finally:  # whatever happened, what follows in the process that forked is not for this one
        os.write(target, json.dumps({"how": how, "text": text, "writes": WRITES[0]}).encode())
        os._exit(0)
