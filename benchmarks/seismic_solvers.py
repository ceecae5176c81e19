"""Adam on mini-batches and conditioned L-BFGS on all shots: misfit and model error over CPU seconds, on Marmousi.

Both begin at the same smoothed model, hold the water and have the same bounds; one thread. The misfit is that of all
shots at the models on the way, computed afterwards and not timed; what the first evaluation compiles is not timed
either, but what a solver prepares (illumination) is.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.seismic_marmousi import BOUNDS, WATER, start, truth
from benchmarks.seismic_ours import simulation

SHOWN = 12  # models whose misfit is computed


def main(asked: dict) -> None:
    """Print (CPU seconds, misfit, error) along the way of every solver. asked: as of the case marmousi, and solvers."""
    from shardfit import RunOptions
    from shardfit.domains.seismic import Native, Recording, propagate
    from shardfit.domains.seismic.recipes import Display, InversionOptions, invert

    given = truth(asked)
    sim, shots = simulation(given)
    observed = np.asarray(propagate(sim, given.velocity, given.wavelet, shots, engine=Native(threads=1)))
    recording, first = Recording(shots, given.wavelet, observed), start(given.velocity)

    def run(epochs: int, options: dict, show: Callable) -> Any:
        how = InversionOptions(**options_of(options), epochs=epochs, engine=Native(threads=1), certify=False)
        return invert(sim, first, recording, how, RunOptions(progress=False), display=Display(show, 1))

    def misfit(velocity: np.ndarray) -> float:
        found = np.asarray(propagate(sim, velocity, given.wavelet, shots, engine=Native(threads=1)))
        return float(np.mean((found - observed) ** 2) / np.mean(observed**2))

    def way(epochs: int, options: dict) -> list[tuple[float, float, float]]:
        run(1, options, lambda *_: None)  # compiles
        began, models = time.process_time(), [(0.0, first)]
        run(epochs, options, lambda _, v, *__: models.append((time.process_time() - began, np.array(v))))
        chosen = [models[i] for i in np.unique(np.linspace(0, len(models) - 1, SHOWN).round().astype(int))]
        return [(cpu, misfit(v), float(np.sqrt(np.mean((v - given.velocity) ** 2)))) for cpu, v in chosen]

    print(json.dumps({name: way(asked["epochs"][name], options) for name, options in asked["solvers"].items()}))


def draw(ways: dict[str, list], path: str) -> None:
    """Draw misfit and model error over CPU seconds. ways: as printed, by the name of the solver."""
    from shardfit.report import style

    figure = style.new_figure(8.4, 3.4)
    axes = figure.subplots(1, 2)
    looks = {"lbfgs": (style.BLUE, "L-BFGS, all shots"), "adam": (style.VERMILLION, "Adam, mini-batches")}
    for name, way in ways.items():
        cpu, misfit, error = np.array(way).T
        colour, label = looks[name]
        for ax, values in zip(axes, (misfit, error), strict=True):
            ax.plot(cpu, values, "o-", color=colour, markersize=3, linewidth=1.5, label=label)
    axes[0].set_yscale("log")
    style.finish(axes[0], "CPU time  (s)", "misfit of all shots")
    style.finish(axes[1], "CPU time  (s)", "model error  (m/s)")
    style.legend(axes[0])
    figure.savefig(path, dpi=150)


def options_of(plain: dict) -> dict:
    """Return options of an inversion from plain ones."""
    from shardfit.domains.seismic import Conditioning

    return {**plain, "bounds": BOUNDS, "conditioning": Conditioning(rows=WATER, **plain.get("conditioning", {}))}


if __name__ == "__main__":
    main(json.load(sys.stdin))
