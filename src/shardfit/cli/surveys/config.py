"""The configuration of a survey: which science, which axes, which points, which solver."""

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from shardfit.cli.loading import load_function
from shardfit.cli.solver_section import SolverSection
from shardfit.core.errors import folder_not_found_error
from shardfit.options.common import seed_option
from shardfit.options.declared import OpenOptions, Option, Options, loaded, option, section
from shardfit.options.kinds import Kind, Table
from shardfit.options.reading import read_toml
from shardfit.options.rules import Place, Rule
from shardfit.sciences import get_science

DESIGNS = ("grid", "latin", "sobol", "lines", "table")
SEED = re.compile(r"\s*seed\s*=")
SAVED = "survey.toml"
WRITER = "shardfit init survey"


@dataclass(frozen=True)
class RangeOptions(Options):
    """An axis that is a range."""

    low: float = option(doc="first value")
    high: float = option(doc="last value")
    log: bool = option(False, "even in the logarithm")


@dataclass(frozen=True)
class DesignSection(Options):
    """[design]: which points."""

    kind: str = option(
        "grid",
        """which points
        grid: every combination; latin, sobol: `points` of them; lines: in random order, `lines` of them or all, with
        every value of the axes `along`; table: the list `table`""",
        choices=DESIGNS,
    )
    points: int = option(100, "of latin and sobol", least=1)
    seed: int = seed_option("the design")
    table: tuple[Mapping[str, Any], ...] = option((), "points, each with a value for every axis", example=[])
    lines: int | None = option(None, "of lines: how many; all if left out", least=1, example=10)
    along: tuple[str, ...] = option((), "of lines: axes of which each has every value", example=[])


@dataclass(frozen=True)
class SurveySolver(SolverSection):
    """[solver]: a name and its options; what is left out is the science's choice."""

    USUAL: ClassVar[str] = "lbfgs"
    FIT: ClassVar[tuple[str, ...]] = ()
    name: str | None = option(None, "lbfgs, adam, lm, swarm, ...; its options beside it", example="lbfgs")
    maxiter: int | None = option(None, "steps of a point", least=1, example=2000)
    sweep: str | bool | None = option(
        None,
        "axis along which points start where their neighbour ended; false: none",
        example=False,
    )
    polish: int | bool | None = option(
        None, "steps in float64 for points that met no tolerance; 0: none", least=0, example=4000
    )


@dataclass(frozen=True)
class HalvingSection(Options):
    """[halving]: give up hopeless points early."""

    first: int = option(25, "steps before the first cut", least=1)
    factor: float = option(2.0, "one in so many goes on", above=1)
    score: tuple[str, ...] = option(
        (), "parts of the objective whose sum ranks points; the value if left out", example=["data"]
    )


@dataclass(frozen=True)
class PlaceSection(Options):
    """[run]: where; none of it changes the answers."""

    slots: int | Literal["measure"] | None = option(
        None, "fits that share a batch, or 'measure' to try several; chosen by memory if left out", least=1, example=64
    )
    devices: int | None = option(None, "devices that share the slots", least=1, example=2)
    rows: int = option(1, "of these devices so many share the rows of each fit", least=1)
    workers: int | None = option(None, "processes that share the points", least=1, example=2)
    limit: int | None = option(None, "stop after this many points", least=0, example=100)


@dataclass(frozen=True, kw_only=True)
class Config(OpenOptions):
    """A configuration; path: where it was read from. The section of the science has its name."""

    science: str | None = option(None, "an installed science, see `shardfit sciences`", example="vlbi")
    problem: str | None = option(None, "or module:function of your own, with [settings]", example="model:make_survey")
    out: str = option(doc="run directory: the ledger, which makes the survey resumable")
    seed: int = seed_option()
    axes: Mapping[str, tuple[Any, ...] | Mapping[str, Any]] = option(
        doc="every value of every axis: a list, or { low = ..., high = ..., log = true } for a range"
    )
    design: DesignSection = section(DesignSection, "which points")
    solver: SurveySolver = section(SurveySolver, "a name and its options; what is left out is the science's choice")
    halving: HalvingSection | None = option(None, "give up hopeless points early")
    run: PlaceSection = section(PlaceSection, "where; none of it changes the answers")
    path: str = ""

    @classmethod
    def others(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Return the section of the science, or of the problem."""
        if (table.get("science") is None) == (table.get("problem") is None):
            raise ValueError("give either science, see `shardfit sciences`, or problem = 'module:function'.")
        name = table.get("science") or "settings"
        if name != "settings":
            get_science(name, "survey")  # a science that is not there is named before its section
        return {name: Option(name, Table(Kind()), Rule(), {})}

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the science's section says."""
        return self.more.get(self.science or "settings", {})


def read_config(path: str | Path) -> Config:
    """Read a configuration; raise with the place and the remedy if it is wrong."""
    return checked(read_toml(path, WRITER), str(path))


def checked(content: Mapping[str, Any], path: str) -> Config:
    """Return a configuration from its content; what a science declares of its section is checked as well."""
    place = Place(path)
    config = Config.filled(content, place)
    for name, axis in config.axes.items():
        if isinstance(axis, Mapping):
            RangeOptions.filled(axis, place.inside("axes").inside(name))
    if config.science is not None:
        declared = getattr(get_science(config.science, "survey").module("survey"), "SETTINGS", Options)
        if declared is not Options:
            loaded(declared, config.settings, place.inside(config.science))
    return replace(config, path=path)


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
        options["halving"] = Halving(config.halving.first, config.halving.factor, config.halving.score)
    return problem, axes, options


def _options(own: Mapping[str, Any], config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a science's own options of `survey`, and the solver's: its own for L-BFGS unless the file has others."""
    from shardfit.solve.base import options_of
    from shardfit.solve.lbfgs import LBFGS

    given = config.solver.given()
    chosen = {name: value for name, value in own.items() if name in options_of(LBFGS)}
    options = {name: value for name, value in own.items() if name not in chosen}
    options |= {name: given.pop(name) or None for name in ("sweep",) if name in given}
    options |= {name: int(given.pop(name)) for name in ("polish",) if name in given}
    if config.halving is not None:
        options["sweep"] = None  # all points start together
    usual = {"name": "lbfgs", "maxiter": 100}
    same = given.get("name", "lbfgs") in ("lbfgs", "lbfgs-bt")
    return options, {**usual, **(chosen if same else {}), **given}


def _design(axes: Mapping[str, Any], section: DesignSection) -> Any:
    from shardfit.surveys.designs import grid, latin, lines, sobol, table

    if section.kind == "grid":
        return grid(axes)
    if section.kind == "table":
        return table(axes, section.table)
    if section.kind == "lines":
        return lines(axes, section.lines, section.along, section.seed)
    return {"latin": latin, "sobol": sobol}[section.kind](axes, section.points, section.seed)


def _maker(config: Config) -> Callable[[dict, dict], tuple[Any, Any, dict]]:
    """Return make(settings, axes) → (problem, axes, options of `survey`), a science's or the user's own."""
    if config.problem is None:
        return get_science(str(config.science), "survey").module("survey").make
    return load_function(config.problem, f"{config.path}: problem")
