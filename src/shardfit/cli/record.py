"""What a command was asked, and on which data: DIR/command.json, from which `shardfit rerun DIR` repeats it.

Beside the command line it has every option with its value, the configuration's content, the seed, versions, and a
checksum of every file that options or configuration name.
"""

import argparse
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shardfit.cli import options
from shardfit.cli.outcome import plain
from shardfit.core.errors import folder_not_found_error
from shardfit.core.extras import MissingPart
from shardfit.io.files import read_json, write_atomic, write_json
from shardfit.io.process_liveness import own_process

NAME = "command.json"
TYPED = "SHARDFIT_TYPED"  # in the environment of processes that a command starts
FORMAT = 1
WHOLE = 4 << 30  # bytes; of larger files blocks are read, evenly spread, for hashing all would take longer than a fit
BLOCK, BLOCKS = 1 << 22, 64
ANSWERS = ("result.json", "posterior.json")
NOT_OPTIONS = ("parser", "run", "argv", "here", "record", "answer")


class Record:
    """The record of one command; written when its work begins and completed when it ends."""

    def __init__(self, folder: Path, content: dict[str, Any]):
        self.folder, self.content, self.began = folder, content, time.perf_counter()
        self.fresh, path = not folder.exists(), folder / NAME
        self.earlier = path.read_bytes() if path.is_file() else None

    def write(self) -> None:
        """Write it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / NAME, self.content)

    def finish(self, code: int) -> None:
        """Add how the command ended."""
        self.content |= {"exit": code, "seconds": round(time.perf_counter() - self.began, 3)}
        self.write()

    def mark_failed(self, code: int, error: str = "", refused: bool = False) -> None:
        """Add that the command failed, and why; take the folder back where it failed before it left anything there.

        refused: the folder is of another run, or in use; what is recorded of that run stays.
        """
        if error:
            self.content["error"] = error
        if self.fresh and [path.name for path in self.folder.iterdir()] == [NAME]:
            (self.folder / NAME).unlink()
            self.folder.rmdir()
        elif refused and (earlier := self.earlier) is not None:
            write_atomic(self.folder / NAME, lambda file: file.write(earlier))
        else:
            self.finish(code)


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return every option with its value."""
    return {name: value for name, value in vars(args).items() if name not in NOT_OPTIONS}


def begin(args: argparse.Namespace, folder: str | Path, seed: int | None = None, draws: bool = True) -> None:
    """Write command.json of a run that is about to begin.

    seed: the one that counts, if not that of the options; draws: whether it ends with figures, whose package is asked
    for here, before the work.
    """
    from shardfit.cli.processes import writes_files

    if not writes_files() or getattr(args, "argv", None) is None:  # None: called from Python, not from a shell
        return
    if draws and find_spec("matplotlib") is None:
        text = "this command draws its results, which needs matplotlib: pip install 'shardfit[report]'."
        raise MissingPart(text, name="matplotlib")
    with contextlib.chdir(args.here):  # names that options have are relative to where the command was started
        args.record = Record(options.directory(str(folder)), _asked(args, seed))
    if getattr(args, "resume", None) == "auto" and any((args.record.folder / name).is_file() for name in ANSWERS):
        print(f"{folder} holds an answer already: the run goes on from it (--resume never starts anew)", flush=True)
    args.record.write()


def _asked(args: argparse.Namespace, seed: int | None) -> dict[str, Any]:
    """Return what a command was asked, with the checksums of the files that it names."""
    from shardfit.io.run_dir import environment

    given = options_of(args)
    config = _config_of(args)
    named = [config] if config else []
    named += [path for text in _texts(given) if (path := Path(text)).is_file()]
    content = _content_of(config)
    where = config.parent if config else Path()
    named += [path for text in _texts(content) if (path := _found(text, where)) is not None]
    return {
        "format": FORMAT,
        "command": _typed(args.argv),
        "folder": os.getcwd(),
        "options": plain(given),
        "config": plain(content),
        "seed": given.get("seed") if seed is None else seed,
        "files": {str(path): digest(path) for path in dict.fromkeys(named)},
        "environment": environment(),
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "process": own_process(),
        "exit": None,
        "seconds": None,
    }


