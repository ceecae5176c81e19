"""Units of a FITS file, read by NumPy: headers and binary tables.

That is all a uvfits file needs besides its rows, and done before astropy, which writes files and reads images, is
imported.
"""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

BLOCK, CARD = 2880, 80
MOST_COLUMNS = 999
_NUMBER = re.compile(r"[+-]?(\d+|(\d+\.\d*|\.\d+|\d+(?=[ED]))([ED][+-]?\d+)?)$")
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_FORM = re.compile(r"(\d*)([LBIJKAEDCM])")
_TYPES = {"L": "S1", "B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "C": ">c8", "M": ">c16"}


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit: header by keyword, and where in the file its data begin."""

    path: Path
    header: dict[str, Any]
    offset: int

    @property
    def name(self) -> str:
        """EXTNAME."""
        return str(self.header.get("EXTNAME", "")).strip()

    @cached_property
    def row(self) -> np.dtype:
        """Type of a table's row; its columns are named by their numbers from 1 on."""
        fields = self.header.get("TFIELDS")
        if not isinstance(fields, int) or not 0 <= fields <= MOST_COLUMNS:
            raise ValueError(f"table {self.name}: TFIELDS = {fields!r} is no number of columns.")
        return np.dtype([(str(i), *self._type(i)) for i in range(1, fields + 1)])

    def _type(self, i: int) -> tuple:
        form = _FORM.match(str(self.header.get(f"TFORM{i}", "")).strip().upper())
        if form is None:
            raise ValueError(f"table {self.name}: TFORM{i} = {self.header.get(f'TFORM{i}')!r} is not read.")
        count = int(form[1] or 1)
        if form[2] == "A":
            return (f"S{count}",)
        return (_TYPES[form[2]],) if count == 1 else (_TYPES[form[2]], (count,))

    @cached_property
    def columns(self) -> dict[str, int]:
        """Number of every column by its name."""
        numbers = range(len(self.row.names or ()), 0, -1)  # of two with one name the first counts
        return {str(self.header.get(f"TTYPE{i}", "")).strip(): i for i in numbers}

    @cached_property
    def rows(self) -> np.ndarray:
        """All rows, as stored."""
        return np.fromfile(self.path, self.row, int(self.header["NAXIS2"]), offset=self.offset)

    def column(self, name: str) -> np.ndarray:
        """Return a column, (n,) or (n, count), as numbers or text."""
        i = self.columns[name]
        stored = self.rows[str(i)]
        if stored.dtype.kind == "S":
            logical = not str(self.header[f"TFORM{i}"]).strip().upper().endswith("A")
            return stored == b"T" if logical else np.array([_text(value) for value in stored.tolist()], str)
        scale, zero = self.header.get(f"TSCAL{i}", 1), self.header.get(f"TZERO{i}", 0)
        return stored if (scale, zero) == (1, 0) else stored * scale + zero


def read_units(path: Path) -> list[Unit]:
    """Return the units of a file, up to the first that is not whole; raise if it does not begin as a FITS file does."""
    found: list[Unit] = []
    size, offset = path.stat().st_size, 0
    with path.open("rb") as stream:
        while offset < size:
            stream.seek(offset)
            header = _header(stream, "XTENSION" if found else "SIMPLE")
            if header is None:
                break
            found.append(Unit(path, header, stream.tell()))
            offset = stream.tell() + -(-_bytes_of(header) // BLOCK) * BLOCK
    if not found:
        raise ValueError("cannot be read as uvfits: it does not begin as a FITS file does. Fetch it again.")
    return found


def _header(stream: Any, first: str) -> dict[str, Any] | None:
    """Return the header that begins here, None if there is none; the stream is then at the data."""
    header: dict[str, Any] = {}
    while len(block := stream.read(BLOCK)) == BLOCK:
        text = block.decode("latin-1")
        for card in (text[i : i + CARD] for i in range(0, BLOCK, CARD)):
            keyword = card[:8].rstrip()
            if not header and keyword != first:
                return None
            if keyword == "END" and not card[8:].strip():
                return header
            if card[8:10] == "= ":
                header.setdefault(keyword, _value(card[10:].strip()))
    return None


def _text(value: bytes) -> str:
    """Return a text as stored: what follows a NUL is undefined, and no writer keeps to ASCII."""
    return value.partition(b"\0")[0].decode("latin-1").strip()


def _value(text: str) -> Any:
    if quoted := _TEXT.match(text):
        return quoted[1].replace("''", "'").rstrip()
    text = text.partition("/")[0].strip()
    if text in ("T", "F"):
        return text == "T"
    if not _NUMBER.match(text.upper()):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text.upper().replace("D", "E"))


def _bytes_of(header: dict[str, Any]) -> int:
    """Return how many bytes of data a unit has."""
    sizes = [_count(header, f"NAXIS{i}") for i in range(1, min(_count(header, "NAXIS"), MOST_COLUMNS) + 1)]
    if header.get("GROUPS") is True and sizes[:1] == [0]:  # that of random groups is not an axis
        del sizes[0]
    numbers = math.prod(sizes) if sizes else 0
    width = header.get("BITPIX")
    if width not in (8, 16, 32, 64, -32, -64):
        raise ValueError(f"BITPIX={width} is no FITS number type.")
    return abs(width) // 8 * _count(header, "GCOUNT", 1) * (_count(header, "PCOUNT", 0) + numbers)


def _count(header: dict[str, Any], keyword: str, default: Any = None) -> int:
    value = header.get(keyword, default)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{keyword} = {value!r} is no number of things.")
    return value
