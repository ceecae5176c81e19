"""The figure of a calibration: ranks of truths as histograms, and as distribution functions with their bands."""

from typing import Any

import numpy as np

from shardfit.report import style
from shardfit.sampling.quality.calibration import Calibration

MOST = 8  # quantities that are drawn: those of the smallest p values


def calibration_ranks(calibration: Calibration, share: float = 0.95) -> Any:
    """Draw, for every quantity, the histogram of ranks and the excess of their distribution function over uniform.

    A method that is right keeps its bars inside their band but for one in twenty, and its line inside the whole of the
    other band with this probability. A hump in the middle: draws too wide; a dip: too narrow; a slope: shifted.
    """
    from scipy.stats import binom

    uniform = calibration.uniform
    chosen = _worst(calibration)
    figure = style.new_figure(8.2, 0.6 + 1.7 * len(chosen))
    panels = figure.subplots(len(chosen), 2, squeeze=False, sharex=True)
    edges = np.linspace(0, 1, uniform.bins + 1)
    low, high = binom.interval(0.95, uniform.n, 1 / uniform.bins)
    counts, below = uniform.histogram(calibration.ranks), uniform.below(calibration.ranks)
    under, over = (end / uniform.n - uniform.shares for end in uniform.band(share))
    worst = [np.minimum(*calibration.p_values.values())[i] * 2 * len(calibration.names) for i in chosen]
    for (left, right), i, p in zip(panels, chosen, worst, strict=True):
        colour = style.BLUE if p > 0.01 else style.VERMILLION
        left.axhspan(low, high, color=style.SKY, alpha=0.2, linewidth=0)
        left.axhline(uniform.n / uniform.bins, color=style.FAINT, linewidth=1)
        left.stairs(counts[:, i], edges, color=colour, fill=True, alpha=0.5)
        left.set_ylim(bottom=0)
        right.fill_between(uniform.shares, under, over, step="mid", color=style.SKY, alpha=0.2, linewidth=0)
        right.axhline(0, color=style.FAINT, linewidth=1)
        right.step(uniform.shares, below[:, i] / uniform.n - uniform.shares, where="mid", color=colour, linewidth=1.5)
        style.finish(left, "", calibration.names[i], grid="y")
        style.finish(right, "", "excess share", grid="y")
        right.text(
            0.02, 0.95, calibration.shape(i), transform=right.transAxes, va="top", fontsize=style.TICK, color=colour
        )
    for axes in panels[-1]:
        axes.set_xlabel("rank of the truth among draws", fontsize=style.LABEL, color=style.INK)
    figure.align_ylabels()
    return figure


def _worst(calibration: Calibration) -> np.ndarray:
    p = np.minimum(*calibration.p_values.values())
    return np.sort(np.argsort(p, kind="stable")[:MOST])
