"""46 linear parameters integrated out against the same sampled with the others: effective draws per CPU second.

Both ways by our own NUTS with the same settings, in one process, in turns, the first call of each, which compiles,
apart; the fit before the chains counts. Every problem twice: chains that begin around the fit with its curvature, as
is our default, and around x0 with no metric (`_x0`), as other samplers begin. `effective`: fewest effective draws of
any shared coordinate, of it and of its square about the mean. `shift`, `spread`: largest difference of a mean, in
standard deviations, and of a standard deviation, relative, between the ways. Figures are medians over seeds; `ratio` is
of effective draws per CPU second. `gradient`: CPU microseconds of one, by itself; `large` has nothing else.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.problems.linear import PAIRS, SCALES, flow
from benchmarks.sample import fewest_effective
from shardfit.core.precision import arithmetic
from shardfit.sampling.density import as_objective, sampled
from shardfit.solve.base import value_and_grad_parts

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all", "chains": 4, "warmup": 500, "draws": 1000}
SEEDS = (11, 12, 13)
WAYS = ("integrated", "sampled")
STARTS = {"": "fit", "_x0": "x0"}
LARGE, TRIALS, SPAN = 100, 5, 0.2  # frames of the large problem; trials of a gradient, seconds of each


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every problem; --quick: the small one from its fit, one seed."""
    if quick:
        return {"decays": compare(PAIRS["decays"](), "fit", SEEDS[:1])}
    pairs = {name: make() for name, make in PAIRS.items()}
    cases = {name + word: compare(pair, start) for word, start in STARTS.items() for name, pair in pairs.items()}
    return {**cases, "large": {way: {"gradient": gradient(p)} for way, p in zip(WAYS, flow(LARGE), strict=True)}}


def compare(pair: tuple[sf.Problem, sf.Problem], start: str, seeds: tuple[int, ...] = SEEDS) -> dict:
    """Return figures of both ways."""
    problems = dict(zip(WAYS, pair, strict=True))
    first = {way: drawn(problem, start, 0)["cpu"] for way, problem in problems.items()}
    runs: dict[str, list] = {way: [] for way in WAYS}
    for seed in seeds:
        for way, problem in problems.items():
            runs[way].append(drawn(problem, start, seed))
    figures: dict[str, Any] = {}
    for way, problem in problems.items():
        names = ("effective", "cpu", "gradients", "per_cpu")
        figures[way] = {name: float(np.median([one[name] for one in runs[way]])) for name in names}
        figures[way] |= {"rhat": max(one["rhat"] for one in runs[way]), "first": first[way]}
        figures[way] |= {"parameters": problem.space.size, "gradient": gradient(problem)}
    one, other = (np.concatenate([found["z"] for found in runs[way]]) for way in WAYS)
    return {
        **figures,
        "ratio": figures["integrated"]["per_cpu"] / figures["sampled"]["per_cpu"],
        "shift": float(np.max(np.abs(one.mean(0) - other.mean(0)) / other.std(0))),
        "spread": float(np.max(np.abs(one.std(0) / other.std(0) - 1))),
    }


def drawn(problem: sf.Problem, start: str, seed: int) -> dict[str, Any]:
    """Return the figures of one posterior, and its draws of what both ways share."""
    shared = [i for i, label in enumerate(problem.space.coordinate_labels()) if not label.startswith(SCALES)]
    counts = {key: SETTINGS[key] for key in ("chains", "warmup", "draws")}
    began = time.process_time()
    found = sf.sample(problem, seed=seed, progress=False, start=start, **counts)
    cpu, own = time.process_time() - began, found.z[..., shared]
    effective, rhat = fewest_effective(own), float(found.summary()["rhat"].max())
    figures = {"effective": effective, "cpu": cpu, "gradients": found.evaluations, "per_cpu": effective / cpu}
    return {**figures, "rhat": rhat, "z": own.reshape(-1, len(shared))}


def gradient(problem: sf.Problem) -> float:
    """Return the CPU microseconds of one value with its gradient, the least of some trials."""
    density = as_objective(sampled(problem))
    with arithmetic(problem.precision):
        placed, space, z = density.objective.place(), density.space, jnp.asarray(density.z0())

        @jax.jit
        def several(placed, z, n):
            def step(_, z):
                return z + 1e-13 * value_and_grad_parts(space, placed, z, None)[0].gradient

            return jax.lax.fori_loop(0, n, step, z)

        def seconds(n):
            began = time.process_time()
            jax.block_until_ready(several(placed, z, n))
            return (time.process_time() - began) / n

        seconds(1)
        count = max(3, int(SPAN / seconds(10)))
        return 1e6 * min(seconds(count) for _ in range(TRIALS))
