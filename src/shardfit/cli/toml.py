"""Configurations that commands write to start from."""

import argparse
from pathlib import Path

from shardfit.cli import options
from shardfit.core.errors import file_not_found_error


def add_new_file(parser: argparse.ArgumentParser) -> None:
    """Add the file that an `init` command writes."""
    parser.add_argument("file", metavar="FILE", help="TOML file to write")
    add_force(parser)


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add what all commands have that write a configuration."""
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")
    options.add_json(parser)


def write_new(path: str | Path, text: str, force: bool = False) -> Path:
    """Write a configuration to a file that is not there yet. force: or in place of what is there."""
    from shardfit.io.files import write_atomic

    file = Path(path)
    if file.is_dir():
        raise file_not_found_error(file)
    if file.exists() and not force:
        raise FileExistsError(f"{file} already exists. Give another name, or --force to replace it.")
    write_atomic(file, lambda open_file: open_file.write(text.encode()))
    return file
