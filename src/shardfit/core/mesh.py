"""Device meshes: axis `rows` splits data, axis `runs` splits independent runs (particles, chains, survey points)."""

from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

ROWS = "rows"
RUNS = "runs"


def mesh(rows: int | None = None, runs: int = 1) -> Mesh:
    """Return a mesh of rows x runs devices; by default all devices of all processes share the rows.

    Example: `fit(problem, mesh=mesh(rows=4))`.
    """
    devices = jax.devices()
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
    return jax.make_mesh((rows, runs), (ROWS, RUNS), axis_types=(AxisType.Auto,) * 2, devices=devices[:need])


def n_shards(mesh: Mesh | None) -> int:
    """Return over how many shards the rows are split."""
    return 1 if mesh is None else mesh.shape.get(ROWS, 1)


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """Put a copy of every array on every device of the mesh (None: on the default device)."""
    return jax.device_put(tree, None if mesh is None else NamedSharding(mesh, P()))


def layout(mesh: Mesh | None) -> dict:
    """Describe where the work runs, for a Result."""
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    return {
        "platform": device.platform,
        "device_kind": device.device_kind,
        "rows": n_shards(mesh),
        "runs": 1 if mesh is None else mesh.shape.get(RUNS, 1),
        "processes": jax.process_count(),
    }
