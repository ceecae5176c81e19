"""What a report page is made of. Every text is escaped here and nowhere else, so a block can hold anything."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

NUMBERS, WIDE = ' class="n"', ' class="w"'  # of the cells of a column
PNG = b"\x89PNG\r\n\x1a\n"
LONGEST_VALUE = 12  # letters that a card has room for in one line
WIDE_PICTURE = 1.9  # width over height from which on a phone shows a part of it at a time, large enough to read
LONGEST_WORD = 16  # letters; a column with longer ones, such as file names, may break them


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def render(self) -> str:
        """Return HTML."""
        return f"<p>{prose(self.text)}</p>"


@dataclass(frozen=True)
class Notice:
    """A paragraph that must not be overlooked, such as an error; its lines stay lines."""

    text: str

    def render(self) -> str:
        """Return HTML."""
        return f'<pre class="notice">{prose(self.text)}</pre>'


@dataclass(frozen=True)
class Command:
    """A cell of a table that shows what to type; lines break between words, never after the hyphens of an option."""

    text: str

    def __str__(self):
        return self.text

    def render(self) -> str:
        """Return HTML."""
        return f"<code>{' '.join(f'<span>{escape(word)}</span>' for word in self.text.split(' '))}</code>"


@dataclass(frozen=True)
class Link:
    """A cell of a table, or a line of its own, that leads to another file, named relative to the page."""

    text: str
    path: str

    def __post_init__(self):
        if self.path.startswith("/") or ":" in self.path.partition("/")[0]:
            raise ValueError(f"link {self.path!r}: name a file relative to the page.")

    def __str__(self):
        return self.text

    def render(self) -> str:
        """Return HTML."""
        return f"<p>{self.cell()}</p>"

    def cell(self) -> str:
        """Return HTML of the link alone."""
        return f'<a href="{escape(quote(self.path))}">{escape(self.text)}</a>'


@dataclass(frozen=True)
class Table:
    """Rows of texts, links or commands under a header; columns of numbers are aligned to the right.

    Two columns of which the second holds texts are names and facts: the names take no more room than they need.

    stacked: on a phone every row becomes a block of lines, each cell beside the name of its column.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Link | Command]]
    caption: str = ""
    stacked: bool = False

    def render(self) -> str:
        """Return HTML; the caption stands outside what may be moved sideways."""
        caption = f'<p class="caption">{prose(self.caption)}</p>' if self.caption else ""
        columns = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(self.header)
        marks = [NUMBERS if _numeric(column) else WIDE if _wide(column) else "" for column in columns]
        head = f"<thead><tr>{_cells('th', self.header, marks)}</tr></thead>" if any(self.header) else ""
        names = self.header if self.stacked else ()
        body = "".join(f"<tr>{_cells('td', row, marks, names)}</tr>" for row in self.rows)
        facts = len(self.header) == 2 and marks[1] != NUMBERS
        kind = ' class="stacked"' if self.stacked else ' class="facts"' if facts else ""
        return f'{caption}<div class="scroll"><table{kind}>{head}<tbody>{body}</tbody></table></div>'


@dataclass(frozen=True)
class PngBlock:
    """A PNG image with a caption; name: of its file in figures/, without the suffix, where it is kept."""

    png: bytes
    caption: str = ""
    name: str = ""

    def __post_init__(self):
        if not self.png.startswith(PNG):
            raise ValueError(f"picture {self.caption!r} is not a PNG image. Save figures as PNG.")

    def render(self) -> str:
        """Return HTML with the image inside."""
        data = base64.b64encode(self.png).decode()
        # the size is told so that nothing moves while the page is drawn
        width, height = (int.from_bytes(self.png[at : at + 4]) for at in (16, 20))
        size = f' width="{width}" height="{height}"' if width and height else ""
        image = f'<img alt="{escape(self.caption)}"{size} src="data:image/png;base64,{data}">'
        kind = "scroll wide" if width > WIDE_PICTURE * height else "scroll"
        return f'<figure><div class="{kind}">{image}</div><figcaption>{prose(self.caption)}</figcaption></figure>'


@dataclass(frozen=True)
class Cards:
    """Numbers to be seen first: (label, value, small print)."""

    cards: Sequence[tuple[str, str, str]]

    def render(self) -> str:
        """Return HTML."""
        inner = "".join(
            f'<div class="card"><div class="label">{escape(label)}</div>'
            f'<div class="value{" long" if len(value) > LONGEST_VALUE else ""}">{escape(value)}</div>'
            f'<div class="hint">{escape(hint)}</div></div>'
            for label, value, hint in self.cards
        )
        return f'<div class="cards">{inner}</div>'


class Drawing(Protocol):
    """A block that stands beside pictures, such as a curve."""

    def render(self) -> str:
        """Return HTML, a figure."""
        ...


Block = Text | Notice | Link | Table | PngBlock | Cards | Drawing


@dataclass(frozen=True)
class Section:
    """A heading and its blocks; pictures stand side by side where the page is wide."""

    title: str
    blocks: Sequence[Block]

    def render(self) -> str:
        """Return HTML."""
        heading = f"<h2>{escape(self.title)}</h2>" if self.title else ""
        parts, row = [], []
        for block in self.blocks:
            drawn = block.render()
            if drawn.startswith("<figure"):
                row.append(drawn)
                continue
            parts += [_gallery(row), drawn]
            row = []
        return f"<section>{heading}{''.join(parts)}{_gallery(row)}</section>"


def escape(text: Any) -> str:
    """Return text that cannot end its element or attribute."""
    return html.escape(str(text), quote=True)


def prose(text: Any) -> str:
    """Return escaped text in which what stands between backticks is code, as in messages."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text))


def _numeric(column: Sequence[Any]) -> bool:
    """Whether a column is of numbers, with units or without; dates and checksums are none."""
    shown = [str(cell) for cell in column if str(cell)]
    number = re.compile(r"(?!\d{4}-\d\d-\d\d)[+\-−]?(\d[\d.,]*(e[+-]?\d+)?(?![\w-])|nan|inf)|–$")
    return bool(shown) and all(number.match(cell) for cell in shown)


def _wide(column: Sequence[Any]) -> bool:
    return any(len(word) > LONGEST_WORD for cell in column for word in str(cell).split())


def _cells(tag: str, row: Sequence[Any], marks: Sequence[str], names: Sequence[str] = ()) -> str:
    labels = [f' data-name="{escape(name)}"' for name in names] or [""] * len(row)
    filled = zip(marks, labels, row, strict=True)
    return "".join(f"<{tag}{mark}{label}>{_cell(cell)}</{tag}>" for mark, label, cell in filled)


def _cell(cell: Any) -> str:
    if isinstance(cell, Link):
        return cell.cell()
    return cell.render() if isinstance(cell, Command) else escape(cell)


def _gallery(pictures: list[str]) -> str:
    return f'<div class="gallery">{"".join(pictures)}</div>' if pictures else ""
