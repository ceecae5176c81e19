"""Reference data of XPCS, and small simulated data with a known answer."""

import numpy as np

from shardfit.domains.xpcs import Correlation, Experiment, laminar_flow, simulate, static
from tests.reference import REFERENCE

FOLDER = REFERENCE / "xpcs"
STATIC = {"D0": 15000.0, "alpha": -0.3, "D_offset": 800.0}
FLOW = dict(zip(laminar_flow().names, (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0), strict=True))


def reference(name):
    """Arrays of a reference file by name."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def model_of(params):
    """The model that a reference file with so many parameters belongs to."""
    return laminar_flow() if len(params) == 7 else static()


def measured(case):
    """The data of a reference fit."""
    numbers = (float(case[name]) for name in ("q", "dt", "sigma", "L"))
    return Correlation(case["c2"], case["phi"], *numbers)


def small(model=None, params=None, seed=1, **settings):
    """Simulated data of a few frames and angles."""
    model = model or static()
    params = params or (FLOW if len(model.names) == 7 else STATIC)
    return simulate(model, params, Experiment(**{"phi": (-30.0, 0.0, 85.0), "n_frames": 24, **settings}), seed)
