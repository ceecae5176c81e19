"""The ledger of a survey: one SQLite file, one row for every finished point, written once, in order of completion.

Every write is all or nothing: after a crash at any instant the ledger holds the points that were finished, whole. A
survey that several workers share has one ledger for each (`parts/*.sqlite`), gathered into the first whenever someone
looks.
"""

import contextlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError, folder_not_found_error
from shardfit.core.status import Status
from shardfit.surveys.database import connect, explained, is_blank, limited, writing
from shardfit.surveys.heading import Heading, axis_column, part_column, quoted
from shardfit.surveys.integrity import checksum, heading_of, require_check, require_file, row_check, tables_of
from shardfit.surveys.point import (
    CONVERGED,
    OWN_COLUMNS,
    RUNG_FIELDS,
    SurveyPoint,
    array_of,
    arrays_of,
    bytes_of,
    number_of,
    row_of,
)

LEDGER = "ledger.sqlite"
PARTS = "parts"
PAGE = 2048  # points read at once
# a point that can be tried again: it failed, or stopped before a tolerance was met
OPEN = f"failed OR status IN ('{Status.MAX_STEPS.name}', '{Status.STALLED.name}')"
COMPARED = ("total", "axes", "parts", "params", "dtype", "picture", "shape")  # of headings, besides what was asked


