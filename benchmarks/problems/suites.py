"""Runs of the least-squares suites: the same list for us and for every peer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import mgh, nist

FACTORS = (1, 10, 100)
MAX_EVALUATIONS = 5000


@dataclass(frozen=True)
class Run:
    """One problem from one start. quality(params, rss): digits matched (nist), or 1 for a known minimum and 0 (mgh)."""

    problem: str
    start: str
    residual: Callable
    rows: Mapping[str, np.ndarray]
    x0: np.ndarray
    quality: Callable[[np.ndarray, float], float]


def runs(suite: str, quick: bool = False) -> list[Run]:
    """Return the runs of 'nist' (54) or 'mgh' (105); quick: the second start only, or the standard one."""
    return {"nist": _nist, "mgh": _mgh}[suite](quick)


def _nist(quick):
    return [
        Run(name, f"start {i}", p.residual, p.rows, x0, lambda params, rss, p=p: p.score(params))
        for name, p in nist.load().items()
        for i, x0 in enumerate(p.starts, 1)
        if not quick or i == 2
    ]


def _mgh(quick):
    return [
        Run(name, f"{k} x0", p.residual, p.rows, p.start(k), lambda params, rss, p=p: float(p.solved(rss)))
        for name, p in mgh.PROBLEMS.items()
        for k in FACTORS[: 1 if quick else None]
    ]
