"""invert: recorded shots and a start model become a velocity model, or a medium of several, band by band."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.mesh import n_shards
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.domains.seismic.arrays import Velocity
from shardfit.domains.seismic.engines import choose_engine, kernel_of
from shardfit.domains.seismic.medium import Medium, MediumSimulation, as_medium, bare, speed
from shardfit.domains.seismic.metrics import model_error, structural_similarity
from shardfit.domains.seismic.native import Native, kept_bytes
from shardfit.domains.seismic.recipes.band import Band
from shardfit.domains.seismic.recipes.options import InversionOptions
from shardfit.domains.seismic.recording import Recording
from shardfit.domains.seismic.signature import estimate_source
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import as_strategy, n_bytes
from shardfit.io.run_dir import RunDir
from shardfit.run_options import RunOptions
from shardfit.series import FitSeries, whole
from shardfit.solve.base import Solver
from shardfit.solve.capabilities import require
from shardfit.solve.host import HostSolver
from shardfit.solve.monitor import Snapshot

DISTANCES = {"model_error": model_error, "similarity": structural_similarity}
# arrays of the size of what is fitted that a solver holds at its peak, copies included, by measurement
FEW_VECTORS, VECTORS = 40, {"plbfgs": 180, "gauss-newton": 80}
Show = Callable[[int, np.ndarray, np.ndarray | None, np.ndarray], Any]


@dataclass(frozen=True, eq=False)
class Inversion:
    """A velocity model, or a medium, and how it was reached.

    medium: by name, (nz, nx) each: 'velocity', or such as 'vp', 'vs' and 'rho'. results: of every band. metrics:
    columns with one entry for the start of every band and one for each of its steps: 'epoch' (counted on over all
    bands), 'band', 'loss' (of the shots drawn for it), and with a known truth 'model_error' (rms, m/s) and
    'similarity', both of the model that the loss was measured on (of several processes the first knows them); of a
    medium 'model_error_vp' and so on.
    wavelet: as used last, estimated or given. engine: which propagator ran, and how it kept states.
    """

    medium: Medium
    results: tuple[Result, ...]
    metrics: dict[str, np.ndarray]
    wavelet: np.ndarray
    engine: str
    options: InversionOptions

    @property
    def velocity(self) -> np.ndarray:
        """(nz, nx) m/s, of P waves."""
        return speed(self.medium)

    @property
    def result(self) -> Result:
        """That of the last band, with the steps and times of all; the number of steps is planned."""
        return whole(self.results, self.results[-1], planned=True)

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before the end of the last band."""
        return self.result.status is Status.INTERRUPTED


@dataclass(frozen=True, eq=False)
class Display:
    """show(epoch, velocity, gradient, losses) is called every so many epochs, counted as in `Inversion.metrics`.

    velocity: the model (nz, nx) that the last loss was measured on; of a medium vp, if it is fitted. gradient: with
    respect to the solver's coordinates, None where the solver keeps none; losses: of all epochs so far, NaN at the
    start of the present band. Returning True ends the inversion.
    """

    show: Show
    every: int = 10

    def __post_init__(self):
        if self.every < 1:
            raise ValueError(f"Display: every={self.every} must be at least 1 epoch.")


def invert(
    sim: Simulation,
    start: Velocity | Mapping[str, Velocity],
    recording: Recording,
    options: InversionOptions | None = None,
    run: RunOptions | None = None,
    *,
    truth: Velocity | Mapping[str, Velocity] | None = None,
    display: Display | None = None,
) -> Inversion:
    """Fit a velocity model, or an elastic medium, to recorded shots.

    Parameters
    ----------
    sim
        the simulation.
    start
        (nz, nx) m/s; with another than `Simulation` its medium, such as {"vp", "vs", "rho"}, of which
        `options.fitted` change.
    recording
        shots, wavelet and observed data.
    options
        misfit, solver, bands and the rest of what is computed.
    run
        devices that share the shots of a step, seed, and a folder in which every band leaves its own; a call that was
        killed goes on where it stopped.
    truth
        as the start, where it is known.
    display
        what to call while it runs.

    Example: `invert(sim, start, Recording(shots, wavelet, data), InversionOptions(epochs=50)).velocity`.

    """
    options, run = options or InversionOptions(), run or RunOptions()
    if run.solver is not None:
        raise ValueError(f"invert: solver {run.solver!r} in RunOptions. Name it in InversionOptions, with its rate.")
    options = options.of(sim)
    options.check(sim, recording.n_shots, n_shards(run.mesh))
    series, medium, losses = FitSeries(run, "band-"), as_medium(sim, start), np.zeros(0)
    known_truth = None if truth is None else as_medium(sim, truth)
    columns = []
    for band in range(len(options.corners)):
        if options.source is not None:
            wavelet = estimate_source(sim, bare(medium), recording, options.source, waves=options.waves)
            recording = replace(recording, wavelet=wavelet)
        present = Band(sim, medium, recording, options, band, run.mesh)
        problem = present.problem()
        solver = present.solver(problem)
        require(problem, solver)
        if band == 0 and options.compare:
            present.compare()
        watch = Watch(losses, solver, known_truth, display, series.folder)
        if run.resume != "never":
            watch.recall()
        watch.note(0, problem.x0)
        how = {"solver": solver, "seed": run.seed + band, "callback": watch, "every": 1}
        result = series.fit(problem, certify=options.certify and band == 0, **how)
        series.certificate = series.results[0].certificate  # later bands differ in their data only
        columns.append(watch.columns(band, result))
        losses = np.concatenate([losses, columns[-1]["loss"]])
        medium |= {name: np.asarray(result.params[name]) for name in problem.x0}
        if series.interrupted:
            break
    metrics = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
    engine = engine_used(sim, options, recording.n_shots, n_shards(run.mesh))
    return Inversion(medium, tuple(series.results), metrics, recording.wavelet, engine, options)


