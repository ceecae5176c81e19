"""How often errors of XPCS fits hold the truth, and how far answers scatter: speckle, pixels and photons simulated.

Kinds of experiments in `problems/speckles.py`, whose code has nothing of the package's. Of every kind many sets are
fitted by the likelihood of speckle (ours) and by least squares with errors by frames (points). `rates`, `parameters`:
shares within one and two standard errors of the truth, over rates at three ages and over the model's parameters;
`lowest`: the least share of one number within one. `scatter`: of the answers by the likelihood over that by least
squares, as geometric mean over numbers, robust; `wide`: median error over the scatter. `pixels`: found over simulated;
`sharing`: ρ; `failed`: sets without success; `cpu`: seconds of a warm fit. SHARDFIT_BENCH_SETS: sets of a kind (100).
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.problems.speckles import DT, GAP, Speckles, correlations, times
from shardfit import RunOptions
from shardfit.domains.xpcs import Correlation, FitOptions, fit_correlation, laminar_flow, static

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all of one process", "sets": "100, the same for both likelihoods"}
SETS, FEW = 100, 4
TO_SIGMA = 1.4826
FIVE = (-60.0, -30.0, 0.0, 30.0, 60.0)


def slowing(level: float = 15000.0) -> Callable:
    """Return a sample that ages, J = level·t^−0.3."""
    return lambda t: level * t**-0.3


def steady(t: np.ndarray) -> np.ndarray:
    """Return a sample in equilibrium."""
    return np.full_like(t, 12000.0)


@dataclass(frozen=True)
class Kind:
    """An experiment, the model's true parameters, and how it is fitted; lost: share of points that are missing."""

    made: Speckles
    truth: dict[str, float]
    options: dict[str, Any] = field(default_factory=lambda: {"law": "power"})
    lost: float = 0.0
    diagonal: bool = True

    def model(self) -> Any:
        """Return the model: shear as a sheared fluid has it."""
        return static() if self.made.shear is None else laminar_flow("theory")

    def measure(self, seed: int) -> Correlation:
        """Return one measurement."""
        c2, rng = correlations(self.made, seed), np.random.default_rng([seed, 1])
        if self.lost:
            gone = np.triu(rng.random(c2.shape) < self.lost, 1)
            c2[gone | np.swapaxes(gone, 1, 2)] = np.nan
        gap = None if self.made.shear is None else GAP
        data = Correlation(c2, self.made.phi, self.made.q, DT, gap=gap)
        return data if self.diagonal else replace(data, diagonal=np.full(c2.shape[:2], np.nan))


AGES = {"D0": 15000.0, "alpha": -0.3}
STILL = {"D0": 12000.0}
POWER, CONSTANT = {"law": "power"}, {"law": "constant"}
FLOW = {"D0": 8000.0, "gamma_dot_t0": 3e-4, "phi0": 4.0}
SHEARED = Speckles(
    lambda t: np.full_like(t, 8000.0),
    phi=(-90.0, -60.0, -30.0, 0.0, 30.0, 60.0),
    shear=lambda t: np.full_like(t, 3e-4),
    flow_angle=4.0,
)
KINDS = {
    "one angle": Kind(Speckles(slowing()), AGES),
    "five angles": Kind(Speckles(slowing(), phi=FIVE), AGES),
    "fast": Kind(Speckles(slowing(150000.0), phi=FIVE), {"D0": 150000.0, "alpha": -0.3}),
    "few photons": Kind(Speckles(slowing(), phi=FIVE, counts=0.05), AGES),
    "shared speckles": Kind(Speckles(slowing(), phi=FIVE, modes=1, width=1.5, pixels=800), AGES),
    "steady": Kind(Speckles(steady, phi=FIVE), STILL, CONSTANT),
    "normalised badly": Kind(Speckles(slowing(), phi=FIVE, normalisation=0.02), AGES),
    "no diagonal": Kind(Speckles(slowing(), phi=FIVE), AGES, diagonal=False),
    "points missing": Kind(Speckles(slowing(), phi=FIVE), AGES, lost=0.2),
    "long": Kind(Speckles(slowing(), phi=FIVE, frames=300), AGES),
    "23 angles": Kind(Speckles(slowing(), phi=tuple(np.linspace(-88, 88, 23)), frames=60, pixels=200), AGES),
    "flow": Kind(SHEARED, FLOW, CONSTANT),
    "law chosen": Kind(Speckles(slowing(), phi=FIVE), AGES, {}),
    "steady, law chosen": Kind(Speckles(steady, phi=FIVE), STILL, {}),
}


