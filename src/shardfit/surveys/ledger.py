"""The ledger of a survey: one SQLite file, one row for every finished point, written once, in order of completion.

Every write is all or nothing: after a crash at any instant the ledger holds the points that were finished, whole. A
survey that several workers share has one ledger for each (`parts/*.sqlite`), gathered into the first whenever someone
looks.
"""

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.core.status import Status
from shardfit.surveys.database import connect, explained, is_blank, writing
from shardfit.surveys.heading import Heading, axis_column, part_column, quoted

LEDGER = "ledger.sqlite"
PARTS = "parts"
STOPPED = "STOPPED_EARLY"  # a point that successive halving gave up
RUNG_FIELDS = ("id", "axes", "status", "value", "parts", "steps", "evaluations", "seconds", "reason", "attempt", "rung")
COMPARED = ("total", "axes", "parts", "params", "dtype", "picture", "shape")  # of headings, besides what was asked
FAILURES = (Status.NONFINITE.name, Status.FAILED.name)


@dataclass(frozen=True, eq=False)
class Record:
    """One finished point: its place in the design, axes, how it ended, and what it found.

    params: bytes of the fitted parameters as the heading lays them out; picture: (ny, nx) where stored by itself.
    """

    id: int
    axes: Mapping[str, Any]
    status: str
    value: float
    parts: Mapping[str, float]
    steps: int
    evaluations: int
    seconds: float
    reason: str = ""
    attempt: int = 1
    rung: int = 0
    params: bytes = b""
    picture: np.ndarray | None = None

    @property
    def failed(self) -> bool:
        """Whether nothing usable was found; a point at its step limit, or given up early, is not a failure."""
        return self.status in FAILURES or not np.isfinite(self.value)


