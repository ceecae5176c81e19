"""Modes on disk while they are searched for: a search that was killed goes on, to the bit, where it was last kept.

A search is a sequence of rounds of fits, each of which follows from those before it. Every round has a file of its own
with the state of all its fits; what has ended in it is not fitted again, and what has not goes on from there.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shardfit.check.identity import Identity
from shardfit.io.run_dir import ANEW, RunDir, opened
from shardfit.sampling.refits.latent import Mode
from shardfit.sampling.run_arrays import read_run_arrays, write_run_arrays

FOLDER, ROUNDS = "ckpt", "modes-*.npz"


class KeptRound(NamedTuple):
    """The file of one round of fits."""

    store: RunDir
    path: Path

    def read(self, fresh: Mode) -> Mode:
        """Return the state that was kept, or `fresh`, that of a round which has not begun."""
        if not self.path.is_file():
            return fresh
        arrays = read_run_arrays(self.path, self.store.run, ANEW)
        kept = [arrays.get(name) for name in Mode._fields]
        if any(one is None or one.shape != new.shape for one, new in zip(kept, fresh, strict=True)):
            raise ValueError(f"{self.path} does not fit this search. {ANEW}")
        return Mode(*(np.array(one) for one in kept))

    def write(self, modes: Mode, *, ended: bool) -> None:
        """Keep the state: where the round has ended, else as often as the run directory says."""
        if ended or self.store.due():
            self.store.attempt(lambda: write_run_arrays(self.path, modes._asdict(), self.store.run))
            self.store.last_saved = time.monotonic()


class KeptModes:
    """The rounds of a search in a run directory, in the order in which they are asked for."""

    def __init__(self, store: RunDir):
        self.store, self.count = store, 0

    def next_round(self, name: str = "") -> KeptRound:
        """Return the next round. name: of one that is none of the sequence."""
        if not name:
            name, self.count = f"{self.count:02d}", self.count + 1
        return KeptRound(self.store, self.store.path / FOLDER / ROUNDS.replace("*", name))


@contextmanager
def kept_modes(run_dir: str | Path | RunDir | None, identity: Identity, resume: str) -> Iterator[KeptModes | None]:
    """Take a run directory for a search, going on with an earlier one as resume says; None without one."""
    with opened(run_dir) as store:
        if store is None:
            yield None
            return
        store.begin(None, identity, resume)
        if resume == "never":
            for old in (store.path / FOLDER).glob(ROUNDS):
                old.unlink()
        yield KeptModes(store)
        store.event("finished")
