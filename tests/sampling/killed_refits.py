"""Refits in processes that are killed: `python -m tests.sampling.killed_refits FOLDER KILLS SEED`."""

import sys
from dataclasses import replace
from pathlib import Path

from shardfit.sampling.refits import rto as module
from tests.killing import main
from tests.sampling.test_rto import linear


def work(folder, tell):
    """Sample into a folder, telling of every write of the ledger."""
    survey = module.survey

    def telling(*args, control, **options):
        return survey(*args, control=replace(control, on_points=lambda points: tell(len(points))), **options)

    module.survey = telling
    module.rto(linear()[0], draws=100, run_dir=folder, progress=False, slots=8)


if __name__ == "__main__":
    main(work, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
