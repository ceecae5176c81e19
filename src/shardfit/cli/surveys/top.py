"""`shardfit survey top`: the best points, those below limits, or those whose choices bring known truths back."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.outcome import record_output

EXAMPLES = (
    "shardfit survey top runs/m87 -n 20",
    "shardfit survey top runs/m87 --below data.cphase=2 data.logcamp=2 --tag top --wall top.png",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add what to rank by and what to keep."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    parser.add_argument("-n", metavar="N", type=options.positive, default=10, help="how many to show (10)")
    parser.add_argument(
        "--by", nargs="+", metavar="COLUMN", help="rank by the sum of these (the value, or data.* where weights vary)"
    )
    parser.add_argument(
        "--below", nargs="+", default=[], metavar="COLUMN=LIMIT", help="only points that do not exceed these limits"
    )
    parser.add_argument(
        "--where", nargs="+", default=[], metavar="AXIS=VALUE", help="only points with these values of axes"
    )
    parser.add_argument(
        "--trained",
        metavar="RUN",
        help="only choices that recover every known image of this survey (its axis `data`)",
    )
    parser.add_argument("--tag", metavar="NAME", help="give all points that are kept this tag, for the gallery")
    parser.add_argument("--wall", metavar="FILE.png", help="draw mean, standard deviation and the best pictures")
    parser.add_argument("--align", action="store_true", help="shift pictures onto each other before the mean")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table; draw the pictures and keep the tag if asked."""
    from shardfit.surveys.marks import tag
    from shardfit.surveys.reading import Survey

    with Survey(args.run_dir) as survey:
        by = survey.ranked_by(args.by)
        rows = chosen(survey, by, args.below, args.trained, args.where)
        columns = ["id", *(f"axis.{n}" for n in survey.heading.axes), *by]
        columns += [c for c in (f"part.{n}" for n in survey.heading.parts if n.startswith("data")) if c not in columns]
        if args.wall:
            _draw(survey, [row["id"] for row in rows], args, by)
    shown = [{c: row[c] for c in columns} for row in rows[: args.n]]
    if not record_output(args, points=len(rows), by=by, best=shown, tag=args.tag, wall=args.wall):
        print(f"{len(rows):,} points, best {len(shown)} by {' + '.join(c.split('.', 1)[-1] for c in by)}")
        print_table([c.split(".", 1)[-1] for c in columns], [[_text(v) for v in row.values()] for row in shown])
    if args.tag:
        print(f"{tag(args.run_dir, [row['id'] for row in rows], args.tag):,} points are tagged {args.tag!r}")
    return 0


def chosen(
    survey: Any, by: Sequence[str], limits: Sequence[str], training: str | None, where: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the rows to keep, the best first."""
    from shardfit.surveys.ranking import below

    rows = survey.best(by=by)
    for text in where:
        rows = _at(survey, rows, text)
    if limits:
        kept = set(below(survey, limits_of(limits)))
        rows = [row for row in rows if row["id"] in kept]
    if training is not None:
        kept = set(_trained(survey, training))
        rows = [row for row in rows if row["id"] in kept]
    return rows


def _at(survey: Any, rows: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Return the rows with a value of an axis, given as AXIS=VALUE."""
    name, sign, wanted = text.partition("=")
    if not sign or name not in survey.heading.axes:
        raise ValueError(f"--where {text}: write AXIS=VALUE. Axes are {', '.join(survey.heading.axes)}.")
    values = {row[f"axis.{name}"] for row in rows}
    same = {value for value in values if _same(value, wanted)}
    if rows and not same:
        shown = ", ".join(_text(value) for value in sorted(values, key=lambda v: (isinstance(v, str), v))[:20])
        raise ValueError(f"--where {text}: no point has this value. There are {shown}.")
    return [row for row in rows if row[f"axis.{name}"] in same]


def _same(value: Any, text: str) -> bool:
    try:
        return math.isclose(float(value), float(text), rel_tol=1e-9, abs_tol=1e-300)
    except ValueError:
        return str(value) == text


def _trained(survey: Any, training: str) -> list[int]:
    """Return the points of a survey whose choices bring every truth of a training survey back."""
    from shardfit.cli.surveys.config import saved_config
    from shardfit.sciences import get_science
    from shardfit.surveys.ranking import points_at, trained
    from shardfit.surveys.reading import Survey

    with record.in_original_cwd(training) as (folder,):
        config, _ = saved_config(folder)
        module = get_science(str(config.science), "survey").module("survey") if config.science else None
        truths = getattr(module, "truths", None)
        if truths is None:
            raise ValueError(f"--trained {training}: its science does not say how alike a picture and a truth are.")
        axis, match, least = truths(dict(config.settings), dict(config.axes))
    with Survey(training) as taught:
        kept = trained(taught, axis, match, least)
    print(f"{len(kept):,} combinations of choices recover {', '.join(least)}")
    return points_at(survey, kept, leaving_out=(axis,))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns of texts, whole, numbers to the right; texts of strangers have no control characters."""
    lines = [[_plain(cell) for cell in line] for line in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _draw(survey: Any, points: list[int], args: argparse.Namespace, by: Sequence[str]) -> None:
    from shardfit.io.files import write_atomic
    from shardfit.report.style import png_bytes
    from shardfit.report.wall import wall

    png = png_bytes(wall(survey, points, by=by, align=args.align))
    write_atomic(Path(args.wall), lambda file: file.write(png))


def limits_of(texts: Sequence[str]) -> dict[str, float]:
    """Return limits by column from texts such as data.cphase=2."""
    return dict(map(_limit, texts))


def _limit(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ValueError(f"--below {text}: write COLUMN=LIMIT, such as data.cphase=2.") from None


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
