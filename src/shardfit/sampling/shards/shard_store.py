"""Draws of shards on disk: one file for each, written when the shard has ended, whole or not at all.

A file names the run and the shard that it belongs to and has a checksum. So a consensus that was killed at any instant
goes on with the shards that are missing, and several workers may write to one folder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.sampling.run_arrays import read_run_arrays, write_run_arrays

FOLDER = "shards"
OWN = ("shard", "evaluations", "seconds")  # entries of a file that are not the sampler's


@dataclass(frozen=True, eq=False)
class ShardRun:
    """One shard's chains: what the sampler handed over (`z` is (chains, draws, n)), its gradients and its seconds."""

    number: int
    arrays: dict[str, np.ndarray]
    evaluations: int
    seconds: float


@dataclass(frozen=True)
class ShardStore:
    """The shards of one run in its folder. run: digest of what the run computes."""

    folder: Path
    run: str

    def clear(self) -> None:
        """Remove what an earlier run left."""
        for path in (self.folder / FOLDER).glob("*.npz"):
            path.unlink()

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / FOLDER / f"{number:05d}.npz"

    def missing(self, numbers: Any) -> list[int]:
        """Return those of some shards that have no file yet."""
        return [int(k) for k in numbers if not self.path(k).exists()]

    def write(self, done: ShardRun) -> None:
        """Keep a shard's draws."""
        facts = {"shard": done.number, "evaluations": done.evaluations, "seconds": done.seconds}
        write_run_arrays(self.path(done.number), {**done.arrays, **facts}, self.run)

    def read(self, number: int) -> ShardRun:
        """Return a shard's draws; raise for a file that is damaged or of another run."""
        arrays = read_run_arrays(self.path(number), self.run, "Delete it and run again: the other shards are kept.")
        if int(arrays["shard"]) != number:
            raise CheckpointError(f"{self.path(number)} holds shard {int(arrays['shard'])}. Delete it and run again.")
        own = {name: a for name, a in arrays.items() if name not in OWN}
        return ShardRun(number, own, int(arrays["evaluations"]), float(arrays["seconds"]))

    @property
    def start(self) -> Path:
        """The file that keeps where all shards begin."""
        return self.folder / FOLDER / "start.npz"