def run(quick: bool) -> dict[str, dict]:
    """Return figures of every kind; --quick: a few sets of each."""
    sets = FEW if quick else int(os.environ.get("SHARDFIT_BENCH_SETS", SETS))
    only = os.environ.get("SHARDFIT_BENCH_KINDS", "")
    cases = {}
    for name, kind in KINDS.items():
        if not only or name in only.split(";"):
            cases[name] = figures_of(kind, sets)
            print(name, cases[name], file=sys.stderr, flush=True)
    return cases


def figures_of(kind: Kind, sets: int) -> dict[str, float]:
    """Return coverage and scatter of one kind."""
    fitted = {"speckle": [], "points": []}
    cpu, pixels, sharing, failed = [], [], [], 0
    for seed in range(sets):
        data = kind.measure(seed)
        for likelihood, answers in fitted.items():
            more = {} if likelihood == "speckle" else {"errors": "frames"}
            began = time.process_time()
            options = FitOptions(likelihood=likelihood, **more, **kind.options)
            fit = fit_correlation(data, kind.model(), options, RunOptions(progress=False))
            answers.append(numbers(fit, kind))
            if likelihood == "speckle":
                assert fit.noise is not None
                cpu.append(time.process_time() - began)
                pixels.append(np.mean(fit.noise.pixels) / kind.made.pixels)
                sharing.append(fit.noise.sharing)
                failed += not fit.success
    ours, theirs = (np.array(answers) for answers in fitted.values())
    n_rates = 3 * (1 if kind.made.shear is None else 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(ours[:, 0]) / ours[:, 1]
        known = np.any(ours[:, 1] > 0, axis=0)
        spreads = [TO_SIGMA * np.median(np.abs(a[:, 0] - np.median(a[:, 0], axis=0)), axis=0) for a in (ours, theirs)]
        ratio = np.exp(np.nanmean(np.log((spreads[0] / spreads[1])[known])))
        wide = np.median(ours[:, 1], axis=0) / spreads[0]
    found: dict[str, float] = {"sets": sets}
    for name, part in (("rates", np.s_[:n_rates]), ("parameters", np.s_[n_rates:])):
        mine = off[:, part][:, known[part]]
        found |= {f"{name}_{sd}sd": float(np.mean(mine < sd)) for sd in (1, 2)}
    found["lowest"] = float(np.min(np.mean(off[:, known] < 1, axis=0)))
    found |= {"scatter": float(ratio), "wide": float(np.mean(wide[known]))}
    found |= {"pixels": float(np.mean(pixels)), "sharing": float(np.mean(sharing))}
    return found | {"failed": failed, "cpu": float(np.median(cpu))}


def numbers(fit: Any, kind: Kind) -> np.ndarray:
    """Return answer less truth, and error (2, m): logarithms of rates at three ages, then the parameters."""
    t = times(kind.made.frames)
    ages = [kind.made.frames // 20, kind.made.frames // 2, kind.made.frames - kind.made.frames // 20]
    rates = {"J": kind.made.law(t), "S": np.full_like(t, kind.truth.get("gamma_dot_t0", 1.0))}
    pairs = []
    for name, found in fit.rates.items():
        value, error = found[ages].T
        pairs += list(zip(np.log(value / rates[name][ages]), error / value, strict=True))
    pairs += [(fit.params[name] - value, fit.stderr[name]) for name, value in kind.truth.items()]
    pairs += [(fit.contrast[0] - 1 / kind.made.modes, fit.contrast_stderr[0])] if kind.made.width == 0 else []
    return np.array(pairs).T
