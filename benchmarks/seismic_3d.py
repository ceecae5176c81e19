"""Acoustic waves in three dimensions: our compiled engine, deepwave 0.1.0 and our JAX engine, one thread each, float32.

forward-SIZE-oN, gradient-SIZE-oN: traces of 2 shots, and the gradient of their energy; see seismic.py for rates, peaks
and `difference`. `cpu_jax` is our JAX engine on the same scene, once.
"""

import tempfile

import numpy as np

from benchmarks.duel import alone, duel
from benchmarks.seismic import OURS, SETTINGS, distance, figures_of

PEERS = ("deepwave",)
STEPS = {"48x48x48": 120, "96x96x96": 60}
SHOTS, ROUNDS = 2, 3

__all__ = ["PEERS", "SETTINGS", "run"]


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick runs the smallest grid only."""
    cases = {}
    for kind in ("forward", "gradient"):
        for size in list(STEPS)[: 1 if quick else None]:
            for order in (4, 8):
                cases[f"{kind}-{size}-o{order}"] = _case(kind, size, order)
    return cases


def _case(kind: str, size: str, order: int) -> dict:
    scene = {"shape": [int(n) for n in size.split("x")], "nt": STEPS[size], "shots": SHOTS, "order": order}
    asked = {"kind": kind, **scene, "scaling": "physical", "waves": "acoustic"}
    with tempfile.TemporaryDirectory() as folder:
        native, jax = ({**asked, "engine": engine, "folder": folder} for engine in ("native", "jax"))
        figures = duel("deepwave", (OURS, "benchmarks.seismic_deepwave"), native, ROUNDS)
        ours, peer = (np.load(f"{folder}/{side}.npy").astype(float) for side in ("ours", "peer"))
        timed, said = alone(OURS, jax, 1)
        slow = np.load(f"{folder}/ours.npy").astype(float)
    peaks = {f"peak_{side}": figures.pop(f"said_{side}")["peak"] for side in ("ours", "peer")}
    figures |= peaks | {"cpu_jax": timed["cpu"], "peak_jax": said["peak"], "difference_jax": distance(ours, slow)}
    figures["jax_ratio"] = figures["cpu_jax"] / figures["cpu_ours"]
    return figures_of(figures, scene, distance(ours, peer), *(float(np.linalg.norm(x)) for x in (ours, peer)))
