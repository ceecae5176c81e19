"""`shardfit survey top`: the best points, or all that stay below limits."""

import argparse
from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add what to rank by."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    parser.add_argument("-n", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--by", nargs="+", default=["value"], metavar="COLUMN", help="rank by the sum of these columns")
    parser.add_argument(
        "--below", nargs="+", default=[], metavar="COLUMN=LIMIT", help="only points that do not exceed these limits"
    )


def run(args: argparse.Namespace) -> int:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    from shardfit.survey.ranking import below
    from shardfit.survey.table import Survey

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
    Console(width=None).print(table)
    return 0


def _limit(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ValueError(f"--below {text}: write COLUMN=LIMIT, such as data.cphase=2.") from None


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
