"""Device meshes: axis `rows` splits data, axis `runs` splits independent runs (particles, chains, survey points).

Also what small arrays need to be the same on the hosts of all processes of a mesh; all of these must call the functions
in the same order, processes outside the mesh must not. In a single process they give back what they are given. Where a
mesh is not given, all processes take part.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

ROWS = "rows"
RUNS = "runs"


def mesh(rows: int | None = None, runs: int = 1, *, local: bool = False) -> Mesh:
    """Return a mesh of rows x runs devices; by default all devices of all processes share the rows.

    local: only this process's devices, for work that it does alone.

    Example: `fit(problem, mesh=mesh(rows=4))`.
    """
    return mesh_of(jax.local_devices() if local else jax.devices(), rows, runs)


def mesh_of(devices: Sequence[Any], rows: int | None = None, runs: int = 1) -> Mesh:
    """Return a mesh of rows x runs of these devices; by default all of them share the rows."""
    if runs < 1 or (rows is not None and rows < 1):
        raise ValueError(f"mesh(rows={rows}, runs={runs}): both numbers must be at least 1.")
    if rows is None:
        rows = max(1, len(devices) // runs)
    need = rows * runs
    if need > len(devices):
        raise ValueError(
            f"mesh(rows={rows}, runs={runs}) needs {need} devices, but JAX sees {len(devices)} "
            f"({devices[0].platform}). Ask for fewer, or start more: on a CPU set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={need} before Python starts."
        )
    idle = {d.process_index for d in devices} - {d.process_index for d in devices[:need]}
    if idle:
        raise ValueError(
            f"mesh(rows={rows}, runs={runs}) would leave rank {', '.join(map(str, sorted(idle)))} without work. Use "
            "mesh() for all devices, my_group() for a mesh of some of the processes, or start fewer."
        )
    return jax.make_mesh((rows, runs), (ROWS, RUNS), axis_types=(AxisType.Auto,) * 2, devices=devices[:need])


def n_shards(mesh: Mesh | AbstractMesh | None) -> int:
    """Return over how many shards the rows are split."""
    return 1 if mesh is None else mesh.shape.get(ROWS, 1)


def processes_of(mesh: Mesh | None) -> set[int]:
    """Return the ranks whose devices a mesh has."""
    return {jax.process_index()} if mesh is None else {d.process_index for d in mesh.devices.flat}


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """Put a copy of every array on every device of the mesh (None: on the default device)."""
    if mesh is None:
        return _put(tree)
    sharding = NamedSharding(mesh, P())
    if len(processes_of(mesh)) == 1:
        return jax.device_put(tree, sharding)

    def put(leaf):  # device_put would ask all processes, leaf by leaf, whether they agree
        if isinstance(leaf, jax.Array) and (leaf.sharding == sharding or not leaf.is_fully_addressable):
            return leaf if leaf.sharding == sharding else jax.device_put(leaf, sharding)
        if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        own = np.asarray(leaf, dtype=jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype))
        return jax.make_array_from_callback(own.shape, sharding, lambda index: own[index])

    return jax.tree.map(put, tree)


def _put(tree: Any) -> Any:
    """Put what is not on a device yet on the default one: for what is there already asking takes time."""
    leaves, structure = jax.tree.flatten(tree)
    fresh = [i for i, leaf in enumerate(leaves) if not isinstance(leaf, jax.Array)]
    for i, leaf in zip(fresh, jax.device_put([leaves[i] for i in fresh]), strict=True):
        leaves[i] = leaf
    return structure.unflatten(leaves)


def everywhere(tree: Any, mesh: Mesh | None) -> Any:
    """Return traced arrays such that every device of the mesh has them whole: the host of each process reads them."""
    return tree if mesh is None else jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P()))


def layout(mesh: Mesh | None) -> dict:
    """Describe where the work runs, for a Result."""
    device = jax.local_devices()[0] if mesh is None else mesh.devices.flat[0]
    return {
        "platform": device.platform,
        "device_kind": device.device_kind,
        "rows": n_shards(mesh),
        "runs": 1 if mesh is None else mesh.shape.get(RUNS, 1),
        "processes": len(processes_of(mesh)),
    }


def spans_processes(mesh: Mesh | None) -> bool:
    """Return whether a mesh has devices of several processes."""
    return len(processes_of(mesh)) > 1


def leads(mesh: Mesh | None) -> bool:
    """Return whether this process is the one of the mesh that writes files, shows progress and decides."""
    return not spans_processes(mesh) or jax.process_index() == min(processes_of(mesh))


def ranks_of(mesh: Mesh | None) -> tuple[int, ...]:
    """Return the ranks that take part in an exchange on a mesh, in order; None: all."""
    return tuple(range(jax.process_count())) if mesh is None else tuple(sorted(processes_of(mesh)))


_meetings: Counter[tuple[int, ...]] = Counter()
_meeting: Callable[[tuple[int, ...], int], None] | None = None
_latest: tuple[int, ...] | None = None


def set_meeting(wait: Callable[[tuple[int, ...], int], None]) -> None:
    """Say how processes wait for each other: wait(ranks, number of their meeting), once they have joined."""
    global _meeting
    _meeting = wait


def meet(mesh: Mesh | None = None) -> None:
    """Wait until every process is here, before work that all do together: the wait may be long, as data are loaded."""
    ranks = _noted(mesh)
    if _meeting is not None and len(ranks) > 1:
        _meetings[ranks] += 1
        _meeting(ranks, _meetings[ranks])


def latest_ranks() -> tuple[int, ...]:
    """Return the ranks that took part in this process's latest meeting or exchange: whom it may be waiting for."""
    return ranks_of(None) if _latest is None else _latest


