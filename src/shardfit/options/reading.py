"""Configuration files: TOML, read with one clear message for what is wrong."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from shardfit.core.errors import file_not_found_error
from shardfit.options.declared import Options
from shardfit.options.rules import Place

T = TypeVar("T", bound=Options)


def read_toml(path: str | Path, writer: str) -> dict[str, Any]:
    """Return the content of a TOML file. writer: the command that writes one to start from."""
    file = Path(path)
    if file.is_dir():
        raise file_not_found_error(file)
    if not file.is_file():
        raise FileNotFoundError(f"{file_not_found_error(file)} `{writer} {file}` writes one to start from.")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not valid TOML: {error}.") from None
    except RecursionError:
        raise ValueError(f"{file} is not valid TOML: its brackets are nested too deeply.") from None


def read_options(kind: type[T], path: str | Path, writer: str) -> T:
    """Return the options of a TOML file, or raise naming what is wrong with it."""
    return kind.filled(read_toml(path, writer), Place(str(path)))