def engine_used(sim: Simulation, options: InversionOptions, n_shots: int, devices: int) -> str:
    """Return which engine runs and why, and how states are kept for gradients, with their bytes on a device.

    Those of the compiled engine are all that a gradient takes, and what the solver needs besides, as measured.
    """
    chosen, why = choose_engine(options.engine, sim)
    each = -(-max(size or n_shots for size in options.batchsizes) // devices)
    item = np.dtype(options.waves.dtype).itemsize
    if isinstance(chosen, Native):
        shots = min(each, options.chunk or each)
        size = kept_bytes(kernel_of(sim), sim, chosen, shots, item) / 1e6
        fields = len(options.fitted or (0,))
        more = VECTORS.get(options.solver, FEW_VECTORS) * fields * np.prod(sim.shape) * item / 1e6
        if size < 1:
            return why
        return f"{why}; memory: about {size:,.0f} MB for waves of {shots} shots, {more:,.0f} MB for the solver"
    each *= sim.kept if isinstance(sim, MediumSimulation) else 1  # fields that a step of one shot keeps
    strategy, reason = as_strategy(options.memory, sim, each, item)
    size = "" if options.memory == "auto" else f", {n_bytes(strategy, sim, each, item) / 1e6:,.0f} MB"
    return f"{why}; memory: {reason}{size}"


class Watch:
    """Callback of one band: follows the distance from the truth, and shows pictures when they are due.

    What it notes goes to the events of the band's folder as well, so that a call that goes on knows the past.
    """

    def __init__(self, before: np.ndarray, solver: Solver, truth: Medium | None, display: Display | None, run_dir: Any):
        self.before, self.truth, self.display = before, truth, display
        self.store = RunDir(run_dir) if isinstance(run_dir, Path) else run_dir
        # scipy's solvers call back after their steps, the device loop's history has them counted already
        self.late = int(isinstance(solver, HostSolver))
        self.notes: dict[int, dict[str, float]] = {}

    def recall(self) -> None:
        """Read what an earlier call noted."""
        for event in () if self.store is None else self.store.events():
            facts = {n: event[n] for n in event if n.startswith(("loss", *DISTANCES)) and isinstance(event[n], float)}
            if event["event"] == "epoch" and isinstance(event.get("step"), int):
                self.notes[event["step"]] = facts

    def note(self, step: int, fitted: Mapping[str, Any] | None, **facts: float) -> None:
        """Note what is known of the model at a step."""
        for name, truth in (self.truth or {}).items():
            if fitted is not None and name in fitted:
                suffix = "" if name == "velocity" else f"_{name}"
                known = DISTANCES if name in ("velocity", "vp") or np.ptp(truth) else {"model_error": model_error}
                facts |= {f"{key}{suffix}": measure(fitted[name], truth) for key, measure in known.items()}
        self.notes[step] = facts

    def __call__(self, shot: Snapshot) -> Any:
        """Note the loss and the distance from the truth, and show."""
        epoch = len(self.before) + shot.step - self.late
        due = self.display is not None and epoch % self.display.every == 0
        fitted = shot.params if due or self.truth is not None else None
        self.note(shot.step, fitted, loss=shot.value)
        if self.store is not None:
            self.store.event("epoch", step=shot.step, **self.notes[shot.step])
        if self.display is None or fitted is None or not due:
            return None
        names = sorted(fitted)  # in which order coordinates follow each other
        shown = "vp" if "vp" in fitted else names[0]
        velocity, slopes = fitted[shown], shot.slope
        slopes = None if slopes is None else np.asarray(slopes).reshape(len(names), *velocity.shape)
        gradient = None if slopes is None else slopes[names.index(shown)]
        past = [self.notes.get(step, {}).get("loss", np.nan) for step in range(self.late, shot.step + 1)]
        return self.display.show(epoch, velocity, gradient, np.concatenate([self.before, past]))

    def columns(self, band: int, result: Result) -> dict[str, np.ndarray]:
        """Return the metrics of every epoch; NaN where a distance was not noted."""
        steps, last = np.unique(result.history["step"][::-1] + self.late, return_index=True)
        found = {
            "epoch": len(self.before) + np.arange(len(steps)),
            "band": np.full(len(steps), band),
            "loss": result.history["value"][::-1][last],
        }
        if self.truth is None:
            return found
        notes = [self.notes.get(int(step), {}) for step in steps]
        names = dict.fromkeys(name for note in notes for name in note if name.startswith(tuple(DISTANCES)))
        return found | {name: np.array([note.get(name, np.nan) for note in notes]) for name in names}