def _noted(mesh: Mesh | None) -> tuple[int, ...]:
    global _latest
    _latest = ranks_of(mesh)
    return _latest


def gather(numbers: np.ndarray, mesh: Mesh | None = None) -> np.ndarray:
    """Return every process's array of one common shape and type, stacked in the order of ranks."""
    return _exchange(numbers, mesh, _all)


def reduce_sum(value: Any, mesh: Mesh | None = None) -> Any:
    """Return the sum, over processes, of a number or an array of which each has its own; every process gets it.

    For numbers beside a fit, such as what the data of all ranks add up to. What terms return is summed by the library.

    Example: `n_halos = reduce_sum(len(rows["logm"]))`.
    """
    if isinstance(value, Tracer):
        raise TypeError(
            "reduce_sum is called in a function that JAX compiles. What a statistic returns is summed over all rows, "
            "devices and processes without it: leave it out there, and read sums with objective.totals(params)."
        )
    total = gather(np.asarray(value), mesh).sum(0)
    return total.item() if total.ndim == 0 else total


def first_says(numbers: np.ndarray, mesh: Mesh | None = None) -> np.ndarray:
    """Return the array of the process that leads, to the bit; the others' give only shape and type."""
    return _exchange(numbers, mesh, _first)


def fetch(array: Any, index: Any = ...) -> np.ndarray:
    """Return array[index] as a NumPy array, in every process, also where the array is spread over them."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array[index])
    whole = NamedSharding(array.sharding.mesh, P())  # type: ignore[attr-defined]
    if index is ...:
        return np.asarray(jax.jit(_all, out_shardings=whole)(array))
    return np.asarray(jax.jit(_chosen, out_shardings=whole)(array, index))


def _exchange(numbers: np.ndarray, mesh: Mesh | None, pick: Any) -> np.ndarray:
    """Stack one array per process, apply pick, and return the same result everywhere; bytes travel, nothing is cast."""
    ranks = _noted(mesh)
    if len(ranks) == 1:
        return np.asarray(pick(np.asarray(numbers)[None]))
    numbers = np.ascontiguousarray(numbers)
    raw = numbers.view(np.uint8).reshape(-1)
    piece = jax.device_put(raw[None], jax.local_devices()[0])
    spread = NamedSharding(_one_device_each(ranks), P("processes"))
    stacked = jax.make_array_from_single_device_arrays((len(ranks), raw.size), spread, [piece])
    found = np.asarray(_compiled(pick, ranks)(stacked))
    return found.reshape(-1).view(numbers.dtype).reshape(*found.shape[:-1], *numbers.shape)


def _all(stacked: Any) -> Any:
    return stacked


def _chosen(array: Any, index: Any) -> Any:
    return array[index]


def _first(stacked: Any) -> Any:
    return stacked[0]


@lru_cache(maxsize=8)
def _one_device_each(ranks: tuple[int, ...]) -> Mesh:
    first = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[rank] for rank in ranks]), ("processes",))


@lru_cache(maxsize=16)
def _compiled(pick: Any, ranks: tuple[int, ...]) -> Any:
    return jax.jit(pick, out_shardings=NamedSharding(_one_device_each(ranks), P()))
