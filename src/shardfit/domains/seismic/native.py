"""The compiled engine: whole time loops of a block of shots, and their exact transpose, as foreign calls (CPU).

The forward call keeps a few states of every shot. The backward call starts from them, computes one segment of steps
anew at a time, and runs the adjoint through it: memory is shots x kept states + threads x segment.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic.boundary import profiles
from shardfit.domains.seismic.build import library, source_digest
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.linear import with_transpose
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.stencil import FIRST, second_coefficients

CACHE = 6 << 20  # bytes of a segment that a core's share of the last cache may hold
SHORTEST = 16  # steps: with fewer, keeping states costs more than the cache gives


@dataclass(frozen=True)
class Native:
    """Settings of the compiled engine.

    threads: used at once, one for every shot, several where there are fewer shots; 0 shares the cores among JAX's
    devices. segments: parts in which the backward pass computes the wave anew; 0 chooses: few, as needs least memory,
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


def segment_length(sim: Simulation, settings: Native, shots: int, item: int = 4) -> int:
    """Return the steps of one segment, an even number. item: bytes of a number.

    2 kept fields per shot and one per step need least memory; a small grid's are as few as the cache holds.
    """
    threads = min(shots, usable_threads(settings))
    segments = settings.segments or max(1, round(math.sqrt(threads * sim.nt / (2 * shots))))
    length = math.ceil(sim.nt / min(segments, sim.nt))
    cached = CACHE // (math.prod(sim.padded) * item)
    length = min(length, cached) if not settings.segments and cached >= SHORTEST else length
    return length + length % 2  # the kernel correlates two steps at a time


def carry_size(sim: Simulation) -> int:
    """Return the numbers in one state of one shot."""
    (nz, nx), (top, bottom, left, right) = sim.padded, sim.widths
    return 2 * (nz * nx + nx * (top + bottom) + nz * (left + right))


def traces(sim: Simulation, settings: Native, kappa: jax.Array, wavelet: jax.Array, shots: Shots) -> jax.Array:
    """Return traces (shots, receivers, nt). kappa: (v dt)² on the padded grid; wavelet: (shots, sources, nt)."""
    length = segment_length(sim, settings, wavelet.shape[0], kappa.dtype.itemsize)
    points = [leaf.astype(np.int32 if leaf.dtype.kind == "i" else kappa.dtype) for leaf in jax.tree.leaves(shots)]
    return _engine(sim, usable_threads(settings), length, kappa.dtype.name)(kappa, wavelet, *points)


@lru_cache
def register(half: int) -> str:
    """Make the compiled functions known to XLA and return the beginning of their names; raises if that fails."""
    if jax.default_backend() != "cpu":
        raise RuntimeError(f"the native engine runs on CPUs, not on {jax.default_backend()}.")
    # the name says which sources it was compiled from: by it a run directory tells kernels apart
    prefix, found = f"shardfit_wave_{2 * half}_{source_digest()}", library(half)
    for direction in ("forward", "backward", "linearised"):
        for dtype in ("float32", "float64"):
            name = f"{direction}_{dtype}"
            jax.ffi.register_ffi_target(f"{prefix}_{name}", jax.ffi.pycapsule(getattr(found, name)), platform="cpu")
    return prefix


@lru_cache
def _engine(sim: Simulation, threads: int, segment: int, dtype: str) -> Callable:
    prefix = register(sim.half)
    nz, nx = sim.padded
    kept = math.ceil(sim.nt / segment) - 1
    attributes = {
        "widths": np.array(sim.widths, np.int64),
        "mirror": np.bool_(sim.free_surface),
        "physical": np.bool_(sim.scaling == "physical"),
        "threads": np.int64(threads),
        "segment": np.int64(segment),
    }

    def call(name: str, shapes: Callable, shared: int = 1) -> Callable:
        """Return the foreign function with results of these shapes, over shots. Arguments: models, then per shot."""

        def one(kappa, *rest):
            models, (wavelet, *points), more = rest[: shared - 1], rest[shared - 1 : shared + 4], rest[shared + 4 :]
            results = [jax.ShapeDtypeStruct(s, dtype) for s in shapes(wavelet, points[2])]
            run = jax.ffi.ffi_call(f"{prefix}_{name}_{dtype}", results)
            return tuple(run(kappa, *_constants(sim, dtype), wavelet, *points, *models, *more, **attributes))

        return _first_order(_over_shots(one, shared))

    def traces_shape(wavelet: jax.Array, receivers: jax.Array) -> tuple[int, ...]:
        return (wavelet.shape[0], receivers.shape[1], sim.nt)

    def states_shape(count: int) -> Callable:
        return lambda w, r: (traces_shape(w, r), (w.shape[0], count, carry_size(sim)))

    plain, keeping = call("forward", states_shape(0)), call("forward", states_shape(kept))
    pull = call("backward", lambda w, r: ((w.shape[0], nz, nx), w.shape))
    push = call("linearised", lambda w, r: (traces_shape(w, r),), shared=2)

    @jax.custom_jvp
    def run(kappa, wavelet, *points):
        return plain(kappa, wavelet, *points)[0]

    @run.defjvp
    def rule(primals, tangents):
        kappa, wavelet, *points = primals
        found, states = keeping(kappa, wavelet, *points)

        def forward(change):
            return push(kappa, change[0], wavelet, *points, change[1])[0]

        def back(bar):
            kappa_bar, wavelet_bar = pull(kappa, wavelet, *points, states, bar)
            return kappa_bar.sum(0), wavelet_bar

        # positions are data; `keeping` refuses second derivatives
        return found, with_transpose(forward, back, tuple(tangents[:2]), opaque=True)

    return run


def _constants(sim: Simulation, dtype: str) -> list[jax.Array]:
    """Return CPML coefficients along z and x, and the stencils, in the order that the kernel reads them."""
    along = [np.stack([p.a, p.b, p.slope / h]) for p, h in zip(profiles(sim), sim.dh, strict=True)]
    second = second_coefficients(sim.order, sim.dh, dtype)
    first = [np.array(FIRST[sim.order]) / h for h in sim.dh]
    return [jnp.asarray(leaf, dtype) for leaf in (*along, np.concatenate([*second, *first]))]


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
