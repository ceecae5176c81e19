"""46 linear parameters integrated out against the same sampled with the others: effective draws per CPU second.

Both ways by our own NUTS with the same settings, in one process, the first call of each, which compiles, apart; the fit
before the chains counts. `effective`: fewest effective draws of any shared coordinate, of it and of its square about
the mean. `shift`, `spread`: largest difference of a mean, in standard deviations, and of a standard deviation,
relative, between the ways. Figures are medians over seeds; `ratio` is of effective draws per CPU second.
"""

import time

import numpy as np

import shardfit as sf
from benchmarks.problems.linear import PAIRS, SCALES
from benchmarks.sample import fewest_effective

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all", "chains": 4, "warmup": 500, "draws": 1000}
SEEDS = (11, 12, 13)
WAYS = ("integrated", "sampled")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every problem; --quick: the small one, one seed."""
    return {name: compare(name, SEEDS[:1] if quick else SEEDS) for name in (list(PAIRS)[:1] if quick else PAIRS)}


def compare(name: str, seeds: tuple[int, ...]) -> dict:
    """Return figures of both ways."""
    counts = {key: SETTINGS[key] for key in ("chains", "warmup", "draws")}
    figures, drawn = {}, {}
    for way, problem in zip(WAYS, PAIRS[name](), strict=True):
        shared = [i for i, label in enumerate(problem.space.coordinate_labels()) if not label.startswith(SCALES)]
        records, z, began = [], [], time.process_time()
        sf.sample(problem, seed=0, progress=False, **counts)
        first = time.process_time() - began
        for seed in seeds:
            began = time.process_time()
            found = sf.sample(problem, seed=seed, progress=False, **counts)
            cpu, own = time.process_time() - began, found.z[..., shared]
            effective, rhat = fewest_effective(own), float(found.summary()["rhat"].max())
            records.append((effective, cpu, found.evaluations, effective / cpu, rhat))
            z.append(own.reshape(-1, len(shared)))
        effective, cpu, gradients, rate, _ = (float(value) for value in np.median(records, axis=0))
        figures[way] = {"effective": effective, "cpu": cpu, "gradients": gradients, "per_cpu": rate, "first": first}
        figures[way] |= {"parameters": problem.space.size, "rhat": max(record[-1] for record in records)}
        drawn[way] = np.concatenate(z)
    one, other = (drawn[way] for way in WAYS)
    return {
        **figures,
        "ratio": figures["integrated"]["per_cpu"] / figures["sampled"]["per_cpu"],
        "shift": float(np.max(np.abs(one.mean(0) - other.mean(0)) / other.std(0))),
        "spread": float(np.max(np.abs(one.std(0) / other.std(0) - 1))),
    }
