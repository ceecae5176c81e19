"""Errors with a remedy. Built-in types are used where they fit; these add a name to catch."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_NAMES = 200  # in a folder where a file is missing; of more none is suggested


class ParityError(ValueError):
    """Two ways to compute the same thing disagree: rows in blocks or whole, a gradient and a finite difference.

    result: what a fit had reached when the answer was found wanting, None before a fit.
    """

    result: Any = None


class NonFiniteError(ValueError):
    """A value or gradient is NaN or infinite where work would start."""


class NotConvergedError(RuntimeError):
    """A fit whose caller asked for numbers only met no tolerance; result: what it had reached."""

    def __init__(self, message: str, result: Any):
        super().__init__(message)
        self.result = result


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


def file_not_found_error(path: str | Path) -> OSError:
    """Return the error for a name that is none of a file: a folder's, or of nothing, with the nearest one there is."""
    if Path(path).is_dir():
        return IsADirectoryError(f"{path} is a folder, not a file.")
    return FileNotFoundError(f"{path}: no such file.{nearest(Path(path))}")


def folder_not_found_error(path: str | Path) -> OSError:
    """Return the error for a name that is none of a folder: a file's, or of nothing, with the nearest one there is."""
    if Path(path).exists():
        return NotADirectoryError(f"{path} is a file, not a folder.")
    return FileNotFoundError(f"{path}: no such folder.{nearest(Path(path))}")


def nearest(path: Path) -> str:
    """Return ' Did you mean ...?' with the most similar name beside a file or folder that is not there."""
    try:
        if not path.parent.is_dir():
            return f" There is no folder {path.parent}."
        names = [other.name for other, _ in zip(path.parent.iterdir(), range(MOST_NAMES + 1), strict=False)]
    except OSError:
        return ""
    return suggestion(path.name, names).partition(" Known:")[0] if 0 < len(names) <= MOST_NAMES else ""


@contextmanager
def name_path_in_errors(path: str | Path, partial: str | Path = "") -> Iterator[None]:
    """Let errors of the system name the file: of a full disk they do not say it. partial: a name they may say."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
