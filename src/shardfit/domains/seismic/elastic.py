"""Elastic waves in two dimensions behind the interface of the acoustic ones: simulation, checks, traces.

sim = ElasticSimulation((100, 300), dh=5.0, dt=5e-4, nt=2000, v_max=3500.0, f_peak=15.0, receiver="velocity_z")
traces = propagate(sim, {"vp": vp, "vs": vs, "rho": rho}, wavelet, acquisition(sim, sources, receivers))
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from shardfit.core.errors import suggestion
from shardfit.domains.seismic import elastic_wave as wave
from shardfit.domains.seismic.boundary import damping
from shardfit.domains.seismic.geometry import HALF_WIDTH, Points, Shots
from shardfit.domains.seismic.native import Kernel, Native, run
from shardfit.domains.seismic.simulation import CELLS_PER_WAVELENGTH, Simulation, require_floats
from shardfit.domains.seismic.strategies import Checkpointed, Full, Strategy, as_strategy

PARAMETERS = ("vp", "vs", "rho")
# fields that a source acts on, and that a receiver takes the mean of; stresses with a minus sign, as pressure has
SOURCES = {"explosive": ("sxx", "szz"), "force_x": ("vx",), "force_z": ("vz",)}
RECEIVERS = {"pressure": ("sxx", "szz"), "velocity_x": ("vx",), "velocity_z": ("vz",)}
FIELDS = {"vx": 0, "vz": 1, "sxx": 2}  # numbers by which the compiled kernel knows them
KEPT = 5  # fields that a differentiated step keeps: what the five factors of a material multiply
CACHE = 1 << 21  # bytes of fields of the shots that share a loop, as for acoustic waves


@dataclass(frozen=True)
class ElasticSimulation(Simulation):
    """A simulation of elastic waves; fields as in `Simulation`, v_max bounds the velocity of P waves.

    source: 'explosive', a rate of pressure w in Pa/s, or 'force_x', 'force_z' (down), a force w in N/m³, in the cells
    of the source; scaling='raw' adds w to pressure or velocity as it is, without dt or dt / ρ. receiver: 'pressure',
    -(sxx + szz) / 2 in Pa, or 'velocity_x', 'velocity_z' in m/s. free_surface: no traction on row 0.

    With vs = 0 and constant density, the pressure of an explosion w is the acoustic wave of the source (dw/dt) / vp².
    """

    source: str = "explosive"
    receiver: str = "pressure"

    def _check(self):
        super()._check()
        if len(self.shape) != 2:
            raise ValueError(f"ElasticSimulation: shape {self.shape} must be (nz, nx).")
        for name, value, known in (("source", self.source, SOURCES), ("receiver", self.receiver, RECEIVERS)):
            if value not in known:
                raise ValueError(f"ElasticSimulation: unknown {name} {value!r}.{suggestion(str(value), known)}")

    @property
    def spectral_bound(self) -> float:
        """As of the acoustic scheme: the square of the first difference on the staggered grid."""
        return (2 * sum(map(abs, wave.staggered(self.order)))) ** 2


def check_medium(sim: ElasticSimulation, medium: Mapping[str, Any]) -> None:
    """Raise if a medium cannot be simulated, warn if waves would disperse; traced values pass unseen."""
    if not isinstance(medium, Mapping) or set(medium) != set(PARAMETERS):
        found = sorted(medium) if isinstance(medium, Mapping) else type(medium).__name__
        raise ValueError(f"an elastic medium is a mapping of vp, vs and rho; got {found}.")
    for name in PARAMETERS:
        if tuple(np.shape(medium[name])) != sim.shape:
            raise ValueError(f"{name} has shape {np.shape(medium[name])}, but the simulation is {sim.shape}: (nz, nx).")
    if any(isinstance(medium[name], Tracer) for name in PARAMETERS):
        return
    vp, vs, rho = (np.asarray(medium[name]) for name in PARAMETERS)
    for name, values in (("vp", vp), ("vs", vs), ("rho", rho)):
        _refuse(~np.isfinite(values), name, values, "not finite")
    _refuse(vp <= 0, "vp", vp, "not positive")
    _refuse(rho <= 0, "rho", rho, "not positive")
    _refuse(vs < 0, "vs", vs, "negative. Use 0 for water")
    _refuse(vs >= vp, "vs", vs, "not below vp, so that λ + μ is not positive")
    if vp.max() > sim.v_max:
        raise ValueError(
            f"vp reaches {vp.max():g} m/s, above v_max={sim.v_max:g} for which the time step was checked. "
            "Raise v_max, which may need a smaller dt."
        )
    slowest = np.where(vs > 0, vs, vp).min()
    cells = slowest / sim.f_peak / max(sim.dh)
    if cells < CELLS_PER_WAVELENGTH:
        warnings.warn(
            f"only {cells:.2g} cells per wavelength at {sim.f_peak:g} Hz and {slowest:g} m/s, so waves disperse. "
            f"Use dh below {slowest / sim.f_peak / CELLS_PER_WAVELENGTH:.3g} m, or a lower frequency.",
            stacklevel=3,
        )


def _refuse(bad: np.ndarray, name: str, values: np.ndarray, what: str) -> None:
    if bad.any():
        cell = tuple(map(int, np.argwhere(bad)[0]))
        raise ValueError(f"{name} = {values[cell]:g} at cell {cell} is {what}.")


def traces(
    sim: ElasticSimulation,
    medium: Mapping[str, Any],
    signature: jax.Array,
    shots: Shots,
    engine: Native | str,
    memory: str | Strategy,
) -> jax.Array:
    """Return traces (shots, receivers, nt), see `propagate`. signature: (shots, sources, nt); engine: as chosen."""
    check_medium(sim, medium)
    medium = {name: jnp.asarray(medium[name]) for name in PARAMETERS}
    for name in PARAMETERS:
        require_floats(name, medium[name])
    _check_rows(sim, shots)
    dtype = jnp.result_type(*medium.values())
    # a source of pressure acts between two samples
    inputs = signature if sim.source != "explosive" else (signature + jnp.roll(signature, -1, -1)) / 2
    shots = jax.tree.map(lambda x: jnp.asarray(x, np.int32 if x.dtype.kind == "i" else dtype), shots)
    acting, read = SOURCES[sim.source], RECEIVERS[sim.receiver]
    nodes = Shots(_nodes(sim, shots.sources, acting), _nodes(sim, shots.receivers, read))
    material = wave.material(sim, medium)
    if isinstance(engine, Native):
        return _compiled(sim, engine, material, inputs.astype(dtype), nodes)
    segments = _segments(sim, memory, len(signature), dtype.itemsize)

    def one(row):
        return _record(sim, material, segments, *row)

    together = len(signature)
    if jax.default_backend() == "cpu":
        together = max(1, CACHE // (2 * KEPT * math.prod(sim.padded) * dtype.itemsize))
    return lax.map(one, (nodes, inputs.astype(dtype)), batch_size=min(together, len(signature)))


def _compiled(
    sim: ElasticSimulation, settings: Native, material: wave.Material, inputs: jax.Array, nodes: Shots
) -> jax.Array:
    """Return the traces by the compiled engine."""
    (source_cells, source_weights), (receiver_cells, receiver_weights) = nodes
    if sim.source == "explosive" and sim.scaling == "physical":
        source_weights = source_weights * sim.dt
    receiver_weights = receiver_weights / len(RECEIVERS[sim.receiver])
    nodes = Shots(Points(source_cells, source_weights), Points(receiver_cells, receiver_weights))
    factors = jnp.stack(wave.surface_material(material) if sim.free_surface else material)
    return run(KERNEL, sim, settings, factors, inputs, nodes)


def _constants(sim: ElasticSimulation, dtype: str) -> list[np.ndarray]:
    """Return a and b along z and x, at the cells and between, and the stencils, as the kernel reads them."""
    places = [np.arange(n) for n in sim.padded]
    along = [part for k, p in enumerate(places) for part in (*damping(sim, k, p), *damping(sim, k, p + 0.5))]
    return [np.concatenate(along), np.concatenate([np.array(wave.staggered(sim.order)) / h for h in sim.dh])]


def _state(sim: ElasticSimulation) -> int:
    """Return the numbers in a state: five fields, and ψ of four derivatives at each absorbing end."""
    (nz, nx), (top, bottom, left, right) = sim.padded, sim.widths
    # half a cell on, a layer at the far end begins one cell earlier
    along_z, along_x = top + bottom + (bottom > 0), left + right + (right > 0)
    return 5 * nz * nx + 4 * (nx * along_z + nz * along_x)


def _attributes(sim: ElasticSimulation) -> dict[str, Any]:
    kinds = [FIELDS[names[sim_name][0]] for names, sim_name in ((SOURCES, sim.source), (RECEIVERS, sim.receiver))]
    return {"physical": np.bool_(sim.scaling == "physical"), "kinds": np.array(kinds, np.int64)}


KERNEL = Kernel("elastic", _constants, _state, KEPT, _attributes)


def _check_rows(sim: ElasticSimulation, shots: Shots) -> None:
    """Raise where `acquisition` mirrored a point at a free surface: it does so as if pressure changed its sign."""
    for name, points in shots._asdict().items():
        if not sim.free_surface or points.cells.shape[-1] == 1 or isinstance(points.cells, Tracer):
            continue
        used = np.asarray(points.weights) != 0
        rows = np.asarray(points.cells) // sim.padded[1]
        lowest, highest = np.where(used, rows, 0).max(-1), np.where(used, rows, rows.max()).min(-1)
        bad = (lowest > highest) & (lowest < 2 * HALF_WIDTH - 1)
        if bad.any():
            shot, index = map(int, np.argwhere(bad)[0])
            raise ValueError(
                f"{name}: shot {shot}, index {index} lies between rows, less than {HALF_WIDTH - 1} below a free "
                "surface, where elastic waves cannot be interpolated. Use a whole row there."
            )


def _segments(sim: ElasticSimulation, memory: str | Strategy, shots: int, item: int) -> tuple[int, ...]:
    """Return how many segments at each level a backward pass computes anew; a step counts as KEPT acoustic ones."""
    strategy, _ = as_strategy(memory, sim, KEPT * shots, item)
    if memory == "auto" and not isinstance(strategy, Full | Checkpointed):
        strategy, _ = as_strategy("two-level", sim, KEPT * shots, item)
    match strategy:
        case Full():
            return ()
        case Checkpointed(segments):
            return segments
    raise ValueError(f"{strategy} is not for elastic waves. Use memory='full', 'segmented', 'two-level' or 'auto'.")


def _record(
    sim: ElasticSimulation, material: wave.Material, segments: tuple[int, ...], shot: Shots, signature: jax.Array
) -> jax.Array:
    """Return the traces of one shot (receivers, nt). shot: nodes of the fields; signature: (sources, nt)."""
    scheme, inject = wave.scheme(sim, signature.dtype), _injector(sim, material, shot.sources)
    names, (cells, weights) = RECEIVERS[sim.receiver], shot.receivers

    def read(waves):
        return jnp.sum(sum(getattr(waves, name).reshape(-1)[cells] for name in names) * weights, -1) / len(names)

    def step(waves, w):
        moved = wave.accelerate(scheme, material, waves)
        moved = inject(moved, w) if sim.source != "explosive" else moved
        after = wave.strain(scheme, material, moved)
        after = inject(after, w) if sim.source == "explosive" else after
        return after, (read(waves) + read(moved)) / 2  # a velocity is known half a step before and after n dt

    return _walk(step, wave.rest(scheme, signature.dtype), signature.T, segments).T


def _nodes(sim: ElasticSimulation, points: Points, names: tuple[str, ...]) -> Points:
    """Return points as nodes of the named fields; velocities, half a cell off, are interpolated to the sim's order."""
    if names == ("sxx", "szz"):
        return points._replace(weights=-points.weights)
    axis, stride = (wave.X, 1) if names == ("vx",) else (wave.Z, sim.padded[wave.X])
    n, place = sim.padded[axis], points.cells[..., None] // stride % sim.padded[axis]
    near = place + jnp.arange(-sim.half, sim.half)
    if axis == wave.Z and sim.free_surface:
        near = jnp.where(near < 0, -1 - near, near)
    weights = points.weights[..., None] * jnp.asarray(wave.midway(sim.order), points.weights.dtype)
    weights = jnp.where((near >= 0) & (near < n), weights, 0.0)
    cells = points.cells[..., None] + (near.clip(0, n - 1) - place) * stride
    return Points(*(x.reshape(*points.cells.shape[:-1], -1) for x in (cells, weights)))


