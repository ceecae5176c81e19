"""The compiled engine: whole time loops of a block of shots, and their exact transpose, as foreign calls (CPU).

The forward call keeps a few states of every shot. The backward call starts from them, computes one segment of steps
anew at a time, and runs the adjoint through it, one shot per thread: memory is shots x kept states + threads x segment.
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
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.stencil import FIRST, second_coefficients


@dataclass(frozen=True)
class Native:
    """Settings of the compiled engine. threads: shots worked on at once; 0 shares the cores among JAX's devices.

    segments: parts in which the backward pass computes the wave anew; 0 chooses the number that needs least memory.
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


def segment_length(sim: Simulation, settings: Native, shots: int) -> int:
    """Return the steps of one segment, by default so that 2 kept fields per shot and one per step need least memory."""
    threads = min(shots, usable_threads(settings))
    segments = settings.segments or max(1, round(math.sqrt(threads * sim.nt / (2 * shots))))
    return math.ceil(sim.nt / min(segments, sim.nt))


def carry_size(sim: Simulation) -> int:
    """Return the numbers in one state of one shot."""
    (nz, nx), (top, bottom, left, right) = sim.padded, sim.widths
    return 2 * (nz * nx + nx * (top + bottom) + nz * (left + right))


def traces(sim: Simulation, settings: Native, kappa: jax.Array, wavelet: jax.Array, shots: Shots) -> jax.Array:
    """Return traces (shots, receivers, nt). kappa: (v dt)² on the padded grid; wavelet: (shots, sources, nt)."""
    length = segment_length(sim, settings, wavelet.shape[0])
    points = [leaf.astype(np.int32 if leaf.dtype.kind == "i" else kappa.dtype) for leaf in jax.tree.leaves(shots)]
    return _engine(sim, usable_threads(settings), length, kappa.dtype.name)(kappa, wavelet, *points)


@lru_cache
def register(half: int) -> str:
    """Make the compiled functions known to XLA and return the beginning of their names; raises if that fails."""
    if jax.default_backend() != "cpu":
        raise RuntimeError(f"the native engine runs on CPUs, not on {jax.default_backend()}.")
    # the name says which sources it was compiled from: by it a run directory tells kernels apart
    prefix, found = f"shardfit_wave_{2 * half}_{source_digest()}", library(half)
    for direction in ("forward", "backward"):
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

    def forward(states: int) -> Callable:
        def call(kappa, wavelet, *points):
            shots, receivers = points[2].shape[:2]
            shapes = (shots, receivers, sim.nt), (shots, states, carry_size(sim))
            results = [jax.ShapeDtypeStruct(s, dtype) for s in shapes]
            run = jax.ffi.ffi_call(f"{prefix}_forward_{dtype}", results)
            return tuple(run(kappa, *_constants(sim, dtype), wavelet, *points, **attributes))

        return _over_shots(call)

    def backward(kappa, wavelet, *rest):
        results = [jax.ShapeDtypeStruct(s, dtype) for s in ((wavelet.shape[0], nz, nx), wavelet.shape)]
        run = jax.ffi.ffi_call(f"{prefix}_backward_{dtype}", results)
        return tuple(run(kappa, *_constants(sim, dtype), wavelet, *rest, **attributes))

    plain, keeping, pull = forward(0), forward(kept), _over_shots(backward)

    @jax.custom_vjp
    def run(kappa, wavelet, *points):
        return plain(kappa, wavelet, *points)[0]

    def run_forward(kappa, wavelet, *points):
        found, states = keeping(kappa, wavelet, *points)
        return found, (kappa, wavelet, *points, states)

    def run_backward(saved, cotangent):
        kappa_bar, wavelet_bar = pull(*saved, cotangent)
        return kappa_bar.sum(0), wavelet_bar, None, None, None, None  # positions are data

    run.defvjp(run_forward, run_backward)
    return run


def _constants(sim: Simulation, dtype: str) -> list[jax.Array]:
    """Return CPML coefficients along z and x, and the stencils, in the order that the kernel reads them."""
    along = [np.stack([p.a, p.b, p.slope / h]) for p, h in zip(profiles(sim), sim.dh, strict=True)]
    second = second_coefficients(sim.order, sim.dh, dtype)
    first = [np.array(FIRST[sim.order]) / h for h in sim.dh]
    return [jnp.asarray(leaf, dtype) for leaf in (*along, np.concatenate([*second, *first]))]


def _over_shots(call: Callable) -> Callable:
    """Let vmap over shots make one longer block; a batch of velocities is walked one by one."""
    wrapped = jax.custom_batching.custom_vmap(call)

    @wrapped.def_vmap
    def rule(size: int, batched: Any, kappa: jax.Array, *blocks: jax.Array):
        marked = zip(blocks, batched[1:], strict=True)
        spread = [b if is_in else jnp.broadcast_to(b, (size, *b.shape)) for b, is_in in marked]
        if batched[0]:
            found = jax.lax.map(lambda one: wrapped(*one), (kappa, *spread))
        else:
            # lengths are spelt out: no states may be kept, and -1 has no meaning in an empty array
            joined = wrapped(kappa, *(b.reshape(size * b.shape[1], *b.shape[2:]) for b in spread))
            found = tuple(leaf.reshape(size, leaf.shape[0] // size, *leaf.shape[1:]) for leaf in joined)
        return found, (True,) * len(found)

    return wrapped
