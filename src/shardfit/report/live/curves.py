"""Curves as SVG inside a page: they take its colours, light or dark, and need neither script nor drawing package."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardfit.report.blocks import escape
from shardfit.report.values import number

WIDTH, HEIGHT = 520, 196
LEFT, RIGHT, TOP, BOTTOM = 100, 10, 10, 32  # room for the larger letters of a phone
LARGEST = 1e300  # beyond it differences are infinite


@dataclass(frozen=True)
class Curve:
    """One curve with its title. Values that span more than two decades, all positive, get a logarithmic scale.

    across: what x counts, written below its axis.
    """

    title: str
    x: Sequence[Any]
    y: Sequence[Any]
    across: str = ""

    def render(self) -> str:
        """Return HTML: a figure with the drawing and its title."""
        points = [(float(x), float(y)) for x, y in zip(self.x, self.y, strict=False) if _known(x) and _known(y)]
        caption = f"<figcaption>{escape(self.title)}</figcaption>"
        if len(points) < 2:
            return f"<figure><p>{escape('Not enough yet.')}</p>{caption}</figure>"
        logarithmic = _spans_decades([y for _, y in points])
        drawn = [(x, math.log10(y)) if logarithmic else (x, y) for x, y in points]
        low_x, high_x = _ends([x for x, _ in drawn])
        low_y, high_y = _ends([y for _, y in drawn])

        def place(x: float, y: float) -> tuple[float, float]:
            across = LEFT + (x - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)
            down = HEIGHT - BOTTOM - (y - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)
            return across, down

        path = " ".join(f"{'L' if i else 'M'}{a:.1f},{b:.1f}" for i, (a, b) in enumerate(place(*p) for p in drawn))
        digits = 2 + max(1, math.ceil(math.log10(max(abs(low_y), abs(high_y)) / (high_y - low_y) or 1.0)))
        marks = "".join(
            f'<text class="tick" x="{LEFT - 6}" y="{place(low_x, y)[1] + 4:.1f}" text-anchor="end">'
            f"{escape(number(10**y if logarithmic else y, 3 if logarithmic else digits))}</text>"
            for y in (low_y, 0.5 * (low_y + high_y), high_y)
        )
        ends = ((low_x, "start", _place_text(low_x)), (high_x, "end", _place_text(high_x)))
        marks += "".join(
            f'<text class="tick" x="{place(x, low_y)[0]:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
            for x, anchor, text in (*ends, (0.5 * (low_x + high_x), "middle", self.across))
        )
        frame = f'<path class="frame" d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}"/>'
        drawing = f'{frame}<path class="curve" d="{path}"/>{marks}'
        label = escape(self.title)
        svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{drawing}</svg>'
        return f'<figure class="drawn">{svg}{caption}</figure>'


def _place_text(x: float) -> str:
    return number(int(x) if x == int(x) else x, 4)


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST


def _spans_decades(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) > 100 * min(values)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))
