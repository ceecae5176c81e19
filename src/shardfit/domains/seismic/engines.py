"""Which engine runs: the compiled kernel where it can be built and is found right, JAX elsewhere, and why."""

import logging
from functools import lru_cache, partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import arithmetic
from shardfit.domains.seismic import elastic, native, wave
from shardfit.domains.seismic.build import BuildError, library_path
from shardfit.domains.seismic.geometry import Shots, acquisition
from shardfit.domains.seismic.loops import record
from shardfit.domains.seismic.medium import MediumSimulation
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import Full

log = logging.getLogger(__name__)
ENGINES = ("auto", "jax", "native")


def choose_engine(engine: str | Native, sim: Simulation) -> tuple[str | Native, str]:
    """Return 'jax' or Native settings, and a sentence that says why.

    'auto' is native where it can be built and agrees with JAX on a small case; 'native' raises where it cannot.
    """
    if engine == "jax":
        return "jax", "jax: as asked"
    if isinstance(engine, Native) or engine == "native":
        if _only_jax(sim):
            raise ValueError(f"the native engine has no {sim.waves} waves. Use engine='jax', or 'auto', for them.")
        if jax.default_backend() != "cpu":
            raise ValueError(f"the native engine is for CPUs, and this is {jax.default_backend()}. Use engine='jax'.")
        _check_native(kernel_of(sim).name, sim.order)
        return engine if isinstance(engine, Native) else Native(), "native: as asked"
    if engine != "auto":
        raise ValueError(f"unknown engine {engine!r}.{suggestion(str(engine), ENGINES)}")
    if _only_jax(sim):
        return "jax", f"jax: {sim.waves} waves, for which there is no compiled kernel"
    if jax.default_backend() != "cpu":
        return "jax", f"jax: the compiled kernel is for CPUs, and this is {jax.default_backend()}"
    try:
        _check_native(kernel_of(sim).name, sim.order)
    except BuildError as error:
        _say_once(str(error))
        return "jax", f"jax: {error}"
    return Native(), "native: compiled kernel, checked against JAX on a small case"


@lru_cache
def _say_once(reason: str) -> None:
    log.warning("waves are computed by the JAX engine, which is slower than the compiled one: %s", reason)


def _only_jax(sim: Simulation) -> TypeGuard[MediumSimulation]:
    return isinstance(sim, MediumSimulation) and not sim.compiled


def kernel_of(sim: Simulation) -> native.Kernel:
    """Return the compiled kernel for the waves of a simulation."""
    return elastic.KERNEL if isinstance(sim, elastic.ElasticSimulation) else native.ACOUSTIC[len(sim.shape)]


@lru_cache
def _check_native(kind: str, order: int) -> None:
    """Compare a small case with the JAX engine, once for each compiled kernel; raise if they differ.

    It runs on a thread of its own, for the caller may be inside a trace.
    """
    native.register(kind, order // 2)
    mark = _mark(kind, order)
    if mark.exists():
        return
    found: list = []

    def compare():
        try:
            with arithmetic("float64"):
                found.append(_difference(kind, order))
        except Exception as error:
            found.append(error)

    thread = Thread(target=compare)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise BuildError(f"the native kernel does not run with this jax ({found[0]}).") from found[0]
    if not found[0] < 1e-9:
        raise BuildError(f"the native kernel differs from JAX by {found[0]:.1e} on this machine. Use engine='jax'.")
    mark.touch()


def _mark(kind: str, order: int) -> Path:
    """Return the file that says that a kernel was found right."""
    return library_path(kind, order // 2).with_suffix(".checked")


def _difference(kind: str, order: int) -> float:
    """Return the largest distance between both engines' traces, and their gradients, of a small case."""
    n = 2 * order + 3
    shape, widths = ((n, n + 2), (0, 3, 5, 0)) if kind != "acoustic_3d" else ((n, n + 1, n + 2), (0, 3, 4, 0, 5, 0))
    scheme = {"order": order, "widths": widths, "free_surface": True}
    rng = np.random.default_rng(0)
    velocity = jnp.asarray(rng.uniform(1500, 2500, shape))
    numbers = shape, 10.0, 1e-3, 40, 2500.0, 40.0
    if kind == "elastic":
        sim, run = elastic.ElasticSimulation(*numbers, **scheme, source="force_x"), _elastic_traces
    else:
        sim, run = Simulation(*numbers, **scheme), _acoustic_traces
    sources, receivers = np.array([(2, 4, 3)]), np.array([(n - 2, 5, 1), (4, 2, n)])
    axes = [0, 2] if len(shape) == 2 else [0, 1, 2]
    shots = jax.tree.map(jnp.asarray, acquisition(sim, sources[:, axes], receivers[:, axes]))
    signature, bars = jnp.asarray(rng.normal(size=(1, 1, 40))), jnp.asarray(rng.normal(size=(1, 2, 40)))

    def both(engine):
        traces, pull = jax.vjp(lambda v: run(sim, v, signature, shots, engine), velocity)
        return traces, pull(bars)[0]

    # compiling takes longer than running a case as small as this
    quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    pairs = zip(quick(lambda: both("jax"))(), quick(lambda: both(Native(1, 3)))(), strict=True)
    return float(max(jnp.abs(a - b).max() / jnp.abs(b).max() for a, b in pairs))


def _acoustic_traces(sim: Simulation, velocity: jax.Array, signature: jax.Array, shots: Shots, engine: str | Native):
    kappa = wave.padded_kappa(sim, velocity)
    if isinstance(engine, Native):
        return native.traces(sim, engine, kappa, signature, shots)
    return record(sim, Full(), wave.Medium(kappa, *shots), signature)


def _elastic_traces(sim: Any, velocity: jax.Array, signature: jax.Array, shots: Shots, engine: str | Native):
    """Return traces of a medium whose three parameters all depend on one."""
    medium = {"vp": velocity, "vs": velocity - 1000, "rho": 2 * velocity}
    return sim.traces(medium, signature, shots, engine, Full())
