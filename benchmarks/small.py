"""Fits of 50 points with new data each time, beside optimistix, scipy and lmfit, one thread each, in turn.

Every fit is of a decay with three parameters from the same start. Ours is a whole call: problem, certificate, fit and
covariance. optimistix is one compiled call with the data as arguments, without errors of the parameters; scipy and
lmfit differentiate numerically. fit_many is given all sets at once. Seconds are per fit; quality_* is the mean of a
fitted parameter, equal for all.
"""

import sys

from benchmarks.duel import duel

PEERS = ("small",)
SETTINGS = {"precision": "float64", "threads": "one each", "points": "50", "parameters": "3"}
FITS, ROUNDS = 200, 5
CASES = {
    "fit-optimistix": ("fit", "optimistix"),
    "fit-scipy": ("fit", "scipy"),
    "fit-lmfit": ("fit", "lmfit"),
    "curve_fit-scipy": ("curve_fit", "scipy"),
    "fit_many-scipy": ("fit_many", "scipy"),
    "fit_many-optimistix": ("fit_many", "optimistix"),
}
SECONDS = ("ours", "peer", "cpu_ours", "cpu_peer")


def run(quick: bool) -> dict[str, dict]:
    """Return seconds per fit of each pair."""
    cases = {}
    fits, rounds = (50, 2) if quick else (FITS, ROUNDS)
    for case, (ours, peer) in CASES.items():
        modules = "benchmarks.small_run", "benchmarks.small_peer"
        figures = duel("small", modules, {"sides": (ours, peer), "fits": fits}, rounds)
        said = figures.pop("said_ours"), figures.pop("said_peer")
        per_fit = {key: figures[key] / fits for key in SECONDS}
        reached = {f"quality_{who}": one["mean"] for who, one in zip(("ours", "peer"), said, strict=True)}
        cases[case] = figures | per_fit | reached
        print(case, cases[case], file=sys.stderr, flush=True)
    return cases
