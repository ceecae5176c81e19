"""Numbers and tables as people read them, in terminals and notebooks."""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def number(value: Any, digits: int = 8) -> str:
    """Return a number as text; what is no number as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return str(value)
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{float(value):.{digits}g}"


def pair(value: float, error: float | None) -> tuple[str, str]:
    """Return value and error as text, both to two digits of the error: (0.123456, 0.00171) → '0.1235', '0.0017'."""
    if error is None or not math.isfinite(error) or error <= 0:
        return number(value), "" if error is None else number(error)
    if not math.isfinite(value):
        return number(value), number(error)
    digits = 1 - math.floor(math.log10(error))
    size = max(abs(value), error)
    if digits > 12 or size >= 1e7 or size < 1e-4:
        power = math.floor(math.log10(size))
        places = max(0, digits + power)
        return f"{value / 10**power:.{places}f}e{power:+03d}", f"{error / 10**power:.{places}f}e{power:+03d}"
    return f"{value:.{max(0, digits)}f}", f"{error:.{max(0, digits)}f}"


def short(leaf: Any) -> str:
    """Return a number or a small array as text; of a larger one its shape and range."""
    array = np.asarray(leaf)
    if array.ndim == 0:
        return f"{float(array):.8g}"
    if array.size <= 6:
        return np.array2string(array, precision=6, separator=", ")
    return f"array {array.shape}, {array.min():.4g} … {array.max():.4g}"


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Return rows of cells as lines of aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(indent + line for line in lines)


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells as HTML, without columns that are empty; whatever they hold is text."""
    rows = [list(row) for row in rows]
    kept = [i for i in range(len(header)) if not rows or any(str(row[i]) for row in rows)]
    header, rows = [header[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', header)}{''.join(line('td', row) for row in rows)}</table>"
