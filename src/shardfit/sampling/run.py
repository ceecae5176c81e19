"""sample: one call from a problem to draws of its posterior."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.core.loaded_programs import release_compiled_programs
from shardfit.core.problem import Problem
from shardfit.io.compile_cache import programs_kept
from shardfit.io.run_dir import RESUME, RunDir
from shardfit.options.declared import Option, taken_by
from shardfit.sampling.chains.metric import DENSE
from shardfit.sampling.posterior import Posterior

# where each method lives: a function of a problem and keywords that returns a Posterior
METHODS = {
    "nuts": "chains.chain_groups:nuts",
    "mams": "chains.chain_groups:mams",
    "rto": "refits.rto:rto",
    "numpyro": "engines:numpyro",
    "blackjax": "engines:blackjax",
}
# what takes the options of a method
OPTIONS = {
    "nuts": ("chains.chain_groups:by_chains", "chains.nuts:NUTS"),
    "mams": ("chains.chain_groups:by_chains", "chains.mams:MAMS"),
    "rto": ("refits.rto:rto", "refits.rto:RefitOptions"),
    "numpyro": ("engines:run_engine",),
    "blackjax": ("engines:run_engine",),
}
ELSEWHERE = ("problem", "name", "engine", "sampler", "chosen", "mesh", "run_dir", "resume", "seed", "progress")


@programs_kept()
def sample(
    problem: Problem,
    method: str | type[Any] | None = None,
    *,
    draws: int = 1000,
    mesh: Any = None,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    seed: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> Posterior:
    """Draw from the posterior of a problem: exp(-objective), with the problem's priors.

    Parameters
    ----------
    problem
        with priors for its parameters; without any, what is sampled is exp(-value), and the posterior says so.
    method
        None takes 'nuts' up to 200 coordinates and 'mams' beyond, and says so. 'nuts': Hamiltonian chains whose
        trajectories end where they turn back; options: chains, warmup, target_accept, max_depth, metric, width, start.
        'mams': microcanonical chains, which all take the same number of steps; options: chains, warmup, settling,
        target_accept, max_steps, metric, width, start. 'rto': perturbed refits, for images and other problems of many
        parameters. 'numpyro', 'blackjax': their NUTS on the same density, to compare. Or a class derived from
        `ChainSolver`.
    draws
        of each chain, after the warm-up.
    mesh
        rows are split over its axis `rows`, chains over `runs`.
    run_dir
        folder for checkpoints and draws: the same call continues after a crash and ends with the same draws; one with
        more draws adds to those that are there.
    resume
        'auto' continues an earlier call if there is one, 'must' fails if there is none, 'never' starts over.
    seed
        of all random numbers.
    progress
        None shows it on a terminal or for long runs.

    Example: `sample(Problem(objective, {"tau": 1.0}, priors={"tau": HalfCauchy(5.0)}), chains=4, draws=1000)`.

    """
    release_compiled_programs()
    if method is None:
        method, why = usual_method(problem, options)
        options |= {"chosen": why} if why else {}
    if not isinstance(method, type) and method not in METHODS:
        raise ValueError(f"sample: unknown method {method!r}.{suggestion(method, METHODS)}")
    if resume not in RESUME:
        raise ValueError(f"sample: resume={resume!r} must be one of {', '.join(map(repr, RESUME))}.")
    if draws < 1:
        raise ValueError(f"sample: draws={draws} must be at least 1.")
    settings = {"mesh": mesh, "run_dir": run_dir, "resume": resume, "seed": seed, "progress": progress}
    return _function(method)(problem, draws=draws, **settings, **options)


def options_by_method(method: str) -> dict[str, Option]:
    """Return what a method takes from a file: all but where it runs, and what is sampled."""
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}.{suggestion(method, METHODS)}")
    found = {name: each for home in OPTIONS[method] for name, each in taken_by(_found(home)).items()}
    return {name: each for name, each in found.items() if name not in ELSEWHERE}


def usual_method(problem: Problem, options: Mapping[str, Any]) -> tuple[str, str]:
    """Return the sampler that is taken if none is named, and for the less usual one why."""
    n = problem.space.size if isinstance(problem, Problem) else 0
    if n <= DENSE or "max_depth" in options:
        return "nuts", ""
    return "mams", f"MAMS was chosen: for {n} coordinates trees of NUTS take several times as many gradients."


def _function(method: str | type[Any]) -> Callable[..., Posterior]:
    if isinstance(method, type):
        return partial(_found("chains.chain_groups:by_chains"), sampler=method)
    return _found(METHODS[method])


def _found(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(f"shardfit.sampling.{module}"), name)
