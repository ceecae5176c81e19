"""Pictures of a survey side by side: mean and standard deviation of a selection, then its points in order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardfit.report import style
from shardfit.surveys.reading import Survey

MAP, SPREAD_MAP = "afmhot", "cividis"


def wall(
    survey: Survey,
    points: Sequence[int],
    *,
    across: int = 8,
    rows: int = 3,
    by: Sequence[str] = (),
    align: bool = False,
) -> Any:
    """Return a figure: mean and standard deviation large, and below them pictures from the best point to the worst.

    points: in the order of rank, of which across x rows are shown, evenly spaced; by: columns written over each; align:
    shift pictures onto each other before mean and deviation.
    """
    if not points:
        raise ValueError("wall: no points were chosen. Loosen the selection.")
    mean, sd = survey.mean_and_sd(points, align=align)
    places = np.unique(np.linspace(0, len(points) - 1, across * rows).round().astype(int))
    shown = [points[i] for i in places]
    lines = -(-len(shown) // across)
    figure = style.new_figure(1.35 * across, 4.0 + 1.55 * lines)
    big, small = figure.subfigures(2, 1, height_ratios=[3.2, 1.55 * lines])
    axes = big.subplots(1, 2)
    _large(big, axes[0], survey, mean, MAP, f"mean of {len(points):,} points")
    _large(big, axes[1], survey, sd, SPREAD_MAP, "standard deviation")
    if by:
        small.suptitle("#point   " + "   ".join(by), fontsize=style.TICK, color=style.INK)
    for place, axis in enumerate(np.ravel(small.subplots(lines, across, squeeze=False))):
        axis.set_axis_off()
        if place < len(shown):
            axis.imshow(survey.picture(shown[place]), cmap=MAP, interpolation="bilinear", vmin=0)
            axis.set_title(_label(survey, shown[place], by), fontsize=7.5, color=style.INK, pad=2.5)
    return figure


def _large(figure: Any, axes: Any, survey: Survey, image: np.ndarray, colours: str, title: str) -> None:
    heading = survey.heading
    extent = None if heading.extent is None else tuple(heading.extent)
    drawn = axes.imshow(image, cmap=colours, extent=extent, interpolation="bilinear", vmin=0)
    axes.set_title(title, fontsize=style.LABEL, color=style.INK)
    axes.tick_params(labelsize=style.TICK, color=style.FAINT, labelcolor=style.INK)
    axes.set_xlabel(heading.extent_unit, fontsize=style.LABEL, color=style.INK)
    style.colour_bar(figure, drawn, axes, heading.picture_unit)


def _label(survey: Survey, point: int, by: Sequence[str]) -> str:
    (row,) = survey.ledger.rows("WHERE id = ?", (point,))
    return "  ".join([f"#{point}", *(f"{row[survey.column_name(name)]:.3g}" for name in by)])
