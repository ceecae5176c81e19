"""Runs a consensus in processes that are killed: `python -m tests.sampling.killed_shards FOLDER KILLS SEED SHARDS`."""

import sys
from functools import partial
from pathlib import Path

from shardfit.sampling.shards.shard_consensus import consensus
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.sampling.shards.shard_store import ShardStore
from tests.killing import main
from tests.sampling.shard_cases import QUICK, line


def work(shards, folder, tell):
    """Sample all shards; every one that is written is told."""
    plain = ShardStore.write

    def write(store, run):
        plain(store, run)
        tell(1)

    ShardStore.write = write  # type: ignore[method-assign]
    control = ShardControl(slots=2, progress=False)
    consensus(line(), shards, by="third", run_dir=folder, correct=shards > 4, control=control, **QUICK)


if __name__ == "__main__":
    main(partial(work, int(sys.argv[4])), Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
