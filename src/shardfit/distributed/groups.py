"""Groups of processes, each at work on something of its own at the same time."""

import hashlib
import platform
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from shardfit.core.mesh import gather, meet, mesh_of
from shardfit.distributed.processes import set_group


def my_group(groups: int | Sequence[int] | str, runs: int = 1) -> tuple[int, Mesh]:
    """Split the processes into groups; return the number of this process's group and the mesh of the group's devices.

    groups: how many, which then differ by one process at most; or the size of each, which add up to all processes; or
    'hosts', one for every machine. Ranks follow each other within a group. Every process must call this. What is then
    done on the mesh (`place`, `fit`, `sample`) concerns the group alone: each may have other data, another model,
    another solver, and each needs a run directory of its own. runs: devices of the mesh's second axis.

    Example: `group, mesh = my_group(2); fit(problems[group], mesh=mesh, run_dir=f"run-{group}")`.
    """
    rank, size = jax.process_index(), jax.process_count()
    ranks = ranks_of(groups, size, _hosts() if groups == "hosts" else [])
    number = next(i for i, own in enumerate(ranks) if rank in own)
    mesh = mesh_of([device for device in jax.devices() if device.process_index in ranks[number]], runs=runs)
    if len(ranks) > 1:
        set_group(number)
        # the first exchange connects the group, which has no limit of time: it comes when all of them are here
        meet(mesh)
        gather(np.zeros(1, np.uint8), mesh)
    return number, mesh


def ranks_of(groups: int | Sequence[int] | str, size: int, hosts: Sequence[str] = ()) -> list[list[int]]:
    """Return the ranks of every group of so many processes; hosts: of every process."""
    if isinstance(groups, str):
        if groups != "hosts":
            raise ValueError(f"my_group({groups!r}): give how many groups, the size of each, or 'hosts'.")
        return [[rank for rank in range(size) if hosts[rank] == host] for host in dict.fromkeys(hosts)]
    there = f"{size} process{'es' * (size > 1)}"
    if isinstance(groups, int | np.integer):
        if not 1 <= groups <= size:
            raise ValueError(
                f"my_group({groups}): {there} can form 1 to {size} groups. Start more (`shardfit launch -n N`), or let "
                "each group do several things one after the other."
            )
        return [ranks.tolist() for ranks in np.array_split(np.arange(size), groups)]
    sizes = list(groups)
    if not all(isinstance(n, int | np.integer) and n >= 1 for n in sizes) or sum(sizes) != size:
        raise ValueError(
            f"my_group({sizes}): sizes of groups are whole numbers, at least 1, that add up to all processes, and "
            f"there {'is' if size == 1 else 'are'} {there}."
        )
    return [ranks.tolist() for ranks in np.split(np.arange(size), np.cumsum(sizes)[:-1])]


def _hosts() -> list[str]:
    """Return what stands for the machine of every process, in the order of ranks."""
    name = hashlib.sha256(platform.node().encode()).digest()
    return [row.tobytes().hex() for row in gather(np.frombuffer(name, np.uint8))]
