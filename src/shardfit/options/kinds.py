"""What the value of an option may be: taken or refused, said in words, read from text, written as JSON schema.

`Kind` says what each method does. A kind is made from the annotation of a field and its rule by `kind_of`.
"""

import difflib
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

from shardfit.options.rules import Place, Rule

REFUSED = object()  # None is a value of its own
COUNTS = {2: "pair", 3: "triple"}
LIMITS = (
    ("least", operator.ge, "at least", "minimum"),
    ("above", operator.gt, "above", "exclusiveMinimum"),
    ("most", operator.le, "at most", "maximum"),
    ("below", operator.lt, "below", "exclusiveMaximum"),
)
WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Kind:
    """Anything at all, and the base of what is less."""

    def take(self, value: Any) -> Any:
        """Return the value as it is kept, or REFUSED."""
        return value

    def words(self, plural: bool = False) -> str:
        """Return what is allowed, as a noun."""
        return "values" if plural else "a value"

    def read(self, text: str) -> Any:
        """Return the value that a text of the command line stands for, or REFUSED."""
        return self.take(text)

    def schema(self) -> dict[str, Any]:
        """Return what is allowed as JSON schema."""
        return {}

    def choices(self) -> tuple[str, ...]:
        """Return the texts that are allowed, where they can be counted."""
        return ()

    def load(self, value: Any, place: Place, name: str) -> Any:
        """Return a value as it is kept, or raise with its place and what is allowed."""
        taken = self.take(value)
        if taken is not REFUSED:
            return taken
        words = self.words()
        if isinstance(value, float) and not math.isfinite(value) and "whole" not in words:
            words = words.replace("number", "finite number", 1)
        raise ValueError(f"{place.of(name)} = {value!r} must be {words}.{self.nearest(value)}")

    def nearest(self, value: Any) -> str:
        """Return ' Did you mean ...?' where a text is close to one that is allowed."""
        close = difflib.get_close_matches(value, self.choices(), 1, 0.5) if isinstance(value, str) else ()
        return f" Did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True)
class Number(Kind):
    """A finite number within limits."""

    whole: bool
    rule: Rule

    def take(self, value: Any) -> Any:
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        kind: Any = Integral if self.whole else Real
        if isinstance(value, bool) or not isinstance(value, kind) or value != value:  # NaN
            return REFUSED
        within = all(holds(value, limit) for holds, _, _, limit in self._limits())
        return value if within and (self.rule.infinite or abs(value) != math.inf) else REFUSED

    def words(self, plural: bool = False) -> str:
        noun = ("whole " if self.whole else "") + ("numbers" if plural else "number")
        said = " and ".join(f"{word} {limit:g}" for _, word, _, limit in self._limits())
        if said == "above 0":
            noun, said = f"positive {noun}", ""
        unit = f" in {self.rule.unit}" if self.rule.unit else ""
        more = f", {said}".replace("at least 0", "zero or positive") if said else ""
        return f"{'' if plural else 'a '}{noun}{unit}{more}"

    def read(self, text: str) -> Any:
        try:
            return self.take(int(text) if self.whole else float(text))
        except ValueError:
            return REFUSED

    def schema(self) -> dict[str, Any]:
        return {"type": "integer" if self.whole else "number", **{name: limit for _, _, name, limit in self._limits()}}

    def _limits(self) -> list[tuple[Callable[[Any, float], bool], str, str, float]]:
        """Return each limit there is with its test, its words, and its name in a schema."""
        return [
            (holds, word, name, limit)
            for field, holds, word, name in LIMITS
            if (limit := getattr(self.rule, field)) is not None
        ]


@dataclass(frozen=True)
class Text(Kind):
    """A text, one of some if those are known."""

    known: tuple[str, ...] = ()

    def take(self, value: Any) -> Any:
        return value if isinstance(value, str) and (not self.known or value in self.known) else REFUSED

    def words(self, plural: bool = False) -> str:
        return (
            ("texts" if plural else "a text") if not self.known else _listed(self.known, "of" if plural else "one of")
        )

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.known)} if self.known else {"type": "string"}

    def choices(self) -> tuple[str, ...]:
        return self.known


