"""Sciences plug in: packages register them in the entry-point group `shardfit.sciences`, the built-in ones alike.

The object that a package registers is light: a `Science` names modules, which are imported when they are used. So
`shardfit --help` lists every science that is installed and imports none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shardfit.core.errors import suggestion

GROUP = "shardfit.sciences"
OWN = "shardfit"  # the distribution whose names nobody takes


@dataclass(frozen=True)
class Science:
    """What command line, survey configuration and report use of a science. Modules are given by their dotted names.

    Attributes
    ----------
    name
        its command, its section in a survey's configuration, and the name of its entry point.
    help
        one line, shown by `shardfit --help`.
    commands
        module of its command: `add_arguments(parser, argv)` and `run(args) -> exit code`, or `COMMANDS`, a tuple of
        `shardfit.cli.commands.Command`, each with such a module of its own.
    survey
        module of its surveys: `make(settings, axes) -> (problem, axes, options of survey)`, where settings and axes are
        sections of the configuration, and the text `EXAMPLE`, these two sections as `shardfit init survey` writes them.
        It may have `figures(settings, point, params) -> {name: (caption, matplotlib Figure)}` of one point, its values
        of the axes and what was found, for `survey point` and the gallery; settings may be a stranger's: plain data,
        never code. And `truths(settings, axes)`, see `survey top --trained`.
    report
        module of its figures: `figures(run_dir, result, settings) -> {name: (caption, matplotlib Figure)}`, called
        whenever the report of a run is made whose `report.json` names the science; settings: as kept there.
    checks
        module of its self-tests, which `shardfit doctor` runs: `CHECKS`, functions without arguments that return a
        `shardfit.cli.doctor.finding.Finding`.
    rates
        module of what `shardfit bench` measures: `cases()`, which returns a list of `shardfit.cli.bench.Case`.
    data
        suffixes of the files it reads and what they hold: {".uvfits": "visibilities"}.

    Example: `SCIENCE = Science("decay", "radioactive decay curves", commands="decay.commands")`.

    """

    name: str
    help: str
    commands: str | None = None
    survey: str | None = None
    report: str | None = None
    checks: str | None = None
    rates: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if not self.name.isidentifier() or not self.name.islower():
            raise ValueError(f"Science: name {self.name!r} must be lower-case letters, digits and underscores.")
        if not self.help.strip():
            raise ValueError(f"Science {self.name!r}: help is empty. Say in one line what it is about.")

    def module(self, kind: str) -> Any:
        """Import the module of this kind: 'commands', 'survey', 'report', 'checks' or 'rates'."""
        address = getattr(self, kind)
        if address is None:
            raise ValueError(f"science {self.name!r} has no {kind} module.")
        try:
            return import_module(address)
        except ImportError as error:
            raise ImportError(f"science {self.name!r}: {address} cannot be imported ({error}).") from error


@dataclass(frozen=True)
class Installed:
    """A registered science: what it is, or why it cannot be used; package: who registered it."""

    name: str
    package: str
    science: Science | None
    problem: str = ""


def installed() -> tuple[Installed, ...]:
    """Return all registered sciences, by name; one that cannot be loaded says why and leaves the others alone."""
    entries = sorted(entry_points(group=GROUP), key=lambda e: (e.name, _package(e) != OWN, _package(e)))
    first: dict[str, EntryPoint] = {}
    return tuple(_load(entry, first.setdefault(entry.name, entry)) for entry in entries)


def get_science(name: str, kind: str | None = None) -> Science:
    """Return an installed science by name; kind: the module it must have, 'commands', 'survey' or 'report'."""
    usable = {each.name: each.science for each in installed() if each.science is not None}
    broken = {each.name: each.problem for each in installed() if each.science is None}
    known = [n for n, science in usable.items() if kind is None or getattr(science, kind) is not None]
    if name in usable and name not in known:
        raise ValueError(f"science {name!r} has no {kind} module. Those that have one: {', '.join(known) or 'none'}.")
    if name in usable:
        return usable[name]
    if name in broken:
        raise ImportError(f"science {name!r} cannot be used: {broken[name]}")
    raise ValueError(f"unknown science {name!r}.{suggestion(name, known)}")


def _load(entry: EntryPoint, holder: EntryPoint) -> Installed:
    name, package = entry.name, _package(entry)
    if holder is not entry:
        return Installed(name, package, None, f"the package {_package(holder)} has registered this name already.")
    try:
        science = entry.load()
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises must not end another's command
        text = " ".join(str(error).split())
        return Installed(name, package, None, f"{entry.value} cannot be loaded ({type(error).__name__}: {text}).")
    if not isinstance(science, Science):
        return Installed(name, package, None, f"{entry.value} is of type {type(science).__name__}, not a Science.")
    if science.name != name:
        return Installed(name, package, None, f"{entry.value} names itself {science.name!r}. Use one name for both.")
    return Installed(name, package, science)


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else ""
