"""What `--json` prints at the end of a command: where it wrote, how it ended, what it found."""

from typing import Any

from shardfit.cli.record import Record


def outcome(record: Record) -> dict[str, Any]:
    """Return the outcome of a command that has ended."""
    from shardfit.report.folders import outcome_of

    told = {name: record.content[name] for name in ("command", "exit", "seconds", "seed")}
    report = record.folder / "report.html"
    return {**told, "out": str(record.folder), "report": str(report) if report.is_file() else None} | {
        "result": outcome_of(record.folder)
    }
