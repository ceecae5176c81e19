"""Figures of a fit. Each function returns a matplotlib Figure that is the caller's: save it, embed it, change it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardfit.core.result import Result
from shardfit.report import style
from shardfit.report.values import coordinates, pair, solver_name
from shardfit.solve.monitor import counted


def convergence(results: Result | Mapping[str, Result]) -> Any:
    """Draw the value above its lowest and the gradient against evaluations, for one result or several by name.

    Searches without a gradient have no panel of it.
    """
    runs = {solver_name(results): results} if isinstance(results, Result) else dict(results)
    values = [np.asarray(r.history["value"], float) for r in runs.values() if "value" in r.history]
    finite = np.concatenate([v[np.isfinite(v)] for v in values]) if values else np.array([])
    if not finite.size:
        raise ValueError("convergence: no result has a history of finite values. Fit with a solver that records it.")
    lowest = min(finite.min(), *(r.value for r in runs.values()))
    slopes = any(_above_zero(r.history.get("gradient", ())).any() for r in runs.values())
    figure = style.new_figure(8.4, 3.5)
    left, right = figure.subplots(1, 2) if slopes else (figure.subplots(), None)
    rounding = np.finfo(float).eps * np.abs(finite).max()  # what is closer to the lowest is the lowest
    for i, (name, result) in enumerate(runs.items()):
        look = _look(i, len(result.history.get("value", ())))
        history = result.history
        value = np.asarray(history.get("value", []), float)
        count = counted(history)
        above = value - lowest
        # the lowest point itself has no place on a logarithmic axis
        shown = np.isfinite(above) & (above > rounding)
        left.plot(count[shown], above[shown], label=name, **look)
        if right is not None and "gradient" in history:
            gradient = np.asarray(history["gradient"], float)
            shown = _above_zero(gradient)
            right.plot(count[shown], gradient[shown], label=name, **look)
    labels = {"value − lowest value": left} | ({} if right is None else {"largest |gradient|": right})
    for label, axes in labels.items():
        axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        style.finish(axes, "evaluations", label)
    if len(runs) > 1:
        style.legend(left)
    return figure


def parameters(result: Result) -> Any:
    """Draw every scalar parameter's 1σ error relative to its value, with the value written beside it."""
    shown = [c for c in coordinates(result) if c.error is not None and np.isfinite(c.error) and c.error > 0]
    if not shown:
        raise ValueError("parameters: this result has no standard errors. Fit with 'lm', which gives them.")
    relative = np.array([100 * (c.error or 0) / abs(c.value) if c.value else np.nan for c in shown])
    rows = np.arange(len(shown))
    figure = style.new_figure(7.2, 1.3 + 0.34 * len(shown))
    axes = figure.subplots()
    start = np.nanmin(relative) / 3 if np.isfinite(relative).any() else 1.0
    axes.hlines(rows, start, relative, color=style.SKY, linewidth=2.5)
    axes.plot(relative, rows, "o", color=style.BLUE, markersize=6)
    axes.set_xscale("log")
    axes.set_xlim(left=start)
    axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(rows, [c.name for c in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    style.finish(axes, "1σ / |value|  (%)", grid="x")
    for row, c in zip(rows, shown, strict=True):
        value, error = pair(c.value, c.error)
        text = f"{value} ± {error} {c.unit}".rstrip()
        axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9, color=style.INK)
    return figure


def pulls(result: Result, reference: Any) -> Any:
    """Draw (fit − reference) / σ of every scalar parameter. reference: pytree like the parameters, e.g. the truth."""
    fitted = coordinates(result)
    if any(c.error is None for c in fitted):
        raise ValueError("pulls: this result has no standard errors. Fit with 'lm', which gives them.")
    known = coordinates(result, reference)
    distance = [(c.value - k.value) / c.error if c.error else np.nan for c, k in zip(fitted, known, strict=True)]
    rows = np.arange(len(fitted))
    figure = style.new_figure(height=1.3 + 0.34 * len(fitted))
    axes = figure.subplots()
    for width, alpha in ((2, 0.13), (1, 0.2)):
        axes.axvspan(-width, width, color=style.SKY, alpha=alpha, linewidth=0)
    axes.axvline(0, color=style.FAINT, linewidth=1)
    axes.errorbar(distance, rows, xerr=1, fmt="o", color=style.BLUE, markersize=6, capsize=0, linewidth=1.8)
    reach = max(3.2, 1.3 + np.nanmax(np.abs(distance), initial=0))
    axes.set_xlim(-reach, reach)
    axes.set_yticks(rows, [c.name for c in fitted])
    axes.set_ylim(len(fitted) - 0.4, -0.6)
    style.finish(axes, "(fit − reference) / σ", grid="x")
    return figure


def residual_histogram(residuals: Any, bins: int = 61) -> Any:
    """Draw the density of normalised residuals against the unit normal, and each bin's distance from it."""
    r = np.ravel(np.asarray(residuals, float))
    r = r[np.isfinite(r)]
    if r.size < 2:
        raise ValueError(f"residual_histogram: {r.size} finite residuals are too few for a histogram.")
    reach = 5.0
    edges = np.linspace(-reach, reach, bins + 1)
    counts, _ = np.histogram(r, edges)
    width, centre = edges[1] - edges[0], 0.5 * (edges[1:] + edges[:-1])
    expected = r.size * np.diff(_normal_cdf(edges))
    figure = style.new_figure()
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    top.stairs(counts / (r.size * width), edges, fill=True, color=style.SKY, alpha=0.45, label="residuals")
    x = np.linspace(-reach, reach, 401)
    top.plot(x, np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi), color=style.VERMILLION, linewidth=1.8, label="unit normal")
    outside = int(np.sum(np.abs(r) > reach))
    facts = f"n = {r.size:,}\nmean = {r.mean():+.4f}\nstd = {r.std():.4f}\nbeyond ±5: {outside}"
    top.text(0.02, 0.95, facts, transform=top.transAxes, va="top", fontsize=style.TICK, color=style.INK)
    likely = expected >= 5  # below that the bin's noise is not Gaussian
    low.axhspan(-2, 2, color=style.SKY, alpha=0.18, linewidth=0)
    low.plot(centre[likely], ((counts - expected) / np.sqrt(expected))[likely], ".", color=style.BLUE, markersize=5)
    low.set_ylim(-4.5, 4.5)
    style.finish(top, "", "density")
    style.finish(low, "normalised residual  (data − model) / σ", "(n − n₀)/√n₀")
    style.legend(top, loc="upper right")
    figure.align_ylabels()
    return figure


