"""Every option of every configuration: what is wrong with it is named, and what is written of it agrees."""

import difflib
import importlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shardfit.cli import main
from shardfit.options.declared import Option
from shardfit.options.kinds import Either, List, Made, Number, Table, Text
from shardfit.options.writing import json_schema, keys, sections_of, toml, walk

NAN = float("nan")
# what has to be given for a file to be read at all
NEEDED: dict[str, dict[str, Any]] = {
    "population": {},
    "problems": {"problem": "model:make_problem", "out": "run"},
    "seismic": {},
    "surveys": {"problem": "model:make", "out": "run", "axes": {"a": [1]}},
    "xpcs": {},
}
SCIENCES = tuple(NEEDED)


def config(science: str) -> Any:
    return importlib.import_module(f"shardfit.cli.{science}.config")


def parts(each: Option) -> tuple:
    return each.kind.parts if isinstance(each.kind, Either) else (each.kind,)


def numbers(kind: Any) -> Iterator[tuple[Number, Any]]:
    """Yield the numbers of a kind, and how one is wrapped into a value of it."""
    if isinstance(kind, Number):
        yield kind, lambda x: x
    if isinstance(kind, Either):
        for part in kind.parts:
            yield from numbers(part)
    if isinstance(kind, List):
        first = kind.each or kind.items[0]
        for number, wrap in numbers(first):
            yield number, lambda x, wrap=wrap: [wrap(x)] * (1 if kind.each else len(kind.items))


def mistakes(each: Option) -> Iterator[Any]:
    """Yield values that an option refuses: of a wrong type, out of range, NaN, no choice."""
    found = parts(each)
    plain = {type(part) for part in found}
    if plain <= {Number, Table, Made, List} or plain == {Text}:
        yield True
    if Text not in plain:
        yield "statik"
    for number, wrap in numbers(each.kind):
        yield wrap(NAN)
        if number.whole and not any(not n.whole for n, _ in numbers(each.kind)):
            yield wrap(1.5)
        for limit, step in ((number.rule.least, -1), (number.rule.above, -1), (number.rule.most, 1)):
            if limit is not None:
                yield wrap(int(limit) + step)
    if each.kind.choices():
        yield each.kind.choices()[-1] + "x"


def content(above: tuple[str, ...], name: str, value: Any) -> dict[str, Any]:
    inner = {name: value}
    for section in reversed(above):
        inner = {section: inner}
    return inner


def merged(one: dict, other: dict) -> dict:
    both = dict(one)
    for name, value in other.items():
        both[name] = (
            merged(both[name], value) if isinstance(both.get(name), dict) and isinstance(value, dict) else value
        )
    return both


def written(table: dict[str, Any], above: tuple[str, ...] = ()) -> str:
    """Return a table as TOML."""
    lines = [f"[{'.'.join(above)}]"] if above else []
    lines += [
        f"{n} = {'nan' if v is NAN else toml(v).replace('NaN', 'nan')}"
        for n, v in table.items()
        if v.__class__ is not dict
    ]
    inner = [written(value, (*above, name)) for name, value in table.items() if isinstance(value, dict)]
    return "\n".join([*lines, *inner])


def error(science: str, path: Path, table: dict[str, Any]) -> str:
    path.write_text(written(merged(NEEDED[science], table)), encoding="utf-8")
    try:
        config(science).read_config(path)
    except ValueError as raised:
        return str(raised)
    return ""


@pytest.mark.parametrize("science", SCIENCES)
def test_wrong_values_of_every_option_are_named(science, tmp_path):
    path, tried = tmp_path / "run.toml", 0
    refuses = jsonschema.Draft202012Validator(json_schema(config(science).Config))
    for above, each in walk(config(science).Config):
        for value in mistakes(each):
            table = content(above, each.name, value)
            text = error(science, path, table)
            head = f"{path}: [{'.'.join(above)}] {each.name}" if above else f"{path}: {each.name}"
            assert text.startswith(f"{head} = {value!r} must be "), (above, each.name, value, text)
            allowed = each.kind.words()
            if value is NAN and "whole" not in allowed:
                allowed = allowed.replace("number", "finite number", 1)
            assert allowed in text, (value, text)
            if "nan" not in repr(value):
                assert not refuses.is_valid(merged(NEEDED[science], table)), (above, each.name, value)
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("science", SCIENCES)
def test_keys_and_choices_that_do_not_exist_are_named_with_the_nearest(science, tmp_path):
    path = tmp_path / "run.toml"
    for above, each in walk(config(science).Config):
        siblings = [e.name for a, e in walk(config(science).Config) if a == above]
        wrong = each.name + "x"
        near = difflib.get_close_matches(wrong, sorted(siblings), 1)[0]
        text = error(science, path, content(above, wrong, 1))
        place = f"{path}: [{'.'.join(above)}]" if above else str(path)
        assert text.startswith(f"{place} has no key {wrong!r}. Did you mean {near!r}? Known: "), text
        for choice in each.kind.choices():
            if len(choice) > 3 and not (
                taken := error(science, path, content(above, each.name, choice + "x"))
            ).endswith("?"):
                raise AssertionError(taken)


@pytest.mark.parametrize("science", SCIENCES)
def test_sections_that_are_none_are_named(science, tmp_path):
    path = tmp_path / "run.toml"
    for above, each in walk(config(science).Config):
        if sections_of(each) is not None or {type(part) for part in parts(each)} == {Table}:
            text = error(science, path, content(above, each.name, 3))
            assert f"{each.name} = 3 must be a section" in text and f"[{each.name}]" in text, text


@pytest.mark.parametrize("science", SCIENCES)
def test_template_schema_and_page_have_the_same_keys(science, tmp_path):
    kind, path = config(science).Config, tmp_path / "run.toml"
    assert main(["init", {"problems": "fit", "surveys": "survey"}.get(science, science), str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(tomllib.loads(text))
    known = set(keys(kind))
    more = set(in_template(text)) - known  # of a solver, of a problem, of a science, of parameters
    assert known <= set(in_template(text)) and not {key for key in more if "." not in key} - {"vlbi"}
    assert set(in_schema(schema)) == known
    json.dumps(schema)


def in_template(text: str) -> Iterator[str]:
    section = ""
    for line in text.splitlines():
        entry = line.removeprefix("# ")
        if entry.startswith("["):
            section = entry[1 : entry.index("]")]
            yield section
        elif " = " in entry and entry.split(" = ")[0].isidentifier():
            yield f"{section}.{entry.split(' = ')[0]}".lstrip(".")


def in_schema(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, inner in schema["properties"].items():
        yield f"{above}{name}"
        for part in (inner, *inner.get("anyOf", ())):
            if "properties" in part:
                yield from in_schema(part, f"{above}{name}.")
