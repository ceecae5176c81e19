"""Options that mean the same wherever they appear, in the same words. Commands take them from here."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli.commands import completes
from shardfit.options.declared import Options, declared
from shardfit.options.kinds import REFUSED, Kind, Number
from shardfit.options.rules import Rule
from shardfit.options.writing import toml_text


class Reads:
    """The type of a command-line option that is declared: its text as a value, or what it must be."""

    def __init__(self, kind: Kind):
        self.kind = kind

    def __call__(self, text: str) -> Any:
        """Return the value of a text."""
        value = self.kind.read(text)
        if value is REFUSED:
            raise argparse.ArgumentTypeError(f"{text} must be {self.kind.words()}.{self.kind.nearest(text)}")
        return value


positive = Reads(Number(True, Rule(least=1)))
whole = Reads(Number(True, Rule(least=0)))
amount = Reads(Number(False, Rule(above=0)))
size = Reads(Number(False, Rule(least=0)))


def add_config(parser: argparse.ArgumentParser, writer: str) -> None:
    """Add the configuration file. writer: the command that writes one to start from."""
    parser.add_argument("config", metavar="CONFIG", help=f"TOML file; `{writer} CONFIG` writes one")


def add_config_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a configuration that a command can do without; what: which kinds it reads, or what it takes from it."""
    parser.add_argument("--config", metavar="CONFIG", help=f"configuration: {what}")


def add_declared(
    parser: argparse.ArgumentParser,
    kind: type[Options],
    otherwise: str = "",
    *,
    flag: str = "",
    doc: str = "",
    reads: Callable[[str], Any] | None = None,
    **metavars: str,
) -> None:
    """Add options as a class declares them, by name, with what stands for their values.

    For one option: otherwise: in words what it is where it is not given; flag: its name without units; doc: what it
    says in place of the declaration; reads: how its text is read, where that is not the usual way.
    """
    for name, metavar in metavars.items():
        each = declared(kind)[name]
        usual = otherwise or ("" if doc or each.default in (None, ()) else toml_text(each.default))
        text = f"{doc or each.hint} ({usual})" if usual else doc or each.hint
        option = f"--{(flag or name).replace('_', '-')}"
        read = reads or Reads(each.kind)
        action = parser.add_argument(option, metavar=metavar, type=read, help=text.replace("%", "%%"))
        completes(action, each.kind.choices())


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of some options that a command line names."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def add_out(
    parser: argparse.ArgumentParser, default: str | None = None, otherwise: str = "", what: str = "run directory"
) -> None:
    """Add the folder to write. default: its name; otherwise: in words what it is without one; what: kind of folder."""
    parser.add_argument("--out", metavar="DIR", default=default, help=f"{what} to write ({otherwise or default})")


def add_out_file(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the one file that a command writes."""
    parser.add_argument("--out", metavar="FILE", required=True, help=f"{what} to write")


def add_devices(parser: argparse.ArgumentParser, what: str = "devices that share the rows (1)") -> None:
    """Add how many devices work; what: at what."""
    parser.add_argument("--devices", metavar="N", type=positive, help=what)


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add how many processes of this machine work as one; the command is then started by `shardfit launch`."""
    parser.add_argument(
        "--processes", metavar="N", type=positive, help="processes of this machine that share the rows (1)"
    )


def add_seed(
    parser: argparse.ArgumentParser, default: int | None = None, otherwise: str = "", of: str = "all random numbers"
) -> None:
    """Add the seed. otherwise: in words what it is where there is no default; of: what it is the seed of."""
    shown = f"seed of {of} ({otherwise or default})"
    parser.add_argument("--seed", metavar="S", type=whole, default=default, help=shown)


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what to do with an earlier run in the same folder."""
    parser.add_argument(
        "--resume",
        choices=("auto", "must", "never"),
        default="auto",
        help="auto: continue a run found in DIR; must: fail if there is none; never: start over (auto)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add machine-readable output, see `outcome`: the command's own text then goes to standard error."""
    parser.add_argument(
        "--json", action="store_true", dest="summary", help="print one JSON object at the end, other text to stderr"
    )


def directory(name: str) -> Path:
    """Return the folder that --out names; raise where a file is in its place."""
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out {folder}: a file of this name exists. Name a directory.")
    return folder


def without_option(argv: Sequence[str], name: str) -> list[str]:
    """Return a command line without an option and its value."""
    words, skip = [], False
    for word in argv:
        if skip or word == name or word.startswith(f"{name}="):
            skip = word == name
            continue
        words.append(word)
    return words


def devices_mesh(devices: int, rows: int) -> Any:
    """Return a mesh of devices, `rows` of which share the data of each run; None for a single one."""
    if devices == 1:
        return None
    from shardfit.core.mesh import mesh

    if devices % rows:
        raise ValueError(f"{devices} devices cannot be split into {rows} row shards. Use a divisor.")
    return mesh(rows, devices // rows)