@dataclass(frozen=True)
class Switch(Kind):
    """True or false."""

    def take(self, value: Any) -> Any:
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        return value if isinstance(value, bool) else REFUSED

    def words(self, plural: bool = False) -> str:
        return "true or false"

    def read(self, text: str) -> Any:
        return WORDS.get(text, REFUSED)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Nothing(Kind):
    """None, for which a file may have a word."""

    word: str | None = None

    def take(self, value: Any) -> Any:
        return None if value is None or (self.word is not None and value == self.word) else REFUSED

    def words(self, plural: bool = False) -> str:
        return "" if self.word is None else repr(self.word)

    def schema(self) -> dict[str, Any]:
        return {"enum": [] if self.word is None else [self.word]}

    def choices(self) -> tuple[str, ...]:
        return () if self.word is None else (self.word,)


@dataclass(frozen=True)
class List(Kind):
    """A list, kept as a tuple. each: of one kind, as many as there are; else items, one kind for each place."""

    each: Kind | None
    items: tuple[Kind, ...] = ()

    def take(self, value: Any) -> Any:
        value = tuple(value) if getattr(value, "ndim", 0) > 0 else value
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return REFUSED
        kinds = self.items if self.each is None else (self.each,) * len(value)
        if len(kinds) != len(value):
            return REFUSED
        taken = tuple(kind.take(entry) for kind, entry in zip(kinds, value, strict=True))
        return REFUSED if any(entry is REFUSED for entry in taken) else taken

    def words(self, plural: bool = False) -> str:
        inner = (self.each or self.items[0]).words(plural=True)
        count = 0 if self.each is not None else len(self.items)
        if len({kind.words() for kind in self.items}) > 1:
            return f"[{', '.join(kind.words() for kind in self.items)}]"
        noun = COUNTS.get(count, "list") + ("s" if plural else "")
        return f"{'' if plural else 'a '}{noun} of {f'{count} ' if count > 3 else ''}{inner.removeprefix('of ')}"

    def nearest(self, value: Any) -> str:
        each = self.each
        if each is None or isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return ""
        return next((each.nearest(entry) for entry in value if each.take(entry) is REFUSED), "")

    def read(self, text: str) -> Any:
        parts = text.replace(":", ",").split(",")
        kinds = self.items if self.each is None else (self.each,) * len(parts)
        taken = tuple(kind.read(part.strip()) for kind, part in zip(kinds, parts, strict=False))
        return REFUSED if len(parts) != len(kinds) or any(entry is REFUSED for entry in taken) else taken

    def schema(self) -> dict[str, Any]:
        if self.each is not None:
            return {"type": "array", "items": self.each.schema()}
        count = len(self.items)
        return {"type": "array", "prefixItems": [k.schema() for k in self.items], "minItems": count, "maxItems": count}

    def choices(self) -> tuple[str, ...]:
        return self.each.choices() if self.each is not None else ()


