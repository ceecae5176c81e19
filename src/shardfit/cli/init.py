"""`shardfit init`: write a commented configuration to start from."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli.commands import completes
from shardfit.cli.outcome import record_output
from shardfit.cli.toml import add_force, write_new
from shardfit.core.errors import suggestion
from shardfit.sciences import installed

INIT = "init"
KINDS = {"fit": "fit", "sample": "sample", "survey": "survey run"}  # and the command that runs each
EXAMPLES = (
    "shardfit init fit                                # fit.toml and model.py: a problem of your own",
    "shardfit init survey m87.toml --science vlbi --data m87.uvfits",
    "shardfit init seismic                            # seismic.toml: as `shardfit seismic init seismic.toml`",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add what to write and where."""
    known = ", ".join((*KINDS, *science_kinds()))
    kind = parser.add_argument("kind", metavar="KIND", help=f"one of: {known}")
    completes(kind, (*KINDS, *science_kinds()))
    parser.add_argument("file", metavar="FILE", nargs="?", help="where to write (default: KIND.toml)")
    science = parser.add_argument(
        "--science", metavar="NAME", default="vlbi", help="of a survey: an installed science (vlbi)"
    )
    completes(science, [each.name for each in installed() if each.science is not None and each.science.survey])
    parser.add_argument("--data", metavar="DATA", help="of a survey: data to put in, where the science reads some")
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file, and a model beside it for a problem of one's own, if there is none."""
    sciences = science_kinds()
    if args.kind not in (*KINDS, *sciences):
        raise ValueError(f"init knows no {args.kind!r}.{suggestion(args.kind, (*KINDS, *sciences))}")
    path = Path(args.file or f"{args.kind}.toml")
    if args.kind in sciences:
        from shardfit.cli.app import parsed

        inner = parsed([args.kind, INIT, str(path), *(["--force"] if args.force else [])])
        code = inner.run(inner)
        record_output(args, **inner.answer)
        return code
    files = [path]
    if args.kind == "survey":
        from shardfit.cli.surveys.template import survey_template

        write_new(path, survey_template(args.science, f"runs/{path.stem}", args.data), args.force)
    else:
        from shardfit.cli.problems.template import MODEL, text

        model = Path("model.py")  # in the present folder, where commands look for it
        write_new(path, text(str(path), model.stem, path.stem), args.force)
        if model.exists():
            print(f"{model} already exists and was not changed")
        else:
            files.append(write_new(model, MODEL, args.force))
            print(f"wrote {model}: the model, to be changed into yours")
    record_output(args, files=files)
    print(f"wrote {path}; run it with `shardfit {KINDS[args.kind]} {path}`")
    return 0


def science_kinds() -> list[str]:
    """Return the sciences whose commands include an `init` of their own."""
    with_commands = [each.science for each in installed() if each.science is not None and each.science.commands]
    own = {science.name: getattr(science.module("commands"), "COMMANDS", ()) for science in with_commands}
    return [name for name, commands in own.items() if any(command.name == INIT for command in commands)]
