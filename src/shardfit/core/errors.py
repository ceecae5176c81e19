"""Errors with a remedy. Built-in types are used where they fit; these add a name to catch."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ParityError(ValueError):
    """Two ways to compute the same thing disagree: rows in blocks or whole, a gradient and a finite difference.

    result: what a fit had reached when the answer was found wanting, None before a fit.
    """

    result: Any = None


class NonFiniteError(ValueError):
    """A value or gradient is NaN or infinite where work would start."""


class CheckpointError(RuntimeError):
    """A run directory cannot be resumed."""


class LeaderFailedError(RuntimeError):
    """The process that leads a fit has failed, and says why; the others only follow."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' when a known name is close, and the known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} Known: {', '.join(known)}."


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Let errors of the system name the file: of a full disk they do not say it."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
