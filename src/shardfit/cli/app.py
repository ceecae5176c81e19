"""Entry of the command line: parse, run one command, turn errors into one clear message."""

import os
import sys
import traceback
from collections.abc import Sequence

from shardfit.cli.commands import Parser, UsageError, add_commands, all_commands, parse
from shardfit.cli.versions import own_version

# what the library raises on purpose; anything else is a defect and shows where it happened
EXPECTED = (ValueError, TypeError, OSError, RuntimeError, ImportError)
USAGE, FAILURE, STOPPED = 2, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 a check failed, 2 an error, 130 interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = Parser(prog="shardfit", description="Fit differentiable models to more data than one device holds.")
        parser.add_argument("--version", action="version", version=f"shardfit {own_version()}")
        add_commands(parser, all_commands(), argv)
        args = parse(parser, argv)
        if args.run is None:
            args.parser.print_help()
            return 0
        if "no_compile_cache" in args:
            os.environ["SHARDFIT_COMPILE_CACHE"] = "off"  # in the environment: processes that are started inherit it
        return args.run(args)
    except SystemExit as end:  # argparse leaves this way after --help and --version
        return int(end.code or 0)
    except UsageError as error:
        _say(f"shardfit: {error}\nTry `shardfit --help`.")
        return USAGE
    except KeyboardInterrupt:
        _say("shardfit: interrupted.")
        return STOPPED
    except EXPECTED as error:
        if isinstance(error, NotImplementedError):  # a kind of RuntimeError, but never raised on purpose
            raise
        if "--debug" in argv:
            traceback.print_exc()
        else:
            _say(f"shardfit: {_text(error)}\n(--debug shows where)")
        return FAILURE


def _text(error: BaseException) -> str:
    # JAX notes on every error that its own frames were left out of the traceback, which is not shown here
    notes = [note for note in getattr(error, "__notes__", ()) if "internal frames" not in note]
    return "\n".join([str(error) or type(error).__name__, *notes])


def _say(text: str) -> None:
    print(text, file=sys.stderr)
