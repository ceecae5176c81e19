"""Figures of two-time correlations. Each function returns a matplotlib Figure."""

from pathlib import Path
from typing import Any

import numpy as np

from shardfit.report import style

FITTED = "nlsq/fitted_data.npz"  # what a run directory keeps of a fit
SHOWN = 6  # angles drawn in a report
PIXELS = 400  # frames of a heat map at most
RATES = {"J": "J (Å²/s)", "S": "shear rate (1/s)"}


def heat_map(c2: np.ndarray, fitted: np.ndarray, t: np.ndarray, title: str = "") -> Any:
    """Draw one angle: data (nt, nt), fit and residual side by side."""
    figure = style.new_figure(10.5, 3.1)
    step = -(-len(t) // PIXELS)
    thin = np.s_[::step, ::step]
    residual = (c2 - fitted)[thin]
    # noise beyond the fit's own range is shown too, but for its tails
    low, high = np.nanpercentile(fitted, [1, 99.5])
    low, high = min(low, np.nanpercentile(c2, 2)), max(high, np.nanpercentile(c2, 98))
    np.fill_diagonal(residual, np.nan)  # no part of the fit
    spread = max(float(np.nanpercentile(np.abs(residual), 99)), 1e-12)
    limits, around = (low, high, "viridis"), (-spread, spread, "RdBu_r")
    panels = (("data", c2[thin], limits), ("fit", fitted[thin], limits), ("data − fit", residual, around))
    places = figure.subplots(1, 3, sharey=True)
    drawn = [
        _draw(axes, image, t, look, f"{name}{', ' + title if title else ''}")
        for axes, (name, image, look) in zip(places, panels, strict=True)
    ]
    for axes in places[1:]:
        axes.set_ylabel("")
    style.colour_bar(figure, drawn[1], places[:2], "C₂", extend="both")
    style.colour_bar(figure, drawn[2], places[2], "C₂ − fit", extend="both")
    return figure


def data_map(c2: np.ndarray, t: np.ndarray, title: str = "") -> Any:
    """Draw one correlation matrix (nt, nt)."""
    figure = style.new_figure(4.4, 3.6)
    low, high = np.nanpercentile(c2, [1, 99.5])
    axes = figure.subplots()
    drawn = _draw(axes, c2, t, (low, high, "viridis"), title)
    style.colour_bar(figure, drawn, axes, "C₂", extend="both")
    return figure


def _draw(axes: Any, image: np.ndarray, t: np.ndarray, look: tuple, title: str) -> Any:
    low, high, colours = look
    extent = (t[0], t[-1], t[0], t[-1])
    drawn = axes.imshow(image.T, origin="lower", extent=extent, vmin=low, vmax=high, cmap=colours)
    style.finish(axes, "t₁ (s)", "t₂ (s)")
    axes.grid(False)
    axes.set_title(title, fontsize=style.LABEL, color=style.INK)
    return drawn


def rate_bands(rates: dict[str, np.ndarray], t: np.ndarray) -> Any:
    """Draw J(t), and S(t) if there is one, with their 1σ bands; rates: (nt, 2), value and standard error."""
    figure = style.new_figure(4.6 * len(rates), 3.4)
    for axes, (name, rate) in zip(np.ravel(figure.subplots(1, len(rates), squeeze=False)), rates.items(), strict=True):
        value, error = rate.T
        axes.fill_between(t, value - error, value + error, color=style.SKY, alpha=0.5, linewidth=0)
        axes.plot(t, value, color=style.BLUE, linewidth=1.6)
        style.finish(axes, "time (s)", " of ".join([RATES.get(part, part) for part in name.split("@")]))
    return figure


def delay_curve(c2: np.ndarray, fitted: np.ndarray, lag: np.ndarray, age: np.ndarray, title: str = "") -> Any:
    """Draw one angle of binned data over the delay, coloured by age: points (m,), and the fit as crosses."""
    figure = style.new_figure(5.4, 3.6)
    axes = figure.subplots()
    dots = axes.scatter(lag, c2, c=age, s=14, cmap="viridis", linewidths=0)
    axes.plot(lag, fitted, "x", color=style.VERMILLION, markersize=4, alpha=0.7, label="fit")
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter("")  # of less than a decade its labels would lie on each other
    axes.xaxis.set_major_formatter("{x:g}")
    style.colour_bar(figure, dots, axes, "age (s)")
    style.legend(axes)
    style.finish(axes, "delay (s)", "g₂")
    axes.set_title(title, fontsize=style.LABEL, color=style.INK)
    return figure


def figures(run_dir: Path, result: Any, settings: Any) -> dict[str, tuple[str, Any]]:
    """Return the figures of a run directory, from what it keeps of its fit: name → (caption, Figure)."""
    path = Path(run_dir) / FITTED
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as kept:
        phi, t = kept["phi_angles"], kept["t1"]
        rates = {name.removeprefix("rate_"): kept[name] for name in kept if name.startswith("rate_")}
        drawn = {"rates": ("Rates with their 1σ bands.", rate_bands(rates, t))} if rates else {}
        c2, fitted = kept["c2_exp"], kept["c2_theoretical_scaled"]
        bins = (kept["lag"], kept["age"]) if "lag" in kept else None
    for k in np.unique(np.linspace(0, len(phi) - 1, min(SHOWN, len(phi))).round().astype(int)):
        name, title = f"c2_heatmaps_phi_{phi[k]:.1f}", f"φ = {phi[k]:.1f}°"
        if bins is None:
            picture = f"Data, fit and residual at {title}.", heat_map(c2[k], fitted[k], t, title)
        else:
            picture = f"Data and fit at {title}.", delay_curve(c2[k], fitted[k], *bins, title)
        drawn[name.replace(".", "_")] = picture
    return drawn
