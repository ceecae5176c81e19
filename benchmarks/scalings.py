"""What solvers claim on NIST's regressions, the problems of Moré, Garbow and Hillstrom, and badly scaled ones.

A success is false where `lm`, begun at the answer, goes lower by more than 1e-4 of the value.
"""

import time
import warnings
from collections.abc import Iterator

import numpy as np

from benchmarks.problems import scalings
from benchmarks.problems.suites import runs
from shardfit import Objective, Problem, fit, residual_term
from shardfit.core.errors import NonFiniteError

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "as many as cores", "maxiter": "1000, first-order solvers 3000"}
SOLVERS = ("lbfgsb", "lbfgs", "lbfgs-bt", "lm", "adam", "adamw", "sgd", "rmsprop")
FIRST_ORDER = ("adam", "adamw", "sgd", "rmsprop")
LOWER, LEAST = 1e-4, 1e-13


def run(quick: bool) -> dict[str, dict]:
    """Return a case per suite and solver: how many runs, how many claimed success, how many falsely."""
    return {
        f"{suite} {solver}": _count(suite, solver)
        for suite in (("scalings",) if quick else ("scalings", "nist", "mgh"))
        for solver in (SOLVERS[:4] if quick else SOLVERS)
    }


def problems(suite: str) -> Iterator[tuple[str, Problem]]:
    """Yield (name, problem) of a suite."""
    if suite == "scalings":
        for name, case in scalings.CASES.items():
            yield (
                name,
                Problem(Objective({"data": residual_term(case.residual, case.rows)}), case.x0, bounds=case.bounds),
            )
        return
    for one in runs(suite):
        term = residual_term(lambda p, rows, one=one: one.residual(p, rows), dict(one.rows))
        yield f"{one.problem}, {one.start}", Problem(Objective({"data": term}), np.asarray(one.x0, float))


def is_false(problem: Problem, result) -> bool:
    """Return whether a fit from the answer shows a success to be none."""
    better = fit(problem.replace(x0=result.params), "lm", progress=False, certify=False)
    gain = result.value - better.value
    return bool(result.success and gain > LOWER * abs(better.value) + LEAST)


def _count(suite: str, solver: str) -> dict:
    counts = {"runs": 0, "successes": 0, "false": 0}
    wrong, evaluations, began = [], [], time.process_time()
    for name, problem in problems(suite):
        counts["runs"] += 1
        steps = 3000 if solver in FIRST_ORDER else 1000
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = fit(problem, solver, maxiter=steps, progress=False, certify=False)
        except NonFiniteError:
            continue  # nothing is claimed of a start without a value
        counts["successes"] += bool(result.success)
        evaluations.append(result.evaluations)
        if is_false(problem, result):
            counts["false"] += 1
            wrong.append(name)
    print(f"{suite} {solver}: {counts} {wrong}", flush=True)
    return {**counts, "median_evaluations": float(np.median(evaluations)), "cpu": time.process_time() - began}