class Ledger:
    """The points of a survey on disk. Made by `create` or `open`; a context manager; closed when nobody holds it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, heading: Heading):
        self.path, self.connection, self.heading = path, connection, heading
        weakref.finalize(self, connection.close)
        self.checked = False
        # A thread that sets the limit of its query holds Python's lock and waits for SQLite's; another whose query
        # reaches its limit holds SQLite's and waits for Python's. One query at a time is all that SQLite does anyway.
        self.asking = threading.Lock()

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
                _require_same(path, heading_of(connection), heading)
            on_error.pop_all()
        ledger = cls(path, connection, heading)
        try:
            ledger._require_resumable()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def begin(cls, folder: str | Path, heading: Heading, resume: str) -> "Ledger":
        """Open the ledger of a survey as `SurveyControl.resume` says; the caller holds the folder."""
        if resume == "never":
            _remove(Path(folder) / LEDGER)
        return cls.create(folder, heading)

    @classmethod
    def open(cls, folder: str | Path, name: str = LEDGER, *, read_only: bool = False) -> "Ledger":
        """Open an existing ledger; raise with a remedy if it is missing or cannot be read."""
        path = Path(folder) / name
        if not path.is_file():
            if not Path(folder).is_dir():
                raise folder_not_found_error(folder)
            raise FileNotFoundError(f"{folder} holds no survey: {name} is missing. Check the path.")
        with explained(path), contextlib.ExitStack() as on_error:
            connection = connect(path, read_only=read_only)
            on_error.callback(connection.close)
            heading = heading_of(connection)
            on_error.pop_all()
        return cls(path, connection, heading)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def _require_resumable(self) -> None:
        """Raise if points that are here were changed, or if it cannot be known whether they belong to this survey."""
        self._check_rows()
        if self.heading.unidentified and self.ids():
            reasons = "; ".join(self.heading.unidentified)
            raise CheckpointError(f"{self.path} cannot be resumed: {reasons}. Use another run directory.")

    def _check_rows(self) -> None:
        """Compare the points that are here with their checksums, once."""
        if not self.checked:
            for _ in self.pages():
                pass
            self.checked = True

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[SurveyPoint]) -> None:
        """Add points, all or none. A later attempt takes the place of one that failed or did not converge.

        Any other point twice is refused.
        """
        if not records:
            return
        names = list(self.heading.columns())
        marks = ", ".join("?" * len(names))
        rows = [row_of(record, self.heading) for record in records]
        with explained(self.path), writing(self.connection):
            self.connection.executemany(
                f"DELETE FROM points WHERE id = ? AND ({OPEN}) AND attempt < ?", [(r.id, r.attempt) for r in records]
            )
            self.connection.executemany(
                f"INSERT INTO points ({', '.join(map(quoted, names))}) VALUES ({marks})",
                [[row[name] for name in names] for row in rows],
            )
            self.connection.executemany(
                "INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?, ?)",
                [arrays_of(record, row) for record, row in zip(records, rows, strict=True)],
            )

    def write_rung(self, rung: int, waiting: Sequence[SurveyPoint]) -> None:
        """Keep points that wait at a rung of successive halving, with their coordinates z."""
        rows = []
        for point in waiting:
            plain = json.dumps({n: getattr(point, n) for n in RUNG_FIELDS})
            z = np.asarray(point.z, self.heading.dtype).tobytes()
            content = (plain, point.params, bytes_of(point.picture), z)
            rows.append((point.id, rung, checksum(point.id, rung, *content), *content))
        with explained(self.path), writing(self.connection):
            self.connection.executemany("INSERT OR REPLACE INTO rungs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def rung(self, rung: int) -> dict[int, SurveyPoint]:
        """Return the points that reached the end of a rung, by number."""
        points = {}
        rows = self.select("SELECT id, check_all, record, params, picture, z FROM rungs WHERE rung = ?", (rung,))
        for number, check, *content in rows:
            text, params, picture, z = content
            with explained(self.path):
                require_check(check, checksum(number, rung, *content), f"point {number} at rung {rung}")
            end = {"params": params, "picture": array_of(picture), "z": np.frombuffer(z, self.heading.dtype)}
            points[number] = SurveyPoint(**json.loads(text), **end)
        return points

    def note(self, key: str, text: str) -> None:
        """Keep a text by name: state of the run, throughput."""
        with explained(self.path), writing(self.connection):
            self.connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, text))

    def gather(self) -> int:
        """Take over the points of all parts that are not here yet, or are a later attempt; return how many."""
        folder = self.path.parent / PARTS
        if folder.is_symlink():
            raise CheckpointError(f"{folder} is a link; what it points to is not part of this survey. Remove it.")
        return sum(self._gather(path) for path in sorted(folder.glob("*.sqlite")))

    def _gather(self, path: Path) -> int:
        with explained(path):
            require_file(path)
            self.connection.execute("ATTACH ? AS part", (path.resolve().as_uri() + "?mode=rw",))
        try:
            with explained(path):
                if is_blank(self.connection, "part"):
                    return 0
                _require_same(path, heading_of(self.connection, "part"), self.heading)
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
        found = self.select("SELECT value FROM about WHERE key = ?", (key,))
        return found[0][0] if found else ""

    def ids(self, *, failed: bool | None = None) -> list[int]:
        """Return the numbers of finished points, in order; failed: only those, or only the others."""
        condition = {None: "", True: " WHERE failed", False: " WHERE NOT failed"}[failed]
        return [i for (i,) in self.select(f"SELECT id FROM points{condition} ORDER BY id")]

    def attempts(self) -> dict[int, int]:
        """Return how often each failed point was tried."""
        return dict(self.select("SELECT id, attempt FROM points WHERE failed"))

    def converged(self) -> int:
        """Return how many points met a tolerance."""
        marks = ", ".join("?" * len(CONVERGED))
        return self.select(f"SELECT count(*) FROM points WHERE NOT failed AND status IN ({marks})", CONVERGED)[0][0]

    def unconverged(self) -> dict[int, int]:
        """Return how often each point was tried that has an answer, but met no tolerance."""
        return dict(self.select(f"SELECT id, attempt FROM points WHERE NOT failed AND ({OPEN}) ORDER BY id"))

    def rows(self, sql: str = "", arguments: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return points as dicts by column; sql: what follows FROM points, such as 'ORDER BY value LIMIT 10'."""
        names = list(self.heading.columns())
        columns = ["(SELECT row_check FROM found WHERE found.id = points.id)", *map(quoted, names)]
        rows = []
        for check, *values in self.select(f"SELECT {', '.join(columns)} FROM points {sql}", arguments):
            row = dict(zip(names, values, strict=True))
            with explained(self.path):
                require_check(check, row_check(row), f"point {row['id']}")
            rows.append(row)
        return rows

    def pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield all points in the order of their numbers, some at a time."""
        last = -1
        while page := self.rows("WHERE id > ? ORDER BY id LIMIT ?", (last, PAGE)):
            yield page
            last = page[-1]["id"]

    def column(self, name: str, sql: str = "") -> np.ndarray:
        """Return one column of all points in the order of their numbers; numbers become floats, NULL becomes NaN."""
        self._check_rows()
        found = [v for (v,) in self.select(f"SELECT {quoted(name)} FROM points {sql or 'ORDER BY id'}")]
        if all(v is None or isinstance(v, int | float) for v in found):
            return np.array([np.nan if v is None else v for v in found], float)
        return np.array(found)

    def params(self, point: int) -> dict[str, np.ndarray]:
        """Return the fitted parameters of a point by label."""
        return self._unpacked(self._found(point)[0])

    def _unpacked(self, params: bytes) -> dict[str, np.ndarray]:
        try:
            return self.heading.unpack(params)
        except ValueError as error:
            raise CheckpointError(f"{self.path} is damaged ({error}). Run the survey again.") from None

    def picture(self, point: int) -> np.ndarray:
        """Return the picture of a point, (ny, nx)."""
        if self.heading.shape is None:
            raise ValueError("this survey keeps no pictures. Give `picture` when it is run.")
        params, picture = self._found(point)
        image = self._unpacked(params).get(self.heading.picture or "") if picture is None else array_of(picture)
        if image is None or image.size != np.prod(self.heading.shape):
            raise CheckpointError(f"{self.path} is damaged (point {point} has no picture). Run the survey again.")
        return image.reshape(self.heading.shape)

    def records(self, sql: str = "ORDER BY finished, id", arguments: Sequence[Any] = ()) -> Iterator[SurveyPoint]:
        """Yield points; all of them in the order in which they were finished, or what follows FROM points."""
        heading = self.heading
        for row in self.rows(sql, arguments):
            params, picture = self._found(row["id"])
            yield SurveyPoint(
                axes={n: row[axis_column(n)] for n in heading.axes},
                parts={n: number_of(row[part_column(n)]) for n in heading.parts},
                value=number_of(row["value"]),
                params=params,
                picture=array_of(picture),
                **{n: row[n] for n in OWN_COLUMNS},
            )

    def record(self, number: int) -> SurveyPoint:
        """Return one finished point."""
        for record in self.records("WHERE id = ?", (number,)):
            return record
        raise KeyError(f"point {number} is not finished.")

    def _found(self, point: int) -> tuple[bytes, bytes | None]:
        rows = self.select("SELECT length(params), length(picture) FROM found WHERE id = ?", (int(point),))
        if not rows:
            raise KeyError(f"point {point} is not finished.")
        if not all(size is None or size <= self.heading.most_bytes for size in rows[0]):
            raise CheckpointError(f"{self.path} is damaged (point {point} is too large). Run the survey again.")
        rows = self.select("SELECT array_check, params, picture FROM found WHERE id = ?", (int(point),))
        check, params, picture = rows[0]
        with explained(self.path):
            require_check(check, checksum(int(point), params, picture), f"what point {point} found")
        return params, picture

    def select(self, sql: str, arguments: Sequence[Any] = ()) -> list[tuple]:
        """Return the rows of a query."""
        with self.asking, explained(self.path), limited(self.connection):
            return self.connection.execute(sql, tuple(arguments)).fetchall()


def gather_parts(folder: str | Path) -> None:
    """Gather the parts of a survey into its ledger, if there are any and the folder can be written to."""
    if any((Path(folder) / PARTS).glob("*.sqlite")) and os.access(folder, os.W_OK):
        with Ledger.open(folder) as ledger:
            ledger.gather()


def points_finished(folder: str | Path) -> int:
    """Return how many points a folder's ledger holds: none without one, or if its maker ended in its first instant."""
    path = Path(folder) / LEDGER
    if not path.is_file():
        return 0
    with explained(path), contextlib.closing(connect(path, read_only=True)) as connection:
        if is_blank(connection):
            return 0
    with Ledger.open(folder, read_only=True) as ledger:
        return len(ledger.ids())


