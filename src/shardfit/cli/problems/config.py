"""The configuration of a problem of one's own: which, fitted or sampled how, where."""

import argparse
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.loading import call_with, load_function
from shardfit.cli.processes import request_devices
from shardfit.core.errors import suggestion
from shardfit.options.reading import read_toml

WRITER = "shardfit init fit"
PLAIN: dict[str, tuple[type, str]] = {
    "out": (str, "a text"),
    "problem": (str, "a text"),
    "seed": (int, "a whole number"),
}  # entries that are no sections
METHODS = ("fit", "sample", "consensus", "calibrate")  # sections that may name a folder of their own
OF_A_FIT = ("solver", "errors", "out")


@dataclass(frozen=True)
class Config:
    """A configuration file, checked; path: where it was read from."""

    out: str
    problem: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    sample: Mapping[str, Any] = field(default_factory=dict)
    consensus: Mapping[str, Any] = field(default_factory=dict)
    calibrate: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    path: str = ""

    def section(self, name: str) -> dict[str, Any]:
        """Return the options of a method, without the folder that it may name for itself."""
        return {key: value for key, value in getattr(self, name).items() if key != "out"}

    def folder(self, name: str, given: str | None) -> Path:
        """Return the run directory of a method: as given on the command line, its own, or the file's."""
        return Path(given or getattr(self, name).get("out") or self.out)

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
    content = read_toml(path, WRITER)
    known = {f.name for f in fields(Config)} - {"path"}
    for name, value in content.items():
        if name not in known:
            raise ValueError(f"{path}: unknown entry {name!r}.{suggestion(name, known)}")
        kind, words = PLAIN.get(name, (dict, f"a section, [{name}]"))
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{path}: {name} = {value!r} must be {words}.")
    for name in ("out", "problem"):
        if name not in content:
            raise ValueError(f"{path}: {name} is missing. `{WRITER}` writes an example.")
    for name in METHODS:
        if not isinstance(content.get(name, {}).get("out", ""), str):
            raise ValueError(f"{path}: [{name}] out must be a text, the name of a folder.")
    for name in content.get("run", {}):
        if name not in ("devices", "rows"):
            raise ValueError(f"{path}: [run] has an unknown entry {name!r}.{suggestion(name, ('devices', 'rows'))}")
    for name in content.get("fit", {}):  # all others are options of the solver, which knows them
        if name not in OF_A_FIT and (near := difflib.get_close_matches(name, OF_A_FIT, 1, 0.8)):
            raise ValueError(f"{path}: [fit] has an unknown entry {name!r}. Did you mean {near[0]!r}?")
    return Config(path=str(path), **content)


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
    devices = request_devices(args.devices or config.run.get("devices"))
    seed = config.seed if args.seed is None else args.seed
    folder = config.folder(method, args.out)
    record.begin(args, folder, seed=seed)
    rows = int(config.run.get("rows", 1)) if method != "fit" else devices
    mesh = options.devices_mesh(devices, rows)
    return {"run_dir": folder, "seed": seed, "resume": args.resume, "progress": True, "mesh": mesh}


def close(posterior: Any, problem: Any, folder: Path) -> int:
    """Print a posterior and write its report; return 0 if it can be trusted."""
    from shardfit.report.data_figures import DATA_CAPTION, data_check, data_doubts, residuals_at_draws
    from shardfit.report.posterior import report_posterior
    from shardfit.report.run import save_extra, save_figure
    from shardfit.sampling.store import doubted

    residuals = residuals_at_draws(problem, posterior)
    posterior = doubted(posterior, data_doubts(problem, residuals), folder)
    print(posterior)
    if residuals:
        save_figure(data_check(residuals), folder, "data")
        picture = {"picture": "data", "caption": DATA_CAPTION}
        save_extra(folder, posterior.problem, "", [{"title": "Data at the draws", "blocks": [picture]}])
    print(f"report: {report_posterior(folder)}")
    return posterior.verdict().exit
