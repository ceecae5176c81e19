"""Acoustic waves that lose energy: a quality factor Q, nearly the same over a band of frequencies.

Rock answers a change of volume with a stiffness that depends on the frequency, that of standard linear solids in
parallel, whose weights are fitted so that Q is even over the band (Emmerich and Korn 1987) and whose strength τ is the
one thing that Q decides, cell by cell (the τ-method of Blanch, Robertsson and Symes 1995):

    M(ω) = M0 (1 + τ h(ω)),    h(ω) = Σ_l w_l iωt_l / (1 + iωt_l),    Q(ω) = Re M / Im M

    u_tt = M0 (D + τ Σ_l w_l (D - m_l)),    t_l ∂t m_l + m_l = D,    D = L + s

τ and M0 are such that at the reference frequency the quality factor is q and the phase velocity vp. The memories m are
taken by the trapezoidal rule, which loses energy wherever the rock does: a step is stable if it is for the speed of the
highest frequencies, and what it simulates is M at (2 / dt) tan(ω dt / 2). Without loss it is the acoustic step.

sim = ViscoacousticSimulation((100, 300), dh=10.0, dt=1e-3, nt=1000, v_max=3500.0, f_peak=10.0)
traces = propagate(sim, {"vp": vp, "q": q}, wavelet, acquisition(sim, sources, receivers))
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic import plain_loops
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.medium import Medium, MediumSimulation, Parameter, Range, refuse_cells

BAND = 4.0  # times the peak frequency, and its inverse: the band that nobody gave
STEP = 0.1  # change of q where vp changes by 1 m/s
SHARES = np.geomspace(0.05, 1.0, 80)  # of q at the start, for bounds that nobody gave
MOST = 1e4  # of q, likewise: no loss that could be seen


class Relaxation(NamedTuple):
    """Times t_l in seconds and weights w_l of the mechanisms."""

    times: tuple[float, ...]
    weights: tuple[float, ...]

    def answer(self, frequency: Any) -> Any:
        """Return the complex h at frequencies in Hz."""
        turn = 2j * np.pi * np.multiply.outer(np.asarray(frequency, float), self.times)
        return (self.weights * turn / (1 + turn)).sum(-1)


@lru_cache
def relaxation(low: float, high: float, mechanisms: int) -> Relaxation:
    """Return mechanisms spread over a band, Hz, weighted so that Im h is as near to 1 there as can be."""
    from scipy.optimize import nnls

    peaks = np.geomspace(low, high, mechanisms) if mechanisms > 1 else np.sqrt([low * high])
    times = 1 / (2 * np.pi * peaks)
    turn = 2j * np.pi * np.multiply.outer(np.geomspace(low, high, 200), times)
    weights = nnls((turn / (1 + turn)).imag, np.ones(200))[0]
    return Relaxation(tuple(times.tolist()), tuple(weights.tolist()))


@dataclass(frozen=True)
class ViscoacousticSimulation(MediumSimulation):
    """A simulation of acoustic waves with attenuation; fields as in `Simulation`.

    v_max bounds the speed of the highest frequencies, which is above vp: the error says by how much. f_ref: frequency
    in Hz at which the medium's vp is the phase velocity and its q the quality factor; None is f_peak. band: lowest and
    highest frequency, between which Q is nearly constant; None is from a quarter of f_peak to four times it.
    mechanisms: standard linear solids that together make it so.
    """

    f_ref: float | None = None
    band: tuple[float, float] | None = None
    mechanisms: int = 3
    waves: ClassVar[str] = "viscoacoustic"
    parameters: ClassVar[dict[str, Parameter]] = {
        "vp": Parameter(),
        "q": Parameter("", STEP, coordinate="slowness"),  # traces are nearly linear in 1 / q
    }
    usual: ClassVar[tuple[str, ...]] = ("vp", "q")
    kept: ClassVar[int] = 2

    def _check(self):
        super()._check()
        if self.band is not None:
            object.__setattr__(self, "band", tuple(map(float, self.band)))
        low, high = self.frequencies
        if not (0 < low < high < math.inf):
            raise ValueError(f"ViscoacousticSimulation: band={self.band} must be two frequencies in Hz that rise.")
        if not low <= self.reference <= high:
            raise ValueError(
                f"ViscoacousticSimulation: the reference frequency {self.reference:g} Hz is outside the band "
                f"{low:g} to {high:g} Hz, in which Q is constant. Move f_ref, or widen band."
            )
        if self.mechanisms not in range(1, 9):
            raise ValueError(f"ViscoacousticSimulation: mechanisms={self.mechanisms!r} must be 1 to 8.")

    @property
    def reference(self) -> float:
        """Frequency in Hz that vp and q are for."""
        return float(self.f_peak if self.f_ref is None else self.f_ref)

    @property
    def frequencies(self) -> tuple[float, float]:
        """The band, Hz."""
        return (self.f_peak / BAND, self.f_peak * BAND) if self.band is None else self.band

    @property
    def relaxation(self) -> Relaxation:
        """The mechanisms."""
        return relaxation(*self.frequencies, self.mechanisms)

    def strength(self, q: Any) -> Any:
        """Return τ of quality factors."""
        h = complex(self.relaxation.answer(self.reference))
        return 1 / (q * h.imag - h.real)

    def softening(self, strength: Any) -> Any:
        """Return M0 over vp² times the density: the modulus of slow changes is below that of waves."""
        h = complex(self.relaxation.answer(self.reference))
        real, imaginary = 1 + strength * h.real, strength * h.imag
        squared = real**2 + imaginary**2
        return (squared**0.5 + real) / (2 * squared)

    def stiffening(self, q: Any) -> Any:
        """Return the speed of the highest frequencies over vp."""
        strength = self.strength(q)
        return (self.softening(strength) * (1 + strength * sum(self.relaxation.weights))) ** 0.5

    def refuse(self, medium: Medium) -> None:
        """Raise unless q can be simulated; infinity is no loss."""
        q, h = medium["q"], complex(self.relaxation.answer(self.reference))
        refuse_cells(np.isnan(q), "q", q, "not a number")
        refuse_cells(q <= 0, "q", q, "not positive. Use a large q, or infinity, for no loss")
        least = h.real / h.imag
        refuse_cells(q <= least, "q", q, f"too small: these {self.mechanisms} mechanisms reach down to {least:.3g}")

    def speeds(self, medium: Mapping[str, Any]) -> tuple[Any, Any, str]:
        """The highest frequencies are the fastest."""
        fast = medium["vp"] * self.stiffening(np.asarray(medium["q"], float))
        return medium["vp"], fast, "the velocity of the highest frequencies"

    def refuse_ranges(self, low: Mapping[str, Any], high: Mapping[str, Any]) -> None:
        """Raise where q cannot be simulated, or waves become too fast."""
        self.refuse({"q": np.atleast_1d(np.asarray(low["q"], float))})
        fastest = float(np.max(self.speeds({"vp": high["vp"], "q": low["q"]})[1]))
        if fastest > self.v_max * (1 + 1e-6):
            raise ValueError(
                f"bounds: {self.speeds(low)[2]} may reach {fastest:g} m/s, with the highest vp and the lowest q, above "
                f"v_max={self.v_max:g} of the simulation, for which the time step was checked. Move the bounds, or "
                "raise v_max."
            )

    def ranges(self, medium: Medium, fitted: tuple[str, ...], vp: Range | None) -> dict[str, Range]:
        """Share what v_max leaves between vp and q."""
        start, q = (np.asarray(medium[name], float) for name in self.parameters)
        low = q
        if "q" in fitted:
            room = self.v_max / (start * self.stiffening(q))
            allowed = self.stiffening(q) * np.maximum(1.0, room) ** (0.5 if "vp" in fitted else 1.0)
            h = complex(self.relaxation.answer(self.reference))
            least = np.minimum(q, 2 * h.real / h.imag)
            lows = (np.maximum(share * q, least) for share in SHARES)
            low = next(some for some in lows if np.all(self.stiffening(some) <= allowed * (1 + 1e-9)))
        if vp is None:
            vp = 0.5 * float(np.min(start)), np.maximum(self.v_max / self.stiffening(low), start)
        found = {"vp": vp, "q": (low, np.maximum(MOST, 2 * q))}
        return {name: found[name] for name in fitted}

    def traces(
        self, medium: dict[str, jax.Array], signature: jax.Array, shots: Shots, engine: Any, memory: Any
    ) -> jax.Array:
        """Return traces (shots, receivers, nt), see `propagate`."""
        record = partial(_record, self, _rock(self, medium))
        return plain_loops.over_shots(self, record, shots, signature, memory)


class Rock(NamedTuple):
    """Factors of a time step on the padded grid: dt² M0 / ρ, and τ times that."""

    slow: jax.Array
    more: jax.Array


class Waves(NamedTuple):
    """What one step hands to the next: the wave, as it was before, its memories, and the layers.

    memory: what the trapezoidal rule carries from one time to the next, of every mechanism.
    """

    u: jax.Array
    before: jax.Array
    memory: tuple[jax.Array, ...]
    layers: tuple[tuple[jax.Array, jax.Array], ...]


def _rock(sim: ViscoacousticSimulation, medium: dict[str, jax.Array]) -> Rock:
    strength = sim.strength(medium["q"])
    slow = (medium["vp"] * sim.dt) ** 2 * sim.softening(strength)
    return Rock(*(jnp.pad(factor, sim.pairs, mode="edge") for factor in (slow, strength * slow)))


def _record(
    sim: ViscoacousticSimulation, rock: Rock, segments: tuple[int, ...], shot: Shots, signature: jax.Array
) -> jax.Array:
    """Return the traces of one shot (receivers, nt). signature: (sources, nt)."""
    differences, relaxed = plain_loops.second_differences(sim, signature.dtype), sim.relaxation
    physical = sim.scaling == "physical"

    def step(waves, w):
        sample, values = plain_loops.read(waves.u, shot.receivers), w[:, None]
        shares, layers = differences((waves.u,) * len(sim.shape), waves.layers)
        curve = reduce(jnp.add, shares)
        curve = plain_loops.add(curve, shot.sources, values) if physical else curve
        lost, memory = 0.0, []
        for carried, time, weight in zip(waves.memory, *relaxed, strict=True):
            half = sim.dt / (2 * time)
            now = carried + half / (1 + half) * curve
            lost = lost + weight * (curve - now)
            memory.append(((1 - half) * now + half * curve) / (1 + half))
        new = 2 * waves.u - waves.before + rock.slow * curve + rock.more * lost
        new = new if physical else plain_loops.add(new, shot.sources, values)
        return Waves(plain_loops.surface(sim, new), waves.u, tuple(memory), layers), sample

    u, layers = jnp.zeros(sim.padded, signature.dtype), plain_loops.layers_at_rest(sim, signature.dtype)
    return plain_loops.walk(step, Waves(u, u, (u,) * sim.mechanisms, layers), signature.T, segments).T
