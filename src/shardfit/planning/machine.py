"""The machine at hand: how fast it computes, measured once per process."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from shardfit.core.precision import PRECISIONS, problem_scope
from shardfit.planning.cost import Work

REPEATS = 5
PASSES = 16
MEMORY_BYTES = 1 << 26  # far beyond any cache
SMALL_BYTES = 1 << 21  # in cache, yet enough to occupy every core
CACHE_BYTES = 1 << 23  # what a core's share of the last cache holds
REUSED_BYTES = 1 << 25  # the C library keeps blocks up to this size for the next call


@dataclass(frozen=True)
class Rates:
    """Sustained rates of one device: operations or bytes per second, and seconds to start a function.

    fresh: bytes per second at which memory that was not in use is handed out, which a CPU pays for in page faults.
    """

    products: float
    elementwise: float
    quick: float
    slow: float
    sums: float
    memory: float
    cache: float
    fresh: float
    latency: float

    def seconds(self, work: Work, rows: int, temporaries: int, sharing: int = 1) -> float:
        """Return the time of some work on rows and temporaries (bytes), on a machine that `sharing` devices share.

        Arithmetic and traffic overlap, so the slower of the two counts. Rows come from memory on the way forward and on
        the way back, the rest stays in cache if it fits there.
        """
        arithmetic = (
            work.products / self.products
            + (work.flops - work.products) / self.elementwise
            + (work.transcendentals - work.slow) / self.quick
            + work.slow / self.slow
            + work.sums / self.sums
        )
        streamed = min(work.bytes, 2.0 * rows) if temporaries <= CACHE_BYTES else work.bytes
        streamed = streamed if rows + temporaries > CACHE_BYTES else 0.0
        traffic = streamed / self.memory + (work.bytes - streamed) / self.cache
        faults = temporaries / self.fresh if temporaries > REUSED_BYTES else 0.0
        return sharing * (max(arithmetic, traffic) + faults) + self.latency * (1 + work.trips)


@lru_cache(maxsize=4)
def rates(device: Any, precision: str) -> Rates:
    """Measure a device's rates; takes about half a second, once per process and precision."""
    with problem_scope(precision), jax.default_device(device):
        return _measure(PRECISIONS[precision])


def _measure(dtype) -> Rates:
    item = jnp.dtype(dtype).itemsize
    square = jnp.full((512, 512), 1e-3, dtype)
    large = jnp.full(MEMORY_BYTES // item, 0.5, dtype)
    small = jnp.full(SMALL_BYTES // item, 0.5, dtype)

    def loop(body: Callable, x: jax.Array) -> float:
        # many passes in one function, in place: neither its start nor new memory counts
        return best_seconds(jax.jit(lambda x: jax.lax.fori_loop(0, PASSES, lambda _, y: body(y), x)), x) / PASSES

    def arithmetic(x):  # 16 operations, of which two are divisions
        for _ in range(2):
            x = (x * 0.5 + 0.25) * x + 0.5
            x = jnp.where(x > 1, 1 - x, x) / (x + 1.5)
        return x

    start = best_seconds(jax.jit(lambda x: x + 1), jnp.zeros((), dtype))
    stream = loop(lambda x: x + 1, large)
    anew = best_seconds(jax.jit(lambda x: x + 1), large)
    return Rates(
        products=2 * 512**3 / best_seconds(jax.jit(lambda a: a @ a), square),
        elementwise=16 * small.size / loop(arithmetic, small),
        quick=small.size / loop(lambda x: jnp.exp(-x), small),
        slow=2 * small.size / loop(lambda x: jnp.cos(jnp.log(x + 2)), small),
        sums=small.size / loop(lambda x: x + 1e-9 * jnp.sum(x), small),
        memory=2 * large.nbytes / stream,
        cache=2 * small.nbytes / loop(lambda x: x + 1, small),
        # never free, so that a division is safe where it costs nothing
        fresh=large.nbytes / max(anew - stream, 1e-3 * stream),
        latency=start,
    )


def best_seconds(fn: Callable, *args: Any) -> float:
    """Return the shortest of several runs: the others waited for someone else."""
    jax.block_until_ready(fn(*args))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def working_devices(mesh: Mesh | int | None) -> list:
    """Return the devices of this process that take part; a bare number is spread over those there are."""
    local = jax.local_devices()
    if isinstance(mesh, Mesh):
        return [d for d in mesh.devices.flat if d.process_index == jax.process_index()] or local[:1]
    return local[: mesh or 1]
