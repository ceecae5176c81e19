"""The ledger of a survey: one SQLite file, one row for every finished point, written once, in order of completion.

SQLite's write-ahead log makes every write all or nothing: after a crash at any instant the ledger holds the points that
were finished, whole. A survey that several workers share has one ledger for each (`parts/*.sqlite`), gathered into the
first whenever someone looks.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.core.status import Status
from shardfit.survey.heading import Heading, axis_column, part_column, quoted

LEDGER = "ledger.sqlite"
PARTS = "parts"
WAIT_SECONDS = 20.0  # for another writer to finish; a write takes milliseconds
STOPPED = "STOPPED_EARLY"  # a point that successive halving gave up
RUNG_FIELDS = ("id", "axes", "status", "value", "parts", "steps", "evaluations", "seconds", "reason", "attempt")
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
    def create(cls, folder: str | Path, heading: Heading, name: str = LEDGER) -> "Ledger":
        """Make a ledger in a folder, or open the one that is there if it belongs to the same survey."""
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size:
            found = cls.open(folder, name)
            with contextlib.ExitStack() as on_error:
                on_error.callback(found.close)
                _require_same(path, found.heading, heading)
                on_error.pop_all()
            return found
        with _explained(path):
            connection = _connect(path)
            columns = ", ".join(f"{quoted(n)} {kind}" for n, kind in heading.columns().items())
            with _writing(connection):
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
        return cls(path, connection, heading)

    @classmethod
    def open(cls, folder: str | Path, name: str = LEDGER, *, read_only: bool = False) -> "Ledger":
        """Open an existing ledger; raise with a remedy if it is missing or damaged."""
        path = Path(folder) / name
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no survey: {name} is missing. Check the path.")
        with _explained(path):
            connection = _connect(path, read_only)
            try:
                (text,) = connection.execute("SELECT value FROM about WHERE key = 'heading'").fetchone()
                if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError("pages are damaged")
                return cls(path, connection, Heading.from_json(text))
            except BaseException:
                connection.close()
                raise

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[Record]) -> None:
        """Add points, all or none; a point that is there already is refused."""
        if not records:
            return
        names = list(self.heading.columns())
        marks = ", ".join("?" * len(names))
        with _explained(self.path), _writing(self.connection):
            rows = [_row(record) for record in records]
            self.connection.executemany(
                f"INSERT INTO points ({', '.join(map(quoted, names))}) VALUES ({marks})",
                [[row[name] for name in names] for row in rows],
            )
            self.connection.executemany(
                "INSERT INTO found VALUES (?, ?, ?)",
                [(r.id, r.params, _bytes(r.picture)) for r in records],
            )

    def write_rung(self, rung: int, waiting: Sequence[tuple[Record, np.ndarray]]) -> None:
        """Keep points that wait at a rung of successive halving, with their coordinates z."""
        rows = []
        for record, z in waiting:
            plain = {n: getattr(record, n) for n in RUNG_FIELDS}
            rows.append((record.id, rung, json.dumps(plain), record.params, _bytes(record.picture), z.tobytes()))
        with _explained(self.path), _writing(self.connection):
            self.connection.executemany("INSERT OR REPLACE INTO rungs VALUES (?, ?, ?, ?, ?, ?)", rows)

    def rung(self, rung: int) -> dict[int, tuple[Record, bytes]]:
        """Return the points that reached the end of a rung, with the bytes of their coordinates."""
        found = {}
        rows = self.connection.execute("SELECT record, params, picture, z FROM rungs WHERE rung = ?", (rung,))
        for text, params, picture, z in rows:
            record = Record(params=params, picture=_array(picture), **json.loads(text))
            found[record.id] = (record, z)
        return found

    def forget(self, ids: Iterable[int]) -> None:
        """Remove points, so that they are run again."""
        rows = [(int(i),) for i in ids]
        with _explained(self.path), _writing(self.connection):
            self.connection.executemany("DELETE FROM found WHERE id = ?", rows)
            self.connection.executemany("DELETE FROM points WHERE id = ?", rows)

    def note(self, key: str, text: str) -> None:
        """Keep a text by name: state of the run, throughput."""
        with _explained(self.path), _writing(self.connection):
            self.connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, text))

    def gather(self) -> int:
        """Take over the points of all parts that are not here yet; return how many."""
        taken = 0
        for path in sorted((self.path.parent / PARTS).glob("*.sqlite")):
            with Ledger.open(path.parent, path.name, read_only=True) as part:
                _require_same(path, part.heading, self.heading)
                here = set(self.ids())
                new = [record for record in part.records() if record.id not in here]
            self.write(new)
            taken += len(new)
        return taken

    # ---- reading ------------------------------------------------------------------------------------------------

    def told(self, key: str) -> str:
        """Return a noted text, '' if there is none."""
        found = self.connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return found[0] if found else ""

    def ids(self, *, failed: bool | None = None) -> list[int]:
        """Return the numbers of finished points, in order; failed: only those, or only the others."""
        condition = {None: "", True: " WHERE failed", False: " WHERE NOT failed"}[failed]
        return [i for (i,) in self.connection.execute(f"SELECT id FROM points{condition} ORDER BY id")]

    def attempts(self) -> dict[int, int]:
        """Return how often each failed point was tried."""
        return dict(self.connection.execute("SELECT id, attempt FROM points WHERE failed"))

    def rows(self, sql: str = "", arguments: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return points as dicts by column; sql: what follows FROM points, such as 'ORDER BY value LIMIT 10'."""
        cursor = self.connection.execute(f"SELECT * FROM points {sql}", tuple(arguments))
        names = [c[0] for c in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def column(self, name: str, sql: str = "") -> np.ndarray:
        """Return one column of all points in the order of their numbers; numbers become floats, NULL becomes NaN."""
        found = [v for (v,) in self.connection.execute(f"SELECT {quoted(name)} FROM points {sql or 'ORDER BY id'}")]
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
        found = self.connection.execute("SELECT params, picture FROM found WHERE id = ?", (int(point),)).fetchone()
        if found is None:
            raise KeyError(f"point {point} is not finished.")
        return found


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
    differing += [n for n in ("total", "axes", "parts", "params", "dtype") if getattr(there, n) != getattr(asked, n)]
    if differing:
        raise CheckpointError(
            f"{path} belongs to another survey: {', '.join(differing)} differ(s). Use another run directory for this "
            "one, or correct what was changed."
        )


def _connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    address = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    if not read_only:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    return connection


@contextlib.contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that say what to do."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise CheckpointError(f"{path}: a point was finished twice ({error}). Is another run writing here?") from None
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            remedy = "Another program writes to it. Wait for it, or stop it, and resume."
        elif "full" in text:
            remedy = "Free some space and resume: all points written before are safe."
        else:
            remedy = "Check that the folder exists and can be written to; all points written before are safe."
        raise CheckpointError(f"{path}: {text}. {remedy}") from None
    except sqlite3.DatabaseError as error:
        raise CheckpointError(
            f"{path} is damaged ({error}). `sqlite3 {path.name} .recover` may save what is in it; or move it away and "
            "run anew."
        ) from None
