"""Commands by name. A module is imported only when its command is called, so `shardfit --help` stays quick.

A command module has `add_arguments(parser, argv)`, `run(args) -> int`, and `EXAMPLES`, lines that its help shows; one
with commands of its own has `COMMANDS` instead. Sciences bring their commands through entry points.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from shardfit.core.errors import suggestion
from shardfit.sciences import installed


@dataclass(frozen=True)
class Command:
    """A name, the line shown in help, and the module that does it; None: it cannot be used, and help says why."""

    name: str
    help: str
    module: str | None


KINDS = {int: "a whole number", float: "a number"}  # types of options, in words
COMMANDS = (
    Command("demo", "every science once on built-in data, and a page of all reports", "shardfit.cli.demo"),
    Command("survey", "thousands of fits at once: run, resume, rank, export", "shardfit.cli.surveys"),
    Command("fit", "fit a problem of your own", "shardfit.cli.problems.fit"),
    Command("plan", "predict memory and time of a problem of your own", "shardfit.cli.problems.plan"),
    Command("sample", "draw from the posterior of a problem of your own", "shardfit.cli.problems.sample"),
    Command("consensus", "sample the rows in shards, and combine the posteriors", "shardfit.cli.problems.consensus"),
    Command("calibrate", "check posterior intervals on simulated data", "shardfit.cli.problems.calibrate"),
    Command("data", "public data sets: list, get", "shardfit.cli.data"),
    Command("init", "write a commented configuration to start from", "shardfit.cli.init"),
    Command("schema", "print what a configuration may hold, as JSON schema", "shardfit.cli.schema"),
    Command("launch", "run a script in many processes that work as one", "shardfit.cli.launch"),
    Command("rank", "run a script as one of many processes started by Slurm or MPI", "shardfit.cli.rank"),
    Command("report", "rebuild report.html of a run directory or a survey", "shardfit.cli.report"),
    Command("serve", "show a run, or a folder of runs, in the browser while they run", "shardfit.cli.serve"),
    Command("show", "print the result, or the posterior, of a run directory", "shardfit.cli.show"),
    Command("rerun", "repeat the command that made a run directory, and compare", "shardfit.cli.rerun"),
    Command("doctor", "check that everything a run needs is here and works", "shardfit.cli.doctor"),
    Command("bench", "measure how fast this machine is, science by science", "shardfit.cli.bench"),
    Command("devices", "print what JAX sees, and versions", "shardfit.cli.devices"),
    Command("sciences", "print the installed sciences, and what each can do", "shardfit.cli.sciences"),
    Command("completion", "print a script for shell completion", "shardfit.cli.completion"),
)


def all_commands() -> tuple[Command, ...]:
    """Return the commands of this package and of all installed sciences."""
    taken = {command.name: command for command in COMMANDS}
    for each in installed():
        if each.science is None:
            taken.setdefault(each.name, Command(each.name, f"cannot be used: {each.problem}", None))
        elif each.science.commands is not None:
            taken.setdefault(each.name, Command(each.name, each.science.help, each.science.commands))
    return tuple(taken.values())


class UsageError(Exception):
    """The command line was not understood. program: the command whose help says more."""

    def __init__(self, message: str, program: str = "shardfit"):
        super().__init__(message)
        self.program = program


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in which names of commands leave room for their texts: they stand further in than options."""

    def add_argument(self, action):
        super().add_argument(action)
        for inner in self._iter_indented_subactions(action):
            length = len(self._format_action_invocation(inner)) + self._current_indent + 2
            self._action_max_length = max(self._action_max_length, length)


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving the process, and suggests the nearest option."""

    def __init__(self, *args, **options):
        super().__init__(*args, allow_abbrev=False, formatter_class=_Help, **options)
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
        self.add_argument(
            "--no-cache",
            action="store_true",
            default=argparse.SUPPRESS,
            help="neither use compiled programs of earlier runs nor store new ones",
        )
        self.add_argument(
            "--quiet", action="store_true", default=argparse.SUPPRESS, help="print nothing but errors and warnings"
        )

    def error(self, message: str) -> NoReturn:
        """Raise with the usage line."""
        raise UsageError(f"{message}\n{self.format_usage().strip()}", self.prog)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Return a value as its option wants it, or say in plain words what it wants."""
        kind = KINDS.get(action.type) if isinstance(action.type, type) else None
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if kind is None:
                raise
            raise argparse.ArgumentError(action, f"{arg_string!r} is not {kind}.") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hidden = getattr(action, "hidden", ())
            near = suggestion(str(value), (str(choice) for choice in action.choices if choice not in hidden))
            raise argparse.ArgumentError(action, f"{value!r} is not one of the choices.{near}")

    def options(self) -> list[str]:
        """Return the long options of this parser."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]


def completes(action: argparse.Action, words: Iterable[str], hidden: Iterable[str] = ()) -> None:
    """Let shells complete an argument with these words. hidden: choices that neither they nor errors name."""
    vars(action).update(completed=tuple(words), hidden=tuple(hidden))


def add_commands(parser: Parser, commands: Sequence[Command], argv: Sequence[str]) -> None:
    """Give a parser sub-commands; of these only the one named in argv is imported and filled."""
    chosen = next((word for word in argv if not word.startswith("-")), None)
    names = [command.name for command in commands]
    if chosen is not None and chosen not in names:
        raise UsageError(f"unknown command {chosen!r}.{suggestion(chosen, names)}", parser.prog)
    group = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.set_defaults(parser=parser, run=None)
    for command in commands:
        text = command.help.replace("%", "%%")  # argparse fills in texts with %
        inner = group.add_parser(command.name, help=text, description=text)
        if command.name == chosen:
            _fill(inner, command, argv[argv.index(chosen) + 1 :])


def _fill(parser: Parser, command: Command, argv: Sequence[str]) -> None:
    """Import the module of a command and let it add its arguments, or its own commands."""
    if command.module is None:
        raise UsageError(f"{command.name} {command.help}")
    module = import_module(command.module)
    parser.set_defaults(parser=parser, run=getattr(module, "run", None))
    examples = [f"  {line}".replace("%", "%%") for line in getattr(module, "EXAMPLES", ())]
    parser.epilog = "\n".join(["examples:", *examples]) if examples else None
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser, argv)
    else:
        add_commands(parser, module.COMMANDS, argv)


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse argv; an unknown option is answered with the nearest known one."""
    args, odd = parser.parse_known_args(argv)
    if odd:
        option = odd[0].partition("=")[0]
        if option.startswith("-"):
            args.parser.error(f"unknown option {option!r}.{suggestion(option, args.parser.options())}")
        args.parser.error(f"too many arguments: {' '.join(odd)!r}. Put names with blanks into quotes.")
    return args
