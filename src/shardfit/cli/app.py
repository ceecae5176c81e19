"""Entry of the command line: parse, run one command, turn errors into one clear message."""

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

from shardfit.cli.commands import Parser, UsageError, add_commands, all_commands, parse
from shardfit.cli.error_messages import describe, is_users
from shardfit.core.errors import CheckpointError
from shardfit.version import __version__

# what the library raises on purpose; anything else is a defect and shows where it happened
EXPECTED = (ValueError, TypeError, OSError, RuntimeError, ImportError)
USAGE, FAILURE, STOPPED = 2, 2, 130
ENDED_BY_USER = (KeyboardInterrupt, BrokenPipeError)  # the second: who reads the output, such as `head`, has ended
EXAMPLES = (
    "shardfit demo                    # every science once; one page leads to all reports",
    "shardfit init fit                # a problem of your own: fit.toml and model.py",
    "shardfit fit fit.toml --out runs/first",
    "shardfit serve runs              # all runs in the browser, while they run",
    "shardfit vlbi image --help       # options and examples of a command",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 a check failed, 2 an error, 130 interrupted."""
    code = _main(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()  # here, where it is known what to do if nobody reads any more
    except BrokenPipeError:
        _read_by_nobody()
    return code


def _main(argv: list[str]) -> int:
    args = argparse.Namespace()
    try:
        args = parsed(argv)
        if args.run is None:
            args.parser.print_help()
            return 0
        return _run(args, argv)
    except SystemExit as end:  # argparse leaves this way after --help and --version
        return int(end.code or 0)
    except UsageError as error:
        _say(f"shardfit: {error}\nTry `{error.program} --help`.")
        return USAGE
    except KeyboardInterrupt:
        goes_on = getattr(args, "record", None) is not None and "resume" in args
        _say("shardfit: interrupted." + goes_on * " The same command goes on from what it has kept.")
        return STOPPED
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        _read_by_nobody()
        return 0 if getattr(args, "record", None) is None else STOPPED
    except Exception as error:
        if "--debug" in argv or not _expected(error):
            traceback.print_exc()  # of what nobody foresaw, where it happened says most
        else:
            _say(f"shardfit: {describe(error)}\n(--debug shows where)")
        return FAILURE


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line; `run` is what does it, None where a command is missing."""
    parser = Parser(prog="shardfit", description="Fit differentiable models to more data than one device holds.")
    parser.add_argument("--version", action="version", version=f"shardfit {__version__}")
    parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in EXAMPLES)])
    add_commands(parser, all_commands(), argv)
    return parse(parser, argv)


def _run(args: argparse.Namespace, argv: list[str]) -> int:
    """Run a command with the options that all have in common."""
    if "no_cache" in args:
        os.environ["SHARDFIT_COMPILE_CACHE"] = "off"  # in the environment: processes that are started inherit it
    if getattr(args, "processes", None):
        from shardfit.cli.launch import again

        return again(args, argv)
    args.argv, args.here, args.record = argv, os.getcwd(), None
    args.quiet, machine = "quiet" in args, getattr(args, "summary", False)
    with _voice(args.quiet, machine):
        try:
            code = args.run(args)
        except BaseException as error:
            if args.record is not None:
                stopped, refused = isinstance(error, ENDED_BY_USER), isinstance(error, CheckpointError)
                args.record.mark_failed(STOPPED if stopped else FAILURE, "" if stopped else describe(error), refused)
            raise
        if args.record is not None:
            args.record.finish(code)
    if machine:
        from shardfit.cli.outcome import outcome

        print(json.dumps(outcome(args), indent=1))
    return code


@contextlib.contextmanager
def _voice(quiet: bool, machine: bool) -> Iterator[None]:
    """Let a command print as asked: nothing but errors, or its text to standard error where JSON follows."""
    if not quiet and not machine:
        yield
        return
    before = os.environ.get("SHARDFIT_PROGRESS")
    with contextlib.ExitStack() as stack:
        if quiet:
            os.environ["SHARDFIT_PROGRESS"] = "off"  # in the environment for the same reason
        target = stack.enter_context(open(os.devnull, "w")) if quiet else sys.stderr
        stack.enter_context(contextlib.redirect_stdout(target))
        try:
            yield
        finally:
            if quiet and before is None:
                os.environ.pop("SHARDFIT_PROGRESS", None)


def _expected(error: Exception) -> bool:
    """Whether the library raises such an error on purpose, or a user's own code did: its message says enough.

    NotImplementedError, a kind of RuntimeError, the library never raises on purpose.
    """
    return is_users(error) or (isinstance(error, EXPECTED) and not isinstance(error, NotImplementedError))


def _read_by_nobody() -> None:
    """Let what is still to be printed go nowhere, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
