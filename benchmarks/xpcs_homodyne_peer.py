"""homodyne's side of the suite xpcs_homodyne; runs in the environment that SHARDFIT_HOMODYNE names."""

import logging
import os
import resource
import tempfile
import time
from collections.abc import Callable

from benchmarks.duel import first_timed, serve
from benchmarks.xpcs_homodyne_scene import GAP, SIGMA, Q, one_core, start


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, a whole fit by its own entry point, and what it says."""
    one_core()
    began = time.perf_counter(), 0.0  # CPU seconds from the start of the process
    import numpy as np

    os.chdir(tempfile.mkdtemp(dir=os.path.dirname(asked["path"])))  # it leaves folders where it runs
    from homodyne.config import ConfigManager
    from homodyne.optimization import fit_nlsq_jax

    logging.disable(logging.CRITICAL)  # thousands of lines, in its favour
    c2 = np.load(asked["path"])
    t = asked["dt"] * np.arange(c2.shape[-1])
    given = {"phi": np.array(asked["phi"]), "g2": c2, "t1": t, "t2": t, "q": Q, "L": GAP, "dt": asked["dt"]}
    config = ConfigManager(config_override=_settings(asked, c2.size))
    last = {}

    def call():
        last["answer"] = fit_nlsq_jax({**given, "sigma": np.full_like(c2, SIGMA)}, config)

    def describe():
        answer, n = last["answer"], len(c2)
        if answer.convergence_status == "failed":
            raise RuntimeError(f"homodyne failed: {answer.device_info}")
        found = np.asarray(answer.parameters, float)
        return {
            "status": answer.convergence_status,
            "params": found[2 * n :].tolist(),
            "contrast": found[:n].tolist(),
            "offset": found[n : 2 * n].tolist(),
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }

    return first_timed(call, began, describe)


def _settings(asked: dict, entries: int) -> dict:
    """Return its configuration: the template's tolerances, plain least squares, the scales that are asked for."""
    begin = start(asked["mode"], entries)
    nlsq = {"loss": "linear", "max_iterations": 100, "tolerance": 1e-8, "xtol": 1e-8, "gtol": 1e-8}
    return {
        "analysis_mode": asked["mode"],
        "analyzer_parameters": {
            "dt": asked["dt"],
            "start_frame": 1,
            "end_frame": -1,
            "scattering": {"wavevector_q": Q},
            "geometry": {"stator_rotor_gap": GAP},
        },
        "initial_parameters": {"parameter_names": list(begin), "values": list(begin.values())},
        "optimization": {"nlsq": {**nlsq, "anti_degeneracy": {"per_angle_mode": asked["scaling"]}}},
    }


if __name__ == "__main__":
    serve(prepare)
