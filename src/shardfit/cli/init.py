"""`shardfit init`: write a commented configuration to start from."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.core.errors import suggestion

KINDS = ("survey", "sample")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add what to write and where."""
    parser.add_argument("kind", metavar="KIND", help="survey or sample")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where to write (default: KIND.toml)")
    parser.add_argument("--science", metavar="NAME", default="vlbi", help="an installed science (default: vlbi)")
    parser.add_argument("--data", metavar="DATA", help="data to put in, where the science reads some")
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    from shardfit.cli.posteriors.config import TEMPLATE
    from shardfit.cli.surveys.template import survey_template
    from shardfit.io.files import write_atomic

    if args.kind not in KINDS:
        raise ValueError(f"init knows no {args.kind!r}.{suggestion(args.kind, KINDS)}")
    path = Path(args.file or f"{args.kind}.toml")
    if path.exists() and not args.force:
        raise FileExistsError(f"{path} is there already. Give another name, or --force to replace it.")
    if args.kind == "sample":
        text, command = TEMPLATE.format(path=path), "sample"
    else:
        text, command = survey_template(args.science, f"runs/{path.stem}", args.data), "survey run"
    write_atomic(path, lambda file: file.write(text.encode()))
    print(f"wrote {path}; run it with `shardfit {command} {path}`")
    return 0
