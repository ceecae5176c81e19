"""Acoustic waves against deepwave 0.1.0 and SWEEP's JAX backend (sweep-solver 0.3.5), one thread each, float32.

forward-SIZE-oN, gradient-SIZE-oN: traces of 8 shots, and the gradient of their energy, by our compiled engine and
deepwave on the same scheme, both compiled here for this processor. sweep-*: 4 shots by our JAX engine and SWEEP's,
order 8. devices: the shots on one and on two devices of one thread. roofline-*: our compiled engine and a loop that
only moves the same numbers. marmousi: 16 steps of a full-waveform inversion. Rates are 10⁹ updates of model cells per
CPU second, without layers; peaks are bytes beyond libraries and inputs.

`difference` is the relative distance of what both sides return. SWEEP's gradient leaves out what the cells at the edge
do by their copies in the absorbing layers, so its finite differences there are not its gradient: the outermost cells
are left out of `difference`, and are in `difference_whole`.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.duel import duel
from benchmarks.peers import run_ours

PEERS = ("deepwave", "sweep")
SETTINGS = {"precision": "float32", "threads": "one each", "our kernel": "compiled here with -march=native"}
OURS, ROUNDS = "benchmarks.seismic_ours", {"forward": 4, "gradient": 2}
STEPS = {"100x300": 500, "200x600": 250, "400x1200": 100}
SHOTS = {"deepwave": 8, "sweep": 4}
ROOFLINES = (("100x300", 4), ("100x300", 8), ("200x600", 4), ("400x1200", 4), ("400x1200", 8))
MARMOUSI = "marmousi/marmousi_vp_30m.npz"


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick runs the smallest grid only."""
    cases, sizes = {}, list(STEPS)[: 1 if quick else None]
    for kind in ("forward", "gradient"):
        for size in sizes:
            for order in (4, 8):
                cases[f"{kind}-{size}-o{order}"] = against("deepwave", kind, size, order)
    for kind in ("forward", "gradient"):
        for size in sizes:
            cases[f"sweep-{kind}-{size}"] = against("sweep", kind, size, 8)
    if not quick:
        cases |= {f"roofline-{size}-o{order}": _alone("roofline", size, order) for size, order in ROOFLINES}
        cases["devices"] = _alone("devices", "200x600", 4)
        cases |= _marmousi()
    return cases


def _case(size: str, order: int, shots: int) -> dict:
    return {"shape": [int(n) for n in size.split("x")], "nt": STEPS[size], "shots": shots, "order": order}


def against(peer: str, kind: str, size: str, order: int, waves: str = "acoustic") -> dict:
    """Return the figures of our engine and a peer's on the same scene."""
    engine, scaling = {"deepwave": ("native", "physical"), "sweep": ("jax", "raw")}[peer]
    arguments = {"kind": kind, **_case(size, order, SHOTS[peer]), "engine": engine, "scaling": scaling, "waves": waves}
    with tempfile.TemporaryDirectory() as folder:
        figures = duel(peer, (OURS, f"benchmarks.seismic_{peer}"), {**arguments, "folder": folder}, ROUNDS[kind])
        whole = [np.load(f"{folder}/{side}.npy").astype(float) for side in ("ours", "peer")]
    inner = [array[1:-1, 1:-1] for array in whole] if (peer, kind) == ("sweep", "gradient") else whole
    peaks = {f"peak_{side}": figures.pop(f"said_{side}")["peak"] for side in ("ours", "peer")}
    figures |= peaks | {"difference_whole": distance(*whole)}
    return figures_of(figures, arguments, distance(*inner), *(float(np.linalg.norm(array)) for array in whole))


def distance(ours: np.ndarray, peer: np.ndarray) -> float:
    """Return how far two arrays are apart, relative to the second."""
    return float(np.linalg.norm(ours - peer) / np.linalg.norm(peer))


def _alone(module: str, size: str, order: int) -> dict:
    arguments = _case(size, order, SHOTS["deepwave"])
    figures = run_ours(f"benchmarks.seismic_{module}", arguments)
    return figures_of(figures, arguments, figures.pop("difference", None), None, None)


def _marmousi() -> dict:
    """Return the inversion's case; nothing where the model is absent."""
    source = Path(os.environ.get("SHARDFIT_DATA", ".")) / MARMOUSI
    if not source.is_file():
        print(f"case marmousi is left out: no {source}. Name its folder by SHARDFIT_DATA.", file=sys.stderr)
        return {}
    sides = ("benchmarks.seismic_fwi_ours", "benchmarks.seismic_fwi_deepwave")
    arguments = {"model": str(source), "nt": 1000, "shots": 16, "batch": 2, "order": 4, "steps": 16}
    figures = duel("deepwave", sides, arguments, 1)
    ours, peer = figures.pop("said_ours"), figures.pop("said_peer")
    size = {"shape": ours["shape"], "nt": arguments["nt"], "shots": arguments["batch"] * arguments["steps"]}
    figures |= {"peak_ours": ours["peak"], "peak_peer": peer["peak"], "details": {"ours": ours, "peer": peer}}
    return {"marmousi": figures_of(figures, size, None, ours["error"], peer["error"])}


def figures_of(figures: dict, size: dict, difference, quality_ours, quality_peer) -> dict:
    """Return one case's figures under the names that all cases share."""
    updates = size["shots"] * size["nt"] * np.prod(size["shape"]) / 1e9
    rates = {f"rate_{side}": float(updates / figures[f"cpu_{side}"]) for side in ("ours", "peer")}
    cpu = {"cpu_ratio": figures["cpu_peer"] / figures["cpu_ours"]}
    qualities = {"quality_ours": quality_ours, "quality_peer": quality_peer, "difference": difference}
    return figures | qualities | cpu | rates
