"""What `--json` prints at the end of a command: where it wrote, how it ended, what it found.

A command gives what it found to `record_output`. Of one that has a run directory the object also says where that is,
how the command ended, and what the folder holds.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np


def record_output(args: argparse.Namespace, **found: Any) -> bool:
    """Keep what a command found; return whether --json prints it, in place of a text that says the same."""
    args.answer = getattr(args, "answer", {}) | found
    return bool(getattr(args, "summary", False))


def outcome(args: argparse.Namespace) -> dict[str, Any]:
    """Return the outcome of a command that has ended, as JSON can hold it."""
    found = plain(getattr(args, "answer", {}))
    if args.record is None:
        return found
    from shardfit.report.folders import outcome_of

    record = args.record
    told = {name: record.content[name] for name in ("command", "exit", "seconds", "seed")}
    report = record.folder / "report.html"
    told |= {"out": str(record.folder), "report": str(report) if report.is_file() else None}
    return told | {"result": outcome_of(record.folder) | found}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite are null, what is none of its kinds is a text."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int) or value is None else str(value)
