"""The compiled engine: whole time loops of a block of shots, and their exact transpose, as foreign calls (CPU).

The forward call keeps a few states of every shot. The backward call starts from them, computes one segment of steps
anew at a time, and runs the adjoint through it: memory is shots x kept states + threads x segment.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic.boundary import profiles
from shardfit.domains.seismic.build import BuildError, library, source_digest
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.linear import with_transpose
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.stencil import FIRST, second_coefficients

CACHE = 6 << 20  # bytes of a segment that a core's share of the last cache may hold
DIRECTIONS = ("forward", "backward", "linearised")
WAVES = 2.5  # states that a team works with: the wave, its adjoint, and what absorbing layers prepare
SHORTEST = 16  # steps: with fewer, keeping states costs more than the cache gives


@dataclass(frozen=True)
class Native:
    """Settings of the compiled engine.

    threads: used at once, one for every shot, several where there are fewer shots; 0 shares the cores among JAX's
    devices. segments: parts in which the backward pass recomputes the wave; 0 chooses: few, as needs least memory,
    or as many as keep what a part needs in the processor's cache.
    """

    threads: int = 0
    segments: int = 0

    def __post_init__(self):
        if self.threads < 0 or self.segments < 0:
            raise ValueError(f"{self}: both numbers must be 0 (automatic) or more.")


def usable_threads(settings: Native) -> int:
    """Return how many threads one device uses: by default of the cores that this process may use.

    OMP_NUM_THREADS says how many those are where several processes share a machine; `shardfit launch` sets it.
    """
    if settings.threads:
        return settings.threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit() and int(told):
        cores = min(cores, int(told))
    return max(1, cores // jax.local_device_count())


class Kernel(NamedTuple):
    """A kind of wave that is compiled.

    name: of its source file. constants: (sim, type) → CPML coefficients along all axes, and stencils, in the order that
    the kernel reads them. state: (sim) → numbers in one state of a shot. kept: fields that every step of a
    segment keeps. attributes: (sim) → numbers that fix the scheme, besides those that all kinds have. factors: fields
    of the material.
    """

    name: str
    constants: Callable[[Any, str], list[np.ndarray]]
    state: Callable[[Any], int]
    kept: int
    attributes: Callable[[Any], dict[str, Any]]
    factors: int = 1


def segment_length(kernel: Kernel, sim: Simulation, settings: Native, shots: int, item: int = 4) -> int:
    """Return the steps of one segment, an even number. item: bytes of a number.

    As many numbers in the kept states of the shots as in the segments of the threads need least memory; a small grid's
    segments are as long as the cache holds.
    """
    threads, points = min(shots, usable_threads(settings)), math.prod(sim.padded)
    balanced = math.sqrt(threads * sim.nt * kernel.kept * points / (shots * kernel.state(sim)))
    length = math.ceil(sim.nt / min(settings.segments or max(1, round(balanced)), sim.nt))
    cached = CACHE // (kernel.kept * points * item)
    length = min(length, cached) if not settings.segments and cached >= SHORTEST else length
    return length + length % 2  # the acoustic kernel correlates two steps at a time


def kept_bytes(kernel: Kernel, sim: Simulation, settings: Native, shots: int, item: int = 4) -> int:
    """Return the bytes that a gradient over shots takes on a device, as measured within some 10 % of large grids.

    Every shot has its kept states and a gradient of its own; every team the segment it works on, two waves with their
    layers, which take turns, and a gradient, all with rows that begin on cache lines and zeros between them; and the
    material is there three times.
    """
    length, points = segment_length(kernel, sim, settings, shots, item), math.prod(sim.padded)
    states = shots * (math.ceil(sim.nt / length) - 1) * kernel.state(sim)
    team = min(length, sim.nt) * kernel.kept * points + WAVES * kernel.state(sim) + kernel.factors * points
    teams = min(shots, usable_threads(settings)) * team * _laid_out(sim, item)
    return int(item * (states + teams + (shots + 3) * kernel.factors * points))


def _laid_out(sim: Simulation, item: int) -> float:
    """Return numbers in memory for every point of a field of the kernel: see `Rows` in native/grid.h."""
    line, (*_, nx) = 64 // item, sim.padded
    rows = 1 if len(sim.shape) == 2 else 1 + sim.half / sim.padded[1]
    return rows * math.ceil((math.ceil(nx / line) * line + sim.half) / line) * line / nx


def traces(sim: Simulation, settings: Native, kappa: jax.Array, wavelet: jax.Array, shots: Shots) -> jax.Array:
    """Return acoustic traces (shots, receivers, nt). kappa: (v dt)², padded; wavelet: (shots, sources, nt)."""
    return run(ACOUSTIC[len(sim.shape)], sim, settings, kappa, wavelet, shots)


def run(kernel: Kernel, sim: Any, settings: Native, factors: jax.Array, wavelet: jax.Array, shots: Shots) -> jax.Array:
    """Return traces (shots, receivers, nt). factors: of the material, over the padded grid; wavelet: as shots."""
    dtype = factors.dtype
    length = segment_length(kernel, sim, settings, wavelet.shape[0], dtype.itemsize)
    points = [leaf.astype(np.int32 if leaf.dtype.kind == "i" else dtype) for leaf in jax.tree.leaves(shots)]
    return _engine(kernel, sim, usable_threads(settings), length, dtype.name)(factors, wavelet, *points)


@lru_cache
def register(kind: str, half: int) -> str:
    """Make the compiled functions known to XLA and return the beginning of their names; raises if that fails."""
    if jax.default_backend() != "cpu":
        raise RuntimeError(f"the native engine runs on CPUs, not on {jax.default_backend()}.")
    # the name says which sources it was compiled from: by it a run directory tells kernels apart
    prefix, found = f"shardfit_{kind}_{2 * half}_{source_digest()}", library(kind, half)
    names = [f"{direction}_{dtype}" for direction in DIRECTIONS for dtype in ("float32", "float64")]
    try:
        for name in names:
            jax.ffi.register_ffi_target(f"{prefix}_{name}", jax.ffi.pycapsule(getattr(found, name)), platform="cpu")
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).rstrip(".")
        raise BuildError(
            f"this jaxlib does not take the compiled kernel: {reason}. With CXX=g++, or the name of another compiler, "
            "it is compiled anew."
        ) from error
    return prefix


@lru_cache
def _engine(kernel: Kernel, sim: Simulation, threads: int, segment: int, dtype: str) -> Callable:
    prefix = register(kernel.name, sim.half)
    kept = math.ceil(sim.nt / segment) - 1
    attributes = {
        "widths": np.array(sim.widths, np.int64),
        "mirror": np.bool_(sim.free_surface),
        "threads": np.int64(threads),
        "segment": np.int64(segment),
        **kernel.attributes(sim),
    }

    def call(name: str, shapes: Callable, shared: int = 1) -> Callable:
        """Return the foreign function with results of these shapes, over shots. Arguments: models, then per shot."""

        def one(factors, *rest):
            models, (wavelet, *points), more = rest[: shared - 1], rest[shared - 1 : shared + 4], rest[shared + 4 :]
            results = [jax.ShapeDtypeStruct(s, dtype) for s in shapes(factors, wavelet, points[2])]
            run = jax.ffi.ffi_call(f"{prefix}_{name}_{dtype}", results)
            constants = [jnp.asarray(leaf, dtype) for leaf in kernel.constants(sim, dtype)]
            return tuple(run(factors, *constants, wavelet, *points, *models, *more, **attributes))

        return _first_order(_over_shots(one, shared))

    def traces_shape(wavelet: jax.Array, receivers: jax.Array) -> tuple[int, ...]:
        return (wavelet.shape[0], receivers.shape[1], sim.nt)

    def states_shape(count: int) -> Callable:
        return lambda _, w, r: (traces_shape(w, r), (w.shape[0], count, kernel.state(sim)))

    plain, keeping = call("forward", states_shape(0)), call("forward", states_shape(kept))
    pull = call("backward", lambda f, w, _: ((w.shape[0], *f.shape), w.shape))
    push = call("linearised", lambda _, w, r: (traces_shape(w, r),), shared=2)

    @jax.custom_jvp
    def run(factors, wavelet, *points):
        return plain(factors, wavelet, *points)[0]

    @run.defjvp
    def rule(primals, tangents):
        factors, wavelet, *points = primals
        found, states = keeping(factors, wavelet, *points)

        def forward(change):
            return push(factors, change[0], wavelet, *points, change[1])[0]

        def back(bar):
            factors_bar, wavelet_bar = pull(factors, wavelet, *points, states, bar)
            return factors_bar.sum(0), wavelet_bar

        # positions are data; `keeping` refuses second derivatives
        return found, with_transpose(forward, back, tuple(tangents[:2]), opaque=True)

    return run


def _constants(sim: Simulation, dtype: str) -> list[np.ndarray]:
    along = [part for p, h in zip(profiles(sim), sim.dh, strict=True) for part in (p.a, p.b, p.slope / h)]
    second = second_coefficients(sim.order, sim.dh, dtype)
    first = [np.array(FIRST[sim.order]) / h for h in sim.dh]
    return [np.concatenate(along), np.concatenate([*second, *first])]


def _state(sim: Simulation) -> int:
    """Return the numbers in a state: the wave at two times, ψ and ζ of every layer."""
    layers = sum(math.prod(sim.padded) // n * sum(pair) for n, pair in zip(sim.padded, sim.pairs, strict=True))
    return 2 * (math.prod(sim.padded) + layers)


def _attributes(sim: Simulation) -> dict[str, Any]:
    return {"physical": np.bool_(sim.scaling == "physical"), "kinds": np.zeros(0, np.int64)}


# by the number of axes
ACOUSTIC = {n: Kernel(name, _constants, _state, 1, _attributes) for n, name in ((2, "acoustic"), (3, "acoustic_3d"))}


def _first_order(call: Callable) -> Callable:
    """Let a second derivative say why there is none."""
    wrapped = jax.custom_jvp(call)

    @wrapped.defjvp
    def rule(primals, tangents):
        raise NotImplementedError(
            "the compiled engine has first derivatives only (jvp, vjp, Gauss-Newton products). Use engine='jax' for "
            "second ones, such as the gradient of a gradient."
        )

    return wrapped


def _over_shots(call: Callable, shared: int) -> Callable:
    """Let vmap over shots make one longer block; a batch of models, the first arguments, is walked one by one."""
    wrapped = jax.custom_batching.custom_vmap(call)

    @wrapped.def_vmap
    def rule(size: int, batched: Any, *arguments: jax.Array):
        def spread(marked):
            return [x if is_in else jnp.broadcast_to(x, (size, *x.shape)) for x, is_in in marked]

        marked = list(zip(arguments, batched, strict=True))
        if any(batched[:shared]):
            found = jax.lax.map(lambda one: wrapped(*one), tuple(spread(marked)))
        else:
            # lengths are spelt out: no states may be kept, and -1 has no meaning in an empty array
            joined = [b.reshape(size * b.shape[1], *b.shape[2:]) for b in spread(marked[shared:])]
            blocks = wrapped(*arguments[:shared], *joined)
            found = tuple(leaf.reshape(size, leaf.shape[0] // size, *leaf.shape[1:]) for leaf in blocks)
        return found, (True,) * len(found)

    return wrapped
