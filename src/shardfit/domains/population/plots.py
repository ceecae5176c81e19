"""Figures of populations. Each function returns a matplotlib Figure."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.problem import Problem
from shardfit.domains.population import colours as colour_model
from shardfit.domains.population import gaussian, smf
from shardfit.domains.population.ackley import ackley as ackley_function
from shardfit.report import style
from shardfit.stats.scan import Trajectory

DOTS = {"s": 3, "alpha": 0.35, "linewidths": 0}


def mass_function(problem: Problem, params: Any) -> Any:
    """Draw a stellar mass function: target, start and fit, and the logarithm of fit over target below."""
    (survey,) = problem.objective.terms[0].args
    edges, target = np.asarray(survey["edges"]), np.asarray(survey["target"])
    start, fitted = (smf.model_function(problem, p) for p in (problem.x0, params))
    centre = 0.5 * (edges[1:] + edges[:-1])
    figure = style.new_figure()
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    top.stairs(start, edges, color=style.FAINT, linestyle="--", linewidth=1.3, baseline=None, label="start")
    top.stairs(fitted, edges, color=style.VERMILLION, linewidth=1.8, baseline=None, label="fit")
    top.plot(centre, target, "o", color=style.BLUE, markersize=5, label="target")
    top.set_yscale("log")
    low.axhline(0, color=style.FAINT, linewidth=1)
    low.plot(centre, np.log10(fitted / target), "o", color=style.BLUE, markersize=4)
    style.finish(top, "", "galaxies per volume and dex")
    style.finish(low, "log₁₀ stellar mass", "log₁₀ ratio")
    style.legend(top, loc="lower left")
    figure.align_ylabels()
    return figure


def descent(way: Trajectory, truth: Mapping[str, Any] | None = None, columns: int = 3) -> Any:
    """Draw the value and every parameter along a fit; dashed lines are the truth where it is known."""
    lines = [("value", way.values[:, None], None)]
    known = {} if truth is None else dict(_named(truth))
    lines += [(name, array.reshape(len(array), -1), known.get(name)) for name, array in _named(way.params)]
    rows = -(-len(lines) // columns)
    figure = style.new_figure(3.0 * columns, 0.4 + 1.9 * rows)
    panels = np.ravel(figure.subplots(rows, columns, sharex=True, squeeze=False))
    for axes, (name, array, true) in zip(panels, lines, strict=False):
        for i, column in enumerate(array.T):
            colour = style.COLOURS[i % len(style.COLOURS)]
            axes.plot(column, color=colour, linewidth=1.1)
            if true is not None:
                axes.axhline(np.ravel(true)[i], color=colour, linestyle="--", linewidth=1.0)
        if name == "value":
            axes.set_yscale("log")
        style.finish(axes, "", name)
    for axes in panels[len(lines) :]:
        axes.set_visible(False)
    for axes in panels[max(0, len(lines) - columns) : len(lines)]:
        axes.set_xlabel("step", fontsize=style.LABEL, color=style.INK)
        axes.tick_params(labelbottom=True)
    return figure


def _named(tree):
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, tuple))[0]:
        yield " ".join(str(getattr(key, "key", key)) for key in path), np.asarray(leaf, float)


def ellipses(points: np.ndarray, answers: Mapping[str, Any]) -> Any:
    """Draw a sample (n, 2) with 1σ and 2σ ellipses of normals by name: dicts of mean, variance and correlation."""
    figure = style.new_figure(5.4, 4.8)
    axes = figure.subplots()
    axes.scatter(*points[:4000].T, color=style.FAINT, **DOTS)
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    for i, (name, p) in enumerate(answers.items()):
        p = {key: jnp.asarray(value) for key, value in p.items()}
        for size in (1, 2):
            curve = p["mean"] + gaussian.correlated(p["variance"], p["correlation"], size * circle)
            look = {"color": style.COLOURS[i], "linestyle": style.LINES[i], "linewidth": 1.8}
            axes.plot(*np.asarray(curve).T, label=name if size == 1 else None, **look)
    style.finish(axes, "x₁", "x₂")
    style.legend(axes, loc="upper right")
    return figure


def colours(params: Any, *, n: int = 5000, seed: int = 0) -> Any:
    """Draw colours of the training sample and of the model, in each bin of stellar mass."""
    rng = np.random.default_rng([seed, 2])
    mass, points = colour_model.training(seed=seed)
    logm = colour_model.triangular(n, 12.5, rng)
    found, shares = colour_model.galaxies(params, jnp.asarray(logm), jnp.asarray(rng.standard_normal((n, 2, 2))))
    kept = rng.random((n, 2)) < np.asarray(shares)
    own = np.broadcast_to(np.asarray(colour_model.stellar_mass(params, logm))[:, None], kept.shape)[kept]
    figure = style.new_figure(8.8, 3.2)
    panels = figure.subplots(1, len(colour_model.BINS), sharex=True, sharey=True)
    for axes, (low, high) in zip(panels, colour_model.BINS, strict=True):
        for i, (name, m, p) in enumerate((("training", mass, points), ("model", own, np.asarray(found)[kept]))):
            axes.scatter(*p[(m >= low) & (m < high)].T, color=style.COLOURS[i], label=name, **DOTS)
        axes.set_title(f"log₁₀ M* {low:g} to {high:g}", fontsize=style.TICK, color=style.INK)
        style.finish(axes, "colour 1", "colour 2" if axes is panels[0] else "")
    style.legend(panels[0], loc="upper left", markerscale=3)
    return figure


def landscape(best: np.ndarray, reach: float = 5.0) -> Any:
    """Draw Ackley's function on the plane of the first two axes, the others at the best point (n,), which is marked."""
    figure = style.new_figure(5.6, 4.6)
    axes = figure.subplots()
    line = np.linspace(-reach, reach, 301)
    grid = np.broadcast_to(best, (len(line), len(line), len(best))).copy()
    grid[..., 0], grid[..., 1] = line[None, :], line[:, None]
    values = jax.vmap(jax.vmap(ackley_function))(jnp.asarray(grid))
    shown = axes.pcolormesh(line, line, np.asarray(values), cmap="viridis", shading="nearest", rasterized=True)
    axes.plot(*best[:2], "o", markersize=9, markerfacecolor="none", markeredgecolor=style.VERMILLION, markeredgewidth=2)
    style.finish(axes, "x₁", "x₂")
    axes.grid(False)
    style.colour_bar(figure, shown, axes, "value")
    return figure
