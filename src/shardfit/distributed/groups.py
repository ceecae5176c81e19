"""Groups of processes, each at work on something of its own at the same time."""

import jax
import numpy as np
from jax.sharding import Mesh

from shardfit.core.mesh import gather, meet, mesh_of
from shardfit.distributed.processes import set_group


def my_group(n_groups: int, runs: int = 1) -> tuple[int, Mesh]:
    """Split the processes into groups; return the number of this process's group and the mesh of the group's devices.

    Ranks follow each other within a group, and groups differ by one process at most. Every process must call this. What
    is then done on the mesh (`place`, `fit`, `sample`) concerns the group alone: each may have other data, another
    model, another solver, and each needs a run directory of its own. runs: devices of the mesh's second axis.

    Example: `group, mesh = my_group(2); fit(problems[group], mesh=mesh, run_dir=f"run-{group}")`.
    """
    rank, size = jax.process_index(), jax.process_count()
    if not 1 <= n_groups <= size:
        raise ValueError(
            f"my_group({n_groups}): {size} process{'es' * (size > 1)} can form 1 to {size} groups. Start more "
            "(`shardfit launch -n N`), or let each group do several things one after the other."
        )
    groups = [ranks.tolist() for ranks in np.array_split(np.arange(size), n_groups)]
    number = next(i for i, ranks in enumerate(groups) if rank in ranks)
    mesh = mesh_of([device for device in jax.devices() if device.process_index in groups[number]], runs=runs)
    if n_groups > 1:
        set_group(number)
        # the first exchange connects the group, which has no limit of time: it comes when all of them are here
        meet(mesh)
        gather(np.zeros(1, np.uint8), mesh)
    return number, mesh
