"""How a run was made and how to make it again, from the command.json that a command left in its folder."""

import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from shardfit.io.files import read_json
from shardfit.report.blocks import Command, Section, Table
from shardfit.report.values import number

COMMAND = "command.json"
TITLE = "How it was made"


def read_command(folder: Path) -> dict[str, Any]:
    """Return what command.json of a folder holds; empty where there is none, or none that can be understood."""
    path = folder / COMMAND
    if path.is_symlink() or not path.is_file():
        return {}
    try:
        content = read_json(path)
    except (ValueError, OSError):
        return {}
    words = content.get("command")
    return content if isinstance(words, list) and all(isinstance(word, str) for word in words) else {}


def made_in(folder: Path) -> Path | None:
    """Return the folder in which the command of a run was started; None where that is not known."""
    place = read_command(folder).get("folder")
    return Path(place) if isinstance(place, str) and place else None


def command_line(told: Mapping[str, Any]) -> str:
    """Return the command as it was typed."""
    return shlex.join(["shardfit", *told["command"]]) if told else ""


def made(told: Mapping[str, Any], folder: Path, environment: bool = True) -> Section:
    """Return the section that says how a run was made. environment: also tell versions and devices."""
    if not told:
        return Section(TITLE, [])
    seed = told.get("seed")
    rows: list[list[Any]] = [["command", Command(command_line(told))], ["in", str(told.get("folder", ""))]]
    rows += [["seed", "–" if seed is None else number(seed)], ["begun", _moment(told.get("began", ""))]]
    rows.append(["again", Command(f"shardfit rerun {shlex.quote(str(folder))}")])
    if environment:
        known = _table(told.get("environment"))
        packages = _table(known.get("packages"))
        rows.append(["versions", ", ".join(f"{name} {version}" for name, version in packages.items())])
        rows.append(["devices", ", ".join(map(str, known.get("devices") or ()))])
    rows += [[f"SHA-256 of {name}", str(digest)] for name, digest in _table(told.get("files")).items()]
    return Section(TITLE, [Table(["", ""], rows)])


def _moment(text: Any) -> str:
    """Return a time as people read it; what is none as it is."""
    try:
        return f"{datetime.fromisoformat(str(text)):%Y-%m-%d %H:%M:%S %Z}".rstrip()
    except ValueError:
        return str(text)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
