"""Surveys to the end: every point of a mixed sample of M87 images within 1e-4 of its minimum.

The sample is every weight of the entropy for some random choices of the other three. reference: the minimum J* of each
point, the lower of what two algorithms find from the same start in float64 to tight tolerances, ours and scipy's
L-BFGS-B. Then, in float32: former, the logarithm and 100 steps; cold, the power 1.5 and a stop by progress, each point
from its own start; warm, the defaults of imaging surveys, from the neighbour's image and with stubborn points finished
in float64. The peers stop at the very step at which the last point of a batch is there, which they cannot know:
optax-power and optax-log, `vmap` of optax's L-BFGS in either variable; ehtim, eht-imaging where there is no entropy.
"""

import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers import peer_python, run_peer
from benchmarks.survey_objective import AXES, Study, optax_lbfgs
from benchmarks.vlbi import M87, TOLERANCE
from shardfit import fit
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.recipes.surveys import CONVERGING, WEIGHTS
from shardfit.solve.base import evaluate
from shardfit.surveys.axes import Start, apply
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import table
from shardfit.surveys.run import survey
from shardfit.surveys.variants import bind

PEERS = ("ehtim",)
SETTINGS = {"precision": "float64 for J* and eht-imaging, float32 for all others", "threads": "all of one process"}
CHOICES, EHTIM_EVERY = 4, 5
CLOSE = 1e-4
TIGHT = {"ftol": 0.0, "gtol": 0.0, "maxiter": 20_000, "memory": 20, "patience": 500, "ptol": 1e-8}
MOST = {"optax-power": 2000, "optax-log": 1000, "ehtim": 1500}  # iterations of the peers


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case."""
    points = sample(1 if quick else CHOICES)
    cases: dict[str, dict] = {}
    lowest, cases["reference"] = _reference(points)
    single, log = Study(M87, transform="power"), Study(M87)
    own = {"sweep": None, "polish": 0}
    for case, study, slots, options in (
        ("former", log, len(points), {**own, "maxiter": 100, "patience": 0}),
        ("cold", single, len(points), own),
        ("warm", single, len(points) // len(WEIGHTS), {}),  # no more can run at a time
    ):
        _keep(cases, case, _ours(study, points, slots, options), lowest)
    for case, study in (("optax-power", single), ("optax-log", log)):
        _keep(cases, case, _optax(study, points, lowest, MOST[case]), lowest)
    chosen = list(range(0, len(points), EHTIM_EVERY))  # the first of every sweep: no entropy
    _keep(cases, "ehtim", _ehtim(log, [points[i] for i in chosen], lowest[chosen]), lowest[chosen])
    for peer, ours in itertools.product(("optax-power", "optax-log", "ehtim"), ("cold", "warm")):
        cases[peer][f"ratio_{ours}"] = cases[peer]["cpu"] / cases[ours]["cpu"]
    return cases


def sample(choices: int) -> list[dict]:
    """Return the points: all weights of the entropy for some choices of the others, the same ones every time."""
    others = list(itertools.product(WEIGHTS, repeat=len(AXES) - 1))
    picked = np.random.default_rng(3).permutation(len(others))[:choices]
    return [dict(zip(AXES, (simple, *others[i]), strict=True)) for i in picked for simple in WEIGHTS]


def _keep(cases: dict, case: str, found: dict, lowest: np.ndarray) -> None:
    values = found.pop("values")
    above = values / lowest - 1
    cases[case] = found | {
        "close": float(np.mean(above <= CLOSE)),
        "median": float(np.median(above)),
        "worst": float(above.max()),
        "lower": float(np.mean(above < -CLOSE)),
        "points": len(values),
    }
    print(case, cases[case], file=sys.stderr, flush=True)


def _reference(points: list[dict]) -> tuple[np.ndarray, dict]:
    """Return J* of every point, and how the two algorithms compare."""
    study = Study(M87, precision="float64", transform="power")
    problem = study.made.problem
    found, evaluations = np.zeros((2, len(points))), 0
    for i, point in enumerate(points):
        start = apply(Start(problem.objective, problem.x0), study.made.axes, point)
        one = problem.replace(objective=start.objective, x0=start.params)
        quiet = {"certify": False, "progress": False}
        found[0, i] = fit(one, "lbfgs", **TIGHT, **quiet).value
        theirs = fit(one, "lbfgsb", maxiter=20_000, ftol=1e-13, gtol=1e-9, **quiet)
        found[1, i], evaluations = theirs.value, evaluations + theirs.evaluations
    apart = np.abs(found[0] - found[1]) / np.abs(found).min(axis=0)
    agree = {
        "agree": float(np.mean(apart <= 1e-5)),
        "apart": float(np.median(apart)),
        "worst": float(apart.max()),
        "points": len(points),
    }
    print("reference", agree, file=sys.stderr, flush=True)
    return found.min(axis=0), agree


def _ours(study: Study, points: list[dict], slots: int, options: dict) -> dict:
    """Return wall and CPU seconds per point of a survey, after one that compiled the same, and what it reached."""
    made = study.made
    asked = {**CONVERGING, **made.options, **options, "design": table(made.axes, points)}
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            wall, cpu = time.perf_counter(), time.process_time()
            with survey(made.problem, made.axes, run_dir=folder, control=SurveyControl(slots), **asked) as found:
                seconds = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
                values, evaluations = found.column("value"), found.column("evaluations")
                more = {"converged": found.converged, "polished": float(np.mean(found.column("attempt") > 1))}
    each = {name: value / len(points) for name, value in seconds.items()}
    return {"values": values, **each, **more, "evaluations": float(np.median(evaluations)), "slots": slots}


def _optax(study: Study, points: list[dict], lowest: np.ndarray, most: int) -> dict:
    """Return the same of `vmap` of a whole optimizer that stops when all its points are there."""
    import optax

    transform, space, varied = optax_lbfgs("backtracking-15"), study.made.problem.space, study.variants.varied

    def one(objective, leaves, z0):
        def value(z):
            return evaluate("value", space, bind(objective, varied, leaves), z, None)

        def step(z, state):
            reached, gradient = optax.value_and_grad_from_state(value)(z, state=state)
            changes, state = transform.update(gradient, state, z, value=reached, grad=gradient, value_fn=value)
            return optax.apply_updates(z, changes), state

        return step

    @jax.jit
    def all_of_them(objective, leaves, z0, targets, most):
        many = jax.vmap(lambda leaves, z, state: one(objective, leaves, z)(z, state))

        def go_on(carry):
            i, _, _, best = carry
            return (i < most) & jnp.any(best > targets)

        def tick(carry):
            i, z, state, best = carry
            z, state = many(leaves, z, state)
            return i + 1, z, state, jnp.minimum(best, optax.tree.get(state, "value"))

        state = jax.vmap(transform.init)(z0)
        begin = jnp.zeros((), jnp.int32), z0, state, jnp.full(len(targets), jnp.inf, z0.dtype)
        ended = jax.lax.while_loop(go_on, tick, begin)
        return ended[0], ended[3]

    with arithmetic(study.precision):
        leaves, z0 = study.stacked(points, len(points))
        objective = study.made.problem.objective.place()
        targets = jnp.asarray(lowest * (1 + CLOSE), z0.dtype)
        jax.block_until_ready(all_of_them(objective, leaves, z0, targets, 1))
        wall, cpu = time.perf_counter(), time.process_time()
        steps, best = jax.block_until_ready(all_of_them(objective, leaves, z0, targets, most))
        seconds = time.perf_counter() - wall, time.process_time() - cpu
    each = {"seconds": seconds[0] / len(points), "cpu": seconds[1] / len(points)}
    return {"values": np.asarray(best, float), **each, "iterations": int(steps), "most": most}


def _ehtim(study: Study, points: list[dict], lowest: np.ndarray) -> dict:
    """Return the same of eht-imaging, one point after the other."""
    peer_python("ehtim")
    with tempfile.TemporaryDirectory() as folder:
        targets = {study.key(point): float(j * (1 + CLOSE)) for point, j in zip(points, lowest, strict=True)}
        task = {**study.for_ehtim(Path(folder)), "nufft_tolerance": TOLERANCE, "transform": "nfft", "targets": targets}
        answer = run_peer("ehtim", "benchmarks.survey_ehtim", {**task, "points": points, "iterations": MOST["ehtim"]})
    each = {"seconds": answer["seconds"] / len(points), "cpu": answer["cpu"] / len(points)}
    values = np.array([answer["values"][study.key(point)] for point in points])
    return {"values": values, **each, "most": MOST["ehtim"], "cores": os.cpu_count()}
