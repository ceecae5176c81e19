"""Figures of a Top Set: what it makes of the data of every day and of known images, its rings, its choices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.recipes.top_set import Images, Training
from shardfit.report import style

MAP, SPREAD_MAP = "afmhot", "cividis"
HALF = 0.5  # of a field, shown around its middle


def days(found: Mapping[str, Images]) -> Any:
    """Draw mean and spread of every day, by name, each in one scale, with the circle of the mean ring."""
    figure = style.new_figure(2.5 * len(found) + 1.1, 5.2)
    panels = figure.subplots(2, len(found), sharex=True, sharey=True, squeeze=False)
    rows = ([one.mean for one in found.values()], [one.spread for one in found.values()])
    labels = ("mean  (mJy/µas²)", "spread  (mJy/µas²)")
    for axes, images, colours, label in zip(panels, rows, (MAP, SPREAD_MAP), labels, strict=True):
        drawn = _row(axes, images, colours)
        style.colour_bar(figure, drawn, list(axes), label)
    for axes, (name, one) in zip(panels[0], found.items(), strict=True):
        axes.set_title(f"{name}\n{len(one.points):,} images", fontsize=style.LABEL, color=style.INK, loc="left")
        if one.ring is not None:
            turn, radius = np.linspace(0, 2 * np.pi, 200), one.ring.diameter / 2 / UAS
            axes.plot(radius * np.sin(turn), radius * np.cos(turn), color="white", linewidth=0.9, linestyle=(0, (4, 4)))
    _named(figure)
    return figure


def known(truths: Mapping[str, Image], resolution: float, found: Mapping[str, Images | None]) -> Any:
    """Draw known images, the same blurred to a resolution (rad), and mean and spread of what choices make of them."""
    figure = style.new_figure(2.5 * len(truths) + 1.2, 9.2)
    panels = figure.subplots(4, len(truths), sharex=True, sharey=True, squeeze=False)
    for column, (name, truth) in enumerate(truths.items()):
        ours = found.get(name)
        none = truth.replace(values={"I": np.zeros(truth.shape)})
        shown = [truth, truth.blur(resolution), *((none, none) if ours is None else (ours.mean, ours.spread))]
        for axes, image in zip(panels[:, column], shown, strict=True):
            _row([axes], [image], SPREAD_MAP if axes is panels[3, column] else MAP)
        panels[0, column].set_title(name, fontsize=style.LABEL, color=style.INK, loc="left")
    texts = ("truth", "truth, blurred\nto the beam", "mean of the\nchoices kept", "their spread")
    for axes, text in zip(panels[:, 0], texts, strict=True):
        axes.set_ylabel(text, fontsize=style.LABEL, color=style.INK)
    return figure


def matches(training: Training) -> Any:
    """Draw how well all choices bring each truth back, and how well they must."""
    figure = style.new_figure(2.6 * len(training.least) + 0.6, 2.9)
    panels = figure.subplots(1, len(training.least), sharey=True, squeeze=False)[0]
    found = {name: np.array([one[name] for one in training.whole.values()]) for name in training.least}
    low = min(0.5, min((v.min() for v in found.values() if v.size), default=0.5))
    for axes, (name, values) in zip(panels, found.items(), strict=True):
        axes.hist(values, bins=np.linspace(low, 1, 41), color=style.SKY)
        axes.axvline(training.least[name], color=style.VERMILLION, linewidth=1.8)
        share = f"{np.mean(values >= training.least[name]):.0%}" if values.size else "–"
        axes.set_title(f"{name}: {share} pass", fontsize=style.LABEL, color=style.INK, loc="left")
        style.finish(axes, "correlation with the truth", "choices" if axes is panels[0] else "", grid="y")
    return figure


def diameters(found: Mapping[str, Images], published: tuple[float, float] | None = None) -> Any:
    """Draw the diameters of the rings of every day, mean and spread, and what was published (µas, with its error)."""
    figure = style.new_figure(5.8, 1.0 + 1.0 * len(found))
    panels = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    values = {name: np.array([ring.diameter / UAS for ring in one.rings]) for name, one in found.items()}
    every = np.concatenate([v for v in values.values() if v.size] or [np.array([40.0])])
    reach = [*np.percentile(every, [0.5, 99.5]), *(() if published is None else (published[0] - 4, published[0] + 4))]
    bins = np.arange(np.floor(min(reach)) - 1, np.ceil(max(reach)) + 1.5, 0.5)
    for axes, (name, one) in zip(panels, found.items(), strict=True):
        if published is not None:
            axes.axvspan(published[0] - published[1], published[0] + published[1], color=style.GRID, linewidth=0)
            axes.axvline(published[0], color=style.FAINT, linewidth=1)
        if values[name].size:
            counts, _, _ = axes.hist(np.clip(values[name], bins[0], bins[-1]), bins=bins, color=style.SKY)
            mean, sd = values[name].mean(), values[name].std()
            axes.errorbar(mean, 1.12 * counts.max(), xerr=sd, color=style.INK, marker="o", markersize=4, capsize=3)
            axes.set_ylim(0, 1.25 * counts.max())
        style.finish(axes, "", "images", grid="y")
        axes.set_title(f"{name}: {len(one.rings):,} of {len(one.points):,}", fontsize=style.TICK, loc="left", pad=2)
    panels[-1].set_xlabel("diameter of the ring  (µas)", fontsize=style.LABEL, color=style.INK)
    return figure


def choices(shares: Mapping[str, Mapping[Any, float]]) -> Any:
    """Draw for every axis which share of the choices with each of its values was kept."""
    shares = {name: values for name, values in shares.items() if len(values) > 1}
    figure = style.new_figure(1.9 * len(shares) + 0.6, 2.7)
    panels = figure.subplots(1, len(shares), sharey=True, squeeze=False)[0]
    for axes, (name, values) in zip(panels, shares.items(), strict=True):
        axes.bar(
            [f"{v:g}" if isinstance(v, int | float) else str(v) for v in values],
            list(values.values()),
            color=style.BLUE,
        )
        style.finish(axes, name, "share kept" if axes is panels[0] else "", grid="y")
        axes.tick_params(axis="x", labelsize=8)
    return figure


def _row(panels: Sequence[Any], images: Sequence[Image], colours: str) -> Any:
    """Draw the middles of images side by side in the scale of the brightest; return one of them, for a bar."""
    scale = 1e3 / (images[0].pixel_rad / UAS) ** 2
    most = scale * max(one.values["I"].max() for one in images)
    drawn = None
    for axes, one in zip(panels, images, strict=True):
        half = 0.5 * one.pixel_rad / UAS
        extent = (one.x[0] / UAS + half, one.x[-1] / UAS - half, one.y[-1] / UAS - half, one.y[0] / UAS + half)
        look = {"cmap": colours, "vmin": 0, "vmax": most or 1.0, "extent": extent, "origin": "upper"}
        drawn = axes.imshow(scale * one.values["I"], interpolation="bicubic", **look)
        reach = HALF * (extent[0] - extent[1]) * 0.75
        axes.set_xlim(reach, -reach)
        axes.set_ylim(-reach, reach)
        axes.tick_params(labelsize=style.TICK, color=style.FAINT, labelcolor=style.INK)
    return drawn


def _named(figure: Any) -> None:
    figure.supxlabel("relative right ascension  (µas)", fontsize=style.LABEL, color=style.INK)
    figure.supylabel("relative declination  (µas)", fontsize=style.LABEL, color=style.INK)
