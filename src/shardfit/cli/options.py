"""Options that mean the same wherever they appear, in the same words. Commands take them from here."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def add_config(parser: argparse.ArgumentParser, writer: str) -> None:
    """Add the configuration file. writer: the command that writes one to start from."""
    parser.add_argument("config", metavar="CONFIG", help=f"TOML file; `{writer} CONFIG` writes one")


def add_out(parser: argparse.ArgumentParser, default: str | None = None, what: str | None = None) -> None:
    """Add the run directory."""
    parser.add_argument("--out", metavar="DIR", default=default, help=what or f"run directory to write ({default})")


def add_devices(parser: argparse.ArgumentParser, what: str = "devices that share the rows (1)") -> None:
    """Add how many devices work; what: at what."""
    parser.add_argument("--devices", metavar="N", type=positive, help=what)


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add how many processes of this machine work as one; the command is then started by `shardfit launch`."""
    parser.add_argument(
        "--processes", metavar="N", type=positive, help="processes of this machine that share the rows (1)"
    )


def add_seed(
    parser: argparse.ArgumentParser, default: int | None = None, what: str = "seed of all random numbers"
) -> None:
    """Add the seed."""
    shown = what if default is None else f"{what} ({default})"
    parser.add_argument("--seed", metavar="S", type=_seed, default=default, help=shown)


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what to do with an earlier run in the same folder."""
    parser.add_argument(
        "--resume",
        choices=("auto", "must", "never"),
        default="auto",
        help="auto: continue a run found in DIR; must: fail if there is none; never: start over (auto)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add machine-readable output: the command's own text then goes to standard error."""
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


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return value


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text}: a seed is zero or positive")
    return value
