"""The fits of the demo, and the questions they answer: same on any device count, same by any solver, honest errors."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit import fit, mesh
from shardfit.core.precision import arithmetic
from shardfit.core.result import Result
from shardfit.demo.ringdown import MODES, TRUE_MASS, TRUE_SPIN, Ringdown, black_hole, observe, problem_of, simulate
from shardfit.report.values import coordinates

SMALL = 5000  # rows of one repetition
SIGMAS = (1.0, 2.0)
EXPECTED = {1.0: 0.6827, 2.0: 0.9545}


class Check(NamedTuple):
    """A question, what was found, and whether it is as it should be."""

    name: str
    found: str
    holds: bool


class Remnant(NamedTuple):
    """A quantity of the black hole: its truth, and (value, 1σ) as each mode tells it."""

    quantity: str
    truth: float
    first: tuple[float, float]
    second: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Study:
    """Everything the demo computed. inside: {k: (p,) share of repetitions with the truth within kσ}."""

    data: Ringdown
    fit: Result
    single: Result
    other: Result
    inside: dict[float, np.ndarray]
    repeats: int
    remnant: list[Remnant]
    checks: list[Check]


def make_study(out: Path, n_rows: int, devices: int, seed: int, repeats: int, say: Callable[[str], None]) -> Study:
    """Run all fits, saying what comes next; the one on all devices leaves its run directory in `out`."""
    data = simulate(n_rows, seed)
    problem = problem_of(data.rows)
    split = mesh(rows=devices)
    again = {"seed": seed, "certify": False, "progress": False}
    say(f"fit by Levenberg–Marquardt on {devices} device{'s' * (devices > 1)}, gradient checked first")
    main = fit(problem, "lm", mesh=split, run_dir=out, resume="never", seed=seed, progress=False)
    say("the same on 1 device")
    single = fit(problem, "lm", **again)
    say("the same by L-BFGS-B")
    other = fit(problem, "lbfgsb", mesh=split, ftol=1e-13, gtol=1e-4, **again)
    say(f"{repeats} fits of fresh noise, to check the error bars")
    inside = coverage(data, seed, repeats)
    remnant = propagate(main)
    checks = _checks(data, main, single, other, inside, repeats, remnant)
    return Study(data, main, single, other, inside, repeats, remnant, checks)


def coverage(data: Ringdown, seed: int, repeats: int) -> dict[float, np.ndarray]:
    """Fit fresh noise again and again; return the share of fits with the truth within kσ, (p,) for every k."""
    rng = np.random.default_rng([seed, 1])
    bare = simulate(min(SMALL, len(data.detector)), seed).rows
    pulls = []
    for _ in range(repeats):
        result = fit(problem_of(observe(bare, data.truth, rng)), "lm", certify=False, progress=False)
        pulls.append(pulls_of(result, data.truth))
    return {k: np.mean(np.abs(pulls) < k, axis=0) for k in SIGMAS}


def pulls_of(result: Result, reference: Any) -> np.ndarray:
    """Return (fit − reference) / σ of every parameter, (p,)."""
    pairs = zip(coordinates(result), coordinates(result, reference), strict=True)
    return np.array([(c.value - known.value) / (c.error or np.nan) for c, known in pairs])


@arithmetic("float64")
def propagate(result: Result) -> list[Remnant]:
    """Return mass and spin of the black hole as each mode tells them, errors carried to first order."""
    value = black_hole(result.params)
    slopes = jax.jacfwd(black_hole)(result.params)

    def measured(name):
        slope = np.array([float(leaf) for leaf in jax.tree.leaves(slopes[name])])
        return float(value[name]), float(np.sqrt(slope @ result.covariance @ slope))

    quantities = {"mass (solar masses)": TRUE_MASS, "spin": TRUE_SPIN}
    return [Remnant(q, true, *(measured(f"{mode}: {q}") for mode in MODES)) for q, true in quantities.items()]


def distance(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return how many σ two independent measurements (value, 1σ) are apart."""
    return abs(first[0] - second[0]) / float(np.hypot(first[1], second[1]))


def _checks(data, main, single, other, inside, repeats, remnant):
    n, p = len(data.detector), len(coordinates(main))
    shards = main.layout["rows"]
    spread = 2 * main.value / (n - p)
    wide = np.sqrt(2 / (n - p))
    devices, solvers = np.abs(pulls_of(main, single.params)).max(), np.abs(pulls_of(main, other.params)).max()
    worst = np.abs(pulls_of(main, data.truth)).max()
    shares = {k: float(np.mean(inside[k])) for k in SIGMAS}
    # parameters of one fit are correlated: as if half of them were independent
    room = {k: 4 * np.sqrt(EXPECTED[k] * (1 - EXPECTED[k]) / (repeats * p / 2)) for k in SIGMAS}
    mass, spin = (distance(first, second) for _, _, first, second in remnant)
    covered = " and ".join(f"{100 * shares[k]:.1f} % within {k:g}σ" for k in SIGMAS)
    wanted = " and ".join(f"{100 * EXPECTED[k]:.1f} %" for k in SIGMAS)
    return [
        Check("the fit converged", f"{main.steps} steps, {main.evaluations} evaluations", main.success),
        Check("χ² per degree of freedom", f"{spread:.4f} (1 ± {wide:.4f})", abs(spread - 1) < 5 * wide),
        Check(
            f"{shards} device{'s' * (shards > 1)} against 1",
            f"parameters differ by at most {devices:.1e} σ",
            devices < 1e-3,
        ),
        Check("L-BFGS-B against LM", f"parameters differ by at most {solvers:.1e} σ", solvers < 0.05),
        Check("truth", f"at most {worst:.1f} σ away", worst < 5),
        Check(f"error bars over {repeats} repetitions", f"{covered} (expected {wanted})", _near(shares, room)),
        Check("one black hole", f"modes differ by {mass:.1f} σ in mass, {spin:.1f} σ in spin", max(mass, spin) < 5),
    ]


def _near(shares, room):
    return all(abs(shares[k] - EXPECTED[k]) < room[k] for k in SIGMAS)
