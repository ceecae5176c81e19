"""Figures of seismic surveys. Each function returns a matplotlib Figure; lengths in m, times in s, depth downwards.

Velocities have a perceptually uniform scale, what swings about zero a symmetric diverging one. Limits are percentiles 2
and 98 where a few large values would hide the rest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import name_path_in_errors
from shardfit.core.extras import require_extra
from shardfit.report import style

VELOCITY, SWINGING, REFLECTORS = "viridis", "RdBu_r", "gray"
PERCENTILES = (2, 98)


def wavelet(signature: Any, dt: float) -> Any:
    """Draw a source signature (nt,) and its amplitude spectrum, as far as there is any."""
    signature = np.asarray(signature, float)
    time = dt * np.arange(len(signature))
    spectrum = np.abs(np.fft.rfft(signature, 8 * len(signature)))
    frequency = np.fft.rfftfreq(8 * len(signature), dt)
    figure = style.new_figure(8.4, 3.2)
    left, right = figure.subplots(1, 2)
    left.plot(time, signature, color=style.BLUE, linewidth=1.7)
    loud = np.flatnonzero(np.abs(signature) > 1e-3 * np.abs(signature).max())
    left.set_xlim(0, min(time[-1], 1.3 * time[loud[-1]]))
    right.plot(frequency, spectrum / spectrum.max(), color=style.BLUE, linewidth=1.7)
    right.fill_between(frequency, spectrum / spectrum.max(), color=style.SKY, alpha=0.25, linewidth=0)
    right.set_xlim(0, frequency[np.flatnonzero(spectrum > 2e-3 * spectrum.max())[-1]])
    right.set_ylim(0, 1.05)
    style.finish(left, "time  (s)", "amplitude")
    style.finish(right, "frequency  (Hz)", "amplitude spectrum, peak 1")
    return figure


def gather(traces: Any, dt: float, positions: Any, *, title: str = "") -> Any:
    """Draw the traces of one shot, (receivers, nt). positions: x of the receivers in metres."""
    figure = style.new_figure(5.8, 5.0)
    axes = figure.subplots()
    drawn = _traces(axes, traces, dt, positions, swing(traces))
    _bar(figure, drawn, axes, "pressure")
    _title(axes, title)
    return figure


def comparison(observed: Any, modelled: Any, dt: float, positions: Any) -> Any:
    """Draw observed and modelled traces of one shot (receivers, nt) and their difference, all with the same limits."""
    figure = style.new_figure(11.0, 4.4)
    panels = figure.subplots(1, 3, sharey=True)
    shown = {"observed": observed, "modelled": modelled, "difference": np.asarray(observed) - np.asarray(modelled)}
    for axes, (name, traces) in zip(panels, shown.items(), strict=True):
        drawn = _traces(axes, traces, dt, positions, swing(observed))
        _title(axes, name)
        axes.locator_params(axis="x", nbins=4)
        if axes is not panels[0]:
            axes.set_ylabel("")
    _bar(figure, drawn, panels, "pressure")
    return figure


def model(velocity: Any, dh: Any, *, sources: Any = None, receivers: Any = None, title: str = "") -> Any:
    """Draw a velocity model (nz, nx). sources, receivers: (n, 2) positions (z, x) in cells."""
    figure = style.new_figure(8.4, _height(velocity, dh, 8.4))
    axes = figure.subplots()
    drawn = _section(axes, velocity, dh, VELOCITY, (np.min(velocity), np.max(velocity)))
    step = np.broadcast_to(np.asarray(dh, float), 2)
    marks = ((receivers, "v", "white", 10, "receivers"), (sources, "*", style.ORANGE, 34, "sources"))
    for positions, marker, colour, size, name in marks:
        if positions is not None:
            z, x = (np.asarray(positions).reshape(-1, 2) * step).T
            look = {"s": size, "marker": marker, "edgecolors": style.INK, "linewidths": 0.4, "clip_on": False}
            axes.scatter(x, z, color=colour, label=name, **look)
    if sources is not None or receivers is not None:
        style.legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    _bar(figure, drawn, axes, "velocity  (m/s)")
    _title(axes, title)
    return figure


def panels(sections: Mapping[str, Any], dh: Any, gradient: Any = None, label: str = "velocity  (m/s)") -> Any:
    """Draw models (nz, nx) by name below each other, and the gradient of the misfit if there is one.

    All models have the colour limits of the first. label: what the colours mean.

    Example: `panels({"true": truth, "inverted": found}, 25.0)`.
    """
    first, count = next(iter(sections.values())), len(sections) + (gradient is not None)
    figure = style.new_figure(7.6, 0.4 + count * (_height(first, dh, 7.6) - 0.3))
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, velocity) in zip(axes, sections.items(), strict=False):
        drawn = _section(ax, velocity, dh, VELOCITY, (np.min(first), np.max(first)))
        _title(ax, name)
    _bar(figure, drawn, axes[: len(sections)], label)
    if gradient is not None:
        reach = swing(gradient)
        drawn = _section(axes[-1], gradient, dh, SWINGING, (-reach, reach))
        _title(axes[-1], "gradient")
        _bar(figure, drawn, axes[-1:], "gradient  (s/m)" if "m/s" in label else "gradient")
    for ax in axes[:-1]:
        ax.set_xlabel("")
    return figure


def loss(values: Any, *, bands: Sequence[tuple[int, str]] = (), error: Any = None) -> Any:
    """Draw the loss of every epoch. bands: (first epoch, name) of each part; error: of the model in m/s, if known."""
    figure = style.new_figure(6.4, 3.8)
    axes = figure.subplots()
    epochs = np.arange(len(values))
    axes.plot(epochs, values, color=style.BLUE, linewidth=1.5)
    axes.set_yscale("log")
    for first, name in (band for band in bands if band[0] < max(len(values), 1)):  # the others have not begun
        axes.axvline(first, color=style.FAINT, linewidth=0.8, linestyle=":")
        above = {"transform": axes.get_xaxis_transform(), "va": "bottom", "ha": "left"}
        axes.text(first, 1.01, name, fontsize=style.TICK, color=style.FAINT, **above)
    axes.xaxis.get_major_locator().set_params(integer=True)
    style.finish(axes, "epoch", "loss")
    if error is not None:
        other = axes.twinx()
        other.plot(epochs, error, color=style.VERMILLION, linewidth=1.5, linestyle="--")
        style.finish(other, "epoch", "model error  (m/s)")
        other.grid(False)
        other.spines[["right"]].set_visible(True)
        other.spines[["right"]].set_color(style.FAINT)
        axes.yaxis.label.set_color(style.BLUE)
        other.yaxis.label.set_color(style.VERMILLION)
    return figure


def profiles(sections: Mapping[str, Any], dh: Any, places: Sequence[float] = (0.25, 0.5, 0.75)) -> Any:
    """Draw velocity against depth at some fractions of the width. sections: models (nz, nx) by name."""
    looks = {
        "true": {"color": style.INK, "linewidth": 1.7},
        "start": {"color": style.FAINT, "linewidth": 1.3, "linestyle": "--"},
        "inverted": {"color": style.VERMILLION, "linewidth": 1.7},
    }
    figure = style.new_figure(8.4, 4.2)
    axes = figure.subplots(1, len(places), sharey=True, sharex=True, squeeze=False)[0]
    (nz, nx), (dz, dx) = np.shape(next(iter(sections.values()))), np.broadcast_to(np.asarray(dh, float), 2)
    for ax, place in zip(axes, places, strict=True):
        column = round(place * (nx - 1))
        for name, velocity in sections.items():
            ax.plot(np.asarray(velocity)[:, column], dz * np.arange(nz), label=name, **looks.get(name, {}))
        _title(ax, f"x = {column * dx:.0f} m")
        style.finish(ax, "velocity  (m/s)", "depth  (m)" if ax is axes[0] else "")
    axes[0].set_ylim(dz * (nz - 1), 0)
    style.legend(axes[-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def image(values: Any, dh: Any, *, gain: float = 1.5, mute: Any = None) -> Any:
    """Draw a migrated image (nz, nx) in grey. gain: power of depth, lifts what is deep; mute: mask of cells to hide.

    The acquisition leaves marks in the cells around it that outshine all reflectors: hide the water.
    """
    values = np.asarray(values)
    shown = values * np.linspace(0, 1, len(values))[:, None] ** gain
    shown = shown if mute is None else np.where(mute, 0.0, shown)
    shown = shown / (np.abs(shown).max() or 1.0)
    reach = swing(shown)
    figure = style.new_figure(8.4, _height(values, dh, 8.4))
    axes = figure.subplots()
    drawn = _section(axes, shown, dh, REFLECTORS, (-reach, reach), "bicubic")
    lifted = f" × depth$^{{{gain:g}}}$" if gain else ""
    _bar(figure, drawn, axes, f"reflectivity{lifted}  (relative)")
    return figure


def snapshots(fields: Any, times: Any, velocity: Any, dh: Any, columns: int = 2) -> Any:
    """Draw a wave field (frames, nz, nx) over the model it runs through."""
    rows = -(-len(times) // columns)
    figure = style.new_figure(4.6 * columns, rows * (_height(velocity, dh, 4.6, beside=0.6) - 0.25))
    axes = np.ravel(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False))
    reach = [swing(field, 99.5) for field in fields]
    for k, ax in enumerate(axes):
        ax.set_visible(k < len(times))
        if k < len(times):
            _wave(ax, fields[k], max(reach[k], 0.1 * max(reach)), velocity, dh)  # what is left at the end stays faint
            _title(ax, f"{times[k]:.2f} s")
            ax.label_outer()
    return figure


def animate(path: str | Path, fields: Any, times: Any, velocity: Any, dh: Any) -> Path:
    """Write a wave field (frames, nz, nx) over its model as an animated GIF; return the path."""
    with require_extra("drawing", "report"):
        from matplotlib.animation import FuncAnimation, PillowWriter

    figure = style.new_figure(6.0, _height(velocity, dh, 6.0))
    axes = figure.subplots()
    reach = swing(fields[len(fields) // 3], 99.5)
    drawn = _wave(axes, fields[0], reach, velocity, dh)
    title = axes.set_title("", fontsize=style.LABEL, color=style.INK, loc="left")

    def show(k: int) -> tuple:
        drawn.set_data(_tint(fields[k], reach))
        title.set_text(f"{times[k]:.2f} s")
        return drawn, title

    show(0)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # else the picture moves when a label changes
    with name_path_in_errors(path):
        FuncAnimation(figure, show, frames=len(fields)).save(path, PillowWriter(fps=12), dpi=80)
    return Path(path)


def swing(values: Any, upper: float = PERCENTILES[1]) -> float:
    """Return the limit of a symmetric colour scale: the larger of both percentiles by size, never zero."""
    ends = np.percentile(np.asarray(values), (100 - upper, upper))
    return float(np.abs(ends).max()) or float(np.abs(values).max()) or 1.0


def _traces(axes: Any, traces: Any, dt: float, positions: Any, reach: float) -> Any:
    traces, x = np.asarray(traces), np.asarray(positions, float)
    order = np.argsort(x)
    edges = (x[order[0]], x[order[-1]], traces.shape[1] * dt, 0.0)
    if edges[0] == edges[1]:  # a single receiver, or all in one hole: nothing to spread
        edges = (edges[0] - 1.0, edges[1] + 1.0, *edges[2:])
    look = {"cmap": SWINGING, "vmin": -reach, "vmax": reach, "aspect": "auto", "interpolation": "bilinear"}
    drawn = axes.imshow(traces[order].T, extent=edges, **look)
    style.finish(axes, "receiver position  (m)", "time  (s)")
    axes.grid(False)
    return drawn


def _section(axes: Any, values: Any, dh: Any, colours: str, limits: tuple, smooth: str = "nearest") -> Any:
    look = {"cmap": colours, "vmin": limits[0], "vmax": limits[1], "interpolation": smooth}
    drawn = axes.imshow(np.asarray(values), extent=_extent(values, dh), **look)
    style.finish(axes, "position  (m)", "depth  (m)")
    axes.grid(False)
    return drawn


def _wave(axes: Any, field: Any, reach: float, velocity: Any, dh: Any) -> Any:
    low, high = np.min(velocity), np.max(velocity)
    _section(
        axes, velocity, dh, "gray", (low - 1.2 * (high - low), high + 0.1 * (high - low))
    )  # light: the wave counts
    return axes.imshow(_tint(field, reach), extent=_extent(velocity, dh), interpolation="bilinear")


def _tint(field: Any, reach: float) -> np.ndarray:
    """Return colours (nz, nx, 4) that are the clearer the weaker the wave, so that the model shows through."""
    import matplotlib

    part = np.clip(np.asarray(field) / reach, -1, 1)
    colours = matplotlib.colormaps[SWINGING](0.5 + 0.5 * np.sign(part) * np.abs(part) ** 0.5)
    colours[..., 3] = np.clip(1.6 * np.abs(part), 0, 0.92)
    return colours


def _extent(values: Any, dh: Any) -> tuple[float, float, float, float]:
    (nz, nx), (dz, dx) = np.shape(values), np.broadcast_to(np.asarray(dh, float), 2)
    return -0.5 * dx, (nx - 0.5) * dx, (nz - 0.5) * dz, -0.5 * dz


def _height(values: Any, dh: Any, width: float, beside: float = 1.9) -> float:
    """Return the height of a figure of one section, with equal scales on both axes. beside: labels and bar; inches."""
    left, right, bottom, top = _extent(values, dh)
    return float(np.clip((width - beside) * (bottom - top) / (right - left), 1.2, 6.0)) + 0.85


def _bar(figure: Any, drawn: Any, axes: Any, label: str) -> None:
    bar = style.colour_bar(figure, drawn, axes, label, shrink=1.0, aspect=18)
    bar.formatter.set_powerlimits((-3, 4))


def _title(axes: Any, text: str) -> None:
    if text:
        axes.set_title(text, fontsize=style.LABEL, color=style.INK, loc="left")
