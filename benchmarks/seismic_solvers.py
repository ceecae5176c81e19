"""Solvers of waveform inversion: misfit and model error over CPU seconds, on Marmousi and on a built-in section.

All begin at the same smoothed model, hold the water, have the same bounds and the same bands (below 3 Hz, then all
frequencies), and pass through all shots equally often; one thread each. `plbfgs` has its default rate; Adam has several
rates and batch sizes, constant and halved from stage to stage, and the best of these counts. The misfit is that of all
shots and all frequencies at the models on the way, computed afterwards and not timed; nor is what compiles, but what a
solver prepares (the Hessian's diagonal) is. The constants of `plbfgs` were chosen on this part of Marmousi, not on the
built-in section.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import run_ours
from benchmarks.seismic_marmousi import BOUNDS, DH, WATER, start, truth
from benchmarks.seismic_ours import simulation
from benchmarks.seismic_scene import Scene
from docs.figures.__main__ import store

PEERS = ()
SETTINGS = {"precision": "float32", "threads": "one"}
MARMOUSI = "marmousi/marmousi_vp_30m.npz"
SIZE = {"nt": 1000, "shots": 8, "order": 4, "columns": [100, 301]}  # the middle half
SHOWN = 15  # models whose misfit is computed
LEVELS = (30, 100, 300)  # the start's misfit divided by these
ERROR_LEVELS = (0.9, 0.8, 0.7)  # shares of the start's error

TWO = {"bands": [3.0, None], "passes": [6, 10]}  # passes through all shots, in every band
HALVED = {"bands": [3.0, None, None, None], "passes": [6, 4, 3, 3], "decay": 0.5}
GROWING = {"bands": [3.0, None, None], "passes": [6, 5, 5], "batchsize": [1, 1, 4]}
OURS = {
    "plbfgs, 1 shot": {"solver": "plbfgs", **TWO, "batchsize": 1},
    "plbfgs, 2 shots": {"solver": "plbfgs", **TWO, "batchsize": 2},
    "plbfgs, 1 then 4 shots": {"solver": "plbfgs", **GROWING},
    "plbfgs, all shots": {"solver": "plbfgs", **TWO, "batchsize": None},
}
ADAM = {
    **{f"Adam {rate} m/s, {size} shot{'s' * (size > 1)}": {**TWO, "learning_rate": rate, "batchsize": size}
       for rate, size in ((12.5, 1), (25, 1), (25, 2), (25, 4), (50, 2))},
    **{f"Adam {rate} m/s halved, {size} shot{'s' * (size > 1)}": {**HALVED, "learning_rate": rate, "batchsize": size}
       for rate, size in ((50, 1), (50, 2))},
}  # fmt: skip
# shown beside both, not compared: a step takes several products, each somewhat more than a gradient
GAUSS_NEWTON = {
    "Gauss-Newton, all shots": {"solver": "gauss-newton", **TWO, "passes": [2, 3], "batchsize": None},
    "Gauss-Newton, 2 shots": {"solver": "gauss-newton", **TWO, "passes": [2, 4], "batchsize": 2, "products": 3},
}
FEWER = (
    *GAUSS_NEWTON,
    "plbfgs, 1 shot",
    "plbfgs, 2 shots",
    "Adam 25 m/s, 2 shots",
    "Adam 50 m/s, 2 shots",
    "Adam 50 m/s halved, 2 shots",
)
QUICK = ("plbfgs, 2 shots", "Adam 25 m/s, 2 shots")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of both models; --quick takes one pass through four short shots."""
    names = {"marmousi": (*OURS, *ADAM, *GAUSS_NEWTON), "faulted": FEWER}
    source = Path(os.environ.get("SHARDFIT_DATA", ".")) / MARMOUSI
    if not source.is_file():
        raise RuntimeError(f"the suite seismic_solvers needs {source}: name its folder by SHARDFIT_DATA.")
    asked = {**SIZE, "model": str(source)} | ({"nt": 300, "shots": 4, "quick": True} if quick else {})
    cases = {
        name: _figures(
            run_ours("benchmarks.seismic_solvers", {**asked, "name": name, "ways": QUICK if quick else ways})
        )
        for name, ways in names.items()
    }
    if not quick:
        found = {name: case["details"]["ways"] for name, case in cases.items()}
        store("seismic_solvers", draw(found))
    return cases


def _figures(ways: dict[str, dict]) -> dict:
    """Return CPU seconds to every level and what is reached in the end: `ours` is plbfgs, `peer` the best Adam."""
    paths = {name: np.array(way["path"]) for name, way in ways.items()}
    sides = {"ours": [n for n in paths if n in OURS], "peer": [n for n in paths if n in ADAM]}
    first, figures = next(iter(paths.values()))[0], {}
    levels = {f"misfit/{level}": (1, first[1] / level) for level in LEVELS}
    levels |= {f"error*{share:g}": (2, first[2] * share) for share in ERROR_LEVELS}
    for level, (column, value) in levels.items():
        best = {}
        for side, names in sides.items():
            times = {name: until(paths[name], column, value) for name in names}
            reached = {name: cpu for name, cpu in times.items() if cpu is not None}
            name = min(reached, key=lambda n: reached[n]) if reached else None
            best |= {f"{side}_way": name or "not reached", f"cpu_{side}": None if name is None else reached[name]}
        both = best["cpu_ours"] is not None and best["cpu_peer"] is not None
        figures[level] = best | {"cpu_ratio": best["cpu_peer"] / best["cpu_ours"] if both else None}
    last = {side: min((paths[name][-1] for name in names), key=lambda row: row[1]) for side, names in sides.items()}
    ends = {f"quality_{side}": float(row[1] / first[1]) for side, row in last.items()}
    errors = {f"error_{side}": float(min(paths[n][:, 2].min() for n in names)) for side, names in sides.items()}
    columns = ["CPU seconds", "misfit", "model error (m/s)"]
    main = {key: figures["misfit/100"][key] for key in ("cpu_ours", "cpu_peer", "cpu_ratio")}
    return (
        main
        | ends
        | errors
        | {"error_start": float(first[2]), "details": {"columns": columns, "levels": figures, "ways": ways}}
    )