@dataclass(frozen=True)
class Table(Kind):
    """Names with values of one kind. known: the names there are, if those are known."""

    each: Kind
    known: tuple[str, ...] = ()

    def take(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return REFUSED
        taken = {str(name): self.each.take(entry) for name, entry in value.items()}
        known = not self.known or set(taken) <= set(self.known)
        return taken if known and all(entry is not REFUSED for entry in taken.values()) else REFUSED

    def words(self, plural: bool = False) -> str:
        inner = self.each.words(plural=True)
        return f"{'sections' if plural else 'a section'}{'' if inner == 'values' else f' of {inner}'}"

    def read(self, text: str) -> Any:
        pairs = [part.partition("=") for part in text.split(",")]
        taken = {name.strip(): self.each.read(value.strip()) for name, _, value in pairs}
        return self.take(taken) if all(equals for _, equals, _ in pairs) else REFUSED

    def schema(self) -> dict[str, Any]:
        names = {"propertyNames": {"enum": list(self.known)}} if self.known else {}
        return {"type": "object", "additionalProperties": self.each.schema(), **names}

    def load(self, value: Any, place: Place, name: str) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{place.of(name)} = {value!r} must be {self.words()}, [{name}].")
        here = place.inside(name)
        if self.known:
            here.require_known(value, self.known)
        return {str(key): self.each.load(entry, here, str(key)) for key, entry in value.items()}


@dataclass(frozen=True)
class Either(Kind):
    """One of several kinds."""

    parts: tuple[Kind, ...]

    def take(self, value: Any) -> Any:
        return next((taken for part in self.parts if (taken := part.take(value)) is not REFUSED), REFUSED)

    def words(self, plural: bool = False) -> str:
        plain = [part for part in self.parts if not isinstance(part, Made) or part.of_options]  # a file has these alone
        said = [text for part in plain or self.parts if (text := part.words(plural))]
        return " or ".join(dict.fromkeys(said))

    def read(self, text: str) -> Any:
        return next((taken for part in self.parts if (taken := part.read(text)) is not REFUSED), REFUSED)

    def schema(self) -> dict[str, Any]:
        found = [one for part in self.parts if (one := part.schema()) != {"enum": []}]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def choices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(choice for part in self.parts for choice in part.choices()))

    def load(self, value: Any, place: Place, name: str) -> Any:
        inner = next((part for part in self.parts if isinstance(part, Table | Made)), None)
        alone = all(isinstance(part, Nothing) or part is inner for part in self.parts)
        if inner is not None and (isinstance(value, Mapping) or (alone and self.take(value) is REFUSED)):
            return inner.load(value, place, name)
        return super().load(value, place, name)


@dataclass(frozen=True)
class Made(Kind):
    """An object of a class: Python alone can give one, unless it is made of options, which stand in a section."""

    made: Any

    @property
    def of_options(self) -> bool:
        """Whether a section stands for it."""
        return hasattr(self.made, "declared_options")

    def take(self, value: Any) -> Any:
        return value if isinstance(value, self.made) else REFUSED

    def words(self, plural: bool = False) -> str:
        return "a section" if self.of_options else f"a {self.made.__name__}"

    def read(self, text: str) -> Any:
        return REFUSED

    def schema(self) -> dict[str, Any]:
        return self.made.json_schema() if self.of_options else {"enum": []}

    def load(self, value: Any, place: Place, name: str) -> Any:
        if not self.of_options or isinstance(value, self.made):
            return super().load(value, place, name)
        if not isinstance(value, Mapping):
            raise ValueError(f"{place.of(name)} = {value!r} must be a section, [{name}].")
        return self.made.filled(value, place.inside(name))


@dataclass(frozen=True)
class Thing(Kind):
    """An object of Python, no plain value."""

    def take(self, value: Any) -> Any:
        plain = value is None or isinstance(value, str | bytes | Real | Sequence | Mapping)
        return REFUSED if plain else value

    def words(self, plural: bool = False) -> str:
        return ""

    def schema(self) -> dict[str, Any]:
        return {"enum": []}


def kind_of(annotation: Any, rule: Rule) -> Kind:
    """Return the kind of an option from the type of its field and its rule."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is Any:  # with choices: one of them, or an object that does it
        return Either((Text(tuple(rule.choices)), Thing())) if rule.choices else Kind()
    if annotation is None or annotation is types.NoneType:
        return Nothing(rule.none)
    if annotation in (int, float):
        return Number(annotation is int, rule)
    if annotation is str:
        return Text(tuple(rule.choices))
    if annotation is bool:
        return Switch()
    if origin in (Union, types.UnionType):
        return Either(tuple(kind_of(part, rule) for part in parts))
    if origin is Literal:
        return Text(parts)
    if origin is tuple and (len(parts) != 2 or parts[1] is not ...):
        return List(None, tuple(kind_of(part, rule) for part in parts))
    if origin is not None and issubclass(origin, Sequence):
        return List(kind_of(parts[0], rule))
    if origin is not None and issubclass(origin, Mapping):
        return Table(kind_of(parts[1], replace(rule, keys=())), tuple(rule.keys))
    return Made(annotation)


def _listed(known: Sequence[str], head: str) -> str:
    return f"{head} {', '.join(known)}" if len(known) > 1 else repr(known[0])
