"""`shardfit survey point`: one point of a survey once more, by itself, with a report of its data and residuals."""

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli.options import add_resume
from shardfit.cli.surveys.config import SAVED, Config, make, read_config

NOT_OF_THE_SOLVER = ("picture", "design", "seed", "control", "halving", "solver")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the point and where to write."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey of the command line")
    parser.add_argument("point", metavar="POINT", type=int, help="its number")
    parser.add_argument("--out", metavar="DIR", help="run directory to write (RUN/points/POINT)")
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    """Fit the point, compare with the ledger, write the report."""
    from shardfit.fitting import fit
    from shardfit.surveys.axes import Start, apply
    from shardfit.surveys.reading import Survey

    path = Path(args.run_dir) / SAVED
    if not path.is_file():
        raise FileNotFoundError(f"{args.run_dir} holds no survey of the command line: {SAVED} is missing.")
    config = read_config(path)
    with Survey(args.run_dir) as survey:
        rows = survey.ledger.rows("WHERE id = ?", (args.point,))
        if not rows:
            raise ValueError(f"point {args.point} is not finished, or the survey has no such point.")
        point = {name: rows[0][f"axis.{name}"] for name in survey.heading.axes}
    problem, axes, options = make(json.dumps(tomllib.loads(path.read_text(encoding="utf-8"))), config.path, None)
    start = apply(Start(problem.objective, problem.x0), axes, point)
    alone = problem.replace(objective=start.objective, x0=start.params)
    rest = {name: value for name, value in options.items() if name not in NOT_OF_THE_SOLVER}
    out = Path(args.out) if args.out else Path(args.run_dir) / "points" / str(args.point)
    result = fit(alone, options["solver"], run_dir=out, resume=args.resume, seed=options["seed"], **rest)
    print(f"point {args.point}: " + ", ".join(f"{name} {value}" for name, value in point.items()))
    print(f"value {result.value:.8g}, in the survey {rows[0]['value']:.8g}; {result.message}")
    print(f"report: {_report(out, config, point, rows[0], result)}")
    return 0


def _report(out: Path, config: Config, point: Mapping[str, Any], row: Mapping[str, Any], result: Any) -> Path:
    from shardfit.report.run import report_run, save_extra, save_figure
    from shardfit.sciences import get_science

    module = get_science(str(config.science), "survey").module("survey") if config.science else None
    figures = getattr(module, "figures", None)
    drawn = figures(dict(config.settings), dict(point), result.params) if figures else {}
    pictures = []
    for name, (caption, figure) in drawn.items():
        save_figure(figure, out, name)
        pictures.append({"picture": name, "caption": caption})
    settings = {"header": ["axis", "value"], "rows": [[n, str(v)] for n, v in point.items()]}
    ended = [["value", f"{result.value:.8g}", f"{row['value']:.8g}"], ["end", result.status.name, row["status"]]]
    again = {"header": ["", "this fit", "in the survey"], "rows": ended}
    sections = [{"title": "Point", "blocks": [settings, again]}]
    sections += [{"title": "Data and model", "blocks": pictures}] if pictures else []
    save_extra(out, f"Point {row['id']} of {config.out}", "One point of a survey, fitted by itself.", sections)
    return report_run(out)
