"""Errors with a remedy. Built-in types are used where they fit; these add a name to catch."""

import difflib
from collections.abc import Iterable


class ParityError(ValueError):
    """The sharded and the unsharded objective, or its gradient and a finite difference, disagree."""


class NonFiniteError(ValueError):
    """A value or gradient is NaN or infinite where work would start."""


class CheckpointError(RuntimeError):
    """A run directory cannot be resumed."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' when a known name is close, and the known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} Known: {', '.join(known)}."
