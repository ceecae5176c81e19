"""From a configuration to what is simulated: models, positions, wavelet, data. Everything is checked on the way."""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shardfit.cli import options
from shardfit.cli.options import positive
from shardfit.cli.seismic.velocities import OWN, media, speed

if TYPE_CHECKING:
    from shardfit.cli.seismic.config import Config

MARGIN, ROOM = 1.1, 1.5  # v_max over the fastest model where it is not given: at least, and as far as dt allows
BATCH = 8  # shots modelled at once


@dataclass(frozen=True, eq=False)
class Setup:
    """What a command works on. Positions are (z, x) or (z, y, x) in cells.

    truth, start: of the grid's shape, or a medium such as {"vp", "vs", "rho"}, None where there is none; observed:
    (shots, receivers, nt), None until modelled.
    """

    sim: Any
    truth: Any
    start: Any
    wavelet: np.ndarray
    sources: np.ndarray
    receivers: np.ndarray
    shots: Any
    observed: Any = None
    weights: Any = None  # (shots, receivers), 0 for traces that do not count; None: all do

    @property
    def n_shots(self) -> int:
        """Number of shots."""
        return len(self.sources)

    def line(self, shot: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which receivers of a shot a picture shows, and their x in metres; of a lattice the nearest line."""
        places = self.receivers[shot]
        across = places[:, 1:-1]
        nearest = across[np.abs(across - self.sources[shot, 1:-1]).sum(-1).argmin()]
        chosen = np.flatnonzero((across == nearest).all(-1))
        return chosen, places[chosen, -1] * self.sim.dh[-1]

    def section(self, field: Any) -> Any:
        """Return what a picture shows of a field: itself, or the vertical section through the middle of a volume."""
        return field if np.ndim(field) == 2 else field[:, field.shape[1] // 2]

    @property
    def spacing(self) -> tuple[float, float]:
        """(dz, dx) of a section, metres."""
        return self.sim.dh[0], self.sim.dh[-1]

    def places(self) -> dict[str, Any]:
        """Return sources, and receivers of the first shot, as (z, x) of a section."""
        return {"sources": self.sources[:, [0, -1]], "receivers": self.receivers[0][:, [0, -1]]}


def add_common(parser: argparse.ArgumentParser, out: str) -> None:
    """Add what all commands take."""
    options.add_config(parser, "shardfit seismic init")
    options.add_out(parser, out)
    parser.add_argument("--max-shots", metavar="N", type=positive, help="use N shots, spread over the survey (all)")
    options.add_seed(parser, otherwise="as configured", of="noise and of the draw of shots")
    options.add_devices(parser, "devices that share the shots (1)")
    options.add_processes(parser)
    options.add_json(parser)
    parser.add_argument("--data", metavar="DIR", help="folder of public models, e.g. Marmousi (SHARDFIT_DATA)")


def split(devices: int) -> Any:
    """Return the mesh over which devices share the shots, None for one; raise where processes outnumber devices."""
    import jax

    from shardfit import mesh

    processes = jax.process_count()
    if devices < processes:
        raise ValueError(
            f"--devices {devices}: {processes} processes share the shots, each with devices of its own. Ask for "
            f"{processes} or more in all, or leave --devices out."
        )
    return mesh(rows=devices) if devices > 1 else None


def build(config: "Config", folder: str | None, most: int | None, need_start: bool) -> Setup:
    """Return the setup of a configuration. folder: of public models; most: shots, or None for all."""
    from shardfit.domains.seismic import acquisition, ricker

    truth, start, dh = media(config, folder, need_start)
    known = [model for model in (truth, start) if model is not None]
    if not known:
        raise ValueError("[model]: name a model or a file, from which data can be made.")
    gathers = _recorded(config)
    survey = config.survey
    dt = survey.dt if gathers is None else gathers.dt
    nt = survey.nt if gathers is None else gathers.traces.shape[-1]
    if dt is None or nt is None:
        raise ValueError("[survey]: dt (seconds) and nt (samples) are needed where [data] names no file.")
    if gathers is not None and survey.nt not in (None, nt):
        raise ValueError(f"[survey]: nt = {survey.nt}, but {config.data.file} has {nt} samples. Leave nt out.")
    sim = _simulation(config, known, dh, dt, nt)
    wavelet = ricker(survey.f_peak, dt, nt, survey.delay)
    if gathers is None or gathers.sources is None:
        sources, receivers = _positions(config, sim)
    else:
        origin = np.broadcast_to(0.0 if config.data.origin is None else config.data.origin, len(dh))
        sources, receivers = gathers.cells(dh, origin)
        _require_inside(config, sim, origin, sources, receivers)
    if gathers is not None and gathers.traces.shape[:2] != receivers.shape[:2]:
        raise ValueError(
            f"[survey] places {receivers.shape[0]} shots of {receivers.shape[1]} receivers, but {config.data.file} has "
            f"{gathers.traces.shape[0]} of {gathers.traces.shape[1]}."
        )
    used = spread(len(sources), most)
    sources, receivers = sources[used], receivers[used]
    observed = None if gathers is None else gathers.traces if most is None else gathers.traces[used]
    weights = None if gathers is None or gathers.weights is None else gathers.weights[used]
    shots = acquisition(sim, sources, receivers)
    for medium in (model for model in known if isinstance(model, dict)):
        sim.check_shots(medium, shots)
    return Setup(sim, truth, start, wavelet, sources, receivers, shots, observed, weights)


def _simulation(config: "Config", known: list, dh: tuple[float, ...], dt: float, nt: int) -> Any:
    """Return the simulation, which all models that are known fit."""
    from shardfit.domains import seismic

    scheme, name = config.simulation, config.simulation.waves
    kinds = {
        "acoustic": seismic.Simulation,
        "elastic": seismic.ElasticSimulation,
        "vti": seismic.VTISimulation,
        "viscoacoustic": seismic.ViscoacousticSimulation,
    }
    own = {key: getattr(scheme, key) for key in OWN.get(name, {}).get("simulation", ())}

    def with_limit(v_max: float) -> Any:
        numbers = speed(known[0]).shape, dh, dt, nt, v_max, config.survey.f_peak, scheme.order, scheme.widths
        return kinds[name](*numbers, scheme.free_surface, **own)

    v_max = scheme.v_max
    if v_max is None:
        # how fast waves are in a medium only their simulation knows; without the limit that is looked for any will do
        free = with_limit(1.0)
        fastest = max(_fastest(free, model) for model in known)
        # also the upper bound of an inversion: a truth faster than the start must not end at it unnoticed
        stable = math.floor(seismic.largest_dt(free) / dt)
        v_max = max(math.ceil(MARGIN * fastest), min(math.ceil(ROOM * fastest), stable))
    sim = with_limit(v_max)
    for model in known:
        (seismic.check_velocity if name == "acoustic" else seismic.check_medium)(sim, model)
    return sim


def _require_inside(config: "Config", sim: Any, origin: np.ndarray, sources: np.ndarray, receivers: np.ndarray) -> None:
    """Raise for positions of a file that the model does not hold, in metres."""
    cells = np.concatenate([sources, receivers.reshape(-1, len(sim.shape))])
    lowest, highest = cells.min(0), cells.max(0)
    for k, name in enumerate(sim.axes):
        if lowest[k] >= 0 and highest[k] <= sim.shape[k] - 1:
            continue
        low, high = (origin[k] + sim.dh[k] * end for end in (lowest[k], highest[k]))
        first, last = origin[k], origin[k] + sim.dh[k] * (sim.shape[k] - 1)
        raise ValueError(
            f"{config.data.file}: positions reach from {low:.1f} to {high:.1f} m along {name}, the model from "
            f"{first:.1f} to {last:.1f}. Set `origin` in [data], the position of the model's first cell, or enlarge it."
        )


def _fastest(sim: Any, model: Any) -> float:
    """Return the highest speed of waves in a model, m/s."""
    if not isinstance(model, dict):
        return float(model.max())
    sim.refuse(model)
    return float(np.max(sim.speeds(model)[1]))


def spread(count: int, most: int | None) -> np.ndarray:
    """Return the numbers of at most so many shots, spread evenly."""
    kept = count if most is None else min(most, count)
    return np.linspace(0, count - 1, kept).round().astype(int)


def model_data(setup: Setup, config: "Config", say: Callable[[str], Any]) -> np.ndarray:
    """Return the data of the true model, with noise as configured. say: is told how far it is."""
    import jax

    from shardfit.domains.seismic import propagate, select

    if setup.truth is None:
        raise ValueError("[model]: data can be made from a true model only. Name one, or a file of gathers in [data].")
    truth = jax.tree.map(lambda x: jax.numpy.asarray(x, "float32"), setup.truth)
    run = jax.jit(lambda shots: propagate(setup.sim, truth, setup.wavelet, shots, config.simulation.engine))
    parts = []
    for first in range(0, setup.n_shots, BATCH):
        # a last batch of fewer shots would be compiled anew: it is filled up with the last shot
        numbers = np.arange(first, first + min(BATCH, setup.n_shots)).clip(max=setup.n_shots - 1)
        parts.append(np.asarray(run(select(setup.shots, numbers)))[: setup.n_shots - first])
        say(f"  modelled {min(first + BATCH, setup.n_shots)} of {setup.n_shots} shots")
    traces = np.concatenate(parts)
    if config.data.noise:
        noise = np.random.default_rng(config.seed).standard_normal(traces.shape, np.float32)
        traces += config.data.noise * np.sqrt(np.mean(traces.astype(float) ** 2)) * noise
    return traces


def _recorded(config: "Config") -> Any:
    from shardfit.domains.seismic.files import load_gathers

    data = config.data
    if data.file is None:
        return None
    if data.noise:
        raise ValueError("[data]: noise goes with data made from the true model. Leave it out, or leave file out.")
    return load_gathers(config.path(data.file), dt=config.survey.dt, shape=data.shape, dtype=data.dtype, by=data.by)


def _positions(config: "Config", sim: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return sources (shots, axes) and receivers (shots, n, axes) along the surface, a line or a lattice, in cells."""
    from shardfit.domains.seismic.gathers import in_cells

    survey, dz, dx = config.survey, sim.dh[0], sim.dh[-1]
    found = []
    for name in ("source", "receiver"):
        depth, step = getattr(survey, f"{name}_depth"), getattr(survey, f"{name}_step")
        step = (10 * dx if name == "source" else dx) if step is None else step
        deepest = dz * (sim.shape[0] - 1)
        if depth is not None and depth > deepest:
            raise ValueError(f"[survey]: {name}_depth = {depth:g} m is outside the model: 0 to {deepest:g} m deep.")
        axes = [_centred(n, h, step) for n, h in zip(sim.shape[1:], sim.dh[1:], strict=True)]
        lattice = np.meshgrid([dz if depth is None else depth], *axes, indexing="ij")
        found.append(in_cells(np.stack(lattice, -1).reshape(-1, len(sim.shape)), sim.dh))
    return found[0], np.broadcast_to(found[1], (len(found[0]), *found[1].shape))


def _centred(n: int, h: float, step: float) -> np.ndarray:
    """Return places along an axis of n cells, metres, a step apart, in the middle and on whole cells."""
    width = (n - 1) * h
    places = np.arange(0, width + 1e-6 * h, step)
    return places + 0.5 * (width - places[-1]) // h * h
