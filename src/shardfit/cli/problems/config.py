"""The configuration of a problem of one's own: which, fitted or sampled how, where."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from shardfit.cli import options, record
from shardfit.cli.loading import call_with, load_function
from shardfit.cli.processes import request_devices
from shardfit.cli.solver_section import SolverSection
from shardfit.options.common import seed_option
from shardfit.options.declared import OpenOptions, Option, Options, option, section
from shardfit.options.reading import read_options

WRITER = "shardfit init fit"
METHODS = ("fit", "sample", "consensus", "calibrate")  # sections that may name a folder of their own
SOLVERS = "lbfgsb, lbfgs, adam, swarm, cmaes, lm (without priors), ...; its options beside it"


def out_option(example: str) -> Any:
    """Return the folder of a section."""
    return option(None, "run directory of its own", example=example)


@dataclass(frozen=True)
class FitSection(SolverSection):
    """[fit]: the solver, its options beside it."""

    KEY: ClassVar[str] = "solver"
    solver: str | None = option(None, SOLVERS, example="lbfgsb")
    errors: bool = option(False, "error bars from the curvature, where the solver has none")
    out: str | None = out_option("runs/fit")


@dataclass(frozen=True)
class SampledSection(OpenOptions):
    """Base of sections whose draws a method makes: its options stand beside those that are declared."""

    draws: int | None = option(None, "draws of each chain; raise it and run again to add draws", least=1, example=1000)
    chains: int | None = option(None, "chains", least=1, example=4)
    warmup: int | None = option(None, "steps before the draws", least=0, example=500)
    target_accept: float | None = option(None, "nearer to 1 if there are divergences", above=0, below=1, example=0.8)

    @classmethod
    def others(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Return the options of the method."""
        from shardfit.sampling.run import options_by_method

        return options_by_method(table.get("method", "nuts"))


@dataclass(frozen=True)
class SampleSection(SampledSection):
    """[sample]: chains, or perturbed refits."""

    method: str = option(
        "nuts", "or 'mams': microcanonical chains, for many coordinates; 'rto': perturbed refits, for images"
    )
    out: str | None = out_option("runs/posterior")


@dataclass(frozen=True)
class ConsensusSection(SampledSection):
    """[consensus]: the rows in shards, each with its own chains."""

    shards: int | None = option(None, "parts of the rows", least=1, example=8)
    by: str | tuple[Any, ...] | None = option(
        None, "name of a row entry, or labels: every shard gets its share of each value", example="angle"
    )
    rule: str | None = option(None, "how posteriors are combined", example="full")
    correct: bool | int | None = option(None, "correct the combined draws", example=True)
    slots: int | None = option(None, "shards that share a batch", least=1, example=4)
    workers: int | None = option(None, "processes that share the shards", least=1, example=2)
    patience: float | None = option(
        None, "time without a sign of life after which a worker counts as hung", unit="s", above=0, example=600.0
    )
    progress: bool | None = option(None, "show how far it is", example=True)
    out: str | None = out_option("runs/consensus")


@dataclass(frozen=True)
class CalibrateSection(SampledSection):
    """[calibrate]: do the intervals hold, on simulated data?"""

    make: str | None = option(
        None,
        "simulate_problem(params, key) returns the Problem of data simulated at params",
        example="model:simulate_problem",
    )
    n: int | None = option(None, "simulated data sets", least=1, example=100)
    method: str = option("nuts", "of the posteriors")
    ranks: int | None = option(None, "draws that a truth is ranked among", least=1, example=99)
    out: str | None = out_option("runs/calibration")


@dataclass(frozen=True)
class RunSection(Options):
    """[run]: where; none of it changes the answers."""

    devices: int | None = option(
        None, "fit: they share the rows; sample: chains run on them side by side", least=1, example=4
    )
    rows: int = option(1, "sample: of these devices so many share the rows of each chain", least=1)


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """A configuration; path: where it was read from."""

    problem: str = option(doc="module:function in this folder; make_problem(**settings) returns a Problem")
    out: str = option(doc="run directory")
    seed: int = seed_option()
    settings: Mapping[str, Any] = option({}, "what make_problem is called with")
    fit: FitSection = section(FitSection, "the best parameters")
    sample: SampleSection = section(SampleSection, "draws from the posterior")
    consensus: ConsensusSection = section(ConsensusSection, "the same, the rows in shards")
    calibrate: CalibrateSection = section(CalibrateSection, "do the intervals hold?")
    run: RunSection = section(RunSection, "where; none of it changes the answers")
    path: str = ""

    def section(self, name: str) -> dict[str, Any]:
        """Return the options of a method, without the folder that it may name for itself."""
        return {key: value for key, value in getattr(self, name).given().items() if key != "out"}

    def folder(self, name: str, given: str | None) -> Path:
        """Return the run directory of a method: as given on the command line, its own, or the file's."""
        return Path(given or getattr(self, name).out or self.out)

    def make_problem(self) -> Any:
        """Return the user's problem."""
        from shardfit.core.problem import Problem

        function = load_function(self.problem, f"{self.path}: problem")
        problem = call_with(function, self.settings, f"{self.path}: [settings] of {self.problem!r}")
        if not isinstance(problem, Problem):
            raise TypeError(
                f"{self.path}: problem = {self.problem!r} returned a {type(problem).__name__}, not a shardfit.Problem."
            )
        return problem


def read_config(path: str | Path) -> Config:
    """Read a configuration; raise with the place and the remedy if it is wrong."""
    return replace(read_options(Config, path, WRITER), path=str(path))


def add_common(parser: argparse.ArgumentParser, devices: str = "devices that share the chains") -> None:
    """Add the file, and where to run. devices: what they are for."""
    options.add_config(parser, WRITER)
    options.add_out(parser, otherwise="`out` of the section, or of the file")
    options.add_devices(parser, devices)
    options.add_seed(parser, otherwise="`seed` of the file")
    options.add_resume(parser)
    options.add_json(parser)


def common_options(config: Config, args: argparse.Namespace, method: str) -> dict[str, Any]:
    """Return the keywords that all methods share. Devices share the rows of a fit, or run chains side by side."""
    devices = request_devices(args.devices or config.run.devices)
    seed = config.seed if args.seed is None else args.seed
    folder = config.folder(method, args.out)
    record.begin(args, folder, seed=seed)
    rows = config.run.rows if method != "fit" else devices
    mesh = options.devices_mesh(devices, rows)
    return {"run_dir": folder, "seed": seed, "resume": args.resume, "progress": True, "mesh": mesh}


def close(posterior: Any, problem: Any, folder: Path) -> int:
    """Print a posterior and write its report; return 0 if it can be trusted."""
    from shardfit.report.blocks import Section
    from shardfit.report.data_figures import DATA_CAPTION, data_check, data_doubts, residuals_at_draws
    from shardfit.report.posterior import report_posterior
    from shardfit.report.study import Study, save_figure
    from shardfit.sampling.store import doubted

    residuals = residuals_at_draws(problem, posterior)
    posterior = doubted(posterior, data_doubts(problem, residuals), folder)
    print(posterior)
    study = None
    if residuals:
        picture = save_figure(data_check(residuals), folder, "data", DATA_CAPTION)
        study = Study(posterior.problem, sections=[Section("Data at the draws", [picture])])
    print(f"report: {report_posterior(folder, study)}")
    return posterior.verdict().exit
