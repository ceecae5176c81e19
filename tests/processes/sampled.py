"""Samples a posterior whose rows are split over all processes; every rank writes what it got."""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf


def problem():
    """Return the decay of tests/sampling/test_run.py: scripts that are launched do not see the tests' folder."""
    t = np.linspace(0, 5, 40)
    rows = {"t": t, "y": 2 * np.exp(-0.7 * t) + 0.1 * np.random.default_rng(1).normal(size=t.size)}
    term = sf.residual_term(lambda p, rows: (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["t"])) / 0.1, rows)
    priors = {"a": sf.Normal(0.0, 5.0), "k": sf.LogNormal(0.0, 1.0)}
    return sf.Problem(sf.Objective({"decay": term}), {"a": 1.0, "k": 1.0}, priors=priors)


if __name__ == "__main__":
    sf.join()
    folder = Path(sys.argv[1])
    options = {"chains": 2, "warmup": 60, "draws": 60, "progress": False}
    found = sf.sample(problem(), mesh=sf.mesh(), run_dir=folder / "run", **options)
    again = sf.sample(problem(), mesh=sf.mesh(), run_dir=folder / "run", **options)
    answer = {"z": found.z.tolist(), "again": bool((found.z == again.z).all()), "rows": found.layout["rows"]}
    (folder / f"{jax.process_index()}.json").write_text(json.dumps(answer))
