"""Acoustic waves in layered rock, faster along the layers than across them (VTI, Thomsen's epsilon and delta).

    σ_tt = C (Dσ + e s)    σ = (σh, σv)    D = diag(∂xx (+ ∂yy), ∂zz)    C = vp² | 1 + 2ε    √(1 + 2δ) |
                                                                                | √(1 + 2δ)      1     |

These are the equations of Duveneck and Bakker (2011) without shear stiffness and with constant density; docs/decisions
says why. C is symmetric, and positive where ε >= δ: energy is then conserved in any medium, and the largest eigenvalue
of a step is at most that of acoustic waves of the faster of vp and vp √(1 + 2ε). A source injects volume, a receiver
reads the pressure, both e = (1/2, 1/2), in three dimensions (2/3, 1/3), so that they may be exchanged. With ε = δ = 0
both stresses are the acoustic wave; absorbing layers and the free surface are its own.

What a step carries are σv and the rest γ = σh - √(1 + 2δ) σv, which only ε - δ moves: where ε = δ no force brings the
stresses back to that proportion, and the rounding of two steps of their own would add up to a drift in float32.

    σv_tt = vp² (√(1 + 2δ) ∂xx σh + ∂zz σv)    γ_tt = 2 vp² (ε - δ) ∂xx σh    σh = √(1 + 2δ) σv + γ

sim = VTISimulation((100, 300), dh=10.0, dt=1e-3, nt=1000, v_max=3500.0, f_peak=10.0)
traces = propagate(sim, {"vp": vp, "epsilon": epsilon, "delta": delta}, wavelet, acquisition(sim, sources, receivers))
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from shardfit.domains.seismic import plain_loops
from shardfit.domains.seismic.geometry import Points, Shots
from shardfit.domains.seismic.medium import Medium, MediumSimulation, Parameter, Range, refuse_cells

STEP = 5e-4  # change of epsilon and delta where vp changes by 1 m/s: as much of the speed, at 2000 m/s
LEAST_DELTA, MOST_EPSILON = -0.45, 1.0  # of bounds that nobody gave
ROUNDING = 1e-6  # by which epsilon may be below delta: float32 at a bound, of which waves know nothing in their time
ARTEFACT = 0.01  # epsilon - delta at a source, above which slow waves of the equations are worth a warning


@dataclass(frozen=True)
class VTISimulation(MediumSimulation):
    """A simulation of acoustic waves in a medium with a vertical axis of symmetry; fields as in `Simulation`.

    v_max bounds the faster of vp, the vertical velocity, and vp √(1 + 2 epsilon), the horizontal one. epsilon and delta
    are Thomsen's parameters; near the vertical, moveout is that of vp √(1 + 2 delta). epsilon may not be below delta.
    scaling: 'raw' leaves (vp dt)² out of what a source adds.
    """

    waves: ClassVar[str] = "vti"
    parameters: ClassVar[dict[str, Parameter]] = {
        "vp": Parameter(),
        "epsilon": Parameter("", STEP, 1.0),
        "delta": Parameter("", STEP, 1.0),
    }
    usual: ClassVar[tuple[str, ...]] = ("vp", "epsilon")
    kept: ClassVar[int] = 3

    def refuse(self, medium: Medium) -> None:
        """Raise unless epsilon >= delta > -1/2."""
        epsilon, delta = medium["epsilon"], medium["delta"]
        for name in ("epsilon", "delta"):
            refuse_cells(~np.isfinite(medium[name]), name, medium[name], "not finite")
        refuse_cells(delta <= -0.5, "delta", delta, "not above -1/2, so that waves have no speed")
        what = "below delta, where waves grow without limit. Raise it to delta, or lower delta"
        refuse_cells(epsilon < delta - ROUNDING, "epsilon", epsilon, what)

    def speeds(self, medium: Mapping[str, Any]) -> tuple[Any, Any, str]:
        """Waves along the layers are the fastest, unless epsilon is negative."""
        vp, epsilon, delta = (medium[name] for name in self.parameters)
        slow = vp * np.sqrt(1 + 2 * np.minimum(delta, 0))
        return slow, vp * np.sqrt(1 + 2 * np.maximum(epsilon, 0)), "vp √(1 + 2 epsilon)"

    def check_shots(self, medium: Mapping[str, Any], shots: Shots) -> None:
        """Warn of slow waves from sources where epsilon is not delta."""
        given = (medium["epsilon"], medium["delta"], *shots.sources)
        if any(isinstance(x, Tracer) for x in given):
            return
        epsilon, delta, cells, weights = map(np.asarray, given)
        there = np.pad(epsilon - delta, self.pairs, mode="edge").ravel()[cells]
        largest = float(np.max(there, where=np.abs(weights) > 0.5, initial=0.0))
        if largest > ARTEFACT:
            warnings.warn(
                f"epsilon - delta is {largest:.2g} at a source, which there excites slow waves that no rock has. Let "
                "epsilon be delta in the cells around sources.",
                stacklevel=4,
            )

    def refuse_ranges(self, low: Mapping[str, Any], high: Mapping[str, Any]) -> None:
        """Raise where epsilon may fall below delta, or waves become too fast."""
        if np.any(low["epsilon"] < high["delta"] - ROUNDING):
            raise ValueError(
                "bounds: epsilon may become less than delta, where waves grow without limit. Keep the lower bound "
                "of epsilon at or above delta, or above its upper bound where both are fitted."
            )
        fastest = float(np.max(self.speeds(high)[1]))
        if fastest > self.v_max * (1 + 1e-6):
            raise ValueError(
                f"bounds: vp √(1 + 2 epsilon) may reach {fastest:g} m/s, above v_max={self.v_max:g} of the "
                "simulation, for which the time step was checked. Lower them, or raise v_max."
            )

    def ranges(self, medium: Medium, fitted: tuple[str, ...], vp: Range | None) -> dict[str, Range]:
        """Share what v_max leaves between vp and epsilon; let epsilon and delta meet where one is known, or midway."""
        start, epsilon, delta = (np.asarray(medium[name], float) for name in self.parameters)
        top = start
        if "vp" in fitted:
            room = np.maximum(1.0, self.v_max / self.speeds(medium)[1])
            top = np.minimum(start * room ** (0.5 if "epsilon" in fitted else 1.0), self.v_max)
            vp = (0.5 * float(np.min(start)), np.maximum(top, start)) if vp is None else vp
            top = np.asarray(vp[1], float)
        most = np.clip(((self.v_max / top) ** 2 - 1) / 2, epsilon, np.maximum(MOST_EPSILON, epsilon))
        between = (epsilon + delta) / 2
        if len({"epsilon", "delta"} & set(fitted)) == 1:
            between = delta if "epsilon" in fitted else epsilon
        ends = np.minimum(between, epsilon), np.maximum(between, delta)  # the start is inside, to rounding too
        found = {"vp": vp, "epsilon": (ends[0], most), "delta": (np.minimum(LEAST_DELTA, delta), ends[1])}
        return {name: found[name] for name in fitted}

    def traces(
        self, medium: dict[str, jax.Array], signature: jax.Array, shots: Shots, engine: Any, memory: Any
    ) -> jax.Array:
        """Return traces (shots, receivers, nt), see `propagate`."""
        record = partial(_record, self, _stiffness(self, medium))
        return plain_loops.over_shots(self, record, shots, signature, memory)


class Stiffness(NamedTuple):
    """Factors on the padded grid: √(1 + 2δ); dt² times vp², that times the root, and 2 vp² (ε - δ)."""

    root: jax.Array
    down: jax.Array
    mixed: jax.Array
    excess: jax.Array


class Waves(NamedTuple):
    """What one step hands to the next: σv and γ, both as they were before, and the layers."""

    now: tuple[jax.Array, ...]
    before: tuple[jax.Array, ...]
    layers: tuple[tuple[jax.Array, jax.Array], ...]


def _stiffness(sim: VTISimulation, medium: dict[str, jax.Array]) -> Stiffness:
    kappa, root = (medium["vp"] * sim.dt) ** 2, jnp.sqrt(1 + 2 * medium["delta"])
    factors = root, kappa, kappa * root, 2 * kappa * (medium["epsilon"] - medium["delta"])
    return Stiffness(*(jnp.pad(factor, sim.pairs, mode="edge") for factor in factors))


def _record(
    sim: VTISimulation, stiffness: Stiffness, segments: tuple[int, ...], shot: Shots, signature: jax.Array
) -> jax.Array:
    """Return the traces of one shot (receivers, nt). signature: (sources, nt)."""
    differences, flat = plain_loops.second_differences(sim, signature.dtype), len(sim.shape) - 1
    share = flat / (flat + 1)  # of the volume, and of the pressure, that is horizontal
    factors = _injected(sim, stiffness, share, shot.sources)

    def step(waves, w):
        down, rest = waves.now
        across = stiffness.root * down + rest
        sample = plain_loops.read(share * across + (1 - share) * down, shot.receivers)
        (curve, *curves), layers = differences((down, *(across,) * flat), waves.layers)
        flat_curve = reduce(jnp.add, curves)
        forces = stiffness.mixed * flat_curve + stiffness.down * curve, stiffness.excess * flat_curve
        new = []
        for u, before, force, factor in zip(waves.now, waves.before, forces, factors, strict=True):
            moved = plain_loops.add(2 * u - before + force, shot.sources, factor * w[:, None])
            new.append(plain_loops.surface(sim, moved))
        return Waves(tuple(new), waves.now, layers), sample

    rest = (jnp.zeros(sim.padded, signature.dtype),) * 2
    start = Waves(rest, rest, plain_loops.layers_at_rest(sim, signature.dtype))
    return plain_loops.walk(step, start, signature.T, segments).T


def _injected(sim: VTISimulation, stiffness: Stiffness, share: float, sources: Points) -> tuple[jax.Array, jax.Array]:
    """Return what a signature is multiplied by at the cells of the sources, for σv and γ."""
    _, down, mixed, excess = (factor.reshape(-1)[sources.cells] for factor in stiffness)
    unit = down if sim.scaling == "raw" else 1.0
    return (share * mixed + (1 - share) * down) / unit, share * excess / unit
