"""`shardfit population fit`: fit a built-in problem as a configuration file says, and report it."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.population.config import Config, read_config
from shardfit.cli.processes import request_devices, writes_files

EXAMPLES = ("shardfit population init smf.toml", "shardfit population fit smf.toml --rows 1e6 --devices 2")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the configuration and what may differ from it."""
    options.add_config(parser, "shardfit population init")
    parser.add_argument("--rows", metavar="N", type=_count, help="model rows, e.g. 1e6 (as configured)")
    options.add_out(parser, "population-out")
    options.add_devices(parser)
    options.add_processes(parser)
    options.add_seed(parser, otherwise="as configured", of="data and fit")
    options.add_resume(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Fit as configured; 0 also where the step limit ended the fit, which is usual for noisy objectives."""
    return run_study(args, lambda config, study: config.solver.given() if config.solver else study.solver)


def run_study(args: argparse.Namespace, solver_of: Callable[[Config, Any], Mapping[str, Any]]) -> int:
    """Fit a built-in study with the solver that solver_of(config, study) names, and report it."""
    began = time.perf_counter()
    out = options.directory(args.out)
    devices = request_devices(args.devices)

    from shardfit import fit, mesh
    from shardfit.domains.population.recipes import as_study
    from shardfit.report.values import seconds

    config = replace(read_config(args.config), **options.given(args, "rows", "seed"))
    study = as_study(config.problem)
    settings = config.settings()
    problem = study.build(**settings)
    solver = dict(solver_of(config, study))
    if solver.get("name") == "swarm" and study.box is not None:
        problem = problem.replace(bounds=study.box(settings))
    record.begin(args, out, config.seed)
    print(f"{study.title}: {_rows(problem)}, solver {solver.get('name', 'lbfgsb')}", flush=True)
    split = mesh(rows=devices) if devices > 1 else None
    how = {"mesh": split, "run_dir": out, "resume": args.resume, "seed": config.seed}
    result = fit(problem, solver.pop("name", None), **how, **solver)
    print(result)
    code = result.verdict().exit
    if not writes_files():
        return code
    report = _report(out, config.problem, problem, result, settings)
    print(f"report: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return code


def _report(out: Path, name: str, problem: Any, result: Any, settings: Mapping[str, Any]) -> Path:
    """Write the report of the run directory and return its path."""
    from shardfit.domains.population.recipes import as_study
    from shardfit.report.blocks import Section, Table
    from shardfit.report.run import report_run
    from shardfit.report.study import Study

    study, known = as_study(name), {"problem": name, **settings}
    sections = [
        Section("Answer", [_truth_table(study, problem, result, settings)]),
        Section("Settings", [Table(["setting", "value"], [(key, str(value)) for key, value in known.items()])]),
    ]
    return report_run(out, Study(study.title, f"Built-in population problem {name!r}.", sections, "population", known))


def _truth_table(study: Any, problem: Any, result: Any, settings: Mapping[str, Any]) -> Any:
    import jax
    import numpy as np

    from shardfit.core.params import label_of
    from shardfit.core.text import number
    from shardfit.domains.population.recipes import LAST, settle
    from shardfit.report.blocks import Table

    averaged = study.noisy and "x" in result.history
    answer = settle(problem, result) if averaged else result.params
    paths = jax.tree_util.tree_flatten_with_path(answer)[0]
    known = jax.tree.leaves(jax.tree.map(lambda _, true: np.asarray(true), answer, study.truth(settings)))
    rows = [
        (label_of(path) or "x", *(", ".join(number(v, 5) for v in np.ravel(a).tolist()) for a in (leaf, true)))
        for (path, leaf), true in zip(paths, known, strict=True)
    ]
    caption = f"Mean of the last {LAST} steps, for a single step is noisy." if averaged else ""
    return Table(["parameter", "answer", "truth"], rows, caption)


def _count(text: str) -> int:
    """Return a number of rows; 1e6 is understood."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (value.is_integer() and value >= 2):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number, at least 2.")
    return int(value)


def _rows(problem: Any) -> str:
    counts = problem.objective.n_rows.values()
    return f"{max(counts):,} rows" if counts else "no rows"
