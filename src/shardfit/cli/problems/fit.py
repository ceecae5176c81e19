"""`shardfit fit`: the best parameters of a problem of one's own, and a report."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from shardfit.cli import options
from shardfit.cli.problems.config import add_common, common_options, read_config
from shardfit.cli.processes import writes_files

EXAMPLES = (
    "shardfit init fit                      # writes fit.toml and model.py, which run as they are",
    "shardfit fit fit.toml",
    "shardfit fit fit.toml --solver lbfgs --out runs/lbfgs --devices 2",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, where to run, and the solver."""
    add_common(parser, "devices that share the rows (1)")
    options.add_processes(parser)
    parser.add_argument("--solver", metavar="NAME", help="lm, lbfgsb, lbfgs, adam, … (default: `solver` of the file)")
    parser.add_argument(
        "--maxiter", metavar="N", type=options.positive, help="most steps (default: `maxiter` of the file)"
    )


def run(args: argparse.Namespace) -> int:
    """Fit, print the answer, write the report; 0 if it can be trusted, 1 if not, 130 if interrupted."""
    began = time.perf_counter()
    config = read_config(args.config)
    shared = common_options(config, args, "fit")
    settings = config.section("fit")
    solver, errors = settings.pop("solver", None), bool(settings.pop("errors", False))
    if args.solver is not None and args.solver != solver:  # options in the file are those of its own solver
        solver, settings = args.solver, {}
    if args.maxiter is not None:
        settings["maxiter"] = args.maxiter
    from shardfit.fitting import fit
    from shardfit.report.run import report_run
    from shardfit.report.values import seconds

    problem = config.make_problem()
    result = fit(problem, solver, **shared, **settings)
    if errors and result.status.converged and result.stderr is None:
        result = _with_errors(problem, result, shared)
    print(result)
    if writes_files():
        print(f"report: {report_run(shared['run_dir'])}  ({seconds(time.perf_counter() - began)} in all)")
    return result.verdict().exit


def _with_errors(problem: Any, result: Any, shared: dict[str, Any]) -> Any:
    """Return the result with error bars, kept in its folder."""
    from shardfit.curvature import error_bars
    from shardfit.io.results import read_result, save_result

    result = error_bars(problem, result, mesh=shared["mesh"])
    if writes_files():
        save_result(result, shared["run_dir"], read_result(shared["run_dir"])[1])
    return result
