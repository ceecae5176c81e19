"""SQLite as the ledger uses it: every write all or nothing, every error with what to do about it."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from shardfit.core.errors import CheckpointError
from shardfit.surveys.integrity import require_file

MOST_SECONDS = 60.0  # of one query; millions of points take a second
STEPS = 100_000  # of SQLite's machine between two looks at the clock
WAIT_SECONDS = 20.0  # for another writer to finish; a write takes milliseconds


def connect(path: Path, *, read_only: bool = False, shared: bool = False) -> sqlite3.Connection:
    """Open a database. shared: other machines may read it, which SQLite's write-ahead log does not allow for."""
    require_file(path)
    if not read_only:
        journal = f"PRAGMA journal_mode = {'DELETE' if shared else 'WAL'}"
        return _opened(path, "rwc", journal, "PRAGMA synchronous = NORMAL")
    try:
        return _opened(path, "ro", "PRAGMA schema_version")
    except sqlite3.OperationalError:
        if path.with_name(path.name + "-wal").exists():
            raise
        # the log needs a folder that can be written to; in one that cannot nobody writes, so no log is needed
        return _opened(path, "ro&immutable=1")


def is_blank(connection: sqlite3.Connection, schema: str = "main") -> bool:
    """Return whether nothing was ever written: its maker was killed in its first instant, or has just begun."""
    return connection.execute(f"SELECT count(*) FROM {schema}.sqlite_master").fetchone()[0] == 0


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep all that is written inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def limited(connection: sqlite3.Connection, seconds: float = MOST_SECONDS) -> Iterator[None]:
    """End a query that takes longer: no ledger of ours does, a stranger's may be made to."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that say what to do."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise CheckpointError(f"{path}: a point was finished twice ({error}). Is another run writing here?") from None
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            remedy = "Another program writes to it. Wait for it, or stop it, and resume."
        elif "interrupted" in text:
            remedy = f"A query took more than {MOST_SECONDS:g} s. Is this the ledger of a survey?"
        elif "full" in text:
            remedy = "Free some space and resume: all points written before are safe."
        elif "I/O" in text:
            remedy = "Check the disk: space, quota, limits on file size. All points written before are safe."
        else:
            remedy = "Check that the folder exists and can be written to; all points written before are safe."
        raise CheckpointError(f"{path}: {text}. {remedy}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's own message may quote damaged text
        raise CheckpointError(
            f"{path} is damaged ({error}). `sqlite3 {path.name} .recover` may save what is in it; or move it away and "
            "run anew."
        ) from None


def _opened(path: Path, mode: str, *first: str) -> sqlite3.Connection:
    """Open a file and ask what must be asked first; if that fails, nothing stays open."""
    address = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # damage is for checksums to notice
    try:
        # trust comes before anything else is asked: it may be a stranger's
        for question in ("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", *first):
            connection.execute(question).fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
