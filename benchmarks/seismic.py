"""Acoustic waves against deepwave 0.1.0 and SWEEP's JAX backend (sweep-solver 0.3.5), one thread each, float32.

forward-SIZE-oN, gradient-SIZE-oN: traces of 8 shots, and the gradient of their energy, by our compiled engine and
deepwave on the same scheme. sweep-*: our JAX engine and SWEEP's, order 8, whose absorbing layers differ. devices: the
shots on one and on two devices of one thread. roofline-*: our compiled engine and a loop that only moves the same
numbers. marmousi: 32 steps of a full-waveform inversion. Rates are 10⁹ updates of model cells per second, without
layers; `difference` is the relative distance of what both sides found; peaks are bytes beyond libraries and inputs.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.duel import duel
from benchmarks.peers import run_ours

OURS, SHOTS, ROUNDS = "benchmarks.seismic_ours", 8, {"forward": 4, "gradient": 2}
STEPS = {"100x300": 1000, "200x600": 500, "400x1200": 200}  # deepwave keeps 1.5 to 3.5 GB of these
MARMOUSI = "marmousi/marmousi_vp_30m.npz"


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick runs the smallest grid only."""
    found, sizes = {}, list(STEPS)[: 1 if quick else None]
    for kind in ("forward", "gradient"):
        for size in sizes:
            for order in (4, 8):
                found[f"{kind}-{size}-o{order}"] = _against("deepwave", kind, size, order)
    if not quick:
        found |= {f"roofline-{size}-o{order}": _alone("roofline", size, order) for size in sizes for order in (4, 8)}
        found["devices"] = _alone("devices", "200x600", 4)
        found |= _marmousi()
    for kind in ("forward", "gradient"):
        for size in sizes:
            found[f"sweep-{kind}-{size}"] = _against("sweep", kind, size, 8)
    return found


def _case(size: str, order: int) -> dict:
    return {"shape": [int(n) for n in size.split("x")], "nt": STEPS[size], "shots": SHOTS, "order": order}


def _against(peer: str, kind: str, size: str, order: int) -> dict:
    ours = {"deepwave": ("native", "physical"), "sweep": ("jax", "raw")}[peer]
    arguments = {"kind": kind, **_case(size, order), "engine": ours[0], "scaling": ours[1]}
    with tempfile.TemporaryDirectory() as folder:
        found = duel(peer, (OURS, f"benchmarks.seismic_{peer}"), {**arguments, "folder": folder}, ROUNDS[kind])
        arrays = [np.load(f"{folder}/{side}.npy").astype(float) for side in ("ours", "peer")]
    peaks = {f"peak_{side}": found.pop(f"said_{side}")["peak"] for side in ("ours", "peer")}
    norms = [float(np.linalg.norm(array)) for array in arrays]
    difference = float(np.linalg.norm(arrays[0] - arrays[1])) / norms[1]
    return _figures(found | peaks, arguments, difference, *norms)


def _alone(module: str, size: str, order: int) -> dict:
    arguments = _case(size, order)
    found = run_ours(f"benchmarks.seismic_{module}", arguments)
    return _figures(found, arguments, found.pop("difference"), None, None)


def _marmousi() -> dict:
    """Return the inversion's case; nothing where the model is absent."""
    source = Path(os.environ.get("SHARDFIT_DATA", ".")) / MARMOUSI
    if not source.is_file():
        print(f"case marmousi is left out: no {source}. Name its folder by SHARDFIT_DATA.", file=sys.stderr)
        return {}
    sides = ("benchmarks.seismic_fwi_ours", "benchmarks.seismic_fwi_deepwave")
    arguments = {"model": str(source), "nt": 1000, "shots": 16, "batch": 2, "order": 4, "steps": 32}
    found = duel("deepwave", sides, arguments, 1)
    ours, peer = found.pop("said_ours"), found.pop("said_peer")
    size = {"shape": ours["shape"], "nt": arguments["nt"], "shots": arguments["batch"] * arguments["steps"]}
    found |= {"peak_ours": ours["peak"], "peak_peer": peer["peak"], "details": {"ours": ours, "peer": peer}}
    return {"marmousi": _figures(found, size, None, ours["error"], peer["error"])}


def _figures(found: dict, size: dict, difference, quality_ours, quality_peer) -> dict:
    """Return one case's figures under the names that all cases share."""
    updates = size["shots"] * size["nt"] * np.prod(size["shape"]) / 1e9
    times = {"rate_ours": "cpu_ours", "rate_peer": "cpu_peer", "wall_rate_ours": "ours", "wall_rate_peer": "peer"}
    rates = {rate: float(updates / found[seconds]) for rate, seconds in times.items()}
    cpu = {"cpu_ratio": found["cpu_peer"] / found["cpu_ours"]}
    qualities = {"quality_ours": quality_ours, "quality_peer": quality_peer, "difference": difference}
    return found | qualities | cpu | rates
