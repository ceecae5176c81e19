"""How the JAX engine keeps what its backward pass needs: strategies, their bytes, and the choice between them.

With P points of the padded grid, T steps and a state of about two fields, for each shot:

- Full: one field for every step, P T numbers.
- Checkpointed((K,)): K states and the fields of T / K steps, one more forward pass; ((K1, K2)): two levels, two.
- Binomial(slots): as many states as slots, at most a handful more forward passes; the least memory.
- Stored("bfloat16"): one field for every step in a short format: half of Full, to 3 digits.
- Frame(): the field along the edges at every step; the inside is computed backward in time. Drifts in float32.

All can be differentiated forward as well (Gauss-Newton products).
"""

import math
from dataclasses import dataclass

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.free_memory import available_bytes
from shardfit.domains.seismic.simulation import Simulation

SMALL = 1 << 28  # bytes up to which keeping everything costs no more than computing it anew
BLOCK = 12  # steps that Binomial takes at once
NAMES = ("full", "segmented", "two-level", "binomial", "bfloat16", "frame", "auto")


@dataclass(frozen=True)
class Full:
    """Keep one field for every step: the second difference of the wave in time."""


@dataclass(frozen=True)
class Checkpointed:
    """Keep states at the beginnings of segments, of segments of segments, ...; segments: how many at each level."""

    segments: tuple[int, ...]


@dataclass(frozen=True)
class Binomial:
    """Keep at most `slots` states, placed so that few steps are recomputed (Griewank and Walther's schedule)."""

    slots: int = 12


@dataclass(frozen=True)
class Stored:
    """Keep what Full keeps in another number format."""

    dtype: str = "bfloat16"


@dataclass(frozen=True)
class Frame:
    """Keep the field in the absorbing layers and beside them; compute the inside backward in time."""


Strategy = Full | Checkpointed | Binomial | Stored | Frame


def as_strategy(memory: str | Strategy, sim: Simulation, shots: int, item: int, budget: int | None = None):
    """Return the strategy, and a sentence that says why. item: bytes of a number; budget: bytes, or None to ask.

    'auto' takes the fastest that fits: Full if small, then Checkpointed with one level, two, then Binomial.
    """
    if isinstance(memory, Strategy):
        return memory, f"{memory}: as asked"
    named = {
        "full": Full(),
        "segmented": Checkpointed((max(1, round(math.sqrt(sim.nt / _ratio(sim)))),)),
        "two-level": Checkpointed((max(1, round((sim.nt / _ratio(sim)) ** (1 / 3))),) * 2),
        "binomial": Binomial(),
        "bfloat16": Stored(),
        "frame": Frame(),
    }
    if memory in named:
        return named[memory], f"{memory}: as asked"
    if memory != "auto":
        raise ValueError(f"unknown memory strategy {memory!r}.{suggestion(str(memory), NAMES)}")
    budget = usable_bytes() if budget is None else budget
    for name in ("full", "segmented", "two-level", "binomial"):
        need, limit = n_bytes(named[name], sim, shots, item), min(SMALL, budget) if name == "full" else budget
        if need <= limit or name == "binomial":
            fits = "fits into" if need <= limit else "is the smallest possible, although above"
            return named[name], f"{name}: {need / 1e6:,.0f} MB for {shots} shots {fits} {limit / 1e6:,.0f} MB"
    raise AssertionError("binomial always answers")


def n_bytes(strategy: Strategy, sim: Simulation, shots: int, item: int) -> int:
    """Return the bytes that a backward pass over all shots keeps, by estimate."""
    points, ratio = math.prod(sim.padded), _ratio(sim)
    match strategy:
        case Full():
            fields = sim.nt
        case Checkpointed(segments):
            fields = ratio * sum(segments) + sim.nt / math.prod(segments)
        case Binomial(slots):
            fields = ratio * (slots + 2) + BLOCK
        case Stored(dtype):
            fields = sim.nt * np.dtype(jax.dtypes.canonicalize_dtype(dtype)).itemsize / item
        case Frame():
            beside = [sum(w + sim.half for w in pair if w) for pair in sim.pairs]
            inside = math.prod(n - b for n, b in zip(sim.padded, beside, strict=True))
            fields = sim.nt * (1 - inside / points) + 2
    return int(shots * points * fields * item)


def usable_bytes() -> int:
    """Return half of the memory that one of JAX's devices has left: the rest is for data and what runs besides."""
    return available_bytes(jax.local_devices()) // 2


def _ratio(sim: Simulation) -> float:
    """State over field: the wave at two times, and two fields for each layer."""
    return 2 + 2 * sum(width / n for n, pair in zip(sim.padded, sim.pairs, strict=True) for width in pair)
