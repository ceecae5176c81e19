"""`shardfit survey point`: one point of a survey once more, by itself, with a report of its data and residuals."""

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli.options import add_resume
from shardfit.cli.surveys.config import SAVED, Config, make, read_config

EXAMPLES = ("shardfit survey point runs/m87 17 --out runs/m87-17",)
NOT_OF_THE_SOLVER = ("picture", "design", "seed", "control", "halving", "solver", "sweep", "polish")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the point and where to write."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey of the command line")
    parser.add_argument("point", metavar="POINT", type=int, help="its number")
    parser.add_argument("--out", metavar="DIR", help="run directory to write (RUN/points/POINT)")
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    """Fit the point, compare with the ledger, write the report."""
    from shardfit.fitting import fit
    from shardfit.surveys.reading import Survey
    from shardfit.surveys.run import Prepared

    path = Path(args.run_dir) / SAVED
    if not path.is_file():
        raise FileNotFoundError(f"{args.run_dir} holds no survey of the command line: {SAVED} is missing.")
    config = read_config(path)
    problem, axes, options = make(json.dumps(tomllib.loads(path.read_text(encoding="utf-8"))), config.path, None)
    with Survey(args.run_dir) as survey:
        rows = survey.ledger.rows("WHERE id = ?", (args.point,))
        if not rows:
            raise ValueError(f"point {args.point} is not finished, or the survey has no such point.")
        prepared = Prepared.make(problem, axes, **{k: v for k, v in options.items() if k != "control"})
        alone, began = _alone(prepared, survey.ledger, survey.ledger.record(args.point))
    point = {name: rows[0][f"axis.{name}"] for name in axes}
    rest = {name: value for name, value in options.items() if name not in NOT_OF_THE_SOLVER}
    rest["maxiter"] += options.get("polish", 0) if rows[0]["attempt"] > 1 else 0
    out = Path(args.out) if args.out else Path(args.run_dir) / "points" / str(args.point)
    result = fit(alone, options["solver"], run_dir=out, resume=args.resume, seed=options["seed"], **rest)
    print(f"point {args.point}: " + ", ".join(f"{name} {value}" for name, value in point.items()))
    print(f"started {began}, in {alone.precision}")
    print(f"value {result.value:.8g}, in the survey {rows[0]['value']:.8g}; {result.message}")
    print(f"report: {_report(out, config, point, rows[0], result)}")
    return 0


def _alone(prepared: Any, ledger: Any, record: Any) -> tuple[Any, str]:
    """Return the problem of one point, and where it starts: in words, as in the survey.

    A point that was finished in float64 is fitted so from the beginning.
    """
    import jax
    import numpy as np

    from shardfit.core.precision import arithmetic
    from shardfit.surveys.axes import Start, apply

    made = (prepared.in_double() if record.attempt > 1 else prepared).variants
    start = apply(Start(made.problem.objective, made.problem.x0), made.axes, record.axes)
    params, words = start.params, "at its own start"
    z = None if record.parent is None else prepared.start_from(ledger.record(record.parent))
    if z is not None:
        with arithmetic(made.precision):
            params = jax.tree.map(np.asarray, made.problem.space.unpack(z))
        words = f"where point {record.parent} ended"
    return made.problem.replace(objective=start.objective, x0=params), words


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
