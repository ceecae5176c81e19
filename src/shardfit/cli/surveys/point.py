"""`shardfit survey point`: one point of a survey once more, by itself, with a report of its data and residuals."""

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli import record
from shardfit.cli.outcome import record_output
from shardfit.cli.surveys.config import Config, make, saved_config

EXAMPLES = ("shardfit survey point runs/m87 17 --out runs/m87-17",)
NOT_OF_THE_SOLVER = ("picture", "design", "seed", "control", "halving", "solver", "sweep", "polish")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the point and where to write."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey of the command line")
    parser.add_argument("point", metavar="POINT", type=int, help="its number")
    shared.add_out(parser, otherwise="RUN/points/POINT")
    shared.add_resume(parser)
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Fit the point, compare with the ledger, write the report."""
    out = shared.directory(args.out or str(Path(args.run_dir) / "points" / str(args.point)))
    with record.in_original_cwd(args.run_dir, out) as (folder, out):
        return _fit(args, folder, out)


def _fit(args: argparse.Namespace, folder: Path, out: Path) -> int:
    """Fit a point of the survey in a folder, from the place where that was made."""
    from shardfit.fitting import fit
    from shardfit.surveys.prepared import Prepared
    from shardfit.surveys.reading import Survey

    config, text = saved_config(folder)
    problem, axes, options = make(json.dumps(tomllib.loads(text)), config.path, None)
    with Survey(folder) as survey:
        rows = survey.ledger.rows("WHERE id = ?", (args.point,))
        if not rows:
            raise ValueError(f"point {args.point} is not finished, or the survey has no such point.")
        prepared = Prepared.make(problem, axes, **{k: v for k, v in options.items() if k != "control"})
        alone, began = _alone(prepared, survey.ledger, survey.ledger.record(args.point))
    point = {name: rows[0][f"axis.{name}"] for name in axes}
    rest = {name: value for name, value in options.items() if name not in NOT_OF_THE_SOLVER}
    rest |= prepared.solvers.options_at(point)
    rest["maxiter"] += options.get("polish", 0) if rows[0]["attempt"] > 1 else 0
    record.begin(args, out, options["seed"])
    result = fit(alone, options["solver"], run_dir=out, resume=args.resume, seed=options["seed"], **rest)
    print(f"point {args.point}: " + ", ".join(f"{name} {value}" for name, value in point.items()))
    print(f"started {began}, in {alone.precision}")
    print(f"value {result.value:.8g}, in the survey {rows[0]['value']:.8g}; {result.message}")
    print(f"report: {_report(out, config, point, rows[0], result)}")
    record_output(args, point=args.point, axes=point, survey_value=rows[0]["value"])
    return result.verdict().exit


def _alone(prepared: Any, ledger: Any, entry: Any) -> tuple[Any, str]:
    """Return the problem of one point, and where it starts: in words, as in the survey.

    A point that was finished in float64 is fitted so from the beginning.
    """
    import jax
    import numpy as np

    from shardfit.core.precision import arithmetic
    from shardfit.surveys.axes import Start, apply

    made = (prepared.in_double() if entry.attempt > 1 else prepared).variants
    start = apply(Start(made.problem.objective, made.problem.x0), made.axes, entry.axes)
    params, words = start.params, "at its own start"
    z = None if entry.parent is None else prepared.start_from(ledger.record(entry.parent))
    if z is not None:
        with arithmetic(made.precision):
            params = jax.tree.map(np.asarray, made.problem.space.unpack(z))
        words = f"where point {entry.parent} ended"
    return made.problem.replace(objective=start.objective, x0=params), words


def _report(out: Path, config: Config, point: Mapping[str, Any], row: Mapping[str, Any], result: Any) -> Path:
    from shardfit.report.blocks import Section, Table
    from shardfit.report.run import report_run
    from shardfit.report.study import Study, save_figure
    from shardfit.sciences import get_science

    module = get_science(str(config.science), "survey").module("survey") if config.science else None
    figures = getattr(module, "figures", None)
    drawn = figures(dict(config.settings), dict(point), result.params) if figures else {}
    pictures = [save_figure(figure, out, name, caption) for name, (caption, figure) in drawn.items()]
    settings = Table(["axis", "value"], [[n, str(v)] for n, v in point.items()])
    ended = [["value", f"{result.value:.8g}", f"{row['value']:.8g}"], ["end", result.status.name, row["status"]]]
    sections = [Section("Point", [settings, Table(["", "this fit", "in the survey"], ended)])]
    sections += [Section("Data and model", pictures)] if pictures else []
    title = f"Point {row['id']} of {config.out}"
    return report_run(out, Study(title, "One point of a survey, fitted by itself.", sections))
