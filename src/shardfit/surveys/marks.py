"""Tags and notes that people give to points, kept in the ledger beside what was computed, which stays as it is."""

from collections.abc import Iterable
from pathlib import Path

from shardfit.surveys.database import explained, writing
from shardfit.surveys.integrity import MARKS, checksum, require_check
from shardfit.surveys.ledger import Ledger

MOST_TEXT = 10_000  # letters of a tag or note
NOTE = ""  # the tag under which a note is kept


def tag(run_dir: str | Path, points: Iterable[int], name: str, *, remove: bool = False) -> int:
    """Give points of a survey a tag, or take it away; return how many of them are in the survey.

    Example: `tag("runs/m87", top_set(...), "top set")`.
    """
    _check(name)
    if not name:
        raise ValueError("tag: a tag needs a name.")
    return _write(run_dir, points, name, None if remove else "")


def note(run_dir: str | Path, point: int, text: str) -> None:
    """Write a note to a point; an empty one removes it."""
    _check(text)
    if not _write(run_dir, [point], NOTE, text or None):
        raise KeyError(f"point {point} is not finished.")


def marks(ledger: Ledger) -> dict[int, tuple[tuple[str, ...], str]]:
    """Return tags and note of every point that has any."""
    if not has_marks(ledger):
        return {}
    found: dict[int, tuple[list[str], list[str]]] = {}
    sql = "SELECT id, tag, text, row_check FROM marks WHERE length(tag) <= ? AND length(text) <= ? ORDER BY id, tag"
    for number, name, text, check in ledger.select(sql, (MOST_TEXT, MOST_TEXT)):
        with explained(ledger.path):
            require_check(check, checksum(number, name, text), f"a tag of point {number}")
        tags, notes = found.setdefault(number, ([], []))
        (tags if name != NOTE else notes).append(name or text)
    return {number: (tuple(tags), "".join(notes)) for number, (tags, notes) in found.items()}


def has_marks(ledger: Ledger) -> bool:
    """Return whether anything was ever marked."""
    return bool(ledger.select("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'marks'"))


def _write(run_dir: str | Path, points: Iterable[int], name: str, text: str | None) -> int:
    with Ledger.open(run_dir) as ledger:
        known = set(ledger.ids())
        chosen = sorted({int(point) for point in points} & known)
        with explained(ledger.path), writing(ledger.connection):
            if not has_marks(ledger):
                ledger.connection.execute(MARKS)
            ledger.connection.executemany("DELETE FROM marks WHERE id = ? AND tag = ?", [(i, name) for i in chosen])
            if text is not None:
                rows = [(i, name, text, checksum(i, name, text)) for i in chosen]
                ledger.connection.executemany("INSERT INTO marks VALUES (?, ?, ?, ?)", rows)
    return len(chosen)


def _check(text: str) -> None:
    if len(text) > MOST_TEXT:
        raise ValueError(f"a tag or note has {len(text):,} letters; at most {MOST_TEXT:,} are kept.")
