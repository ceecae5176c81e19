"""Device meshes: axis `rows` splits data, axis `runs` splits independent runs (particles, chains, survey points)."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

ROWS = "rows"
RUNS = "runs"


def mesh(rows: int | None = None, runs: int = 1, *, local: bool = False) -> Mesh:
    """Return a mesh of rows x runs devices; by default all devices of all processes share the rows.

    local: only this process's devices, for work that it does alone.

    Example: `fit(problem, mesh=mesh(rows=4))`.
    """
    devices = jax.local_devices() if local else jax.devices()
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
            "mesh() for all devices, or start fewer processes."
        )
    return jax.make_mesh((rows, runs), (ROWS, RUNS), axis_types=(AxisType.Auto,) * 2, devices=devices[:need])


def n_shards(mesh: Mesh | None) -> int:
    """Return over how many shards the rows are split."""
    return 1 if mesh is None else mesh.shape.get(ROWS, 1)


def processes_of(mesh: Mesh | None) -> set[int]:
    """Return the ranks whose devices a mesh has."""
    return {jax.process_index()} if mesh is None else {d.process_index for d in mesh.devices.flat}


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """Put a copy of every array on every device of the mesh (None: on the default device)."""
    if mesh is None:
        return jax.device_put(tree)
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
