"""Is a ledger what it was? Its tables must be a ledger's own, its heading and every point carry a checksum.

A database may come from a stranger: views, triggers and computed columns could run for ever or fill the memory, so
nothing is asked of a database that holds more, or other, tables than a ledger does.
"""

import hashlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardfit.surveys.heading import Heading, quoted

ABOUT = "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
MARKS = "CREATE TABLE marks (id INTEGER, tag TEXT, text TEXT NOT NULL, row_check BLOB NOT NULL, PRIMARY KEY (id, tag))"
MOST_TEXT = 1 << 26  # bytes of a heading


def tables_of(heading: Heading) -> dict[str, str]:
    """Return the statements that make a ledger's tables, by name.

    found: the fitted parameters of every point, after the checksums of its row and of its arrays; rungs: points that
    wait at a rung of successive halving.
    """
    columns = ", ".join(f"{quoted(n)} {kind}".strip() for n, kind in heading.columns().items())
    return {
        "about": ABOUT,
        "points": f"CREATE TABLE points ({columns})",
        "found": "CREATE TABLE found (id INTEGER PRIMARY KEY REFERENCES points(id), row_check BLOB NOT NULL, "
        "array_check BLOB NOT NULL, params BLOB, picture BLOB)",
        "rungs": "CREATE TABLE rungs (id INTEGER, rung INTEGER, check_all BLOB NOT NULL, record TEXT, params BLOB, "
        "picture BLOB, z BLOB, PRIMARY KEY (id, rung))",
    }


def heading_of(connection: sqlite3.Connection, schema: str = "main") -> Heading:
    """Return the heading of a ledger; raise sqlite3.DatabaseError for one that is damaged or something else."""
    there = connection.execute(f"SELECT name, sql FROM {schema}.sqlite_master WHERE sql IS NOT NULL").fetchall()
    if dict(there).get("about") != ABOUT:
        raise sqlite3.DatabaseError("it is not the ledger of a survey")
    text = connection.execute(
        f"SELECT value FROM {schema}.about WHERE key = 'heading' AND typeof(value) = 'text' AND length(value) < ?",
        (MOST_TEXT,),
    ).fetchone()
    if text is None:
        raise sqlite3.DatabaseError("it has no heading")
    try:
        heading = Heading.from_json(text[0])
    except ValueError as error:
        raise sqlite3.DatabaseError(f"its heading cannot be read: {error}") from None
    if set(there) - {("marks", MARKS)} != set(tables_of(heading).items()):  # tags come when someone gives the first
        raise sqlite3.DatabaseError("it holds other tables than its heading says, or views")
    return heading


def require_file(path: Path) -> None:
    """Raise for a link: what a stranger's folder points to is not part of it."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        if path.with_name(name).is_symlink():
            raise sqlite3.DatabaseError(f"{name} is a link; give the folder that holds the file itself")


def row_check(row: Mapping[str, Any]) -> bytes:
    """Return the checksum of a row of the table of points, by column as SQLite gives it back."""
    return checksum(*(part for name in sorted(row) for part in (name, repr(row[name]))))


def checksum(*parts: bytes | str | int | None) -> bytes:
    """Return a short digest of texts, numbers and bytes."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part if isinstance(part, bytes) else repr(part).encode()
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.digest()


def require_check(stored: Any, computed: bytes, what: str) -> None:
    """Raise if a checksum is not what it should be."""
    if stored != computed:
        raise sqlite3.DatabaseError(f"{what} does not match its checksum")
