"""Our side of the suite xpcs_homodyne."""

import resource
import time
from collections.abc import Callable

from benchmarks.duel import first_timed, serve
from benchmarks.xpcs_homodyne_scene import GAP, GRID, SIGMA, Q, one_core, start


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, a whole fit, and what it says."""
    one_core()
    began = time.perf_counter(), 0.0  # CPU seconds from the start of the process
    import numpy as np

    from shardfit import RunOptions
    from shardfit.domains.xpcs import Correlation, FitOptions, fit_correlation, laminar_flow, static

    c2 = np.load(asked["path"])
    data = Correlation(c2, np.array(asked["phi"]), Q, asked["dt"], SIGMA, GAP)
    model = static() if asked["mode"] == "static" else laminar_flow()
    compat = "grid" if c2.size < GRID else None
    options = FitOptions(scaling=asked["scaling"], start=start(asked["mode"], c2.size), compat=compat)
    quiet, last = RunOptions(progress=False), {}

    def call():
        last["answer"] = fit_correlation(data, model, options, quiet)

    def describe():
        answer = last["answer"]
        return {
            "params": [float(answer.params[name]) for name in model.names],
            # both triangles are in the grid's points
            "stderr": [float(answer.stderr[name]) * (2**0.5 if compat else 1) for name in model.names],
            "contrast": np.broadcast_to(answer.contrast, len(c2)).tolist(),
            "offset": np.broadcast_to(answer.offset, len(c2)).tolist(),
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }

    return first_timed(call, began, describe)


if __name__ == "__main__":
    serve(prepare)
