"""Figures of a posterior. Each function returns a matplotlib Figure that is the caller's to save, embed or change."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardfit.report import style
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.diagnostics import bfmi, weighted_quantile

MOST = 8  # numbers that are drawn unless names are given
MOST_POINTS = 2000  # of a scatter or a trace: more are ink, not information


def trace(posterior: Posterior, names: Sequence[str] | None = None) -> Any:
    """Draw, for every number, its density and its path chain by chain; ticks below mark divergences."""
    names = chosen(posterior, names)
    figure = style.new_figure(8.6, 0.5 + 1.35 * len(names))
    panels = figure.subplots(len(names), 2, width_ratios=(1, 2.2), squeeze=False)
    diverging = np.asarray(posterior.stats.get("diverging", np.zeros(posterior.z.shape[:2])), bool)
    for (left, right), name in zip(panels, names, strict=True):
        draws = _by_chain(posterior, name)
        grid = _range_of(draws)
        step = max(1, draws.shape[1] // MOST_POINTS)
        for i, chain in enumerate(draws):
            look = {"color": style.COLOURS[i % len(style.COLOURS)], "alpha": 0.85}
            left.plot(*_density(chain, grid, _weights(posterior, i)), linewidth=1.3, **look)
            right.plot(np.arange(0, len(chain), step), chain[::step], linewidth=0.5, **look)
        at = np.flatnonzero(diverging.any(0))
        right.plot(at, np.zeros(len(at)), "|", color=style.INK, markersize=8, transform=right.get_xaxis_transform())
        left.set_yticks([])
        right.set_xlim(0, draws.shape[1])
        style.finish(left, "", _with_unit(posterior, name), grid="x")
        left.locator_params(axis="x", nbins=4)
        style.finish(right, "", "")
    panels[-1][1].set_xlabel("draw", fontsize=style.LABEL, color=style.INK)
    figure.align_ylabels()
    return figure


def rank(posterior: Posterior, names: Sequence[str] | None = None, bins: int = 20) -> Any:
    """Draw how the ranks of each chain's draws among all draws spread: flat if the chains see the same density.

    The band holds 95 % of the bars of chains that do, if their draws were independent.
    """
    from scipy.stats import binom, rankdata

    names = chosen(posterior, names)
    rows = -(-len(names) // 4)
    columns = -(-len(names) // rows)  # rows of equal length, as far as they go
    figure = style.new_figure(2.4 * columns + 0.4, 0.5 + 1.9 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    chains, draws = posterior.z.shape[:2]
    low, high = binom.interval(0.95, draws, 1 / bins)
    edges = np.linspace(0, 1, bins + 1)
    for axes, name in zip(panels.flat, names, strict=False):
        ranks = ((rankdata(_by_chain(posterior, name)) - 0.5) / (chains * draws)).reshape(chains, draws)
        axes.axhspan(low * bins / draws, high * bins / draws, color=style.SKY, alpha=0.18, linewidth=0)
        for i, chain in enumerate(ranks):
            counts = np.histogram(chain, edges)[0]
            look = {"color": style.COLOURS[i % len(style.COLOURS)], "linewidth": 1.2, "baseline": None}
            axes.stairs(counts * bins / draws, edges, **look)
        axes.set_xticks([0, 0.5, 1])
        axes.set_title(name, fontsize=style.TICK, color=style.INK)
        style.finish(axes, "", "", grid="y")
    panels[0, 0].set_ylim(bottom=0)
    for i, axes in enumerate(panels.flat):
        axes.set_visible(i < len(names))
        axes.tick_params(labelbottom=i + columns >= len(names))
    figure.supxlabel("rank among all draws", fontsize=style.LABEL, color=style.INK)
    figure.supylabel("relative frequency", fontsize=style.LABEL, color=style.INK)
    return figure


def pair(posterior: Posterior, names: Sequence[str] | None = None, truth: Mapping[str, float] | None = None) -> Any:
    """Draw every pair of numbers, with their densities on the diagonal; divergent draws stand out.

    truth: values by name, drawn as lines.
    """
    names = chosen(posterior, names, most=6)
    n, joined = len(names), np.stack([_by_chain(posterior, name).ravel() for name in names])
    weights = None if posterior.weights is None else posterior.weights.ravel()
    shown = representative(posterior)
    diverging = np.asarray(posterior.stats.get("diverging", np.zeros(posterior.z.shape[:2])), bool).ravel()
    figure = style.new_figure(1.2 + 1.45 * n, 1.0 + 1.45 * n)
    panels = figure.subplots(n, n, squeeze=False, sharex="col")
    truth = truth or {}
    for i, row in enumerate(panels):
        for j, axes in enumerate(row):
            if j > i:
                axes.set_visible(False)
                continue
            if i == j:
                axes.plot(*_density(joined[i], _range_of(joined[i, shown]), weights), color=style.BLUE, linewidth=1.4)
                axes.set_ylim(bottom=0)
                axes.set_yticks([])
            else:
                axes.plot(joined[j, shown], joined[i, shown], ".", color=style.BLUE, markersize=2, alpha=0.35, mew=0)
                axes.plot(joined[j, diverging], joined[i, diverging], ".", color=style.VERMILLION, markersize=5)
                if names[i] in truth:
                    axes.axhline(truth[names[i]], color=style.ORANGE, linewidth=1.1)
            if names[j] in truth:
                axes.axvline(truth[names[j]], color=style.ORANGE, linewidth=1.1)
            below, beside = (_with_unit(posterior, names[k]) for k in (j, i))
            style.finish(axes, below if i == n - 1 else "", beside if j == 0 < i else "")
            axes.locator_params(nbins=3)
            axes.tick_params(labelleft=j == 0 < i, labelbottom=i == n - 1)
    figure.align_labels()
    return figure


def forest(posteriors: Posterior | Mapping[str, Posterior], names: Sequence[str] | None = None) -> Any:
    """Draw the median, the middle 50 % and 90 % of every number, a panel per parameter; several posteriors by name."""
    sets = {posteriors.method: posteriors} if isinstance(posteriors, Posterior) else dict(posteriors)
    first = next(iter(sets.values()))
    names = chosen(first, names, most=24)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("[")[0], []).append(name)
    sizes = [len(members) for members in groups.values()]
    figure = style.new_figure(6.4, 0.6 + 0.4 * len(groups) + 0.3 * sum(sizes))
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=[s + 0.8 for s in sizes])[:, 0]
    for axes, (label, members) in zip(panels, groups.items(), strict=True):
        for k, posterior in enumerate(sets.values()):
            shift = 0.5 * (k - (len(sets) - 1) / 2) / len(sets)
            for row, name in enumerate(members):
                low, q1, middle, q3, high = _quantiles(posterior, name, (0.05, 0.25, 0.5, 0.75, 0.95))
                colour = style.COLOURS[k % len(style.COLOURS)]
                axes.hlines(row + shift, low, high, color=colour, linewidth=1.2)
                axes.hlines(row + shift, q1, q3, color=colour, linewidth=3.5)
                axes.plot(middle, row + shift, "o", color="white", markeredgecolor=colour, markersize=5)
        axes.set_yticks(range(len(members)), members)
        axes.set_ylim(len(members) - 0.4, -0.6)
        style.finish(axes, first.units.get(label, ""), "", grid="x")
    if len(sets) > 1:
        for k, name in enumerate(sets):
            panels[0].plot([], [], color=style.COLOURS[k % len(style.COLOURS)], linewidth=3.5, label=name)
        style.legend(panels[0], loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(sets))
    return figure


def energy(posterior: Posterior) -> Any:
    """Draw the energies a chain visits and the steps between them: alike if the momenta carry it everywhere."""
    if "energy" not in posterior.stats:
        raise ValueError(f"energy: {posterior.method!r} keeps no energies. Draw it for 'nuts'.")
    energies = np.asarray(posterior.stats["energy"], float)
    about_mean = (energies - energies.mean()).ravel()
    steps = np.diff(energies, axis=1).ravel()
    figure = style.new_figure(5.8, 3.2)
    axes = figure.subplots()
    for values, colour, label in (
        (about_mean, style.BLUE, "energy − mean"),
        (steps, style.VERMILLION, "step between draws"),
    ):
        x, y = _density(values, _range_of(np.concatenate([about_mean, steps])))
        axes.plot(x, y, color=colour, linewidth=1.6, label=label)
        axes.fill_between(x, y, color=colour, alpha=0.15, linewidth=0)
    shares = ", ".join(f"{share:.2f}" for share in bfmi(energies)[:8])
    axes.text(0.02, 0.95, f"BFMI {shares}", transform=axes.transAxes, va="top", fontsize=style.TICK, color=style.INK)
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    style.finish(axes, "energy", "density", grid="x")
    style.legend(axes, loc="upper right")
    return figure


def predictive(
    x: Any, data: Any, sigma: Any, predictions: Any, *, weights: Any = None, xlabel: str = "x", ylabel: str = "data"
) -> Any:
    """Draw data (n,) with error bars on the bands that hold 50 % and 90 % of the predictions, and their distance.

    predictions: (chains, draws, n), as Posterior.predict gives them: the model, without noise. weights: of the draws.
    """
    x, data, predictions = (np.asarray(a, float) for a in (x, data, predictions))
    sigma = np.broadcast_to(np.asarray(sigma, float), x.shape)
    if predictions.ndim != 3 or predictions.shape[2:] != x.shape:
        raise ValueError(f"predictive: predictions have shape {predictions.shape}, not (chains, draws, {x.size}).")
    order = np.argsort(x)
    x, data, sigma = x[order], data[order], sigma[order]
    joined = predictions.reshape(-1, x.size)[:, order]
    shares = np.full(len(joined), 1 / len(joined)) if weights is None else np.ravel(weights)
    low, q1, middle, q3, high = weighted_quantile(joined, shares, (0.05, 0.25, 0.5, 0.75, 0.95))
    figure = style.new_figure()
    top, under = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    points = {"fmt": ".", "color": style.BLUE, "ecolor": style.SKY, "markersize": 5, "elinewidth": 1.2}
    band = {"color": style.VERMILLION, "linewidth": 0}
    top.fill_between(x, low, high, alpha=0.2, label="90 % of the model", **band)
    top.fill_between(x, q1, q3, alpha=0.35, label="50 %", **band)
    top.plot(x, middle, color=style.VERMILLION, linewidth=1.2)
    top.errorbar(x, data, yerr=sigma, label="data", zorder=3, **points)
    under.axhspan(-1, 1, color=style.SKY, alpha=0.18, linewidth=0)
    under.axhline(0, color=style.FAINT, linewidth=1)
    # of data, the model's own spread counts beside the noise
    distance = (data - middle) / np.hypot(sigma, joined.std(0))
    under.plot(x, distance, ".", color=style.BLUE, markersize=5)
    reach = max(3.5, 1.1 * np.max(np.abs(distance), initial=0))
    under.set_ylim(-reach, reach)
    style.finish(top, "", ylabel)
    style.finish(under, xlabel, "distance / σ")
    style.legend(top, loc="best")
    figure.align_ylabels()
    return figure


def chosen(posterior: Posterior, names: Sequence[str] | None, most: int = MOST) -> list[str]:
    """Return the numbers to draw: those named (a parameter means all its numbers), or the first few that vary."""
    if names is None:
        moving = np.ptp(posterior.numbers(), axis=(0, 1)) > 0
        return [name for name, moves in zip(posterior.names, moving, strict=True) if moves][:most]
    found = []
    for name in names:
        members = [n for n in posterior.names if n == name or n.startswith(f"{name}[")]
        if not members:
            posterior.flat(name)  # raises, with a suggestion
        found += members
    return found


def _by_chain(posterior: Posterior, name: str) -> np.ndarray:
    return posterior.flat(name).reshape(posterior.z.shape[:2])


def _weights(posterior: Posterior, chain: int) -> np.ndarray | None:
    return None if posterior.weights is None else posterior.weights[chain]


def _with_unit(posterior: Posterior, name: str) -> str:
    unit = posterior.units.get(name.partition("[")[0], "")
    return f"{name} ({unit})" if unit else name


def _quantiles(posterior: Posterior, name: str, probabilities: tuple[float, ...]) -> np.ndarray:
    draws = posterior.flat(name)
    if posterior.weights is None:
        return np.quantile(draws, probabilities)
    return weighted_quantile(draws, posterior.weights.ravel(), probabilities)


def representative(posterior: Posterior, most: int = MOST_POINTS) -> np.ndarray:
    """Return numbers of draws, chains joined, that stand for all: evenly spaced, or chosen by their weights."""
    n = min(most, posterior.size)
    if posterior.weights is None:
        return np.linspace(0, posterior.size - 1, n).round().astype(int)
    reached = np.cumsum(posterior.weights.ravel())
    return np.searchsorted(reached / reached[-1], (np.arange(n) + 0.5) / n)


def _range_of(draws: np.ndarray) -> np.ndarray:
    """Return a grid over all but the outermost draws: a single far one would squeeze the rest."""
    low, high = np.quantile(draws, [0.001, 0.999])
    margin = 0.08 * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, 257)


def _density(draws: np.ndarray, grid: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, y) of a Gaussian kernel density on a grid: counts of its cells, smoothed by Silverman's width."""
    step = grid[1] - grid[0]
    counts = np.histogram(draws, np.append(grid - step / 2, grid[-1] + step / 2), weights=weights)[0]
    q1, q3 = np.quantile(draws, [0.25, 0.75])
    spread = min(draws.std(), (q3 - q1) / 1.34) or draws.std() or step
    width = max(0.9 * spread * len(draws) ** -0.2 / step, 0.5)
    reach = np.arange(-int(4 * width) - 1, int(4 * width) + 2)
    kernel = np.exp(-0.5 * (reach / width) ** 2)
    y = np.convolve(counts, kernel / kernel.sum(), mode="full")[len(reach) // 2 :][: len(grid)]
    return grid, y / max(counts.sum() * step, np.finfo(float).tiny)
