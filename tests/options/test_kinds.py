"""What a value may be: taken, refused in words, read from the command line, written as JSON schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jsonschema
import numpy as np
import pytest

from shardfit.options.declared import Options, declared, like, option, section, taken_by
from shardfit.options.kinds import REFUSED, kind_of
from shardfit.options.rules import Place, Rule
from shardfit.options.writing import json_schema, keys, setting_rows, table, template, toml

NAN, INF = float("nan"), float("inf")
COUNTS = "a whole number, at least 1 or a list of whole numbers, at least 1"
LIMITED = {"least": 0}
# annotation, rule, values that are taken, values that are refused, words
KINDS = [
    (int, {}, [0, -3, 10**400, np.int64(2)], [1.5, True, "1", NAN, None, [1]], "a whole number"),
    (int, {"least": 1}, [1], [0, -1], "a whole number, at least 1"),
    (float, {}, [0, 2.5, np.float32(1)], ["1", True, NAN, INF, None], "a number"),
    (float, {"above": 0, "unit": "s"}, [1e-9], [0, -1.0], "a positive number in s"),
    (float, {"least": 0}, [0], [-1e-9], "a number, zero or positive"),
    (float, {"above": 0, "below": 1}, [0.5], [0, 1], "a number, above 0 and below 1"),
    (float, {"infinite": True}, [INF, 1.0], [NAN], "a number"),
    (str, {}, ["a", ""], [1, None], "a text"),
    (str, {"choices": ("upper", "both")}, ["both"], ["bot", 1], "one of upper, both"),
    (bool, {}, [True, np.bool_(False)], [1, "true", None], "true or false"),
    (float | None, {"none": "all"}, [None, 1.0, "all"], ["al"], "a number or 'all'"),
    (float | Literal["estimate"] | None, {}, ["estimate", 0.1, None], ["guess", True], "a number or 'estimate'"),
    (tuple[int, int], {}, [[1, -1], (1, 2), np.arange(2)], [[1], [1, 2, 3], "ab", 3], "a pair of whole numbers"),
    (tuple[float, ...], {}, [[], [1, 2.5]], [["a"], 1.0, "12"], "a list of numbers"),
    (tuple[tuple[float, float], ...], {}, [[[1, 2]]], [[1, 2], [[1]]], "a list of pairs of numbers"),
    (Mapping[str, float], {}, [{}, {"a": 1}], [{"a": "x"}, 3, [1]], "a section of numbers"),
    (Mapping[str, float], {"keys": ("a",)}, [{"a": 1}], [{"b": 1}], "a section of numbers"),
    (Mapping[str, Any], {}, [{"a": [1]}], [3], "a section"),
    (int | tuple[int, ...], {"least": 1}, [3, [1, 2]], [0, [0], 1.5], COUNTS),
    (Any, {}, [1, "a", None], [], "a value"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "rule", "good", "bad", "words"), KINDS)
def test_values_are_taken_or_refused_and_the_schema_says_the_same(annotation, rule, good, bad, words):
    kind = kind_of(annotation, Rule(**rule))
    assert kind.words() == words
    accepts = jsonschema.Draft202012Validator(kind.schema()).is_valid
    for value in good:
        assert kind.take(value) is not REFUSED, value
        if not isinstance(value, np.ndarray | np.generic | tuple) and value is not None:
            assert accepts(value), value
    for value in bad:
        assert kind.take(value) is REFUSED, value
        if value is not None and not (isinstance(value, float) and not np.isfinite(value)):
            assert not accepts(value), value


@pytest.mark.parametrize(
    ("annotation", "rule", "text", "value"),
    [
        (int, {}, "3", 3),
        (int, {}, "1.5", REFUSED),
        (float, LIMITED, "1e-3", 1e-3),
        (float, LIMITED, "-1", REFUSED),
        (float, {}, "nan", REFUSED),
        (bool, {}, "true", True),
        (bool, {}, "yes", REFUSED),
        (str, {"choices": ("a", "b")}, "a", "a"),
        (float | Literal["scan"], {}, "scan", "scan"),
        (float | Literal["scan"], {}, "3", 3.0),
        (tuple[int, int], {}, "1:24", (1, 24)),
        (tuple[int, int], {}, "1", REFUSED),
        (tuple[float, ...], {}, "1,2.5", (1.0, 2.5)),
        (Mapping[str, float], {}, "A=1,B=2", {"A": 1.0, "B": 2.0}),
        (Mapping[str, float], {}, "A", REFUSED),
        (int | None, {"none": "all"}, "all", None),
    ],
)
def test_texts_of_the_command_line(annotation, rule, text, value):
    read = kind_of(annotation, Rule(**rule)).read(text)
    assert read is value if value is REFUSED or value is None else (read == value and type(read) is type(value))


@dataclass(frozen=True)
class Inner(Options):
    """How fine."""

    cells: int = option(6, "cells\nof each side", least=1, unit="px")
    hidden: Any = option(None, "of Python alone", file=False)
    plain: Any = None


@dataclass(frozen=True)
class Outer(Options):
    """A configuration."""

    name: str = option("a", "which", choices=("a", "b"))
    seed: int = option(0, "seed", least=0)
    fine: int | None = like(Inner, "cells", default=None, example=8)
    weights: Mapping[str, float] = option({}, "weights", example={"tv": 1.0})
    inner: Inner = section(Inner, "how fine")

    def __post_init__(self):
        super().__post_init__()
        if self.name == "b" and self.inner.cells > 9:
            raise ValueError("b has few cells.")


HERE = Place("run.toml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"nam": "a"}, "run.toml has no key 'nam'. Did you mean 'name'? Known: fine, inner, name, seed, weights."),
        ({"name": "c"}, "run.toml: name = 'c' must be one of a, b."),
        ({"seed": -1}, "run.toml: seed = -1 must be a whole number, zero or positive."),
        ({"weights": 3}, "run.toml: weights = 3 must be a section of numbers, [weights]."),
        ({"weights": {"tv": NAN}}, "run.toml: [weights] tv = nan must be a finite number."),
        ({"inner": 3}, "run.toml: inner = 3 must be a section, [inner]."),
        ({"inner": {"cels": 3}}, "run.toml: [inner] has no key 'cels'. Did you mean 'cells'? Known: cells."),
        ({"inner": {"hidden": 3}}, "run.toml: [inner] has no key 'hidden'. Known: cells."),
        ({"inner": {"cells": 0}}, "run.toml: [inner] cells = 0 must be a whole number in px, at least 1."),
        ({"name": "b", "inner": {"cells": 10}}, "run.toml: b has few cells."),
    ],
)
def test_messages_name_file_section_key_value_and_what_is_allowed(content, message):
    with pytest.raises(ValueError) as raised:
        Outer.filled(content, HERE)
    assert str(raised.value) == message


def test_python_says_the_same_of_its_keywords():
    with pytest.raises(ValueError, match="^Outer: name = 'aa' must be one of a, b. Did you mean 'a'\\?$"):
        Outer(name="aa")
    with pytest.raises(ValueError, match=r"^Outer: \[weights\] tv = 'x' must be a number.$"):
        Outer(weights={"tv": "x"})
    assert Outer(inner={"cells": 7}) == Outer(inner=Inner(7))  # type: ignore[arg-type]
    assert "weights\n    weights" in str(Outer.__doc__) and "cells; of each side" in str(Inner.__doc__)


def test_what_has_to_be_given():
    @dataclass(frozen=True, kw_only=True)
    class Needs(Options):
        out: str = option(doc="run directory")

    with pytest.raises(ValueError, match="run.toml: out is missing: run directory."):
        Needs.filled({}, HERE)
    assert json_schema(Needs)["required"] == ["out"] and "must be given" in table(Needs)


def test_template_table_rows_and_schema_follow():
    import tomllib

    text = template(Outer, {"seed": 3, "inner": {"cells": 4}})
    assert tomllib.loads(text) == {"seed": 3, "inner": {"cells": 4}, "weights": {}}
    assert '# name = "a"                # which: a, b' in text.splitlines() and "# tv = 1.0" in text
    bare = "".join(f"{line.removeprefix('# ')}\n" for line in text.splitlines())
    assert Outer.filled(tomllib.loads(bare), HERE) == Outer("a", 3, 8, {"tv": 1.0}, Inner(4))
    assert list(keys(Outer)) == ["name", "seed", "fine", "weights", "inner", "inner.cells"]
    assert "| `inner.cells` | a whole number in px, at least 1 | `6` | cells; of each side |" in table(Outer)
    assert setting_rows(Outer(weights={"a": 1})) == [
        ("name", "a"),
        ("seed", "0"),
        ("weights", "{'a': 1}"),
        ("inner.cells", "6"),
    ]
    assert json_schema(Outer)["properties"]["inner"]["properties"]["cells"]["minimum"] == 1


def test_precisions_are_those_there_are():
    from shardfit.core import precision
    from shardfit.options import common

    assert tuple(precision.PRECISIONS) == common.PRECISIONS


def test_plain_values_as_toml():
    import tomllib

    values = {"a": 2e6, "b": 1e-14, "c": [1, 2.5], "d": 'x "y" é', "e": {"f": True}, "g": 100000.0, "h": 0.1 + 0.2}
    assert tomllib.loads("\n".join(f"{name} = {toml(value)}" for name, value in values.items())) == values
    assert toml(2e6) == "2e6" and toml(1e-14) == "1e-14"


def test_functions_and_dataclasses_without_declarations():
    def sample(problem, *, draws: int = 1000, method: str = "nuts", **more):
        return problem

    known = taken_by(sample)
    assert list(known) == ["problem", "draws", "method"] and known["draws"].kind.words() == "a whole number"
    assert declared(Inner)["cells"].default == 6
