"""Built-in studies: a problem, the published way to fit it, what is known about the answer, and figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.population import ackley, colours, gaussian, plots, smf
from shardfit.options.declared import Options, option
from shardfit.stats.scan import trajectory

LAST = 20  # steps averaged where the parameters of a single one are noisy


@dataclass(frozen=True)
class NoOptions(Options):
    """Of a problem without options of its own."""


@dataclass(frozen=True)
class MassFunctionOptions(Options):
    """Of the stellar mass function."""

    variant: str = option("A", "published model", choices=smf.VARIANTS)


@dataclass(frozen=True)
class ColourOptions(Options):
    """Of galaxy colours."""

    upweighted: int = option(500, "galaxies of the training sample that count more; 0: none", least=0)


@dataclass(frozen=True)
class Study:
    """A built-in problem.

    build(rows, seed, precision, **options) makes it; options: the class of its own; solver: the default; truth(options)
    gives the known parameters; box: bounds for a swarm, where the problem has none; draw(problem, result, seed) gives
    name → (caption, Figure). noisy: parameters of the last steps are averaged.
    """

    title: str
    build: Callable[..., Problem]
    rows: int
    solver: Mapping[str, Any]
    draw: Callable[[Problem, Result, int], dict]
    truth: Callable[[Mapping[str, Any]], Any]
    options: type[Options] = NoOptions
    box: Callable[[Mapping[str, Any]], Any] | None = None
    noisy: bool = False


def as_study(name: str) -> Study:
    """Return a built-in study by name."""
    if name not in STUDIES:
        raise ValueError(f"unknown problem {name!r}.{suggestion(name, STUDIES)}")
    return STUDIES[name]


def figures(run_dir: Path, result: Result, settings: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the figures of a fitted study, name → (caption, Figure). settings: its name and what builds it."""
    options = dict(settings)
    study = as_study(str(options.pop("problem", "")))
    return study.draw(study.build(**options), result, int(options["seed"]))


def settle(problem: Problem, result: Result, last: int = LAST) -> Any:
    """Return the mean parameters of the last steps of a fit with keep=1."""
    way = trajectory(problem, result.history).params
    return jax.tree.map(lambda leaf: np.mean(leaf[-last:], axis=0), way)


def _smf(rows, seed, precision, variant):
    return smf.problem(variant, rows, precision=precision)


def _gaussian(rows, seed, precision):
    return gaussian.problem(rows, seed=seed, precision=precision)


def _colours(rows, seed, precision, upweighted):
    return colours.problem(rows, upweighted or None, seed=seed, precision=precision)


def _ackley(rows, seed, precision):
    return ackley.problem(4, precision)


def _draw_smf(problem, result, seed):
    caption = "Mass function: target, published start and fit."
    return {"mass_function": (caption, plots.mass_function(problem, result.params))}


def _draw_gaussian(problem, result, seed):
    answers = {"truth": gaussian.TRUTH, "start": gaussian.START}
    found = {"ellipses": ("Training sample with 1σ and 2σ ellipses.", None)}
    if "x" in result.history:
        answers["fit"] = settle(problem, result)
        way = trajectory(problem, result.history)
        found["descent"] = ("Parameters along the fit; dashed: truth.", plots.descent(way, gaussian.TRUTH))
    else:
        answers["fit"] = result.params
    points = gaussian.training(seed=seed)
    return {**found, "ellipses": (found["ellipses"][0], plots.ellipses(points, answers))}


def _draw_colours(problem, result, seed):
    found = {"colours": ("Colours of training sample and model.", plots.colours(result.params, seed=seed))}
    if "x" in result.history:
        way = trajectory(problem, result.history)
        found["descent"] = ("Parameters along the fit; dashed: truth.", plots.descent(way, colours.TRUTH, 4))
    return found


def _draw_ackley(problem, result, seed):
    caption = "Ackley's function through the best point, which is marked."
    return {"landscape": (caption, plots.landscape(np.asarray(result.params)))}


def _smf_truth(options):
    variant = smf.as_variant(options["variant"])
    return variant.params(variant.truth)


def _smf_box(options):
    scatter = (-1.5, 0.5) if smf.as_variant(options["variant"]).scatter == "log_scatter" else (0.02, 1.0)
    return smf.as_variant(options["variant"]).params(((-4.0, 0.0), scatter))


STUDIES = {
    "smf": Study(
        title="Stellar mass function",
        build=_smf,
        rows=10_000,
        options=MassFunctionOptions,
        solver={"name": "lbfgsb", "maxiter": 100},
        draw=_draw_smf,
        truth=_smf_truth,
        box=_smf_box,
    ),
    "gaussian": Study(
        title="Two-dimensional normal by kernel descent",
        build=_gaussian,
        rows=5000,
        solver={"name": "adam", "learning_rate": 1.0, "maxiter": 200, "keep": 1, "x_scale": 1.0},
        draw=_draw_gaussian,
        truth=lambda options: gaussian.TRUTH,
        noisy=True,
    ),
    "colours": Study(
        title="Galaxy colours: two populations, 20 parameters",
        build=_colours,
        rows=10_000,
        options=ColourOptions,
        solver={"name": "adam", "learning_rate": 0.03, "maxiter": 600, "keep": 1, "x_scale": 1.0},
        draw=_draw_colours,
        truth=lambda options: colours.TRUTH,
        noisy=True,
    ),
    "ackley": Study(
        title="Ackley's function in four dimensions",
        build=_ackley,
        rows=1,
        solver={"name": "swarm", "particles": 100, "maxiter": 100},
        draw=_draw_ackley,
        truth=lambda options: np.zeros(4),
    ),
}
