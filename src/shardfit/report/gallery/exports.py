"""A selection for other programs: pictures as a FITS cube, and the configuration that runs just these points again."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.surveys.heading import Heading, axis_column
from shardfit.surveys.reading import Survey

SAVED = "survey.toml"  # the configuration that `shardfit survey run` keeps
MOST_CONFIG = 16 << 20  # bytes: a table of 200,000 points
AT_ONCE = 500  # points in one query
BLOCK = 2880  # bytes of a FITS record
DEGREES = {"µas": 1e-6 / 3600, "mas": 1e-3 / 3600, "arcsec": 1 / 3600}


def has_config(folder: Path) -> bool:
    """Return whether a run directory holds a configuration of the command line, of its own."""
    path = folder / SAVED
    return path.is_file() and not path.is_symlink() and path.stat().st_size < MOST_CONFIG


def configuration(survey: Survey, points: Sequence[int]) -> Iterator[str]:
    """Yield the survey's configuration with these points as its design; nothing where it has none that can be read."""
    if not has_config(survey.run_dir):
        return
    text = (survey.run_dir / SAVED).read_text(encoding="utf-8", errors="replace")
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.partition("#")[0].strip("[] ").partition(".")[0] in ("design", "halving")
        if not inside:
            kept.append(line)
    yield "\n".join([*kept, "", "[design]", 'kind = "table"', "table = [", ""])
    for first in range(0, len(points), AT_ONCE):
        yield "".join(_rows(survey, points[first : first + AT_ONCE]))
    yield "]\n"


def _rows(survey: Survey, points: Sequence[int]) -> Iterator[str]:
    """Yield a line for each of some points."""
    marks = ", ".join("?" * len(points))
    found = {row["id"]: row for row in survey.ledger.rows(f"WHERE id IN ({marks})", points)}
    for number in points:
        row = found[number]
        values = ", ".join(f"{json.dumps(n)} = {json.dumps(row[axis_column(n)])}" for n in survey.heading.axes)
        yield f"    {{ {values} }},  # point {number}\n"


def fits_cube(survey: Survey, points: Sequence[int]) -> Iterator[bytes]:
    """Yield a FITS file of the pictures of some points, (points, ny, nx) as 32-bit floats, south below, in pieces."""
    heading = survey.heading
    if heading.shape is None:
        raise KeyError("this survey keeps no pictures.")
    ny, nx = heading.shape
    cards: list[tuple[str, Any]] = [("SIMPLE", True), ("BITPIX", -32), ("NAXIS", 3), ("NAXIS1", nx), ("NAXIS2", ny)]
    cards += [("NAXIS3", len(points)), ("BUNIT", heading.picture_unit.upper()[:60]), ("OBJECT", heading.name[:60])]
    comments = [f"PLANE {k} IS POINT {number} OF THE SURVEY" for k, number in enumerate(points, start=1)]
    yield _header([*cards, *_place(heading), ("CTYPE3", "POINT")], comments)
    size = 0
    for number in points:
        plane = survey.picture(number)[::-1].astype(">f4").tobytes()
        size += len(plane)
        yield plane
    yield bytes(-size % BLOCK)


def _place(heading: Heading) -> list[tuple[str, Any]]:
    """Return where the pixels are: angles in degrees from the middle, other lengths in their unit."""
    if heading.extent is None or heading.shape is None:
        return []
    left, right, bottom, top = heading.extent
    ny, nx = heading.shape
    unit, scale = heading.extent_unit, DEGREES.get(heading.extent_unit, 1.0)
    kinds = ("RA---SIN", "DEC--SIN") if unit in DEGREES else ("X", "Y")
    found: list[tuple[str, Any]] = []
    sides = (kinds[0], (right - left) / nx, left), (kinds[1], (top - bottom) / ny, bottom)
    for k, (kind, step, first) in enumerate(sides, start=1):
        found += [(f"CTYPE{k}", kind), (f"CDELT{k}", step * scale), (f"CRPIX{k}", 0.5 - first / step)]
        found += [(f"CRVAL{k}", 0.0), (f"CUNIT{k}", "deg" if unit in DEGREES else unit)]
    return found


def _header(cards: Sequence[tuple[str, Any]], comments: Sequence[str]) -> bytes:
    lines = [f"{key:<8}= {_card(value)}" for key, value in cards]
    lines += [f"COMMENT {text}" for text in comments]
    raw = "".join(line[:80].ljust(80) for line in [*lines, "END"]).encode("ascii", "replace")
    return raw + b" " * (-len(raw) % BLOCK)


def _card(value: Any) -> str:
    if isinstance(value, bool):
        return f"{'T' if value else 'F':>20}"
    if isinstance(value, int):
        return f"{value:>20}"
    if isinstance(value, float | np.floating):
        return f"{float(value):>20.12E}"
    plain = "".join(c if " " <= c <= "~" else "?" for c in str(value)).replace("'", "''")
    return f"'{plain:<8}'"