def go_on(args: argparse.Namespace, folder: str | Path) -> None:
    """Let a command that goes on with a run keep its record, which then says how that ended, and in which process."""
    from shardfit.cli.processes import writes_files

    if writes_files() and getattr(args, "argv", None) is not None and (Path(folder) / NAME).is_file():
        content = {name: value for name, value in read(folder).items() if name not in ("error", "sha256")}
        args.record = Record(Path(folder), content | {"process": own_process(), "exit": None})
        args.record.write()


def _typed(argv: Sequence[str]) -> list[str]:
    """Return the command as it was typed; one of several processes that a command has started knows only its own."""
    try:
        words = json.loads(os.environ.get(TYPED, ""))
    except ValueError:
        return list(argv)
    same = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return words if same and not set(argv) - set(words) else list(argv)


def read(folder: str | Path) -> dict[str, Any]:
    """Return the record of a run directory."""
    path = Path(folder) / NAME
    if not Path(folder).is_dir():
        raise folder_not_found_error(folder)
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no {NAME}: it was not written by a shardfit command that records itself."
        )
    content = read_json(path)
    words = content.get("command")
    good = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if content.get("format") != FORMAT or not good or not isinstance(content.get("files"), dict):
        raise ValueError(f"{path} is not what this version of shardfit writes.")
    return content


@contextlib.contextmanager
def in_original_cwd(folder: str | Path, *others: Path) -> Iterator[tuple[Path, ...]]:
    """Work in the folder that a run was started in, which names in its configuration are relative to.

    Gives the run directory and other paths as they are named from there.
    """
    from shardfit.report.provenance import made_in

    paths, place = (Path(folder), *others), made_in(Path(folder))
    if place is not None and not place.is_dir():
        print(f"{folder} was made in {place}, which is not here: its files are looked for in the present folder.")
    elif place is not None and place.resolve() != Path.cwd():
        paths = tuple(path.resolve() for path in paths)
        with contextlib.chdir(place):
            yield paths
        return
    yield paths


def digest(path: Path) -> str:
    """Return the SHA-256 of a file as text; of one beyond 4 GiB that of its size and of blocks, which is said."""
    size = path.stat().st_size
    found = hashlib.sha256()
    with open(path, "rb") as file:
        if size <= WHOLE:
            while block := file.read(BLOCK):
                found.update(block)
            return found.hexdigest()
        found.update(str(size).encode())
        for i in range(BLOCKS):
            file.seek(i * (size - BLOCK) // (BLOCKS - 1))
            found.update(file.read(BLOCK))
    return f"{found.hexdigest()} (size and {BLOCKS} blocks)"


def _config_of(args: argparse.Namespace) -> Path | None:
    named = getattr(args, "config", None)
    return Path(named) if isinstance(named, str) and Path(named).is_file() else None


def _content_of(config: Path | None) -> Any:
    if config is None:
        return None
    if config.suffix in (".yaml", ".yml"):
        return config.read_text(encoding="utf-8")
    from shardfit.options.reading import read_toml

    return read_toml(config, "shardfit init")


def _texts(value: Any) -> Iterator[str]:
    """Yield all short texts in a value: what may be the name of a file."""
    if isinstance(value, str):
        if value and len(value) < 1000 and "\n" not in value and "\0" not in value:
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for inner in value:
            yield from _texts(inner)


def _found(text: str, where: Path) -> Path | None:
    """Return the file that a configuration names, relative to the present folder or to its own."""
    module = Path(text.partition(":")[0].replace(".", "/") + ".py")  # of a function, 'module:function'
    for path in (Path(text).expanduser(), where / text, *([module] if ":" in text else [])):
        if path.is_file():
            return path
    return None
