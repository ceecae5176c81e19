"""Elastic waves in two dimensions behind the interface of the acoustic ones: simulation, checks, traces.

sim = ElasticSimulation((100, 300), dh=5.0, dt=5e-4, nt=2000, v_max=3500.0, f_peak=15.0, receiver="velocity_z")
traces = propagate(sim, {"vp": vp, "vs": vs, "rho": rho}, wavelet, acquisition(sim, sources, receivers))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from shardfit.core.errors import suggestion
from shardfit.domains.seismic import elastic_wave as wave
from shardfit.domains.seismic.boundary import damping
from shardfit.domains.seismic.geometry import HALF_WIDTH, Points, Shots
from shardfit.domains.seismic.medium import Medium, MediumSimulation, Parameter, Range, refuse_cells
from shardfit.domains.seismic.native import Kernel, Native, run
from shardfit.domains.seismic.plain_loops import over_shots, walk

# fields that a source acts on, and that a receiver takes the mean of; stresses with a minus sign, as pressure has
SOURCES = {"explosive": ("sxx", "szz"), "force_x": ("vx",), "force_z": ("vz",)}
RECEIVERS = {"pressure": ("sxx", "szz"), "velocity_x": ("vx",), "velocity_z": ("vz",)}
FIELDS = {"vx": 0, "vz": 1, "sxx": 2}  # numbers by which the compiled kernel knows them
SHEAR = 0.58  # change of vs, m/s, where vp changes by one: about the ratio of both
MOST_SHEAR = 0.75**0.5  # of vp, for vs: beyond, the bulk modulus is negative, and no such solid is stable


@dataclass(frozen=True)
class ElasticSimulation(MediumSimulation):
    """A simulation of elastic waves; fields as in `Simulation`, v_max bounds the velocity of P waves.

    source: 'explosive', a rate of pressure w in Pa/s, or 'force_x', 'force_z' (down), a force w in N/m³, in the cells
    of the source; scaling='raw' adds w to pressure or velocity as it is, without dt or dt / ρ. receiver: 'pressure',
    -(sxx + szz) / 2 in Pa, or 'velocity_x', 'velocity_z' in m/s. free_surface: no traction on row 0.

    With vs = 0 and constant density, the pressure of an explosion w is the acoustic wave of the source (dw/dt) / vp².
    """

    source: str = "explosive"
    receiver: str = "pressure"
    waves: ClassVar[str] = "elastic"
    parameters: ClassVar[dict[str, Parameter]] = {
        "vp": Parameter(),
        "vs": Parameter(step=SHEAR),
        "rho": Parameter("kg/m³"),
    }
    usual: ClassVar[tuple[str, ...]] = ("vp", "vs")
    kept: ClassVar[int] = 5
    compiled: ClassVar[bool] = True
    still_surface: ClassVar[bool] = False  # velocities, and the stress along it, are not zero there

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

    def refuse(self, medium: Medium) -> None:
        """Raise unless 0 <= vs < vp and the density is positive."""
        vp, vs, rho = medium["vp"], medium["vs"], medium["rho"]
        for name, values in (("vs", vs), ("rho", rho)):
            refuse_cells(~np.isfinite(values), name, values, "not finite")
        refuse_cells(rho <= 0, "rho", rho, "not positive")
        refuse_cells(vs < 0, "vs", vs, "negative. Use 0 for water")
        refuse_cells(vs >= vp, "vs", vs, "not below vp, so that λ + μ is not positive")

    def speeds(self, medium: Mapping[str, Any]) -> tuple[Any, Any, str]:
        """Shear waves are the slowest, but for water."""
        return np.where(medium["vs"] > 0, medium["vs"], medium["vp"]), medium["vp"], "vp"

    def check_shots(self, medium: Mapping[str, Any], shots: Shots) -> None:
        """Points near a free surface must be on whole rows."""
        _check_rows(self, shots)

    def ranges(self, medium: Medium, fitted: tuple[str, ...], vp: Range | None) -> dict[str, Range]:
        """Keep vs below √3/2 of vp: where both are fitted they meet midway between the two of the start.

        Bounds of vp that are given may be lower than that; waves in two dimensions stay stable as long as vs < vp.
        """
        start, shear = (np.asarray(medium[name], float) for name in ("vp", "vs"))
        least = np.minimum(shear / MOST_SHEAR, start)  # that vp may come to with this vs
        meet = least if "vs" not in fitted else start if "vp" not in fitted else (start + least) / 2
        vp = (np.maximum(0.5 * np.min(start), meet), self.v_max) if vp is None else vp
        found = {"vp": vp, "vs": (0.0, np.maximum(MOST_SHEAR * meet, shear)), "rho": (1.0, np.inf)}
        return {name: found[name] for name in fitted}

    def traces(
        self, medium: dict[str, jax.Array], signature: jax.Array, shots: Shots, engine: Any, memory: Any
    ) -> jax.Array:
        """Return traces (shots, receivers, nt), see `propagate`."""
        return _traces(self, medium, signature, shots, engine, memory)


def _traces(
    sim: ElasticSimulation, medium: dict[str, jax.Array], signature: jax.Array, shots: Shots, engine: Any, memory: Any
) -> jax.Array:
    # a source of pressure acts between two samples
    inputs = signature if sim.source != "explosive" else (signature + jnp.roll(signature, -1, -1)) / 2
    acting, read = SOURCES[sim.source], RECEIVERS[sim.receiver]
    nodes = Shots(_nodes(sim, shots.sources, acting), _nodes(sim, shots.receivers, read))
    material = wave.material(sim, medium)
    if isinstance(engine, Native):
        return _compiled(sim, engine, material, inputs, nodes)
    return over_shots(sim, partial(_record, sim, material), nodes, inputs, memory)


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


KERNEL = Kernel("elastic", _constants, _state, ElasticSimulation.kept, _attributes, factors=len(wave.Material._fields))


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

    return walk(step, wave.rest(scheme, signature.dtype), signature.T, segments).T


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
