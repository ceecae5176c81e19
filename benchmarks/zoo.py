"""Targets with known answers, or without any: is the sampler right, or does it say that it is not?

right: converged, means within 0.15 standard deviations and standard deviations within 15 %. flagged: not converged, or
divergences. refused: an error before or while sampling. wrong: converged, and not right; there may be none.
"""

import time

import numpy as np

import shardfit as sf
from benchmarks.problems.zoo import TARGETS, Target

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "as many as cores", "chains": "4", "warmup": "500", "draws": "1000"}
QUICK = ("normal", "two modes", "separated classes, flat priors")
TOLERANCE = 0.15
METHODS = "nuts", "mams"
WORDS = "right", "flagged", "refused", "wrong"


def run(quick: bool) -> dict[str, dict]:
    """Return what was said of every target by both samplers, and how many were silently wrong."""
    draws, names = 300 if quick else 1000, QUICK if quick else TARGETS
    found = {method: {name: once(TARGETS[name], draws, method=method) for name in names} for method in METHODS}
    cases = dict(found["nuts"])
    for method in METHODS[1:]:
        cases |= {f"{name}, {method}": case for name, case in found[method].items()}
    for method, own in found.items():
        words = [case["word"] for case in own.values()]
        name = "all" if method == "nuts" else f"all, {method}"
        cases[name] = {"targets": len(own)} | {word: words.count(word) for word in WORDS}
    return cases


def once(target: Target, draws: int = 1000, warmup: int = 500, seed: int = 0, method: str = "nuts") -> dict:
    """Return what a sampler says of a target, and how far off it is."""
    began = time.process_time()
    try:
        found = sf.sample(target.problem(), method, draws=draws, warmup=warmup, seed=seed, progress=False)
    except (ValueError, RuntimeError) as error:
        told = {"word": "refused", "why": str(error)[:100], "wrong": False}
        return told | {"cpu": time.process_time() - began}
    off = spread = None  # where there is no answer, nothing is off by a number
    right = False
    if target.seen is not None:
        numbers = target.seen(found.numbers().reshape(found.size, -1))
        off = float(np.max(np.abs(numbers.mean(0) - target.mean) / target.sd))
        spread = float(np.max(np.abs(np.log(numbers.std(0) / target.sd))))
        right = max(off, spread) < TOLERANCE
    verdict = found.verdict()
    word = ("right" if right else "wrong") if verdict else "flagged"
    told = {"word": word, "why": str(verdict)[:100], "wrong": word == "wrong", "gradients": found.evaluations}
    return told | {"off_sd": off, "log_sd_ratio": spread, "cpu": time.process_time() - began}
