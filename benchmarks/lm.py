"""Levenberg–Marquardt where it is hard, beside scipy, optimistix and lmfit, one thread each, in turn.

Polynomials of degree 12 and 20 from zeros (columns that are nearly dependent), decays with outliers under robust
losses, and fields of very many parameters without matrices. Seconds are of one fit that is already compiled, with the
covariance where a program makes one; ours is a whole call. evaluations_* are those that each program counts: walks
over the rows for ours, residuals for scipy and lmfit, steps for optimistix. quality_* is how far the value lies above
the least that any program reached, relative.
"""

import sys

from benchmarks.duel import duel

PEERS = ("small",)
SETTINGS = {"precision": "float64", "threads": "one each"}
MODULES = "benchmarks.lm_run", "benchmarks.lm_peer"
ROUNDS = 3
CASES = {
    "polynomial-12": ("scipy", "optimistix", "lmfit"),
    "polynomial-20": ("scipy", "optimistix", "lmfit"),
    "soft_l1": ("scipy", "lmfit"),
    "cauchy": ("scipy", "lmfit"),
    "field-10000": ("scipy", "optimistix"),
    "field-100000": ("scipy",),
}
QUICK = ("polynomial-12", "cauchy")


def run(quick: bool) -> dict[str, dict]:
    """Return seconds, evaluations and values of each pair."""
    cases = {}
    for model in QUICK if quick else CASES:
        pairs = {}
        for peer in CASES[model]:
            pairs[f"{model} / {peer}"] = duel("small", MODULES, {"model": model, "peer": peer}, 1 if quick else ROUNDS)
        cases |= _with_quality(pairs)
        print(model, pairs, file=sys.stderr, flush=True)
    return cases


def _with_quality(pairs: dict[str, dict]) -> dict[str, dict]:
    """Return the figures of one model, with values relative to the least."""
    said = {name: [figures.pop(f"said_{who}") for who in ("ours", "peer")] for name, figures in pairs.items()}
    least = min(one["value"] for both in said.values() for one in both)
    for name, figures in pairs.items():
        for who, one in zip(("ours", "peer"), said[name], strict=True):
            figures |= {f"quality_{who}": one["value"] / least - 1, f"evaluations_{who}": one["evaluations"]}
    return pairs
