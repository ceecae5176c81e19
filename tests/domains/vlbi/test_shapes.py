"""The physics' array annotations hold: every product, regulariser, operator and mode is traced with them checked."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import jaxtyping, numpy as np
import tests.domains.vlbi.shapes
names = ("forward", "nufft", "penalties", "penalties_pol", "penalties_spectral", "products", "transforms")
checker = "tests.domains.vlbi.shapes.checked"
with jaxtyping.install_import_hook([f"shardfit.domains.vlbi.{name}" for name in names], checker):
    from shardfit.domains.vlbi import penalties, penalties_pol, penalties_spectral
    from shardfit.domains.vlbi.problem import imaging_problem
from tests.domains.vlbi.small import EVERY, GRID, small_data, small_maps

maps = small_maps()
stokes_i = [name for name in EVERY if name not in ("pvis", "m", "vvis", "v")]
cases = [
    (stokes_i, penalties.PENALTIES, {"operator": "separable", "clipfloor": 0.15}),
    (stokes_i, ("tv",), {"operator": "dense"}),
    (EVERY, (*penalties.PENALTIES, *penalties_pol.PENALTIES), {"operator": "separable", "mode": "IPV"}),
    (("pvis", "m"), ("hw", "ptv"), {"operator": "dense", "mode": "P"}),
    (("vis", "cphase"), ("tv", "l2_alpha", "tv_alpha", "flux_mf"), {"spectral": ("alpha",), "mf_flux": (0.7, 0.6)}),
]
for products, regularisers, options in cases:
    data = [small_data(log_ratio=ratio) for ratio in ((-0.1, 0.1) if "spectral" in options else (0.0,))]
    weights = {"data_weights": dict.fromkeys(products, 1.0), "reg_weights": dict.fromkeys(regularisers, 1.0)}
    imaging_problem(data, GRID, maps, **weights, flux=0.7, beam=2.0, **options)  # traces all terms

for wrong in (np.ones((2, 3)), np.ones(3, complex)):
    try:
        penalties.l1(wrong, None)
    except TypeError as error:
        assert "penalties.l1" in str(error)
    else:
        raise AssertionError("a wrong array passed")
"""


def test_annotations_hold():
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
