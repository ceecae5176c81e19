"""Survey: what a survey has found so far, read from its ledger page by page."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.extras import require_extra
from shardfit.core.lazy import lent
from shardfit.core.success import DOUBTFUL, Verdict
from shardfit.core.text import html_table, number
from shardfit.io.files import write_atomic
from shardfit.surveys.heading import axis_column, part_column, summed
from shardfit.surveys.ledger import Ledger, gather_parts

SHOWN = 5  # best points in a notebook


def shifted_to(image: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return a picture (ny, nx) shifted to where it correlates best with another, whose rfft2 is `like`, conjugate."""
    match = np.fft.irfft2(np.fft.rfft2(image) * like, s=image.shape)
    down, right = np.unravel_index(int(match.argmax()), image.shape)
    return np.roll(image, (-int(down), -int(right)), axis=(0, 1))


class Survey:
    """The table of a survey and its pictures. Columns are named as axes and parts are, or by their full name.

    Opening it writes nothing. gather: first take over what workers have left in parts, as a running survey does.

    Example: `Survey("runs/m87").best(10, by=("data.cphase", "data.logcamp"))`.
    """

    def __init__(self, run_dir: str | Path, *, gather: bool = False):
        self.run_dir = Path(run_dir)
        if gather:
            gather_parts(run_dir)
        self.ledger = Ledger.open(run_dir, read_only=True)
        self.heading = self.ledger.heading

    def __enter__(self) -> "Survey":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the ledger."""
        self.ledger.close()

    def __repr__(self):
        share = f", {self.converged:.1%} converged" if len(self) else ""
        return f"Survey {self.heading.name!r}: {len(self):,} of {self.heading.total:,} points{share}"

    def _repr_html_(self):
        names = [axis_column(axis) for axis in self.heading.axes]
        ranked = [name for name in self.ranked_by() if name not in names]
        rows = [
            [str(point["id"]), *(number(point[name], 5) for name in (*names, *ranked)), point["status"].lower()]
            for point in self.best(SHOWN)
        ]
        shown = [name.partition(".")[2] or name for name in (*names, *ranked)]
        head = f"<p><b>{escape(repr(self))}</b></p>"
        return head + (html_table(("point", *shown, "status"), rows) if rows else "")

    def plot(self, n: int = 24, **options: Any) -> Any:
        """Draw the n best pictures, their mean and standard deviation. options: as of `shardfit.report.wall.wall`."""
        return lent("shardfit.report.plotting:plot_survey")(self, n, **options)

    def __len__(self) -> int:
        return self.ledger.select("SELECT count(*) FROM points")[0][0]

    @property
    def complete(self) -> bool:
        """Whether every point of the design has ended."""
        return len(self) == self.heading.total

    @property
    def last_run(self) -> dict[str, float]:
        """Seconds, evaluations and slots of the last run that came to its end; empty if there is none."""
        try:
            return dict(json.loads(self.ledger.told("last run") or "{}"))
        except (ValueError, TypeError, RecursionError):
            return {}  # a note, of which nothing depends

    @property
    def converged(self) -> float:
        """Share of the points that met a tolerance; NaN if there are none."""
        return self.ledger.converged() / len(self) if len(self) else float("nan")

    def verdict(self) -> Verdict:
        """Return whether every point has an answer that met its tolerance, and why not."""
        ended, failed, open_ = len(self), len(self.ledger.ids(failed=True)), len(self.ledger.unconverged())
        reasons = []
        if not self.complete:
            reasons.append(f"{ended:,} of {self.heading.total:,} points have ended.")
        if failed:
            reasons.append(f"{failed:,} points failed.")
        if open_:
            reasons.append(f"{open_:,} points met no tolerance: `shardfit survey continue {self.run_dir}`.")
        word = ("complete" if not reasons else DOUBTFUL) if self.complete else "incomplete"
        return Verdict(word, "warn" if reasons else "good", tuple(reasons))

    def status(self) -> dict[str, int]:
        """Return how many points ended in which way."""
        return dict(self.ledger.select("SELECT status, count(*) FROM points GROUP BY status"))

    def failures(self) -> list[dict[str, Any]]:
        """Return the failed points with their reasons."""
        return self.ledger.rows("WHERE failed ORDER BY id")

    def column_name(self, name: str) -> str:
        """Return the full name of a column: 'tv' may be 'axis.tv', 'data.cphase' 'part.data.cphase'."""
        known = list(self.heading.columns())
        for candidate in (name, axis_column(name), part_column(name)):
            if candidate in known:
                return candidate
        raise ValueError(f"this survey has no column {name!r}.{suggestion(name, known)}")

    def column(self, name: str) -> np.ndarray:
        """Return a column over all points, in the order of their numbers."""
        return self.ledger.column(self.column_name(name))

    def best(self, n: int | None = None, *, by: str | Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the n points with the lowest sum of some columns; failed ones are left out.

        by: None takes the value, or the misfit of the data where an axis is a weight (`Heading.rank`).
        """
        total = summed(self.ranked_by(by))
        limit = "" if n is None else f" LIMIT {int(n)}"
        return self.ledger.rows(f"WHERE NOT failed AND {total} IS NOT NULL ORDER BY {total}, id{limit}")

    def ranked_by(self, by: str | Sequence[str] | None = None) -> tuple[str, ...]:
        """Return full names of the columns that rank points."""
        names = self.heading.rank if by is None else (by,) if isinstance(by, str) else by
        return tuple(self.column_name(name) for name in names)

    def picture(self, point: int) -> np.ndarray:
        """Return the picture of a point, (ny, nx)."""
        return self.ledger.picture(point)

    def params(self, point: int) -> dict[str, np.ndarray]:
        """Return the fitted parameters of a point by label."""
        return self.ledger.params(point)

    def pictures(self, points: Iterable[int], *, align: bool = False) -> Iterator[np.ndarray]:
        """Return the pictures of some points, one at a time.

        align: first shift each, by whole pixels and around the edges, to where it correlates best with the first.
        """
        like: Any = None
        for point in points:
            image = self.picture(point).astype(float)
            if align:
                like = np.fft.rfft2(image - image.mean()).conj() if like is None else like
                image = shifted_to(image, like)
            yield image

    def mean_and_sd(self, points: Iterable[int], *, align: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation over the pictures of some points, reading one at a time."""
        total, square, n = 0.0, 0.0, 0
        for image in self.pictures(points, align=align):
            n += 1
            step = image - total
            total = total + step / n
            square = square + step * (image - total)
        if not n:
            raise ValueError("mean_and_sd: no points were chosen. Loosen the selection.")
        return np.asarray(total), np.sqrt(np.asarray(square) / n)

    # ---- for other programs -------------------------------------------------------------------------------------

    def to_csv(self, path: str | Path) -> Path:
        """Write the table as CSV, in the order of the points' numbers."""
        path, names = Path(path), list(self.heading.columns())

        def write(file):
            text = io.TextIOWrapper(file, "utf-8", newline="")
            rows = csv.writer(text)
            rows.writerow(names)
            for page in self.ledger.pages():
                rows.writerows([row[name] for name in names] for row in page)
            text.flush()
            text.detach()

        write_atomic(path, write)
        return path

    def to_parquet(self, path: str | Path) -> Path:
        """Write the table as Parquet."""
        with require_extra("to_parquet", "survey"):
            import pyarrow as pa
            from pyarrow import parquet
        rows = [row for page in self.ledger.pages() for row in page]
        columns = {name: [row[name] for row in rows] for name in self.heading.columns()}
        write_atomic(Path(path), lambda file: parquet.write_table(pa.table(columns), file))
        return Path(path)

    def to_xarray(self, pictures: bool = True) -> Any:
        """Return an xarray.Dataset over `point`: columns by full name, axes as coordinates, pictures."""
        with require_extra("to_xarray", "survey"):
            import xarray as xr
        axes = {axis_column(name): unit for name, unit in self.heading.axes.items()}
        columns = {n: ("point", self.ledger.column(n)) for n in self.heading.columns() if n != "id"}
        data: dict[str, Any] = {name: column for name, column in columns.items() if name not in axes}
        ids = self.ledger.ids()
        if pictures and self.heading.shape is not None and ids:
            data["picture"] = (("point", "y", "x"), np.stack([self.picture(i) for i in ids]))
        coordinates = {"point": ids} | {name: columns[name] for name in axes}
        found = xr.Dataset(data, coords=coordinates, attrs={"name": self.heading.name})
        for name, unit in axes.items():
            found[name].attrs["units"] = unit
        return found
