"""What processes say to each other on the host: small things, outside the sums of an objective.

All processes of the mesh must call these functions in the same order. In a single process they give back what they are
given.
"""

import hashlib
import io
from typing import Any

import numpy as np
from jax.sharding import Mesh

from shardfit.core.mesh import first_says, gather, meet, ranks_of

__all__ = ["meet", "require_same", "share"]


def share(arrays: dict[str, np.ndarray], mesh: Mesh | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of the process that leads, whatever names and shapes the others have."""
    if len(ranks_of(mesh)) == 1:
        return arrays
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    content = np.frombuffer(packed.getvalue(), np.uint8)
    length = int(first_says(np.array([content.size]), mesh)[0])
    content = first_says(np.resize(content, length), mesh)
    with np.load(io.BytesIO(content.tobytes()), allow_pickle=False) as stored:
        return dict(stored)


def require_same(what: str, facts: dict[str, Any], mesh: Mesh | None = None) -> None:
    """Raise, in every process, when one of them has other facts than the first, naming both."""
    ranks = ranks_of(mesh)
    if len(ranks) == 1:
        return
    own = np.array([list(hashlib.sha256(repr(facts[name]).encode()).digest()) for name in facts], np.uint8)
    everyone = gather(own, mesh)
    differing = (everyone != everyone[0]).any(axis=2)
    for row in np.flatnonzero(differing.any(axis=1)):
        names = ", ".join(name for name, odd in zip(facts, differing[row], strict=True) if odd)
        raise ValueError(
            f"{what}: rank {ranks[row]} differs from rank {ranks[0]} in {names}. All processes must run the same "
            "script on the same settings; a random start needs a fixed seed, and rows that differ go through "
            "place_local."
        )
