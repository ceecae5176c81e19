"""Errors in words: what a command prints when it fails, and what its run directory keeps of it."""

import errno
import sys
import traceback
from pathlib import Path

from shardfit.core.errors import CheckpointError, nearest

PACKAGE = Path(__file__).resolve().parent.parent


def describe(error: BaseException) -> str:
    """Return what went wrong, with the remedy where one is known, and where in a user's own code it did."""
    # JAX notes on every error that its own frames were left out of the traceback, which is not shown here
    notes = [note for note in getattr(error, "__notes__", ()) if "internal frames" not in note]
    if isinstance(error, ModuleNotFoundError):
        from shardfit.core.extras import MissingPart, remedy

        notes.append("" if isinstance(error, MissingPart) else remedy(error))
    if isinstance(error, CheckpointError):
        notes.append("(Here: --out DIR names another run directory, --resume never starts anew.)")
    notes.append(own_line(error))
    return "\n".join([_words(error), *dict.fromkeys(filter(None, notes))])


def _words(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return _system(error)
    if isinstance(error, (KeyError, IndexError, ArithmeticError, AttributeError, NameError)) or not text:
        return f"{type(error).__name__}{f': {text}' if text else ''}"
    return text


def _system(error: OSError) -> str:
    """Return an error of the system about a file: the file first, then what is wrong, without numbers."""
    name = str(error.filename)
    match error.errno:
        case errno.ENOENT:
            return f"{name}: no such file or folder.{nearest(Path(name))}"
        case errno.EEXIST | errno.ENOTDIR:
            return f"{name}: a file of this name is in the way of a folder. Name another one."
        case errno.EISDIR:
            return f"{name} is a folder, not a file."
        case errno.EACCES | errno.EPERM:
            return f"{name}: this may not be read or written by you. Name another place, or change its permissions."
        case errno.EROFS:
            return f"{name}: this file system is read-only. Name another place."
        case errno.ENOSPC | errno.EDQUOT:
            return f"{name}: there is no space left for it. Make room; the same command then goes on."
    return f"{name}: {error.strerror or error}."


def own_line(error: BaseException) -> str:
    """Return where in a user's own module an error arose; empty where only installed packages took part."""
    # an error in plainer words has the user's line in the one it was made from
    found = own_line(error.__cause__) if error.__cause__ is not None else ""
    if found:
        return found
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_own(frame):
            return f"in {Path(frame.filename).name}, line {frame.lineno}, {frame.name}: {frame.line}"
    return ""


def is_users(error: BaseException) -> bool:
    """Whether a user's own code raised an error: the last line that ran is theirs."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _is_own(frames[-1])


def _is_own(frame: traceback.FrameSummary) -> bool:
    if frame.filename.startswith("<"):
        return False
    file = Path(frame.filename).resolve()
    installed = (PACKAGE, Path(sys.prefix), Path(sys.base_prefix) / "lib")
    return not any(file.is_relative_to(place) for place in installed) and "site-packages" not in file.parts
