"""A report as one HTML file that needs nothing else: images and style are inside, no script, no outside address."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from shardfit.core.success import TONES
from shardfit.io.files import write_atomic
from shardfit.report.blocks import Link, Section, escape

# the page may show images it carries and use its own style; everything else is refused by the browser
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Badge(NamedTuple):
    """A short word in the header and its tone: 'good', 'warn', 'bad' or 'plain'."""

    text: str
    tone: str = "plain"


def style() -> str:
    """Return the style sheet of every page."""
    return files("shardfit.report").joinpath("page.css").read_text(encoding="utf-8")


def icon() -> str:
    """Return the picture in the browser's tab as an address that needs no server."""
    drawing = files("shardfit.report").joinpath("icon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"


def document(title: str, head: str, main: str) -> str:
    """Return a whole page. head: its policy, style and scripts; main: what it shows."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · shardfit</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="{icon()}">\n{head}</head>\n<body><main>\n{main}</main></body></html>\n'
    )


def render_main(
    title: str,
    sections: Sequence[Section],
    *,
    badge: Badge | None = None,
    subtitle: str = "",
    footer: str = "",
    up: Link | None = None,
) -> str:
    """Return what a page shows, without its head. up: the page that led to it."""
    if badge is not None and badge.tone not in TONES:
        raise ValueError(f"badge tone {badge.tone!r} is unknown. Use one of {', '.join(TONES)}.")
    mark = f'<span class="badge {badge.tone}">{escape(badge.text)}</span>' if badge else ""
    under = f'<p class="subtitle">{escape(subtitle)}</p>' if subtitle else ""
    body = "\n".join(section.render() for section in sections)
    back = f'<div class="up">{up.render()}</div>' if up else ""
    return (
        f'<header>{back}<div class="headline"><h1>{escape(title)}</h1>{mark}</div>{under}</header>\n'
        f"{body}\n<footer>{escape(footer)}</footer>\n"
    )


def render_page(
    title: str, sections: Sequence[Section], *, badge: Badge | None = None, subtitle: str = "", footer: str = ""
) -> str:
    """Return the page as text, complete in itself."""
    main = render_main(title, sections, badge=badge, subtitle=subtitle, footer=footer)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return document(title, f"{policy}\n<style>\n{style()}</style>", main)


def write_report(
    path: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    badge: Badge | None = None,
    subtitle: str = "",
    footer: str = "",
) -> Path:
    """Write a page of sections to one self-contained file and return its path.

    Example: `write_report("report.html", "Ringdown", report_of(result))`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = render_page(title, sections, badge=badge, subtitle=subtitle, footer=footer)
    write_atomic(path, lambda file: file.write(text.encode()))
    return path
