"""Runs a survey in processes that are killed: `python -m tests.surveys.killed FOLDER KILLS SEED`, see tests/killing."""

import sys
from itertools import product
from pathlib import Path

from tests.killing import main
from tests.surveys.small import PRIORS, point, run

POINTS = [
    point(soft=soft, prior=prior, noise=noise, boot=boot)
    for soft, prior, noise, boot in product((0.3, 1, 3), PRIORS, (1.0, 0.5), range(8))
]
# warm starts, and steps so few that some points have to be polished
OPTIONS = {"sweep": "soft", "maxiter": 7, "polish": 200}


def work(folder, tell):
    """Run the survey."""
    run(folder, POINTS, on_points=lambda records: tell(len(records)), **OPTIONS)


if __name__ == "__main__":
    main(work, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
