"""Dataclasses of options: what a field says is checked whenever an object is made, from Python or from a file."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Self, TypeVar, get_type_hints

from shardfit.options.kinds import Kind, kind_of
from shardfit.options.rules import Place, Rule

RULE = "option"  # in the metadata of a field
T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """One option. default: MISSING where it has to be given."""

    name: str
    kind: Kind
    rule: Rule
    default: Any

    @property
    def short(self) -> str:
        """The first line of what is said of it, with its unit."""
        line = self.rule.doc.partition("\n")[0]
        return f"{line} ({self.rule.unit})" if self.rule.unit else line

    @property
    def hint(self) -> str:
        """What a line of help or of a template says: the first line, and what there is to choose from."""
        choices = self.kind.choices()
        return f"{self.short}: {', '.join(choices)}" if len(choices) > 1 else self.short

    @property
    def doc(self) -> str:
        """All that is said of it, in one line, with its unit."""
        return self.rule.text + (f" ({self.rule.unit})" if self.rule.unit else "")


def option(default: Any = MISSING, doc: str = "", **rule: Any) -> Any:
    """Return a field of a dataclass of options. rule: see `Rule`.

    Example: `q: float | None = option(None, "wave vector", unit="1/Å", above=0)`.
    """
    metadata = {RULE: Rule(doc, **rule)}
    if default is MISSING:
        return field(metadata=metadata)
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def section(made: Callable[[], Any], doc: str = "") -> Any:
    """Return a field that holds options of their own, a section in a file. made: what they are if nothing is said."""
    return field(default_factory=made, metadata={RULE: Rule(doc)})


def like(kind: type, name: str, **changes: Any) -> Any:
    """Return a field declared as that of another class. changes: its default, and what else differs."""
    found = declared(kind)[name]
    default = changes.pop("default", found.default)
    return option(default, **{**{f.name: getattr(found.rule, f.name) for f in fields(Rule)}, **changes})


class Options:
    """Base of frozen dataclasses of options. Fields without `option(...)` are not for files, and are not checked."""

    def __init_subclass__(cls):  # what fields say of themselves is what `help` shows
        own = [(name, each.metadata[RULE]) for name, each in vars(cls).items() if RULE in getattr(each, "metadata", ())]
        lines = [f"{name}\n    {rule.text}" for name, rule in own if rule.doc]
        if lines:
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "Attributes", "----------", *lines, ""])

    def __post_init__(self):
        place = Place(type(self).__name__)
        for name, each in declared(type(self)).items():
            object.__setattr__(self, name, each.kind.load(getattr(self, name), place, name))

    @classmethod
    def declared_options(cls) -> Mapping[str, Option]:
        """Return the options that files have, by name."""
        return {name: each for name, each in declared(cls).items() if each.rule.file}

    @classmethod
    def filled(cls, table: Mapping[str, Any], place: Place) -> Self:
        """Return the options of a table, or raise naming what is wrong with it."""
        values = loaded(cls, table, place)
        with named(place):
            return cls(**values)

    def part(self, kind: type[T], **changes: Any) -> T:
        """Return the options of a class whose fields are among these, with changes."""
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind) if f.init} | changes)  # type: ignore[arg-type]

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return what a table of these options may hold."""
        from shardfit.options.writing import json_schema

        return json_schema(cls)


@dataclass(frozen=True)
class OpenOptions(Options):
    """Base of options that may stand with others, which depend on their values: those of the solver that they name.

    more: the others, as they were given.
    """

    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def others(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Return what a table may hold besides what is declared."""
        return {}

    @classmethod
    def filled(cls, table: Mapping[str, Any], place: Place) -> Self:
        """Return the options of a table and those besides, or raise naming what is wrong with it."""
        own = cls.declared_options()
        loaded(cls, {name: value for name, value in table.items() if name in own}, place)  # first what others depend on
        with named(place):
            known = {**cls.others(table), **own}
        values = loaded(cls, table, place, known)
        more = {name: values.pop(name) for name in table if name not in own}
        with named(place):
            return cls(**values, more=more)

    def given(self) -> dict[str, Any]:
        """Return all that is given, without what is None."""
        own = {name: value for name in self.declared_options() if (value := getattr(self, name)) is not None}
        return {**own, **self.more}


@contextmanager
def named(place: Place) -> Iterator[None]:
    """Let errors about values that do not go together name their place."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from None


@cache
def declared(kind: Any) -> dict[str, Option]:
    """Return the options of a class of options, by name."""
    hints = get_type_hints(kind)
    return {
        f.name: _option(f.name, hints[f.name], f.metadata[RULE], _default(f))
        for f in fields(kind)
        if RULE in f.metadata
    }


@cache
def taken_by(callee: Any) -> dict[str, Option]:
    """Return what a function, or a dataclass without declarations, takes by keyword, with the types it names."""
    hints = get_type_hints(callee.__init__ if inspect.isclass(callee) else callee)
    parameters = list(inspect.signature(callee).parameters.values())
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {p.name: _option(p.name, hints.get(p.name, Any), Rule(), p.default) for p in named}


def loaded(
    kind: Any, table: Mapping[str, Any], place: Place, options: Mapping[str, Option] | None = None
) -> dict[str, Any]:
    """Return the values of a table, checked. options: what it may hold, if not all that the class has in files."""
    known = kind.declared_options() if options is None else options
    place.require_known(table, known)
    for name, each in kind.declared_options().items():
        if each.default is MISSING and name not in table and name in known:
            raise ValueError(f"{place.of(name)} is missing: {each.short}.")
    return {name: known[name].kind.load(value, place, name) for name, value in table.items()}


def _option(name: str, annotation: Any, rule: Rule, default: Any) -> Option:
    return Option(name, kind_of(annotation, rule), rule, MISSING if default is inspect.Parameter.empty else default)


def _default(each: dataclasses.Field) -> Any:
    """Return the default of a field; sections have none of their own."""
    if each.default_factory is MISSING:
        return each.default
    return None if inspect.isclass(each.default_factory) else each.default_factory()
