"""consensus: sample shards of the rows by themselves, and combine what they say.

The posterior of all rows is the product of the shards' posteriors, if each takes only its share of the prior. Shards
need no communication, so they run anywhere; what is lost by combining Gaussians is put right by values of the density
of all rows at a few thousand points, each a pass over the data without a derivative.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.loaded_programs import release_compiled_programs
from shardfit.core.mesh import layout, spans_processes
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.core.terms import RowTerm
from shardfit.io.compile_cache import programs_kept
from shardfit.io.run_dir import RunDir, opened
from shardfit.sampling.density import caveats, parameters_of, values_on_z
from shardfit.sampling.modes import shares
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.psis import LARGEST_K
from shardfit.sampling.shards.combine import Combined, combine, require_rule
from shardfit.sampling.shards.importance import ACCURACY, MOST, Weighted, importance_sample
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.sampling.shards.shard_plan import Division, ShardPlan
from shardfit.sampling.shards.shard_sampling import ShardSampling
from shardfit.sampling.shards.shard_store import ShardRun, ShardStore
from shardfit.sampling.shards.shard_table import shard_table
from shardfit.sampling.start import Start
from shardfit.sampling.store import save_posterior


@programs_kept()
def consensus(
    problem: Problem | Callable[[], Problem],
    shards: int,
    *,
    by: Any = None,
    rule: str = "full",
    correct: bool | int = True,
    mesh: Any = None,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    seed: int = 0,
    control: ShardControl | None = None,
    **options: Any,
) -> Posterior:
    """Sample a problem by shards of its rows and return the posterior of all of them.

    Parameters
    ----------
    problem
        what is sampled; for workers a function without arguments that makes it, importable where they are
        (`functools.partial(make_problem, "data.h5")`).
    shards
        how many; each should still say something of every parameter.
    by
        labels of which every shard gets its share, as in `Objective.split`.
    rule
        how shards are combined: 'full', 'debiased', 'draws', 'robust', 'consensus_mc', 'robust_consensus_mc'.
    correct
        weigh points by the density of all rows: as many, up to 50,000, as the Monte Carlo errors of means, standard
        deviations and correlations need; a number: exactly this many.
    mesh
        devices: shards in slots are split over `runs`, rows of each over `rows`.
    run_dir, resume
        folder that keeps every shard as it ends; the same call continues an earlier one, and combines
        with another rule without sampling again.
    seed
        of all random numbers.
    control
        slots, workers, patience.
    options
        of the sampler: chains, warmup, draws, target_accept, max_depth.

    Example: `consensus(problem, 16, by="angle", run_dir="runs/c", draws=1000)`.

    """
    began = time.perf_counter()
    release_compiled_programs()
    require_rule(rule)
    control = control or ShardControl()
    make = None if isinstance(problem, Problem) else problem
    if control.elsewhere and (not callable(make) or run_dir is None or mesh is not None):
        raise TypeError(
            "consensus: workers make the problem themselves and hand over through files: give a function without "
            "arguments that returns the problem, run_dir=..., and no mesh."
        )
    if spans_processes(mesh):
        raise ValueError("consensus: the mesh spans several processes. Use workers: each samples shards of its own.")
    whole = problem if isinstance(problem, Problem) else problem()
    plan = ShardPlan.make(whole, Division(shards, by, seed, control.slots, options))
    with opened(run_dir) as folder, at_work(plan.problem):
        sampling = ShardSampling(plan, make, mesh, folder, control)
        if folder is not None:
            folder.begin(plan.problem, plan.identity, resume, mesh)
            if resume == "never":
                ShardStore(folder.path, plan.identity.digest).clear()
        runs = sampling.runs(start := sampling.start())
        sampled = time.perf_counter()
        posterior = combined_posterior(plan, start, runs, rule, correct, mesh)
        ended, tally = time.perf_counter(), sampling.tally
        timings = {"shards": sampled - began - tally.compile_seconds, "compile": tally.compile_seconds}
        timings |= {"combine": ended - sampled, "total": ended - began}
        laid_out = layout(mesh) | {"slots": plan.slots, "useful_gradients": _useful(runs) * tally.efficiency}
        posterior = replace(posterior, timings=timings, layout=laid_out)
        if folder is not None:
            save_posterior(posterior, folder.path, plan.identity.digest)
            folder.event("combined", rule=rule, correct=bool(correct))
    return posterior


def combined_posterior(
    plan: ShardPlan, start: Start, runs: list[ShardRun], rule: str, correct: bool | int, mesh: Any
) -> Posterior:
    """Return the posterior of all rows from the draws of all shards."""
    chains, draws, n = runs[0].arrays["z"].shape
    every = np.stack([run.arrays["z"].reshape(-1, n) for run in runs]).astype(float)
    table = shard_table(runs, plan.rows(), whole := combine(every, "full"))
    combined = combine(every, rule, table["ess"]) if rule != "full" else whole
    extra: dict[str, Any] = {"shards": dict(table.columns), "rule": rule, "independent": True}
    extra |= {"uncorrected_mean": combined.mean, "uncorrected_covariance": combined.covariance}
    weighted = None
    if correct:
        gaussians = [(combined.mean, combined.covariance)]
        gaussians += start.gaussians()
        points, most = (chains * draws, MOST) if correct is True else (int(correct), 0)
        weighted = importance_sample(_density(plan.problem, mesh), gaussians, points, plan.division.seed, most=most)
        extra |= {"pareto_k": weighted.k, "effective": weighted.effective, "values": weighted.values}
        extra["error"] = weighted.error
    z, weights, stats = _draws(combined, weighted, chains * draws, plan.division.seed)
    if weighted is None:
        extra |= shares(start.modes, z)
    problem, space = plan.problem, plan.problem.space
    z = z.astype(PRECISIONS[problem.precision])
    return Posterior(
        draws=jax.tree.map(lambda leaf: np.asarray(leaf)[None], parameters_of(space, z[0])),
        z=z,
        stats=stats,
        weights=weights,
        method=f"consensus({len(runs)} shards, {rule}{', corrected' if weighted else ''})",
        problem=problem.name,
        labels=tuple(space.coordinate_labels()),
        units=dict(zip(space.labels, problem.unit_labels(), strict=True)),
        precision=problem.precision,
        note=_note(plan, start, combined, weighted),
        evaluations=int(sum(run.evaluations for run in runs)),
        seed=plan.division.seed,
        extra=extra,
    )


def _draws(combined: Combined, weighted: Weighted | None, size: int, seed: int) -> tuple[np.ndarray, Any, dict]:
    """Return z (1, draws, n), weights and statistics: weighted points, combined draws, or draws of a Gaussian."""
    if weighted is not None:
        return weighted.points[None], weighted.weights[None], {"value": weighted.value[None]}
    points = combined.points
    if points is None:
        scale = np.sqrt(np.diag(combined.covariance))
        root = scale[:, None] * np.linalg.cholesky(combined.covariance / np.outer(scale, scale))
        points = combined.mean + np.random.default_rng(seed).standard_normal((size, len(scale))) @ root.T
    return points[None], None, {}


def _useful(runs: list[ShardRun]) -> float:
    """Return the share of gradients that chains made before they had ended."""
    used = sum(int(np.sum(run.arrays["gradients"]) + np.sum(run.arrays["warmup_gradients"])) for run in runs)
    return used / sum(run.evaluations for run in runs)


def _density(problem: Problem, mesh: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return the log density of coordinates, given all rows, as a function of points (m, n)."""
    placed, dtype = problem.objective.place(mesh), PRECISIONS[problem.precision]
    return lambda points: -np.asarray(values_on_z(placed, problem.space, jnp.asarray(points, dtype)), float)


def _note(plan: ShardPlan, start: Start, combined: Combined, weighted: Weighted | None) -> str:
    told = [caveats(plan.problem), start.note]
    if not combined.used.all():
        told.append(f"Left out by the rule: shards {', '.join(map(str, np.flatnonzero(~combined.used)))}.")
    nearly = [n for n, t in plan.problem.objective.items() if isinstance(t, RowTerm) and not t.linear]
    if nearly:
        told.append(
            f"Every shard integrates out parameters of {', '.join(nearly)} by itself, so that they are not held to be "
            "the same in all shards; stratify, and correct."
        )
    if weighted is not None and weighted.k > LARGEST_K:
        told.append(
            f"The weights cannot be trusted (Pareto k {weighted.k:.2f}, {weighted.effective:.0f} effective draws): use "
            "fewer shards, more points (correct=100000), or sample all rows at once."
        )
    elif weighted is not None and weighted.error > ACCURACY:
        told.append(
            f"Monte Carlo errors are up to {weighted.error:.3f} standard deviations, of a standard deviation or of a "
            f"correlation: more points make them smaller (correct={4 * len(weighted.points)})."
        )
    return " ".join(filter(None, told))
