"""Images drawn in processes that are killed: `python -m tests.domains.vlbi.killed_posterior FOLDER KILLS SEED`."""

import sys
from pathlib import Path

from shardfit.domains.vlbi import posterior
from shardfit.io.files import write_arrays
from shardfit.io.run_dir import RunDir
from shardfit.sampling.refits.kept_modes import KeptRound
from tests.domains.vlbi.test_image_posterior import PIXELS, data
from tests.killing import main

SETTINGS = {**PIXELS, "flux": 0.5, "products": "vis", "draws": 12, "seed": 1}
WRITE = KeptRound.write


def work(folder, tell):
    """Draw into a folder, telling of every write."""

    def telling(self, modes, *, ended):
        WRITE(self, modes, ended=ended)
        tell(1)

    KeptRound.write = telling
    found = posterior(data()[0], **SETTINGS, run_dir=RunDir(folder, seconds=0.0))
    write_arrays(folder / "images.npz", {"images": found.images, "chi2": found.chi2, "z": found.numbers.z})


if __name__ == "__main__":
    main(work, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
