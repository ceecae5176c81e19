"""Whether the process that a file names is still at work, seen from another process."""

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def own_process() -> dict[str, Any]:
    """Return what lets others recognise this process: machine, number, and when it was started."""
    return {"host": socket.gethostname(), "number": os.getpid(), "started": _started(os.getpid())}


def is_alive(told: Any) -> bool | None:
    """Return whether a process is at work, as `own_process` told of it; None: it cannot be seen from here."""
    if not isinstance(told, Mapping) or told.get("host") != socket.gethostname():
        return None
    number, started = told.get("number"), told.get("started")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 1 << 31:
        return None
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's
        return None
    return started is None or _started(number) == started  # numbers of processes are used again


def _started(number: int) -> str | None:
    """Return when a process was started, in ticks since the machine was; None where the system does not tell."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return None
