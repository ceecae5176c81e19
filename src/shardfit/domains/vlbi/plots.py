"""Figures of interferometry. Each function returns a matplotlib Figure; angles are in µas, east is left."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra
from shardfit.domains.vlbi.beams import Beam
from shardfit.domains.vlbi.closures import quadrangles, triangles
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, visibilities
from shardfit.domains.vlbi.movies import Movie
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.selfcal import GainTable
from shardfit.report import style


def sky(image: Image, *, beam_rad: float | Beam | None = None, title: str = "") -> Any:
    """Draw an image with a scale bar and, where beam_rad is given, a circle so wide, or the ellipse of a Beam."""
    with require_extra("drawing", "report"):
        from matplotlib.patches import Ellipse

    extent = _extent(image)
    surface = 1e3 * image.values["I"] / (image.pixel_rad / UAS) ** 2
    figure = style.new_figure(5.8, 5.0)
    axes = figure.subplots()
    shown = axes.imshow(surface, cmap="afmhot", extent=extent, interpolation="bicubic", vmin=0, origin="upper")
    style.finish(axes, "relative right ascension  (µas)", "relative declination  (µas)")
    axes.grid(False)
    width, height = abs(extent[1] - extent[0]), extent[3] - extent[2]
    length = _round_length(width / 3)
    left, low = extent[0] - 0.06 * width, extent[2] + 0.06 * height
    if beam_rad is not None:
        beam = beam_rad if isinstance(beam_rad, Beam) else Beam(beam_rad, beam_rad, 0.0)
        major, minor = beam.major / UAS, beam.minor / UAS
        # angles are drawn from the axis to the east towards north, position angles run from north to east
        shape = {"width": major, "height": minor, "angle": 90 - np.rad2deg(beam.pa_rad)}
        axes.add_patch(Ellipse((left - major / 2, low + major / 2), **shape, fill=False, color="white", linewidth=1.3))
    right = extent[1] + 0.06 * width
    axes.plot([right + length, right], [low, low], color="white", linewidth=2.2, solid_capstyle="butt")
    label = {"color": "white", "ha": "center", "va": "bottom", "fontsize": style.TICK}
    axes.text(right + 0.5 * length, low + 0.015 * height, f"{length:g} µas", **label)
    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    style.colour_bar(figure, shown, axes, "brightness  (mJy/µas²)")
    if title:
        axes.set_title(title, fontsize=style.LABEL, color=style.INK, loc="left")
    return figure


def polarisation(image: Image, *, beam_rad: float | Beam | None = None, across: int = 20) -> Any:
    """Draw an image with ticks along the electric vector, at most `across` in a row.

    Their length is |P|, their colour the linear fraction; none where I is below 5 % or |P| below 10 % of its peak.
    """
    with require_extra("drawing", "report"):
        from matplotlib.collections import LineCollection

    if not {"Q", "U"} <= set(image.values):
        raise ValueError(f"polarisation: the image has {', '.join(image.values)}. It needs Q and U.")
    figure = sky(image, beam_rad=beam_rad)
    figure.set_size_inches(7.0, 5.0)  # room for a second bar
    step = -(-max(image.shape) // across)
    every = (slice(step // 2, None, step),) * 2
    x, y = (a[every] / UAS for a in np.meshgrid(image.x, image.y))
    total, linear = image.values["I"], image.values["Q"] + 1j * image.values["U"]
    size = np.abs(linear)
    shown = ((total > 0.05 * total.max()) & (size > 0.1 * size.max()))[every]
    half = 0.6 * step * image.pixel_rad / UAS * size[every][shown] / size.max()
    angle = 0.5 * np.angle(linear[every][shown])  # from north to east
    reach = np.stack([half * np.sin(angle), half * np.cos(angle)], -1)
    centre = np.stack([x[shown], y[shown]], -1)
    fraction = size[every][shown] / total[every][shown]
    ticks = LineCollection(list(np.stack([centre - reach, centre + reach], 1)), cmap="cool", linewidths=1.6)
    ticks.set_array(fraction)
    ticks.set_clim(0, max(float(fraction.max(initial=0.0)), 1e-3))
    figure.axes[0].add_collection(ticks)
    style.colour_bar(figure, ticks, figure.axes[0], "linear polarised fraction")
    return figure


def spectral_index(image: Image, alpha: np.ndarray) -> Any:
    """Draw a map of the spectral index where the image exceeds 5 % of its peak, with contours of its brightness."""
    total = image.values["I"]
    figure = style.new_figure(5.8, 5.0)
    axes = figure.subplots()
    shown = np.where(total > 0.05 * total.max(), alpha, np.nan)
    drawn = axes.imshow(shown, cmap="viridis", extent=_extent(image), origin="upper")
    levels = total.max() * np.array([0.1, 0.25, 0.5, 0.75])
    axes.contour(image.x / UAS, image.y / UAS, total, levels=levels, colors=style.INK, linewidths=0.8)
    style.finish(axes, "relative right ascension  (µas)", "relative declination  (µas)")
    axes.grid(False)
    style.colour_bar(figure, drawn, axes, "spectral index α")
    return figure


def errors(image: Image, sd: Image) -> Any:
    """Draw the standard deviation of every pixel, and the image divided by it."""
    figure = style.new_figure(9.6, 4.4)
    surface = 1e3 * sd.values["I"] / (image.pixel_rad / UAS) ** 2
    panels = (
        (surface, "standard deviation  (mJy/µas²)", "viridis"),
        (image.values["I"] / sd.values["I"], "brightness / standard deviation", "magma"),
    )
    for axes, (shown, label, colours) in zip(figure.subplots(1, 2), panels, strict=True):
        drawn = axes.imshow(shown, cmap=colours, extent=_extent(image), vmin=0, origin="upper")
        style.finish(axes, "relative right ascension  (µas)", "relative declination  (µas)")
        axes.grid(False)
        style.colour_bar(figure, drawn, axes, label)
    return figure


def draws(found: Any, *, most: int = 4) -> Any:
    """Draw the mean of an `ImagePosterior`, its standard deviation, and its first images, all in one scale.

    It ends at twice the peak of the mean: one bright spot of one draw would leave all else in the dark.
    """
    mean = found.mean()
    shown = {"mean": mean, "standard deviation": found.sd()}
    shown |= {f"draw {i}": found.about.replace(values={"I": one}) for i, one in enumerate(found.images[:most], 1)}
    return _side_by_side(shown, columns=-(-len(shown) // 2), most=2 * float(mean.values["I"].max()))


def movie(found: Movie, *, most: int = 12) -> Any:
    """Draw the frames of a movie in one scale, at most so many, evenly chosen, with the first and the last."""
    chosen = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int))
    return _side_by_side({f"{found.time_h[k]:.2f} h UTC": found.frames[k] for k in chosen}, columns=min(len(chosen), 4))


def _side_by_side(images: Mapping[str, Image], columns: int, most: float = np.inf) -> Any:
    """Draw images of one grid by title, all in the scale of the brightest, or up to `most` Jy in a pixel."""
    rows = -(-len(images) // columns)
    figure = style.new_figure(2.8 * columns + 1.2, 2.4 * rows + 0.6)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    first = next(iter(images.values()))
    scale = 1e3 / (first.pixel_rad / UAS) ** 2
    peak = float(max(one.values["I"].max() for one in images.values()))
    look = {"cmap": "afmhot", "extent": _extent(first), "vmin": 0, "vmax": scale * min(peak, most), "origin": "upper"}
    for axes, (title, one) in zip(panels, images.items(), strict=False):
        drawn = axes.imshow(scale * one.values["I"], interpolation="bicubic", **look)
        axes.set_title(title, fontsize=style.LABEL, color=style.INK, loc="left")
        axes.tick_params(labelsize=style.TICK, labelcolor=style.INK, color=style.FAINT)
    for axes in panels[len(images) :]:
        axes.set_axis_off()
    figure.supxlabel("relative right ascension  (µas)", fontsize=style.LABEL, color=style.INK)
    figure.supylabel("relative declination  (µas)", fontsize=style.LABEL, color=style.INK)
    style.colour_bar(figure, drawn, panels, "brightness  (mJy/µas²)", extend="max" if peak > most else "neither")
    return figure


def light_curve(found: Movie) -> Any:
    """Draw the total flux of a movie against time."""
    figure = style.new_figure(5.8, 3.0)
    axes = figure.subplots()
    axes.plot(found.time_h, found.light_curve, "o-", color=style.BLUE, markersize=3.5, linewidth=1.5)
    axes.set_ylim(0, 1.15 * float(found.light_curve.max()))
    style.finish(axes, "time  (h UTC)", "flux  (Jy)")
    return figure


def animate(found: Movie, path: Any, *, pictures: int = 60, per_second: int = 10) -> None:
    """Write a movie as an animated GIF of so many pictures, linear between frames."""
    with require_extra("drawing", "report"):
        from matplotlib.animation import FuncAnimation, PillowWriter

    hours = np.linspace(found.time_h[0], found.time_h[-1], pictures)
    figure = sky(found.frames[0])
    axes, drawn = figure.axes[0], figure.axes[0].images[0]
    scale = 1e3 / (found.frames[0].pixel_rad / UAS) ** 2
    drawn.set_clim(0, scale * max(one.values["I"].max() for one in found.frames))

    def show(k: int) -> list[Any]:
        drawn.set_data(scale * found.at(float(hours[k])).values["I"])
        return [drawn, axes.set_title(f"{hours[k]:.2f} h UTC", fontsize=style.LABEL, color=style.INK, loc="left")]

    FuncAnimation(figure, show, frames=pictures).save(str(path), PillowWriter(fps=per_second), dpi=80)


def amplitudes(obs: Observation, image: Image | None = None) -> Any:
    """Draw amplitudes against baseline length, with those of an image and the differences over σ if one is given."""
    distance, data, sigma = obs.uv_distance / 1e9, np.abs(obs.vis["I"]), obs.sigma["I"]
    model = None if image is None else np.abs(visibilities(image, obs.u, obs.v)["I"])
    off = None if model is None else (data - model) / sigma
    figure, top = _compared(distance, (data, sigma), model, off, ("baseline length  (Gλ)", "amplitude  (Jy)"))
    top.set_ylim(0, 1.08 * data.max())
    return figure


def closure_phases(obs: Observation, image: Image | None = None, *, uv_min: float = 0.0, count: str = "min") -> Any:
    """Draw closure phases against the longest leg of their triangle, with those of an image if one is given."""
    table = triangles(obs, count=count, uv_min=uv_min)
    if not len(table):
        raise ValueError("closure_phases: no triangle has all three baselines. Lower uv_min, or average over scans.")
    model = off = None
    if image is not None:
        vis = visibilities(image, obs.u, obs.v)["I"][table.row]
        model = np.rad2deg(np.angle(np.where(table.conjugate, vis.conj(), vis).prod(1)))
        off = ((table.value - model + 180) % 360 - 180) / table.sigma
    names = "longest baseline of the triangle  (Gλ)", "closure phase  (°)"
    figure, top = _compared(_longest(table), (table.value, table.sigma), model, off, names)
    top.set_ylim(-190, 190)
    top.set_yticks([-180, -90, 0, 90, 180])
    return figure


def closure_amplitudes(obs: Observation, image: Image | None = None, *, count: str = "min") -> Any:
    """Draw log closure amplitudes against the longest baseline of the four, with those of an image if one is given."""
    table = quadrangles(obs, count=count)
    if not len(table):
        raise ValueError("closure_amplitudes: no four stations have all baselines. Average over scans.")
    model = off = None
    if image is not None:
        model = np.log(np.abs(visibilities(image, obs.u, obs.v)["I"])[table.row]) @ [1, 1, -1, -1]
        off = (table.value - model) / table.sigma
    names = "longest baseline of the four  (Gλ)", "log closure amplitude"
    return _compared(_longest(table), (table.value, table.sigma), model, off, names)[0]


def uv_coverage(obs: Observation) -> Any:
    """Draw the baselines in the (u, v) plane, both orientations, by signal-to-noise ratio."""
    figure = style.new_figure(5.8, 5.0)
    axes = figure.subplots()
    u, v = (np.concatenate([a, -a]) / 1e9 for a in (obs.u, obs.v))
    snr = np.log10(np.maximum(np.tile(obs.snr, 2), 1e-3))
    order = np.argsort(snr)
    dots = axes.scatter(u[order], v[order], c=snr[order], s=12, cmap="viridis", linewidths=0)
    reach = 1.08 * obs.uv_distance.max() / 1e9
    axes.set_xlim(reach, -reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    style.finish(axes, "u  (Gλ)", "v  (Gλ)")
    style.colour_bar(figure, dots, axes, "log₁₀ signal-to-noise ratio")
    return figure


def gains(table: GainTable) -> Any:
    """Draw moduli and phases of station gains against time, a colour for each station that was solved for."""
    figure = style.new_figure()
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1))
    time = 0.5 * (table.start + table.stop)
    shown = [k for k in range(len(table.stations)) if table.solved[:, k].any()]
    if not shown:
        raise ValueError("gains: no station was solved for.")
    for n, k in enumerate(shown):
        at, gain = time[table.solved[:, k]], table.gain[table.solved[:, k], k]
        look = {"color": style.COLOURS[n % len(style.COLOURS)], "markersize": 4.0, "linestyle": "none"}
        look["marker"] = "os^v"[n // len(style.COLOURS) % 4]
        top.plot(at, np.abs(gain), **look, label=table.stations[k])
        low.plot(at, np.rad2deg(np.angle(gain)), **look)
    top.axhline(1, color=style.FAINT, linewidth=1, zorder=0)
    low.set_ylim(-190, 190)
    low.set_yticks([-180, -90, 0, 90, 180])
    style.finish(top, "", "|gain|")
    style.finish(low, "time  (h UTC)", "phase  (°)")
    style.legend(top, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(len(shown), 8))
    figure.align_ylabels()
    return figure


def convergence(histories: Mapping[str, Any]) -> Any:
    """Draw the objective above its lowest against evaluations, one line for each fit of a series, by name.

    The lowest is each fit's own, since fits may have different weights.
    """
    series = {name: np.asarray(h, float) for name, h in histories.items()}
    if not any(np.isfinite(h).any() for h in series.values()):
        raise ValueError("convergence: no fit has a history of finite values. Fit with a solver that records it.")
    figure = style.new_figure(5.8, 3.6)
    axes = figure.subplots()
    before = 0
    for k, (name, values) in enumerate(series.items()):
        above = values - np.min(values, initial=np.inf, where=np.isfinite(values))
        shown = np.isfinite(above) & (above > 0)
        at = before + np.arange(1, len(values) + 1)
        axes.plot(at[shown], above[shown], color=style.COLOURS[k % len(style.COLOURS)], linewidth=1.7, label=name)
        before += len(values)
    axes.set_yscale("log")
    style.finish(axes, "evaluations", "objective − lowest")
    if len(series) <= len(style.COLOURS):
        style.legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(len(series), 3))
    return figure


def scores(found: Any) -> Any:
    """Draw the scores of a CrossValidation against every weight, for the best of the others."""
    names = list(found.weights)
    figure = style.new_figure(3.2 * len(names) + 0.8, 3.6)
    panels = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
    for panel, name in zip(panels, names, strict=True):
        values = np.array([choice[name] for choice in found.choices])
        shown = np.unique(values)
        best = [int(np.where(values == value, found.mean, np.inf).argmin()) for value in shown]
        panel.errorbar(np.arange(len(shown)), found.mean[best], found.error[best], **_points(), label="held out")
        panel.plot(np.arange(len(shown)), found.training[best], color=style.GREEN, label="fitted")
        at = int(np.flatnonzero(shown == found.weights[name])[0])
        ring = {"markersize": 12, "markerfacecolor": "none", "markeredgecolor": style.VERMILLION}
        panel.plot(at, found.mean[found.chosen], "o", **ring, label="chosen")
        panel.set_xticks(np.arange(len(shown)), [f"{value:g}" for value in shown])
        style.finish(panel, f"weight of {name}", "χ² per measurement" if name == names[0] else "")
    style.legend(panels[0], loc="upper left")
    return figure


def _extent(image: Image) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top edge, µas."""
    half = 0.5 * image.pixel_rad / UAS
    x, y = image.x / UAS, image.y / UAS
    return x[0] + half, x[-1] - half, y[-1] - half, y[0] + half


