"""`shardfit survey top`: the best points, or all that stay below limits."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add what to rank by."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    parser.add_argument("-n", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--by", nargs="+", default=["value"], metavar="COLUMN", help="rank by the sum of these columns")
    parser.add_argument(
        "--below", nargs="+", default=[], metavar="COLUMN=LIMIT", help="only points that do not exceed these limits"
    )
    parser.add_argument("--wall", metavar="FILE.png", help="draw mean, standard deviation and the best pictures")


def run(args: argparse.Namespace) -> int:
    """Print a table, and draw the pictures if asked."""
    from rich.console import Console
    from rich.table import Table

    from shardfit.surveys.ranking import below
    from shardfit.surveys.reading import Survey

    if args.n < 1:
        raise ValueError(f"-n {args.n}: ask for at least 1 point.")
    with Survey(args.run_dir) as survey:
        rows = survey.best(by=args.by)
        if args.below:
            kept = set(below(survey, dict(map(_limit, args.below))))
            rows = [row for row in rows if row["id"] in kept]
        columns = ["id", *(f"axis.{n}" for n in survey.heading.axes), *map(survey.column_name, args.by)]
        columns += [c for c in (f"part.{n}" for n in survey.heading.parts if n.startswith("data")) if c not in columns]
        table = Table(
            *(c.split(".", 1)[-1] for c in columns), title=f"{len(rows):,} points, best {min(args.n, len(rows))}"
        )
        for row in rows[: args.n]:
            table.add_row(*(_text(row[c]) for c in columns))
        if args.wall:
            _draw(survey, [row["id"] for row in rows], args)
    Console(width=None).print(table)
    return 0


def _draw(survey: Any, points: list[int], args: argparse.Namespace) -> None:
    from shardfit.io.files import write_atomic
    from shardfit.report.style import png_bytes
    from shardfit.report.wall import wall

    png = png_bytes(wall(survey, points, by=args.by))
    write_atomic(Path(args.wall), lambda file: file.write(png))


def _limit(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ValueError(f"--below {text}: write COLUMN=LIMIT, such as data.cphase=2.") from None


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
