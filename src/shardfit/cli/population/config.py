"""The configuration of population commands."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardfit.cli.solver_section import SolverSection
from shardfit.options.common import precision_option, seed_option
from shardfit.options.declared import OpenOptions, Option, Options, option, section
from shardfit.options.reading import read_options
from shardfit.options.rules import Place

OPTIONS = Place("options")  # of what is not from a file
STUDIES = ("smf", "gaussian", "colours", "ackley")


@dataclass(frozen=True)
class FitSolver(SolverSection):
    """[solver]: a solver by name; what is left out is the problem's own choice."""

    name: str | None = option(None, "lbfgsb, lbfgs, adam, lm, swarm, ...; its options beside it", example="lbfgsb")


@dataclass(frozen=True)
class SwarmSection(OpenOptions):
    """[swarm]: options of the swarm."""

    particles: int = option(100, "points that search together", least=2)
    maxiter: int = option(100, "steps", least=1)

    @classmethod
    def others(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Return the other options of a swarm."""
        from shardfit.solve.registry import options_by_name

        return options_by_name("swarm")


@dataclass(frozen=True)
class Config(Options):
    """A configuration."""

    problem: str = option("smf", "built-in problem", choices=STUDIES)
    rows: int | None = option(None, "model rows: halos, or points", least=1, example=10_000)
    seed: int = seed_option("data and fit")
    precision: str = precision_option("float32 halves the memory; counts are right to 2e-4 of the largest")
    options: Mapping[str, Any] = option({}, "of the problem")
    solver: FitSolver | None = option(None, "of `fit`; left out, or without a name: as published")
    swarm: SwarmSection = section(SwarmSection, "of `swarm`")

    def settings(self, place: Place = OPTIONS) -> dict[str, Any]:
        """Return what builds the problem: rows, seed, precision, and its own options, checked."""
        from shardfit.domains.population.recipes import as_study

        study = as_study(self.problem)
        own = study.options.filled(self.options, place)
        common = {"rows": self.rows or study.rows, "seed": self.seed, "precision": self.precision}
        return {**common, **{name: getattr(own, name) for name in study.options.declared_options()}}


def read_config(path: str | Path) -> Config:
    """Return the configuration of a file, or raise naming what is wrong with it."""
    config = read_options(Config, path, "shardfit population init")
    config.settings(Place(str(path), ("options",)))
    return config