def _longest(table: Any) -> np.ndarray:
    """Length of the longest baseline of every closure, Gλ."""
    return np.hypot(table.uv[..., 0], table.uv[..., 1]).max(1) / 1e9


def _compared(x: np.ndarray, data: tuple, model: np.ndarray | None, off: Any, names: tuple[str, str]) -> tuple:
    """Draw data with errors, and model and residuals below where there is one; return the figure and its upper axes."""
    figure = style.new_figure()
    top, low = (figure.subplots(), None) if model is None else figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    top.errorbar(x, data[0], yerr=data[1], label="data", **_points())
    if model is None:
        style.finish(top, *names)
        return figure, top
    top.plot(x, model, "o", **_model_points(), label="image")
    style.finish(top, "", names[1])
    style.legend(top, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2)
    _residuals(low, x, off)
    style.finish(low, names[0], "residual / σ")
    figure.align_ylabels()
    return figure, top


def _points() -> dict[str, Any]:
    return {"fmt": "o", "color": style.BLUE, "ecolor": style.SKY, "markersize": 3.2, "elinewidth": 1.1}


def _model_points() -> dict[str, Any]:
    return {"markersize": 4.6, "markerfacecolor": "none", "markeredgecolor": style.VERMILLION, "zorder": 3}


def _residuals(axes: Any, x: np.ndarray, residuals: np.ndarray) -> None:
    axes.axhspan(-1, 1, color=style.SKY, alpha=0.18, linewidth=0)
    axes.axhline(0, color=style.FAINT, linewidth=1)
    axes.plot(x, residuals, "o", color=style.BLUE, markersize=2.8)
    reach = max(3.5, 1.1 * float(np.abs(residuals).max()))
    axes.set_ylim(-reach, reach)


def _round_length(most: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is not above `most`."""
    power = 10.0 ** np.floor(np.log10(most))
    return float(max(step * power for step in (1, 2, 5) if step * power <= most))
