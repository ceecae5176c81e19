"""`shardfit init`: write a commented configuration to start from."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.core.errors import suggestion

KINDS = {"fit": "fit", "sample": "sample", "survey": "survey run"}  # and the command that runs each
EXAMPLES = (
    "shardfit init fit                                # fit.toml and model.py: a problem of your own",
    "shardfit init survey m87.toml --science vlbi --data m87.uvfits",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add what to write and where."""
    parser.add_argument("kind", metavar="KIND", help=f"one of: {', '.join(KINDS)}")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where to write (default: KIND.toml)")
    parser.add_argument("--science", metavar="NAME", default="vlbi", help="of a survey: an installed science (vlbi)")
    parser.add_argument("--data", metavar="DATA", help="of a survey: data to put in, where the science reads some")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def run(args: argparse.Namespace) -> int:
    """Write the file, and a model beside it for a problem of one's own, if there is none."""
    if args.kind not in KINDS:
        raise ValueError(f"init knows no {args.kind!r}.{suggestion(args.kind, KINDS)}")
    path = Path(args.file or f"{args.kind}.toml")
    if args.kind == "survey":
        from shardfit.cli.surveys.template import survey_template

        _write(path, survey_template(args.science, f"runs/{path.stem}", args.data), args.force)
    else:
        from shardfit.cli.problems.template import CONFIG, MODEL

        model = Path("model.py")  # in the present folder, where commands look for it
        _write(path, CONFIG.format(path=path, module=model.stem, stem=path.stem), args.force)
        if model.exists():
            print(f"{model} already exists and was not changed")
        else:
            _write(model, MODEL, args.force)
            print(f"wrote {model}: the model, to be changed into yours")
    print(f"wrote {path}; run it with `shardfit {KINDS[args.kind]} {path}`")
    return 0


def _write(path: Path, text: str, force: bool) -> None:
    from shardfit.io.files import write_atomic

    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists. Give another name, or --force to replace it.")
    write_atomic(path, lambda file: file.write(text.encode()))
