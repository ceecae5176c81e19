"""An XPCS fit on whatever there is: one process or many. Arguments: folder for the answers."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import shardfit as sf
from shardfit.domains.xpcs import Experiment, FitOptions, fit_correlation, laminar_flow, simulate

TRUTH = dict(zip(laminar_flow().names, (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0), strict=True))


def fitted(mesh=None):
    """The same fit on any mesh."""
    data = simulate(laminar_flow(), TRUTH, Experiment(phi=np.linspace(-80, 85, 4), n_frames=30), 1)
    options = FitOptions(scaling="individual", start=TRUTH)
    return fit_correlation(data, laminar_flow(), options, sf.RunOptions(mesh=mesh, progress=False))


if __name__ == "__main__":
    found = fitted(sf.mesh())
    answer = {"params": found.params, "stderr": found.stderr, "contrast": found.contrast.tolist(), "chi2": found.chi2}
    Path(sys.argv[1], f"{jax.process_index()}.json").write_text(json.dumps(answer))
