"""Our side of the least-squares suites: `shardfit.fit`, as a user calls it."""

from collections.abc import Callable

import shardfit as sf
from benchmarks.problems.suites import MAX_EVALUATIONS, Run


def prepared(name: str, run: Run, tol: float) -> Callable[[], sf.Result]:
    """Return the fit of a run, in float64.

    tol: distance to the answer, in standard errors, at which "lm" stops; the others go on as long as they can.
    """
    tight = {"ftol": tol**2, "gtol": tol**1.5, "xtol": tol**1.5} if name == "lm" else {"ftol": 0.0, "gtol": 1e-12}
    objective = sf.Objective({"residuals": sf.residual_term(run.residual, dict(run.rows))})
    problem = sf.Problem(objective, run.x0)
    options = {**tight, "maxiter": MAX_EVALUATIONS, "certify": False, "progress": False}
    return lambda: sf.fit(problem, name, **options)
