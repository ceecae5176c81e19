"""The configuration of population commands: a TOML file, checked key by key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.options.reading import read_toml

SECTIONS = {"problem": str, "rows": int, "seed": int, "precision": str, "options": dict, "solver": dict, "swarm": dict}


@dataclass(frozen=True)
class Config:
    """A configuration file, checked."""

    problem: str = "smf"
    rows: int | None = None
    seed: int = 0
    precision: str = "float64"
    options: Mapping[str, Any] = field(default_factory=dict)
    solver: Mapping[str, Any] | None = None
    swarm: Mapping[str, Any] = field(default_factory=dict)


def read_config(path: str | Path) -> Config:
    """Return the configuration of a file, or raise naming what is wrong with it."""
    content = read_toml(path, "shardfit population init")
    for key, value in content.items():
        if key not in SECTIONS:
            raise ValueError(f"{path}: unknown key {key!r}.{suggestion(key, SECTIONS)}")
        if not isinstance(value, SECTIONS[key]):
            raise ValueError(f"{path}: {key} = {value!r} must be of type {SECTIONS[key].__name__}.")
    return Config(**content)
