"""What follows from declarations: templates of files, reference tables, rows of reports, JSON schemas."""

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from shardfit.options.declared import OpenOptions, Option, Options
from shardfit.options.kinds import Either, Kind, List, Made, Table

COLUMN = 26  # where comments of a template begin, unless the entry is longer


def is_open(kind: type[Options]) -> bool:
    """Return whether options may stand with others that are not declared."""
    return issubclass(kind, OpenOptions)


def sections_of(each: Option) -> type[Options] | None:
    """Return the class of options that an option is a section of, None for a value."""
    parts = each.kind.parts if isinstance(each.kind, Either) else (each.kind,)
    return next((part.made for part in parts if isinstance(part, Made) and part.of_options), None)


def walk(kind: type[Options], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Option]]:
    """Yield every option with its section, those of inner sections after all others of a section."""
    inner = []
    for name, each in kind.declared_options().items():
        yield above, each
        if (made := sections_of(each)) is not None:
            inner.append((made, (*above, name)))
    for made, path in inner:
        yield from walk(made, path)


def keys(kind: type[Options]) -> Iterator[str]:
    """Yield the dotted name of every option."""
    yield from (".".join((*above, each.name)) for above, each in walk(kind))


def template(kind: type[Options], values: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Return a configuration with every option: those with values, and the others as comments.

    values: by name; of a section a mapping of its own. without: sections that are written otherwise.
    """
    return "\n".join(_template(kind, values, (), without)) + "\n"


def section_template(name: str, kind: type[Options], values: Mapping[str, Any]) -> str:
    """Return one section of a configuration, as `template` writes it; its inner tables stand in one line each."""
    lines = [_line(each.name, each, values) for each in kind.declared_options().values()]
    return "\n".join([f"[{name}]", *lines]) + "\n"


def _template(
    kind: type[Options], values: Mapping[str, Any], above: tuple[str, ...], without: Collection[str] = ()
) -> Iterator[str]:
    tables = []
    for name, each in kind.declared_options().items():
        if name in without:
            continue
        if _is_section(each.kind) and not (name in values and not isinstance(values[name], Mapping)):
            tables.append(each)
            continue
        yield _line(name, each, values)
    yield from (f"{name} = {toml(value)}" for name, value in values.items() if name not in kind.declared_options())
    for each in tables:
        path, inner = (*above, each.name), values.get(each.name, {})
        made = sections_of(each)
        yield ""
        absent = made is not None and isinstance(each.kind, Either) and each.name not in values  # no section is None
        yield _commented(f"{'# ' if absent else ''}[{'.'.join(path)}]", each.short)
        if made is not None:
            yield from _template(made, inner, path)
            continue
        yield from (f"{name} = {toml(value)}" for name, value in inner.items())
        example = each.rule.example or {}
        yield from (f"# {name} = {toml(value)}" for name, value in example.items() if name not in inner)


def table(kind: type[Options]) -> str:
    """Return a Markdown table of all options of a configuration."""
    lines = ["| key | what it may be | if left out | meaning |", "| --- | --- | --- | --- |"]
    for above, each in walk(kind):
        if sections_of(each) is None:
            name = ".".join((*above, each.name))
            cells = (f"`{name}`", each.kind.words(), _default(each), each.rule.text)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def setting_rows(options: Options, above: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Return (dotted key, value) of all options that have one, for the settings of a report."""
    found: list[tuple[str, str]] = []
    for name in options.declared_options():
        value, path = getattr(options, name), (*above, name)
        if isinstance(value, Options):
            found += setting_rows(value, path)
        elif value is not None and value != () and value != {}:
            found.append((".".join(path), str(value)))
    more = options.more if isinstance(options, OpenOptions) else {}
    return found + [(".".join((*above, name)), str(value)) for name, value in more.items()]


def json_schema(kind: type[Options], title: str = "") -> dict[str, Any]:
    """Return what a configuration may hold, as JSON schema of the draft 2020-12."""
    known = kind.declared_options()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} if title else {}
    needed = [name for name, each in known.items() if each.default is dataclasses.MISSING]
    properties = {name: _property(each) for name, each in known.items()}
    required = {"required": needed} if needed else {}
    return {**head, "type": "object", "properties": properties, "additionalProperties": is_open(kind), **required}


def toml(value: Any) -> str:
    """Return a plain value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {toml(entry)}" for name, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float) and "e" in (short := f"{value:g}") and float(short) == value:
        return short.replace("e+0", "e").replace("e-0", "e-")
    return json.dumps(value, ensure_ascii=False)


def toml_text(value: Any) -> str:
    """Return a value for a line of help: a text without quotes, a number as short as it can be."""
    return value if isinstance(value, str) else toml(value).removesuffix(".0")


def _property(each: Option) -> dict[str, Any]:
    found = {**each.kind.schema(), "description": each.doc}
    plain = isinstance(each.default, bool | int | float | str)
    return {**found, "default": each.default} if plain else found


def _default(each: Option) -> str:
    if each.default is dataclasses.MISSING:
        return "must be given"
    plain = each.default is not None and each.default != () and each.default != {}
    return f"`{toml(_plain(each.default))}`" if plain else ""


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | list | tuple | Mapping) else str(value)


def _line(name: str, each: Option, values: Mapping[str, Any]) -> str:
    if name in values:
        return _commented(f"{name} = {toml(values[name])}", each.hint)
    default = None if each.default is dataclasses.MISSING else each.default
    shown = each.rule.example if each.rule.example is not None else default
    shown = each.rule.none if shown is None else shown
    return _commented(f"# {name} = {'...' if shown is None else toml(_plain(shown))}", each.hint)


def _commented(entry: str, words: str) -> str:
    return f"{entry:<{COLUMN}}  # {words}" if words else entry


def _is_section(kind: Kind) -> bool:
    if isinstance(kind, Either):
        return any(_is_section(part) for part in kind.parts) and not any(isinstance(part, List) for part in kind.parts)
    return isinstance(kind, Table) or (isinstance(kind, Made) and kind.of_options)