def _injector(sim: ElasticSimulation, material: wave.Material, sources: Points) -> Callable:
    """Return (waves, input of every source) → waves with the sources added."""
    names, (cells, weights) = SOURCES[sim.source], sources
    if sim.scaling == "physical":
        light = {"force_x": material.light_x, "force_z": material.light_z}.get(sim.source)
        weights = weights * (sim.dt if light is None else light.reshape(-1)[cells])

    def inject(waves, w):
        fields = {name: getattr(waves, name) for name in names}
        added = {name: x.reshape(-1).at[cells].add(weights * w[:, None]).reshape(x.shape) for name, x in fields.items()}
        if sim.free_surface and "szz" in added:
            added["szz"] = added["szz"].at[0].set(0.0)
        return waves._replace(**added)

    return inject


def _walk(step: Callable, start: Any, inputs: jax.Array, segments: tuple[int, ...]) -> jax.Array:
    """Scan in segments of segments, each computed anew when differentiated; steps beyond the last have no source."""
    length = math.ceil(len(inputs) / math.prod(segments))
    missing = math.prod(segments) * length - len(inputs)
    blocks = jnp.pad(inputs, ((0, missing), (0, 0))).reshape(*segments, length, -1)

    def walk(state, x):
        if x.ndim == inputs.ndim:
            return lax.scan(step, state, x)
        return lax.scan(jax.checkpoint(walk, prevent_cse=False), state, x)

    samples = walk(start, blocks)[1]
    return samples.reshape(-1, samples.shape[-1])[: len(inputs)]
