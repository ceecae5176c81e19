"""`shardfit survey tag`: tags and notes of points, kept in the ledger for everyone who opens it."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output

EXAMPLES = (
    "shardfit survey tag runs/m87 17 42 --name favourite",
    "shardfit survey tag runs/m87 17 --note 'ring without a jet'",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add points and what to write."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    parser.add_argument("points", metavar="POINT", nargs="*", type=int, help="numbers of points; none: list all tags")
    parser.add_argument("--name", metavar="NAME", help="tag to give")
    parser.add_argument("--remove", action="store_true", help="take the tag away instead")
    parser.add_argument("--note", metavar="TEXT", help="note to one point; an empty text removes it")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write, or list what there is."""
    from shardfit.surveys.marks import marks, note, tag
    from shardfit.surveys.reading import Survey

    if not args.points:
        with Survey(args.run_dir) as survey:
            found = sorted(marks(survey.ledger).items())
        record_output(args, points=[{"id": number, "tags": tags, "note": text} for number, (tags, text) in found])
        for number, (tags, text) in found:
            print(f"point {number}: " + "; ".join(filter(None, (", ".join(tags), text))))
        return 0
    if args.name is None and args.note is None:
        raise ValueError("give --name, a tag, or --note, a text.")
    if args.note is not None and len(args.points) != 1:
        raise ValueError(f"--note: a note belongs to one point, not to {len(args.points)}.")
    if args.name is not None:
        count = tag(args.run_dir, args.points, args.name, remove=args.remove)
        record_output(args, changed=count, tag=args.name)
        print(f"{count} points: {args.name}")
    if args.note is not None:
        note(args.run_dir, args.points[0], args.note)
        record_output(args, note=args.note)
    return 0
