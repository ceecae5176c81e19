"""What a field says of its option beside its type, and where values stand."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardfit.core.errors import suggestion


@dataclass(frozen=True)
class Rule:
    """What a field says of its option beside its type.

    doc: the first line is shown in templates and help, all of it in reference tables. least, most: of numbers, which
    may be equal to them; above, below: which may not. choices: of texts, also within lists; keys: of a table. none: the
    word that stands for None in a file. infinite: numbers may be so. example: what a template shows where there is no
    default. file: whether files have it; an option of Python alone need not be plain data.
    """

    doc: str = ""
    unit: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: Iterable[str] = ()
    keys: Iterable[str] = ()
    none: str | None = None
    infinite: bool = False
    example: Any = None
    file: bool = True

    @property
    def text(self) -> str:
        """All that is said of it, in one line."""
        first, _, more = self.doc.partition("\n")
        return "; ".join(filter(None, (first, " ".join(more.split()))))


class Place(NamedTuple):
    """Where values stand, for errors. source: a file, or what is made in Python; section: names from the outermost."""

    source: str
    section: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.source}: [{'.'.join(self.section)}]" if self.section else self.source

    def of(self, name: str) -> str:
        """Return what an error calls an option that stands here."""
        return f"{self} {name}" if self.section else f"{self.source}: {name}"

    def inside(self, name: str) -> "Place":
        """Return the place of what stands in a section of this name."""
        return Place(self.source, (*self.section, name))

    def require_known(self, names: Iterable[Any], known: Iterable[str]) -> None:
        """Raise for a name that is not known here."""
        known = tuple(known)
        for name in names:
            if name not in known:
                raise ValueError(f"{self} has no key {name!r}.{suggestion(str(name), known)}")
