"""One look for every figure: sizes, colours, grid. Figures are objects of their own, without global plotting state."""

import io
from functools import cache
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra

# Okabe and Ito: distinct for colour-blind readers and in grey
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
INK, FAINT, GRID = "#1F2A37", "#6B7280", "#E5E7EB"
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P")
LABEL, TICK = 11.0, 9.5  # points
DPI = 200
SCREEN = 90  # in a notebook, which keeps its pictures


@cache
def _shown_figure() -> type:
    """Return the class of our figures: one that a notebook shows at the end of a cell, without pyplot."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that notebooks draw."""

        def _repr_png_(self) -> bytes:
            self.set_dpi(SCREEN)
            try:
                return png_bytes(self)
            finally:
                self.set_dpi(DPI)

    return ShownFigure


def new_figure(width: float = 5.8, height: float = 4.2) -> Any:
    """Return an empty Figure of this size in inches, with room kept for labels."""
    with require_extra("drawing", "report"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.09)
    figure = _shown_figure()(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def finish(axes: Any, xlabel: str = "", ylabel: str = "", grid: str = "both") -> Any:
    """Label one axes and give it the common look; grid: 'both', 'x', 'y'."""
    axes.set_xlabel(xlabel, fontsize=LABEL, color=INK)
    axes.set_ylabel(ylabel, fontsize=LABEL, color=INK)
    axes.tick_params(which="both", labelsize=TICK, color=FAINT, labelcolor=INK)
    axes.tick_params(which="minor", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(True, axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def colour_bar(figure: Any, drawn: Any, axes: Any, label: str, **options: Any) -> Any:
    """Add the bar of a colour scale beside one axes or several, with its label and unit, and return it."""
    bar = figure.colorbar(drawn, ax=axes, **{"shrink": 0.9, "pad": 0.02, **options})
    bar.set_label(label, fontsize=LABEL, color=INK)
    bar.ax.tick_params(labelsize=TICK, labelcolor=INK, color=FAINT)
    bar.outline.set_visible(False)
    return bar


def legend(axes: Any, **options: Any) -> None:
    """Add a frameless legend in the common size."""
    axes.legend(frameon=False, fontsize=TICK, labelcolor=INK, **options)


def png_bytes(figure: Any) -> bytes:
    """Return the figure as PNG, whoever made it; equal figures give equal bytes."""
    with require_extra("drawing", "report"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

    if not isinstance(figure.canvas, FigureCanvasAgg):
        FigureCanvasAgg(figure)  # it becomes the figure's canvas
    figure.canvas.draw()  # savefig would draw everything once more, for the layout
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3]).save(buffer, "png")
    return buffer.getvalue()
