"""Our side of DiffOpt's examples."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.duel import serve

QUIET: dict[str, Any] = {"certify": False, "progress": False}


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled, and what it says."""
    fit, describe = {"smf": _smf, "kdescent": _kdescent, "ackley": _ackley}[asked["case"]]()
    last = {"found": fit()}

    def call():
        last["found"] = fit()

    return call, lambda: describe(last["found"])


def _smf():
    import shardfit as sf
    from shardfit.domains.population import smf

    problem = smf.problem("A", 10_000)
    truth = smf.VARIANTS["A"].params(smf.VARIANTS["A"].truth)

    def describe(found):
        error = max(abs(float(found.params[name]) - value) for name, value in truth.items())
        return {"loss": found.value, "steps": found.steps, "evaluations": found.evaluations, "error": error}

    return lambda: sf.fit(problem, "lbfgsb", **QUIET), describe


def _kdescent():
    import shardfit as sf
    from shardfit.domains.population import gaussian
    from shardfit.stats.scan import trajectory

    problem = gaussian.problem(5000)
    options = {"learning_rate": 1.0, "maxiter": 100, "gtol": 0.0, "x_scale": 1.0, "keep": 1, "seed": 1, **QUIET}

    def describe(found):
        steps = trajectory(problem, found.history)
        off = [
            steps.params[name][-20:].mean(0).reshape(-1) - np.reshape(truth, -1)
            for name, truth in gaussian.TRUTH.items()
        ]
        return {"loss": float(np.mean(steps.values[-20:])), "error": float(np.sqrt(np.mean(np.concatenate(off) ** 2)))}

    return lambda: sf.fit(problem, "adam", **options), describe


def _ackley():
    import shardfit as sf
    from shardfit.domains.population import ackley

    problem = ackley.problem()
    options = {"particles": 100, "maxiter": 100, **QUIET}

    def describe(found):
        return {"loss": found.value, "error": float(np.abs(found.params).max())}

    return lambda: sf.fit(problem, "swarm", **options), describe


if __name__ == "__main__":
    serve(prepare)