def until(path: np.ndarray, column: int, value: float) -> float | None:
    """Return the CPU seconds at which a path first falls to a value, logarithms interpolated; None if it does not."""
    below = np.flatnonzero(path[:, column] <= value)
    if not len(below) or below[0] == 0:
        return None if not len(below) else 0.0
    (cpu0, *before), (cpu1, *after) = path[below[0] - 1], path[below[0]]
    high, low = before[column - 1], after[column - 1]
    return float(cpu0 + (cpu1 - cpu0) * np.log(high / value) / np.log(high / low))


def main(asked: dict) -> None:
    """Print the path of every way that is asked for: (CPU seconds, misfit, error) and evaluations of a shot."""
    from shardfit.domains.seismic import Native, Recording, propagate

    given = _scene(asked)
    sim, shots = simulation(given)
    observed = np.asarray(propagate(sim, given.velocity, given.wavelet, shots, engine=Native(threads=1)))
    recording, first = Recording(shots, given.wavelet, observed), start(given.velocity)

    def point(cpu: float, velocity: np.ndarray) -> tuple[float, float, float]:
        found = np.asarray(propagate(sim, velocity, given.wavelet, shots, engine=Native(threads=1)))
        misfit = float(np.mean((found - observed) ** 2) / np.mean(observed**2))
        return cpu, misfit, float(np.sqrt(np.mean((velocity - given.velocity) ** 2)))

    ways = {}
    for name in asked["ways"]:
        models, used = _way({**OURS, **ADAM, **GAUSS_NEWTON}[name], asked, (sim, first, recording))
        chosen = np.unique(np.linspace(0, len(models) - 1, SHOWN).round().astype(int))
        ways[name] = {"path": [point(*models[i]) for i in chosen], "shot_gradients": used}
        print(name, ways[name]["path"][-1], used, file=sys.stderr, flush=True)
    print(json.dumps(ways))


def _scene(asked: dict) -> Scene:
    """Return Marmousi, or the built-in faulted section of its size, under the same survey."""
    from dataclasses import replace

    from shardfit.domains.seismic.models import faulted_section

    given = truth(asked)
    if asked["name"] == "marmousi":
        return given
    section = faulted_section(given.velocity.shape, DH, seed=1, water=(WATER - 0.5) * DH)
    return replace(given, velocity=np.minimum(section, BOUNDS[1]).astype(np.float32))


def _way(way: Mapping, asked: dict, task: tuple) -> tuple[list[tuple[float, np.ndarray]], int]:
    """Return (CPU seconds, model) after every step, and how many gradients of one shot it took."""
    from shardfit import RunOptions
    from shardfit.domains.seismic import Conditioning, Native
    from shardfit.domains.seismic.recipes import Display, InversionOptions, invert

    options = {key: value for key, value in way.items() if key != "passes"}
    sizes = (
        options["batchsize"] if isinstance(options["batchsize"], list) else [options["batchsize"]] * len(way["bands"])
    )
    sizes = [size or asked["shots"] for size in sizes]
    epochs = [n * asked["shots"] // size for n, size in zip(way["passes"], sizes, strict=True)]
    fixed = {"bounds": BOUNDS, "conditioning": Conditioning(rows=WATER), "engine": Native(threads=1), "certify": False}

    def invert_for(epochs: list[int], show: Callable[..., Any]) -> Any:
        how = InversionOptions(**{"solver": "adam", **options, **fixed, "epochs": epochs})
        return invert(*task, how, RunOptions(progress=False), display=Display(show, 1))

    invert_for([1] * len(epochs), lambda *_: None)  # compiles
    began, models = time.process_time(), [(0.0, task[1])]
    short = [1] * len(epochs) if asked.get("quick") else epochs
    found = invert_for(short, lambda _, v, *__: models.append((time.process_time() - began, np.array(v))))
    return models, sum(size * result.evaluations for size, result in zip(sizes, found.results, strict=True))


def draw(cases: dict[str, dict]) -> bytes:
    """Return a picture: misfit and model error over CPU seconds, a row per model; thick: the lowest final misfit."""
    from shardfit.report import style

    figure = style.new_figure(9.0, 6.4)
    rows = figure.subplots(len(cases), 2, squeeze=False)
    for axes, (name, ways) in zip(rows, cases.items(), strict=True):
        for known, colour in ((ADAM, style.VERMILLION), (OURS, style.BLUE), (GAUSS_NEWTON, style.GREEN)):
            mine = {label: np.array(way["path"]).T for label, way in ways.items() if label in known}
            best = min(mine, key=lambda label: mine[label][1][-1])
            for label, columns in mine.items():
                look = {"linewidth": 2.0, "label": label} if label == best else {"linewidth": 0.8, "alpha": 0.45}
                for ax, values in zip(axes, columns[1:], strict=True):
                    ax.plot(columns[0], values, color=colour, **look)
        axes[0].set_yscale("log")
        style.finish(axes[0], "CPU time  (s)", f"{name}: misfit of all shots")
        style.finish(axes[1], "CPU time  (s)", "model error  (m/s)")
        style.legend(axes[0])
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150)
    return picture.getvalue()


if __name__ == "__main__":
    main(json.load(sys.stdin))
