"""Columns of numbers and texts as compact JSON: few different values as small codes, other numbers as float64.

50,000 points with twenty columns take some megabytes this way, and a browser unpacks them in milliseconds.
"""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

FEW = 256  # different numbers that are worth a table of levels


def encode(values: Sequence[Any], kind: str, *, single: bool = False) -> dict[str, Any]:
    """Return one column; kind 'number' or 'text'; single: keep numbers that need no level to seven digits only."""
    if kind == "text":
        texts = ["" if v is None else str(v) for v in values]
        place = {text: code for code, text in enumerate(sorted(set(texts)))}
        return {"levels": list(place), **_packed(np.array([place[t] for t in texts], _smallest(len(place))))}
    numbers = as_numbers(values)
    levels, codes = np.unique(numbers, return_inverse=True)
    if len(levels) <= FEW:
        shown = [None if math.isnan(level) else level for level in levels.tolist()]
        return {"levels": shown, **_packed(codes.astype("<u1"))}
    return _packed(numbers.astype("<f4") if single else numbers)


def as_numbers(values: Sequence[Any]) -> np.ndarray:
    """Return stored values as floats, NaN for what is missing, infinite or no number."""
    try:
        numbers = np.array(values, "<f8")
    except (TypeError, ValueError):
        numbers = np.array([v if isinstance(v, int | float) else np.nan for v in values], "<f8")
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def _smallest(count: int) -> str:
    return next(name for name, most in (("<u1", 2**8), ("<u2", 2**16), ("<u4", 2**32)) if count <= most)


def _packed(array: np.ndarray) -> dict[str, str]:
    return {"type": array.dtype.str[-2:], "data": base64.b64encode(array.tobytes()).decode()}
