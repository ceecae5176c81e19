"""The configuration of a survey: which science, which axes, which points, which solver."""

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from shardfit.cli.loading import load_function
from shardfit.core.errors import folder_not_found_error, suggestion
from shardfit.options.reading import read_toml
from shardfit.sciences import get_science

DESIGNS = ("grid", "latin", "sobol", "lines", "table")
SEED = re.compile(r"\s*seed\s*=")
SAVED = "survey.toml"


@dataclass(frozen=True)
class Config:
    """A configuration file, checked; path: where it was read from."""

    out: str
    axes: Mapping[str, Any]
    science: str | None = None
    problem: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    design: Mapping[str, Any] = field(default_factory=dict)
    solver: Mapping[str, Any] = field(default_factory=dict)
    halving: Mapping[str, Any] | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    path: str = ""


KNOWN = {
    "design": {"kind", "points", "seed", "table", "lines", "along"},
    "run": {"slots", "devices", "rows", "workers", "limit"},
    "halving": {"first", "factor", "score"},
}


def read_config(path: str | Path) -> Config:
    """Read a configuration; raise with the place and the remedy if it is wrong."""
    return checked(read_toml(path, "shardfit init survey"), str(path))


def saved_config(folder: Path) -> tuple[Config, str]:
    """Return the configuration of a survey of the command line, and its text; for use within `in_original_cwd`."""
    path = folder / SAVED
    if not folder.is_dir():
        raise folder_not_found_error(folder)
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no survey of the command line: {SAVED} is missing.")
    return read_config(path), path.read_text(encoding="utf-8")


def with_seed(text: str, seed: int, path: str) -> str:
    """Return the text of a configuration with another seed, its own and that of its design."""
    wanted = tomllib.loads(text)
    lines, section = [f"seed = {seed}"], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.partition("#")[0].strip()
        if not (section in ("", "[design]") and SEED.match(line)):
            lines.append(line)
        if line.startswith("[") and section == "[design]":
            lines.append(f"seed = {seed}")
    wanted |= {"seed": seed} | ({"design": {**wanted["design"], "seed": seed}} if "design" in wanted else {})
    changed = "\n".join(lines) + "\n"
    with contextlib.suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(changed) == wanted:
            return changed
    raise ValueError(f"--seed {seed}: {path} is written so that it cannot be put in. Write it there: seed = {seed}.")


def checked(content: Mapping[str, Any], path: str) -> Config:
    """Return a configuration from its content."""
    content = dict(content)
    science, problem = content.get("science"), content.get("problem")
    if (science is None) == (problem is None):
        raise ValueError(f"{path}: give either science, see `shardfit sciences`, or problem = 'module:function'.")
    if science is not None:
        get_science(str(science), "survey")
    settings = content.pop(science or "settings", {})
    known = {f.name for f in fields(Config)} - {"settings", "path"}
    for name in content:
        if name not in known:
            raise ValueError(f"{path}: unknown entry {name!r}.{suggestion(name, known | {science or 'settings'})}")
    for section, names in KNOWN.items():
        for name in content.get(section, {}):
            if name not in names:
                raise ValueError(f"{path}: [{section}] has an unknown entry {name!r}.{suggestion(name, names)}")
    for name in ("out", "axes"):
        if name not in content:
            raise ValueError(f"{path}: {name} is missing. `shardfit init survey` writes an example.")
    kind = content.get("design", {}).get("kind", "grid")
    if kind not in DESIGNS:
        raise ValueError(f"{path}: [design] kind {kind!r} is unknown.{suggestion(str(kind), DESIGNS)}")
    return Config(settings=settings, path=path, **content)


def make(text: str, path: str, slots: int | str | None = None) -> tuple[Any, Any, dict[str, Any]]:
    """Return problem, axes and options of `survey` from a configuration as JSON; workers call it too."""
    from shardfit.surveys import Halving, Span, SurveyControl

    config = checked(json.loads(text), path)
    axes = {name: Span(**v) if isinstance(v, Mapping) else tuple(v) for name, v in config.axes.items()}
    problem, axes, own = _maker(config)(dict(config.settings), axes)
    options, solver = _options(own, config)
    options |= {"design": _design(axes, config.design), "seed": config.seed}
    options |= {"control": SurveyControl(slots), "solver": solver.pop("name"), **solver}
    if config.halving is not None:
        options["halving"] = Halving(**{**config.halving, "score": tuple(config.halving.get("score", ()))})
    return problem, axes, options


def _options(own: Mapping[str, Any], config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a science's own options of `survey`, and the solver's: its own for L-BFGS unless the file has others."""
    from shardfit.solve.base import options_of
    from shardfit.solve.lbfgs import LBFGS

    given = dict(config.solver)
    chosen = {name: value for name, value in own.items() if name in options_of(LBFGS)}
    options = {name: value for name, value in own.items() if name not in chosen}
    options |= {name: given.pop(name) or None for name in ("sweep",) if name in given}
    options |= {name: int(given.pop(name)) for name in ("polish",) if name in given}
    if config.halving is not None:
        options["sweep"] = None  # all points start together
    usual = {"name": "lbfgs", "maxiter": 100}
    same = given.get("name", "lbfgs") in ("lbfgs", "lbfgs-bt")
    return options, {**usual, **(chosen if same else {}), **given}


def _design(axes: Mapping[str, Any], section: Mapping[str, Any]) -> Any:
    from shardfit.surveys.designs import grid, latin, lines, sobol, table

    kind, seed = section.get("kind", "grid"), int(section.get("seed", 0))
    if kind == "grid":
        return grid(axes)
    if kind == "table":
        return table(axes, section.get("table", ()))
    if kind == "lines":
        n = section.get("lines")
        return lines(axes, None if n is None else int(n), section.get("along", ()), seed)
    return {"latin": latin, "sobol": sobol}[kind](axes, int(section.get("points", 100)), seed)


def _maker(config: Config) -> Callable[[dict, dict], tuple[Any, Any, dict]]:
    """Return make(settings, axes) → (problem, axes, options of `survey`), a science's or the user's own."""
    if config.problem is None:
        return get_science(str(config.science), "survey").module("survey").make
    return load_function(config.problem, f"{config.path}: problem")
