"""How often error bars of small fits hold the truth: 500 data sets of each kind, all fitted by `fit_many`.

A decay on a background, 60 points, y = a exp(-k x) + c. Figures are the shares of sets whose estimate lies within one
and two standard errors of the truth (nominal 0.683 and 0.954), the mean over parameters and for each; `none`: the share
of numbers without an error, which are those at an active bound; `untrusted`: sets doubted for a reason; `error`:
median standard error of a. The shares of 500 sets have errors of 0.021 and 0.009.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

import shardfit as sf

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all of one process", "points": "60", "solver": "lm"}
SETS, FEW = 500, 100
X = np.linspace(0, 5, 60)
SIGMA = 0.05
TRUTH = {"a": 2.0, "k": 1.1, "c": 0.3}
START = {"a": 1.5, "k": 0.8, "c": 0.25}


def weighted(p, rows):
    """Residual in units of the known error of each point."""
    return (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["x"]) - p["c"]) / rows["sigma"]


def plain(p, rows):
    """Residual of unknown scale."""
    return rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["x"]) - p["c"]


def even(rng: np.random.Generator, sets: int) -> np.ndarray:
    """Return noise of one size."""
    return SIGMA * rng.standard_normal((sets, X.size))


def outliers(rng: np.random.Generator, sets: int) -> np.ndarray:
    """Return noise of which a tenth is ten times larger."""
    return even(rng, sets) * np.where(rng.random((sets, X.size)) < 0.1, 10.0, 1.0)


@dataclass(frozen=True)
class Case:
    """A kind of fit. truth: what differs from TRUTH; problem: fields of the Problem; term: options of the term."""

    truth: dict[str, float] = field(default_factory=dict)
    problem: dict[str, Any] = field(default_factory=dict)
    term: dict[str, Any] = field(default_factory=dict)
    known: bool = True
    sizes: tuple[float, float] = (1.0, 1.0)  # of the errors at both ends
    noise: Callable = even


POSITIVE = {"c": (0.0, None)}
CASES = {
    "free": Case(),
    "fixed": Case(problem={"fixed": {"c": TRUTH["c"]}}),
    "weighted": Case(sizes=(0.3, 3.0)),
    "scaled": Case(known=False),
    "inactive bounds": Case(problem={"bounds": {"a": (0.0, 10.0), "k": (0.0, 10.0), "c": (-5.0, 5.0)}}),
    "truth near a bound": Case(truth={"c": 0.01}, problem={"bounds": POSITIVE}),
    "truth on a bound": Case(truth={"c": 0.0}, problem={"bounds": POSITIVE}),
    "tied": Case(truth={"c": 0.2}, problem={"tied": {"c": lambda p: 0.1 * p["a"]}}),
    "soft_l1": Case(known=False, noise=outliers, term={"loss": "soft_l1", "f_scale": SIGMA}),
    "huber": Case(known=False, noise=outliers, term={"loss": "huber", "f_scale": SIGMA}),
    "cauchy": Case(known=False, noise=outliers, term={"loss": "cauchy", "f_scale": 2 * SIGMA}),
    "no loss, outliers": Case(known=False, noise=outliers),
}


def run(quick: bool) -> dict[str, dict]:
    """Return shares of every kind; --quick: 100 sets of each."""
    cases = {}
    for number, (name, case) in enumerate(CASES.items()):
        cases[name] = coverage(case, FEW if quick else SETS, number)
        print(name, cases[name], file=sys.stderr, flush=True)
    return cases


def coverage(case: Case, sets: int, seed: int) -> dict[str, float]:
    """Return how often the errors of many fits hold the truth."""
    truth = TRUTH | case.truth
    sigma = np.linspace(*case.sizes, X.size)
    exact = truth["a"] * np.exp(-truth["k"] * X) + truth["c"]
    many = exact + sigma * case.noise(np.random.default_rng([seed, 7]), sets)
    rows = {"x": X, "y": many[0]} | ({"sigma": SIGMA * sigma} if case.known else {})
    term = sf.residual_term(weighted if case.known else plain, rows, **case.term)
    began = time.process_time()
    fits = sf.fit_many(sf.Problem(sf.Objective({"decay": term}), START, **case.problem), {"decay": {"y": many}})
    figures = {"sets": sets, "untrusted": 1 - float(np.mean(fits.success)), "cpu": time.process_time() - began}
    with np.errstate(invalid="ignore"):  # what is held is the truth, without an error
        off = {name: np.abs(fits.params[name] - truth[name]) / fits.stderr[name] for name in truth}
    known = {name: each[np.isfinite(each)] for name, each in off.items() if np.isfinite(each).any()}
    figures["none"] = 1 - sum(map(len, known.values())) / (sets * len(known))
    figures["error"] = float(np.nanmedian(fits.stderr["a"]))
    for sd in (1, 2):
        shares = {f"{name}_{sd}sd": float(np.mean(each < sd)) for name, each in known.items()}
        figures |= {f"all_{sd}sd": float(np.mean(list(shares.values()))), **shares}
    return figures
