"""Figures of a fitted decay."""

import numpy as np
from matplotlib.figure import Figure

from decay.counts import as_rows, expected


def figures(run_dir, result, settings):
    """Return name → (caption, Figure). settings: what the command kept in the run directory."""
    rows = as_rows(settings["time"], settings["counts"])
    figure = Figure(figsize=(6, 3))
    axes = figure.subplots()
    axes.errorbar(rows["time"], rows["counts"], rows["sigma"], fmt=".", label="counted")
    axes.plot(rows["time"], np.asarray(expected(result.params, rows["time"])), label="fitted")
    axes.set(xlabel="time (s)", ylabel="counts", yscale="log")
    axes.legend()
    return {"decay": ("Counts with their errors, and the fitted curve.", figure)}
