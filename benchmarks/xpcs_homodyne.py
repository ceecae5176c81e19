"""XPCS fits against homodyne itself: one core each, float64, the same arrays, start and bounds, whole calls in turn.

The package is not on the package index: SHARDFIT_HOMODYNE names the python of an environment that has it. A call goes
from correlations in memory to parameters with errors. cold: from the start of a process to its first answer, nothing
compiled before. apart: largest distance of the two answers, in our standard errors of pairs counted once. quality: χ²
of each answer, its own scales included, over the pairs i < j, computed here for both. Its objective depends on the
number of points: below 10⁵ differences without noise and with the diagonal, soft_l1 and scales of every angle
(`compat="grid"` here), from 10⁶ on weighted differences off the diagonal; there it takes the scales that
are asked for in laminar flow, and those of every angle in static fits.
"""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.duel import duel
from benchmarks.peers import peer_python
from benchmarks.xpcs_homodyne_scene import GAP, SIGMA, Q, truth

PEERS = ("homodyne",)
SETTINGS = {
    "precision": "float64",
    "threads": "one core each",
    "tolerances": "the peer's ftol, xtol and gtol 1e-8, which it takes as 1e-6 below 10⁵ points; ours its own",
}
SIDES = ("benchmarks.xpcs_homodyne_ours", "benchmarks.xpcs_homodyne_peer")
# model, angles, frames, scales, rounds
CASES = {
    "static 3x100": ("static", 3, 100, "individual", 3),
    "flow 3x100": ("laminar_flow", 3, 100, "individual", 3),
    "static 23x210": ("static", 23, 210, "individual", 1),
    "flow 23x210": ("laminar_flow", 23, 210, "auto", 2),
    "flow 23x500": ("laminar_flow", 23, 500, "auto", 1),
}
QUICK = ("static 3x100", "flow 3x100")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick takes the small ones."""
    peer_python("homodyne")  # before data are made
    return {case: _case(*CASES[case]) for case in (QUICK if quick else CASES)}


def _case(mode: str, n: int, nt: int, scaling: str, rounds: int) -> dict:
    from shardfit.domains.xpcs import Experiment, laminar_flow, simulate, static

    model = static() if mode == "static" else laminar_flow()
    experiment = Experiment(phi=np.linspace(-90, 90, n), n_frames=nt, dt=20.0 / nt, q=Q, gap=GAP, sigma=SIGMA)
    data = simulate(model, truth(mode), experiment, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c2.npy"
        np.save(path, data.c2)
        asked = {"path": str(path), "mode": mode, "scaling": scaling, "phi": data.phi.tolist(), "dt": data.dt}
        figures = duel("homodyne", SIDES, asked, rounds)
    ours, peer = figures.pop("said_ours"), figures.pop("said_peer")
    steps = [abs(a - b) / s for a, b, s in zip(ours["params"], peer["params"], ours["stderr"], strict=True)]
    return figures | {
        "points": int(n * nt * (nt - 1)),
        "apart": max(steps),
        "status_peer": peer["status"],
        "quality_ours": _chi2(data, model, experiment, ours),
        "quality_peer": _chi2(data, model, experiment, peer),
        "cold_ours": ours["cold_cpu"],
        "cold_peer": peer["cold_cpu"],
        "cold_ratio": peer["cold_cpu"] / ours["cold_cpu"],
        "peak_ours": 1024 * ours["peak"],
        "peak_peer": 1024 * peer["peak"],
    }


def _chi2(data, model, experiment, answer: dict) -> float:
    """Return χ² of an answer over the pairs i < j."""
    from shardfit.domains.xpcs.simulation import model_curve

    curve = model_curve(model, dict(zip(model.names, answer["params"], strict=True)), experiment)
    contrast, offset = (np.asarray(answer[name])[:, None] for name in ("contrast", "offset"))
    i, j = np.triu_indices(data.n_frames, 1)
    return float(np.sum(((data.c2[:, i, j] - offset - contrast * curve[:, i, j]) / SIGMA) ** 2))
