"""Our side of the imaging suite."""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.duel import first_timed, serve

EPSILON_TV = 1e-10


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled, and what it says."""
    return {"evaluate": _evaluate, "optimize": _optimize, "schedule": _schedule}[asked["kind"]](asked)


def problem_of(asked: dict):
    """Return the problem of what was asked, and its first observation."""
    from shardfit.domains.vlbi.grid import Grid
    from shardfit.domains.vlbi.nufft import Nufft
    from shardfit.domains.vlbi.problem import imaging_problem
    from shardfit.domains.vlbi.tables import data_set
    from shardfit.domains.vlbi.uvfits import read_uvfits

    prior = np.load(asked["prior"])
    several = len(asked["files"]) > 1
    observations = [read_uvfits(file) for file in asked["files"]]
    settings = {"cp_uv_min": 0.1e9, "systematic": asked["tolerance"] or 0.0}
    reference = {"ref_hz": asked["reference_hz"]} if several else {}
    data = [data_set(obs, tuple(asked["data"]), **settings, **reference) for obs in observations]
    start = {"I": prior, "alpha": np.full(prior.shape, 0.5)} if several else prior
    return imaging_problem(
        data if several else data[0],
        Grid(prior.shape[1], prior.shape[0], asked["pixel_rad"]),
        start,
        data_weights=asked["data"],
        reg_weights=asked["regularisers"],
        flux=0.6,
        beam=observations[0].nominal_resolution,
        epsilon_tv=EPSILON_TV,
        spectral=("alpha",) if several else (),
        operator=Nufft(asked["nufft_tolerance"]) if asked["operator"] == "nufft" else asked["operator"],
        transform=asked.get("variables", "log"),  # the peer's
    ), observations[0]


def _evaluate(asked: dict) -> tuple[Callable, Callable]:
    import jax

    from shardfit.solve.base import evaluate

    problem, _ = problem_of(asked)
    jax.config.update("jax_enable_x64", True)
    placed, z = problem.objective.place(), problem.z0()

    def call():
        for _ in range(asked["repeats"]):
            found = evaluate("value_and_grad", problem.space, placed, z, None)
        jax.block_until_ready(found)

    call()
    value, gradient = evaluate("value_and_grad", problem.space, placed, z, None)
    return call, lambda: {"J": float(value), "slope": float(np.linalg.norm(gradient)), "n": problem.objective.n_rows}


def _optimize(asked: dict) -> tuple[Callable, Callable]:
    import shardfit as sf

    problem, _ = problem_of(asked)
    options = {"maxiter": 200, "ftol": 0.0, "gtol": 0.0, "memory": 50, "certify": False, "progress": False}
    last = {}

    def call():
        last["result"] = sf.fit(problem, asked["solver"], **options)

    call()

    def describe():
        result = last["result"]
        chi2 = {name.partition(".")[2]: value for name, value in result.parts.items() if name.startswith("data")}
        return {"J": result.value, "chi2": chi2, "steps": result.steps, "evaluations": result.evaluations}

    return call, describe


def _schedule(asked: dict) -> tuple[Callable, Callable]:
    began = time.perf_counter(), time.process_time()
    import shardfit as sf
    from shardfit.domains.vlbi.images import Image
    from shardfit.domains.vlbi.problem import image_maps, with_start

    last = {}

    def call():
        problem, obs = problem_of(asked)
        tolerances = {"ftol": asked["stop"], "gtol": asked["stop"]}
        memory = 10 if asked.get("variables") == "power" else 50  # as `image` has it
        options = {"maxiter": 100, **tolerances, "memory": memory, "certify": False, "progress": False}
        result = sf.fit(problem, "lbfgs", **options)
        for _ in range(3):
            sky = Image({"I": image_maps(problem, result.params)["I"]}, asked["pixel_rad"])
            blurred = sky.blur(obs.nominal_resolution).values["I"]
            problem = with_start(problem, blurred)
            result = sf.fit(problem, "lbfgs", **options)
        last["J"] = result.value

    return first_timed(call, began, lambda: last)


if __name__ == "__main__":
    serve(prepare)