def data_and_model(
    x: Any, data: Any, model: Any, sigma: Any, *, bins: int | None = None, xlabel: str = "x", ylabel: str = "data"
) -> Any:
    """Draw data with error bars, the model and normalised residuals. All (n,); bins: average the data in so many bins.

    The model is given at the data's x and drawn as a line through them; a bin's model is averaged like its data.
    """
    x, data, model = (np.asarray(a, float) for a in (x, data, model))
    sigma = np.broadcast_to(np.asarray(sigma, float), x.shape)
    order = np.argsort(x)
    x, data, model, sigma = x[order], data[order], model[order], sigma[order]
    at, mean, curve, error = (x, data, model, sigma) if bins is None else _binned(x, data, model, sigma, bins)
    figure = style.new_figure()
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    points = {"fmt": ".", "color": style.BLUE, "ecolor": style.SKY, "markersize": 5, "elinewidth": 1.2}
    top.errorbar(at, mean, yerr=error, label="data" if bins is None else "data, binned", **points)
    top.plot(x, model, color=style.VERMILLION, linewidth=1.5, label="model", zorder=3)
    low.axhspan(-1, 1, color=style.SKY, alpha=0.18, linewidth=0)
    low.axhline(0, color=style.FAINT, linewidth=1)
    low.plot(at, (mean - curve) / error, ".", color=style.BLUE, markersize=5)
    reach = max(3.5, 1.1 * np.max(np.abs((mean - curve) / error), initial=0))
    low.set_ylim(-reach, reach)
    style.finish(top, "", ylabel)
    style.finish(low, xlabel, "residual / σ")
    style.legend(top, loc="upper right", reverse=True)
    figure.align_ylabels()
    return figure


def coverage(names: Sequence[str], inside: Mapping[float, Any], repetitions: int) -> Any:
    """Draw how often the truth lay within k·σ. inside: {k: fractions (n,)}; the bars are the binomial 1σ expected."""
    figure = style.new_figure(height=1.3 + 0.34 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    for i, (k, fractions) in enumerate(inside.items()):
        share = float(np.diff(_normal_cdf(np.array([-k, k])))[0])
        spread = np.sqrt(share * (1 - share) / repetitions)
        axes.axvspan(100 * (share - spread), 100 * (share + spread), color=style.COLOURS[i], alpha=0.16, linewidth=0)
        axes.axvline(100 * share, color=style.COLOURS[i], linewidth=1.2)
        look = {"color": style.COLOURS[i], "marker": style.MARKERS[i], "markersize": 6, "linestyle": "none"}
        axes.plot(100 * np.asarray(fractions), rows, label=f"within {k:g}σ: expect {100 * share:.1f} %", **look)
    axes.set_xlim(right=101)
    axes.set_yticks(rows, list(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    style.finish(axes, f"truth inside the error bar, {repetitions} repetitions  (%)", grid="x")
    style.legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(inside))
    return figure


def _look(i, points):
    colour, line = style.COLOURS[i % len(style.COLOURS)], style.LINES[i % len(style.LINES)]
    marker = style.MARKERS[i % len(style.MARKERS)] if points <= 60 else ""
    return {"color": colour, "linestyle": line, "linewidth": 1.7, "marker": marker, "markersize": 3.5}


def _above_zero(gradient):
    gradient = np.asarray(gradient, float)
    return np.isfinite(gradient) & (gradient > 0)


def _normal_cdf(x):
    from scipy.special import ndtr

    return ndtr(x)


def _binned(x, data, model, sigma, bins):
    edges = np.linspace(x[0], x[-1], bins + 1)
    place = np.clip(np.digitize(x, edges) - 1, 0, bins - 1)
    weight = 1 / sigma**2
    total = np.bincount(place, weight, bins)
    kept = total > 0

    def average(a):
        return np.bincount(place, weight * a, bins)[kept] / total[kept]

    return average(x), average(data), average(model), 1 / np.sqrt(total[kept])
