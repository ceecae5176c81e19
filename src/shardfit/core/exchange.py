"""What processes say to each other on the host: small things, outside the sums of an objective.

All processes must call these functions in the same order. In a single process they give back what they are given.
"""

import hashlib
import io
import itertools
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import processes_of
from shardfit.core.processes import START_SECONDS, client

_meetings = itertools.count()


def spans_processes(mesh: Mesh | None) -> bool:
    """Return whether a mesh has devices of several processes."""
    return len(processes_of(mesh)) > 1


def leads(mesh: Mesh | None) -> bool:
    """Return whether this process is the one of the mesh that writes files, shows progress and decides."""
    return not spans_processes(mesh) or jax.process_index() == 0


def meet() -> None:
    """Wait until every process is here; the wait may be long, for data are loaded before."""
    if jax.process_count() > 1:
        client().wait_at_barrier(f"shardfit/meeting/{next(_meetings)}", START_SECONDS * 1000)


def gather(numbers: np.ndarray) -> np.ndarray:
    """Return every process's array of one common shape and type, stacked in the order of ranks."""
    return _exchange(numbers, _all)


def first_says(numbers: np.ndarray) -> np.ndarray:
    """Return rank 0's array, to the bit; the others' give only shape and type."""
    return _exchange(numbers, _first)


def share(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return rank 0's arrays, whatever names and shapes the others have."""
    if jax.process_count() == 1:
        return arrays
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    content = np.frombuffer(packed.getvalue(), np.uint8)
    length = int(first_says(np.array([content.size]))[0])
    content = first_says(np.resize(content, length))
    with np.load(io.BytesIO(content.tobytes()), allow_pickle=False) as found:
        return dict(found)


def require_same(what: str, facts: dict[str, Any]) -> None:
    """Raise, in every process, when one of them has other facts than rank 0, naming both."""
    if jax.process_count() == 1:
        return
    own = np.array([list(hashlib.sha256(repr(facts[name]).encode()).digest()) for name in facts], np.uint8)
    everyone = gather(own)
    differing = (everyone != everyone[0]).any(axis=2)
    for rank in np.flatnonzero(differing.any(axis=1)):
        names = ", ".join(name for name, odd in zip(facts, differing[rank], strict=True) if odd)
        raise ValueError(
            f"{what}: rank {rank} differs from rank 0 in {names}. All processes must run the same script on the same "
            "settings; a random start needs a fixed seed, and rows that differ go through place_local."
        )


def fetch(array: Any, index: Any = ...) -> np.ndarray:
    """Return array[index] as a NumPy array, in every process, also where the array is spread over them."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array[index])
    everywhere = NamedSharding(array.sharding.mesh, P())  # type: ignore[attr-defined]
    if index is ...:
        return np.asarray(jax.jit(_all, out_shardings=everywhere)(array))
    return np.asarray(jax.jit(_chosen, out_shardings=everywhere)(array, index))


def _exchange(numbers: np.ndarray, pick: Any) -> np.ndarray:
    """Stack one array per process, apply pick, and return the same result everywhere; bytes travel, nothing is cast."""
    if jax.process_count() == 1:
        return np.asarray(pick(np.asarray(numbers)[None]))
    numbers = np.ascontiguousarray(numbers)
    size, raw = jax.process_count(), numbers.view(np.uint8).reshape(-1)
    everyone = _one_device_each()
    piece = jax.device_put(raw[None], jax.local_devices()[0])
    stacked = jax.make_array_from_single_device_arrays(
        (size, raw.size), NamedSharding(everyone, P("processes")), [piece]
    )
    found = np.asarray(_compiled(pick)(stacked))
    return found.reshape(-1).view(numbers.dtype).reshape(*found.shape[:-1], *numbers.shape)


def _all(stacked: Any) -> Any:
    return stacked


def _chosen(array: Any, index: Any) -> Any:
    return array[index]


def _first(stacked: Any) -> Any:
    return stacked[0]


@lru_cache(maxsize=1)
def _one_device_each() -> Mesh:
    first = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[rank] for rank in sorted(first)]), ("processes",))


@lru_cache(maxsize=4)
def _compiled(pick: Any) -> Any:
    return jax.jit(pick, out_shardings=NamedSharding(_one_device_each(), P()))
