"""What the columns of a survey's ledger mean, kept in the ledger itself so that it can be read on its own."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

import numpy as np

from shardfit.io.files import from_json, to_json

FORMAT = 3
TEXTS = ("name", "dtype", "extent_unit", "picture_unit")


@dataclass(frozen=True)
class Heading:
    """A survey in words and shapes.

    name; total: points of the design; axes: name → unit; parts: names of the objective's parts; params: label → shape
    of the fitted parameters, in the order they are stored; dtype: their type; picture: label of the parameter that is
    the picture, or '' where the picture is stored by itself; shape: (ny, nx) of the picture, or None; extent: of the
    picture in `extent_unit`, left right bottom top; asked: what must be equal for a survey to be the same survey;
    unidentified: what it depends on and cannot be compared, so that it cannot be resumed. weighted: whether an axis
    changes a weight of the objective, so that values of different points cannot be compared.
    """

    name: str
    total: int
    axes: Mapping[str, str]
    parts: tuple[str, ...]
    params: Mapping[str, tuple[int, ...]]
    dtype: str = "float64"
    picture: str | None = None
    shape: tuple[int, int] | None = None
    extent: tuple[float, float, float, float] | None = None
    extent_unit: str = ""
    picture_unit: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    unidentified: tuple[str, ...] = ()
    weighted: bool = False

    def __post_init__(self):
        seen: dict[str, str] = {}
        for name in self.columns():
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise ValueError(f"columns {other!r} and {name!r} differ in case only, which SQL ignores. Rename one.")

    def to_json(self) -> str:
        """Return the heading as text, with its checksum."""
        return to_json({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "Heading":
        """Read a heading back; raise ValueError for one that is damaged, malformed or of another format."""
        content = from_json(text, "the heading")
        if content.pop("format", None) != FORMAT:
            raise ValueError(f"this ledger has another format than {FORMAT}; read it with its own version.")
        try:
            for name in ("parts", "shape", "extent", "unidentified"):
                content[name] = None if content[name] is None else tuple(content[name])
            content["params"] = {k: tuple(s) for k, s in content["params"].items()}
            heading = cls(**content)
            if not heading._has_its_types():
                raise TypeError("a field has another type than it should have")
        except (LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"the heading is malformed ({error}).") from None
        return heading

    def _has_its_types(self) -> bool:
        texts = [getattr(self, name) for name in TEXTS] + [*self.axes, *self.axes.values(), *self.parts]
        sizes = [n for shape in (*self.params.values(), self.shape or ()) for n in shape]
        return (
            all(isinstance(text, str) for text in texts)
            and all(type(n) is int and n >= 0 for n in (self.total, *sizes))
            and self.dtype in ("float32", "float64")
            and isinstance(self.weighted, bool)
            and (self.picture is None or self.picture == "" or self.picture in self.params)
            and (self.shape is None or len(self.shape) == 2)
            and (self.extent is None or [type(x) in (int, float) for x in self.extent] == [True] * 4)
        )

    def columns(self) -> dict[str, str]:
        """Return SQL name → declaration of all columns of the table of points, in order."""
        fixed = {"id": "INTEGER PRIMARY KEY", "status": "TEXT NOT NULL", "failed": "INTEGER NOT NULL", "value": "REAL"}
        rest = {
            "steps": "INTEGER",
            "evaluations": "INTEGER",
            "seconds": "REAL",
            "attempt": "INTEGER",
            "rung": "INTEGER",
            "parent": "INTEGER",
        }
        ends = {"finished": "REAL", "reason": "TEXT NOT NULL"}
        axes, parts = {axis_column(n): "" for n in self.axes}, {part_column(n): "REAL" for n in self.parts}
        return fixed | axes | parts | rest | ends

    @property
    def rank(self) -> tuple[str, ...]:
        """Columns whose sum ranks points, the lowest first.

        It is the value; but where an axis is a weight, values cannot be compared, and it is the misfit of the data:
        all parts named 'data' or 'data.…'.
        """
        data = tuple(part_column(n) for n in self.parts if n == "data" or n.startswith("data."))
        return data if data and self.weighted else ("value",)

    @property
    def most_bytes(self) -> int:
        """Bytes that parameters or picture of a point may take."""
        pixels = 0 if self.shape is None else prod(self.shape)
        return max(sum(prod(s) for s in self.params.values()) * np.dtype(self.dtype).itemsize, 4 * pixels)

    def unpack(self, blob: bytes) -> dict[str, np.ndarray]:
        """Return the parameters of one point by label from their stored bytes."""
        sizes = [prod(s) for s in self.params.values()]
        if len(blob) != sum(sizes) * np.dtype(self.dtype).itemsize:
            raise ValueError(f"{len(blob)} bytes of parameters are not what the heading says")
        flat = np.frombuffer(blob, self.dtype)
        pieces = np.split(flat, np.cumsum(sizes)[:-1])
        return {k: p.reshape(s) for (k, s), p in zip(self.params.items(), pieces, strict=True)}


def axis_column(name: str) -> str:
    """Return the SQL column of an axis."""
    return f"axis.{name}"


def part_column(name: str) -> str:
    """Return the SQL column of a part of the objective."""
    return f"part.{name}"


def summed(columns: Iterable[str]) -> str:
    """Return an SQL expression for the sum of columns."""
    return f"({' + '.join(map(quoted, columns))})"


def quoted(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
