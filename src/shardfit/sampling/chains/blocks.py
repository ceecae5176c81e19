"""Draws on disk: every group of chains has a folder, every stretch of its draws a block in it.

A block is a run of its own with its checkpoints; when it has ended, one file holds its draws and all that the next
block needs to go on, so that more draws can be added at any time.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.check.identity import Identity
from shardfit.core.problem import Problem
from shardfit.io.run_dir import RunDir, opened
from shardfit.sampling.run_arrays import read_run_arrays, write_run_arrays

STATE = "state_"  # what names of arrays begin with that a later block goes on from


class Blocks:
    """The blocks of one group in a run directory; None keeps them in memory."""

    def __init__(self, store: RunDir | None, number: int = 0):
        self.root = None if store is None else store.path
        self.seconds = 0.0 if store is None else store.seconds
        self.number, self.count = number, 0

    @property
    def path(self) -> Path:
        """Folder of the present block."""
        assert self.root is not None
        return self.root / f"chains{self.number:03d}" / f"block{self.count:03d}"

    def clear(self) -> None:
        """Remove the blocks of all groups."""
        for folder in [] if self.root is None else self.root.glob("chains[0-9][0-9][0-9]"):
            shutil.rmtree(folder)

    def stored(self, run: str) -> list[dict[str, np.ndarray]]:
        """Return the blocks that are complete, in order; raise for one that is damaged or of another run."""
        found = []
        while self.root is not None and (self.path / "draws.npz").exists():
            remedy = f"Delete {self.path} and all that follow it, or start over with resume='never'."
            found.append(read_run_arrays(self.path / "draws.npz", run, remedy))
            self.count += 1
        return found

    @contextmanager
    def folder(self, problem: Problem, known: Identity, mesh: Any) -> Iterator[RunDir | None]:
        """Give the run directory of the present block, taken for it."""
        if self.root is None:
            yield None
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with opened(RunDir(self.path, self.seconds)) as store:
            assert store is not None
            known = replace(known, facts={**known.facts, "block": f"{self.number} {self.count}"})
            store.begin(problem, known, "auto", mesh)
            yield store

    def write(self, block: dict[str, np.ndarray], run: str, store: RunDir | None) -> None:
        """Keep a block that has ended; its checkpoints are not needed any more. Of several processes one writes."""
        if store is not None and store.writes:
            write_run_arrays(self.path / "draws.npz", block, run)
            shutil.rmtree(self.path / "ckpt", ignore_errors=True)
        self.count += 1

    @staticmethod
    def continuation(block: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what the next block goes on from."""
        return {name.removeprefix(STATE): array for name, array in block.items() if name.startswith(STATE)}

    @staticmethod
    def joined(blocks: list[dict[str, np.ndarray]], draws: int) -> dict[str, np.ndarray]:
        """Return the arrays of all blocks as one, (chains, draws, ...), and those that have no draws of the last."""
        size = [block["z"].shape[1] for block in blocks]
        whole = {}
        for name in (name for name in blocks[0] if not name.startswith(STATE)):
            parts = [block[name] for block in blocks]
            of_draws = all(part.ndim >= 2 and part.shape[1] == n for part, n in zip(parts, size, strict=True))
            whole[name] = np.concatenate(parts, axis=1)[:, :draws] if of_draws else parts[-1]
        return whole
