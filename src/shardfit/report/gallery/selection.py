"""Which points of a survey are meant, and in which order: asked by a page as JSON, answered in SQL.

Only columns of the heading are named in SQL, quoted, and every value is bound: what a page or a ledger says stays data.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.surveys.heading import Heading, quoted, summed

RANK = "rank"
MOST = 10**9  # points that may be asked for


@dataclass(frozen=True)
class Selection:
    """Points within closed ranges (None: open end) and among choices, sorted, at most `limit` of them.

    failed: the points that failed, instead of those that did not; tag: only points that have it; sort: a column, or
    'rank', the sum of the columns `rank`.
    """

    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sort: str = RANK
    descending: bool = False
    limit: int | None = None
    failed: bool = False
    tag: str = ""
    rank: tuple[str, ...] = ("value",)

    @classmethod
    def from_json(cls, text: str, heading: Heading) -> "Selection":
        """Read what a page asks; raise ValueError for what is not a column or not a bound."""
        try:
            content = json.loads(text) if text else {}
            ranges = {str(key): _bounds(key, pair) for key, pair in content.get("ranges", {}).items()}
            choices = {str(key): tuple(map(str, names)) for key, names in content.get("choices", {}).items()}
            limit = None if content.get("limit") is None else min(MOST, max(0, int(content["limit"])))
            sort, rest = str(content.get("sort", RANK)), {n: bool(content.get(n)) for n in ("descending", "failed")}
            tag = str(content.get("tag") or "")
        except (AttributeError, TypeError, OverflowError, RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"this is no selection: {error}. Send ranges, choices, sort, descending, limit.") from None
        known = (*heading.columns(), RANK)
        for key in (*ranges, *choices, sort):
            if key not in known:
                raise ValueError(f"no column {key!r}.{suggestion(key, known)}")
        return cls(ranges, choices, sort, limit=limit, tag=tag, rank=heading.rank, **rest)

    def expression(self, key: str) -> str:
        """Return a column in SQL."""
        return summed(self.rank) if key == RANK else quoted(key)

    def where(self) -> tuple[str, list[Any]]:
        """Return the WHERE clause and its values."""
        conditions, values = ["failed" if self.failed else "NOT failed"], []
        for key, bounds in self.ranges.items():
            for sign, bound in zip((">=", "<="), bounds, strict=True):
                if bound is not None:
                    conditions.append(f"{self.expression(key)} {sign} ?")
                    values.append(bound)
        for key, names in self.choices.items():
            conditions.append(f"CAST({quoted(key)} AS TEXT) IN ({', '.join('?' * len(names))})")
            values.extend(names)
        if self.tag:
            conditions.append("id IN (SELECT id FROM marks WHERE tag = ?)")
            values.append(self.tag)
        return "WHERE " + " AND ".join(conditions), values

    def sql(self) -> tuple[str, list[Any]]:
        """Return what follows FROM points, and its values; points without a value of the sorted column come last."""
        where, values = self.where()
        column, direction = self.expression(self.sort), "DESC" if self.descending else "ASC"
        text = f"{where} ORDER BY {column} IS NULL, {column} {direction}, id"
        return (text, values) if self.limit is None else (f"{text} LIMIT ?", [*values, self.limit])


def _bounds(key: str, pair: Any) -> tuple[float | None, float | None]:
    low, high = (None if bound is None else float(bound) for bound in pair)
    if any(bound is not None and not math.isfinite(bound) for bound in (low, high)):
        raise ValueError(f"bounds of {key!r} must be finite. Leave an open end out (null).")
    return low, high