class Ledger:
    """The points of a survey on disk. Made by `create` or `open`; a context manager."""

    def __init__(self, path: Path, connection: sqlite3.Connection, heading: Heading):
        self.path, self.connection, self.heading = path, connection, heading

    @classmethod
    def create(cls, folder: str | Path, heading: Heading, name: str = LEDGER, *, shared: bool = False) -> "Ledger":
        """Make a ledger in a folder, or open the one that is there if it is whole and belongs to the same survey.

        shared: other machines may read it while it is written.
        """
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with explained(path), contextlib.ExitStack() as on_error:
            connection = connect(path, shared=shared)
            on_error.callback(connection.close)
            if is_blank(connection):
                _make_tables(connection, heading)
            elif connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("pages are damaged")
            else:
                _require_same(path, _heading_of(connection), heading)
            on_error.pop_all()
        return cls(path, connection, heading)

    @classmethod
    def open(cls, folder: str | Path, name: str = LEDGER, *, read_only: bool = False) -> "Ledger":
        """Open an existing ledger; raise with a remedy if it is missing or cannot be read."""
        path = Path(folder) / name
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no survey: {name} is missing. Check the path.")
        with explained(path), contextlib.ExitStack() as on_error:
            connection = connect(path, read_only=read_only)
            on_error.callback(connection.close)
            heading = _heading_of(connection)
            on_error.pop_all()
        return cls(path, connection, heading)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[Record]) -> None:
        """Add points, all or none. A later attempt takes a failed one's place; any other point twice is refused."""
        if not records:
            return
        names = list(self.heading.columns())
        marks = ", ".join("?" * len(names))
        rows = [_row(record) for record in records]
        with explained(self.path), writing(self.connection):
            self.connection.executemany(
                "DELETE FROM points WHERE id = ? AND failed AND attempt < ?", [(r.id, r.attempt) for r in records]
            )
            self.connection.executemany(
                f"INSERT INTO points ({', '.join(map(quoted, names))}) VALUES ({marks})",
                [[row[name] for name in names] for row in rows],
            )
            self.connection.executemany(
                "INSERT OR REPLACE INTO found VALUES (?, ?, ?)", [(r.id, r.params, _bytes(r.picture)) for r in records]
            )

    def write_rung(self, rung: int, waiting: Sequence[tuple[Record, np.ndarray]]) -> None:
        """Keep points that wait at a rung of successive halving, with their coordinates z."""
        rows = []
        for record, z in waiting:
            plain = {n: getattr(record, n) for n in RUNG_FIELDS}
            rows.append((record.id, rung, json.dumps(plain), record.params, _bytes(record.picture), z.tobytes()))
        with explained(self.path), writing(self.connection):
            self.connection.executemany("INSERT OR REPLACE INTO rungs VALUES (?, ?, ?, ?, ?, ?)", rows)

    def rung(self, rung: int) -> dict[int, tuple[Record, bytes]]:
        """Return the points that reached the end of a rung, with the bytes of their coordinates."""
        found = {}
        rows = self._select("SELECT record, params, picture, z FROM rungs WHERE rung = ?", (rung,))
        for text, params, picture, z in rows:
            record = Record(params=params, picture=_array(picture), **json.loads(text))
            found[record.id] = (record, z)
        return found

    def note(self, key: str, text: str) -> None:
        """Keep a text by name: state of the run, throughput."""
        with explained(self.path), writing(self.connection):
            self.connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, text))

    def gather(self) -> int:
        """Take over the points of all parts that are not here yet, or are a later attempt; return how many."""
        return sum(self._gather(path) for path in sorted((self.path.parent / PARTS).glob("*.sqlite")))

    def _gather(self, path: Path) -> int:
        with explained(path):
            self.connection.execute("ATTACH ? AS part", (path.resolve().as_uri() + "?mode=rw",))
        try:
            with explained(path):
                if is_blank(self.connection, "part"):
                    return 0
                _require_same(path, _heading_of(self.connection, "part"), self.heading)
            names = ", ".join(map(quoted, self.heading.columns()))
            fresh = (
                "WHERE id IN (SELECT id FROM part.points AS new WHERE NOT EXISTS (SELECT 1 FROM main.points AS old "
                "WHERE old.id = new.id AND (NOT old.failed OR old.attempt >= new.attempt)))"
            )
            with explained(self.path), writing(self.connection):
                self.connection.execute(f"INSERT OR REPLACE INTO main.found SELECT * FROM part.found {fresh}")
                return self.connection.execute(
                    f"INSERT OR REPLACE INTO main.points ({names}) SELECT {names} FROM part.points {fresh}"
                ).rowcount
        finally:
            self.connection.execute("DETACH part")

    def drop_parts(self) -> None:
        """Remove parts after they were gathered; a worker that still writes to one ends with an error."""
        with explained(self.path):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # on the disk before the originals go
        for path in (self.path.parent / PARTS).glob("*.sqlite"):
            path.unlink()
            path.with_suffix(".lock").unlink(missing_ok=True)

    # ---- reading ------------------------------------------------------------------------------------------------

    def told(self, key: str) -> str:
        """Return a noted text, '' if there is none."""
        found = self._select("SELECT value FROM about WHERE key = ?", (key,))
        return found[0][0] if found else ""

    def ids(self, *, failed: bool | None = None) -> list[int]:
        """Return the numbers of finished points, in order; failed: only those, or only the others."""
        condition = {None: "", True: " WHERE failed", False: " WHERE NOT failed"}[failed]
        return [i for (i,) in self._select(f"SELECT id FROM points{condition} ORDER BY id")]

    def attempts(self) -> dict[int, int]:
        """Return how often each failed point was tried."""
        return dict(self._select("SELECT id, attempt FROM points WHERE failed"))

    def rows(self, sql: str = "", arguments: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return points as dicts by column; sql: what follows FROM points, such as 'ORDER BY value LIMIT 10'."""
        names = list(self.heading.columns())
        found = self._select(f"SELECT {', '.join(map(quoted, names))} FROM points {sql}", arguments)
        return [dict(zip(names, row, strict=True)) for row in found]

    def column(self, name: str, sql: str = "") -> np.ndarray:
        """Return one column of all points in the order of their numbers; numbers become floats, NULL becomes NaN."""
        found = [v for (v,) in self._select(f"SELECT {quoted(name)} FROM points {sql or 'ORDER BY id'}")]
        if all(v is None or isinstance(v, int | float) for v in found):
            return np.array([np.nan if v is None else v for v in found], float)
        return np.array(found)

    def params(self, point: int) -> dict[str, np.ndarray]:
        """Return the fitted parameters of a point by label."""
        return self.heading.unpack(self._found(point)[0])

    def picture(self, point: int) -> np.ndarray:
        """Return the picture of a point, (ny, nx)."""
        if self.heading.shape is None:
            raise ValueError("this survey keeps no pictures. Give `picture` when it is run.")
        params, picture = self._found(point)
        if picture is not None:
            return np.frombuffer(picture, "<f4").reshape(self.heading.shape)
        return self.heading.unpack(params)[self.heading.picture or ""].reshape(self.heading.shape)

    def records(self) -> Iterator[Record]:
        """Yield all points in the order in which they were finished."""
        heading = self.heading
        for row in self.rows("ORDER BY finished, id"):
            params, picture = self._found(row["id"])
            yield Record(
                axes={n: row[axis_column(n)] for n in heading.axes},
                parts={n: _number(row[part_column(n)]) for n in heading.parts},
                value=_number(row["value"]),
                params=params,
                picture=_array(picture),
                **{n: row[n] for n in ("id", "status", "steps", "evaluations", "seconds", "reason", "attempt", "rung")},
            )

    def _found(self, point: int) -> tuple[bytes, bytes | None]:
        found = self._select("SELECT params, picture FROM found WHERE id = ?", (int(point),))
        if not found:
            raise KeyError(f"point {point} is not finished.")
        return found[0]

    def _select(self, sql: str, arguments: Sequence[Any] = ()) -> list[tuple]:
        with explained(self.path):
            return self.connection.execute(sql, tuple(arguments)).fetchall()


def gather_parts(folder: str | Path) -> None:
    """Gather the parts of a survey into its ledger, if there are any and the folder can be written to."""
    if any((Path(folder) / PARTS).glob("*.sqlite")) and os.access(folder, os.W_OK):
        with Ledger.open(folder) as ledger:
            ledger.gather()


def _make_tables(connection: sqlite3.Connection, heading: Heading) -> None:
    columns = ", ".join(f"{quoted(n)} {kind}" for n, kind in heading.columns().items())
    with writing(connection):
        connection.execute("CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute(f"CREATE TABLE points ({columns})")
        connection.execute(
            "CREATE TABLE found (id INTEGER PRIMARY KEY REFERENCES points(id), params BLOB, picture BLOB)"
        )
        connection.execute(
            "CREATE TABLE rungs (id INTEGER, rung INTEGER, record TEXT, params BLOB, picture BLOB, z BLOB, "
            "PRIMARY KEY (id, rung))"
        )
        connection.execute("INSERT INTO about VALUES ('heading', ?)", (heading.to_json(),))


def _heading_of(connection: sqlite3.Connection, schema: str = "main") -> Heading:
    found = connection.execute(f"SELECT value FROM {schema}.about WHERE key = 'heading'").fetchone()
    if found is None:
        raise sqlite3.DatabaseError("it has no heading")
    try:
        return Heading.from_json(found[0])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise sqlite3.DatabaseError(f"its heading cannot be read: {error}") from None


def _bytes(picture: np.ndarray | None) -> bytes | None:
    return None if picture is None else picture.astype("<f4").tobytes()


def _array(picture: bytes | None) -> np.ndarray | None:
    return None if picture is None else np.frombuffer(picture, "<f4")


def _row(record: Record) -> dict[str, Any]:
    numbers = {part_column(n): _stored(v) for n, v in record.parts.items()} | {"value": _stored(record.value)}
    plain = ("id", "status", "failed", "steps", "evaluations", "seconds", "attempt", "rung", "reason")
    axes = {axis_column(n): v for n, v in record.axes.items()}
    return axes | numbers | {n: getattr(record, n) for n in plain} | {"finished": time.time()}


def _stored(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None  # SQLite has no NaN; infinity would sort before all numbers


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _require_same(path: Path, there: Heading, asked: Heading) -> None:
    differing = [n for n in asked.asked if there.asked.get(n) != asked.asked[n]]
    differing += [n for n in COMPARED if getattr(there, n) != getattr(asked, n)]
    if differing:
        raise CheckpointError(
            f"{path} belongs to another survey: {', '.join(differing)} differ(s). Use another run directory for this "
            "one, or correct what was changed."
        )
