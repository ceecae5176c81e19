"""The configuration of posteriors: whose, by which method, where."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from shardfit.cli.commands import add_resume
from shardfit.cli.loading import load_function
from shardfit.cli.processes import request_devices
from shardfit.cli.toml import read_toml
from shardfit.core.errors import suggestion

DATA_CAPTION = (
    "Residuals at draws of the posterior: median and 90 % of every datum, and all beside a unit Gaussian. Chance: that "
    "noise alone makes a larger χ²; near 0 the model misses something or errors are too small, near 1 too large."
)
WRITER = "shardfit init sample"
TEMPLATE = """\
# `shardfit sample {path}` draws from the posterior; the same command goes on after a crash.
problem = "model:make_problem"   # module:function in this folder; make_problem(**settings) returns a shardfit.Problem
out = "runs/posterior"
seed = 0

[settings]                       # what make_problem is called with
# data = "decay.npz"

[sample]
method = "nuts"                  # or "rto": perturbed refits, for images and other problems of many parameters
chains = 4
draws = 1000                     # of each chain; raise it and run again to add draws
# warmup = 500
# target_accept = 0.8            # nearer to 1 if there are divergences

[consensus]                      # `shardfit consensus {path}`: the rows in shards, each with its own chains
shards = 8
# by = "angle"                   # name of a row entry: every shard gets its share of each value
# workers = 2                    # processes that share the shards

[calibrate]                      # `shardfit calibrate {path}`: do the intervals hold?
make = "model:simulate_problem"  # simulate_problem(params, key) returns the Problem of data simulated at params
n = 100

[run]
# devices = 4                    # chains run on them side by side
# rows = 1                       # of these, so many share the rows of each chain
"""


@dataclass(frozen=True)
class Config:
    """A configuration file, checked; path: where it was read from."""

    out: str
    problem: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sample: Mapping[str, Any] = field(default_factory=dict)
    consensus: Mapping[str, Any] = field(default_factory=dict)
    calibrate: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    path: str = ""

    def make_problem(self) -> Any:
        """Return the user's problem."""
        return load_function(self.problem, f"{self.path}: problem")(**self.settings)


def read_config(path: str | Path) -> Config:
    """Read a configuration; raise with the place and the remedy if it is wrong."""
    content = read_toml(path, WRITER)
    known = {f.name for f in fields(Config)} - {"path"}
    for name in content:
        if name not in known:
            raise ValueError(f"{path}: unknown entry {name!r}.{suggestion(name, known)}")
    for name in ("out", "problem"):
        if name not in content:
            raise ValueError(f"{path}: {name} is missing. `{WRITER}` writes an example.")
    for name in content.get("run", {}):
        if name not in ("devices", "rows"):
            raise ValueError(f"{path}: [run] has an unknown entry {name!r}.{suggestion(name, ('devices', 'rows'))}")
    return Config(path=str(path), **content)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the file, and where to run."""
    parser.add_argument("config", metavar="CONFIG", help=f"TOML file; `{WRITER} CONFIG` writes one")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: `out` of the file)")
    parser.add_argument("--devices", type=int, metavar="N", help="devices that share the chains")
    parser.add_argument("--seed", type=int, metavar="N", help="of everything random (default: `seed` of the file)")
    add_resume(parser)


def common_options(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords that all methods share."""
    devices = args.devices or config.run.get("devices")
    request_devices(devices)
    seed = config.seed if args.seed is None else args.seed
    options = {"run_dir": Path(args.out or config.out), "seed": seed, "resume": args.resume, "progress": True}
    return options | {"mesh": _mesh(devices, int(config.run.get("rows", 1)))}


def _mesh(devices: int | None, rows: int) -> Any:
    if devices is None or devices == 1:
        return None
    from shardfit.core.mesh import mesh

    if devices % rows:
        raise ValueError(f"{devices} devices cannot be split into {rows} row shards. Use a divisor.")
    return mesh(rows, devices // rows)


def close(posterior: Any, problem: Any, folder: Path) -> int:
    """Print a posterior and write its report; return 0 if it can be trusted."""
    from shardfit.report.data_figures import data_check, residuals_at_draws
    from shardfit.report.posterior import report_posterior
    from shardfit.report.run import save_extra, save_figure

    print(posterior)
    if residuals := residuals_at_draws(problem, posterior):
        save_figure(data_check(residuals), folder, "data")
        picture = {"picture": "data", "caption": DATA_CAPTION}
        save_extra(folder, posterior.problem, "", [{"title": "Data at the draws", "blocks": [picture]}])
    print(f"report: {report_posterior(folder)}")
    return 0 if posterior.verdict() else 1