def require_begun(folder: str | Path, resume: str) -> None:
    """Raise where a survey must be resumed and there is none; asked before anything is written."""
    if resume == "must" and not (Path(folder) / LEDGER).is_file():
        raise CheckpointError(f"{folder} holds no survey to resume. Check the path, or use resume='auto'.")


def _remove(path: Path) -> None:
    """Remove a survey's ledger, and those of its parts."""
    parts = path.parent / PARTS
    for file in (path, *(parts.glob("*.sqlite") if not parts.is_symlink() else ())):
        for name in (file.name, *(file.name + ending for ending in ("-wal", "-shm", "-journal"))):
            file.with_name(name).unlink(missing_ok=True)


def _make_tables(connection: sqlite3.Connection, heading: Heading) -> None:
    with writing(connection):
        for statement in tables_of(heading).values():
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES ('heading', ?)", (heading.to_json(),))


def _require_same(path: Path, there: Heading, asked: Heading) -> None:
    differing = [n for n in {**asked.asked, **there.asked} if there.asked.get(n) != asked.asked.get(n)]
    differing += [n for n in COMPARED if getattr(there, n) != getattr(asked, n)]
    if differing:
        raise CheckpointError(
            f"{path} belongs to another survey: {', '.join(differing)} differ(s). Use another run directory for this "
            "one, correct what was changed, or use resume='never' to start over."
        )
