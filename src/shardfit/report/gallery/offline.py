"""The gallery as one file: the same page and scripts, with the points and the best pictures inside.

The page may run the one script and use the one style it was written with, told by their digests, and ask nobody.
"""

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

from shardfit.io.files import write_atomic
from shardfit.report.gallery.assets import PAGE, STYLE, asset, joined_scripts
from shardfit.report.gallery.query import Points
from shardfit.report.gallery.selection import Selection
from shardfit.report.gallery.thumbnails import png
from shardfit.surveys.heading import summed

MOST_POINTS = 20_000  # about three megabytes
MOST_FAILED = 2_000
MOST_PICTURES = 200
PIXELS = 256  # along the longer side of a picture


def write_offline(folder: str | Path, *, pictures: int = MOST_PICTURES, points: int = MOST_POINTS) -> Path:
    """Write report.html of a survey's run directory and return its path; pictures, points: how many of the best."""
    folder = Path(folder)
    survey = Points.open(folder)
    try:
        text = render_offline(survey, pictures, points)
    finally:
        survey.close()
    path = folder / "report.html"
    write_atomic(path, lambda file: file.write(text.encode()))
    return path


def render_offline(survey: Points, pictures: int = MOST_PICTURES, points: int = MOST_POINTS) -> str:
    """Return the page as text."""
    # a closing tag, or a comment, inside the data would end the element that carries it
    data = json.dumps(_content(survey, pictures, points), allow_nan=False).replace("<", "\\u003c")
    style, script = asset(STYLE), joined_scripts()
    policy = (
        f"default-src 'none'; img-src data:; script-src {_digest(script)}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    pieces = {
        '<link rel="stylesheet" href="page/gallery.css">': f"<style>{style}</style>",
        '<script src="page/gallery.js"></script>': (
            f'<script type="application/json" id="embedded">{data}</script>\n<script>{script}</script>'
        ),
        '<meta charset="utf-8">': (
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        ),
        "<title>Survey · shardfit</title>": f"<title>{html.escape(survey.heading.name)} · shardfit</title>",
    }
    page = asset(PAGE)
    for placeholder, content in pieces.items():
        before, there, after = page.partition(placeholder)
        if not there:
            raise RuntimeError(f"{PAGE} has no {placeholder}: it and offline.py must agree.")
        page = before + content + after
    return page


def _content(survey: Points, pictures: int, points: int) -> dict[str, Any]:
    progress = survey.progress()
    good, bad = progress["done"] - progress["failed"], progress["failed"]
    # of all good points the best, of all failed ones the first
    total = summed(survey.heading.rank)
    sql = f"""WHERE id IN (SELECT id FROM points WHERE NOT failed ORDER BY {total} IS NULL, {total}, id LIMIT ?)
             OR id IN (SELECT id FROM points WHERE failed ORDER BY id LIMIT ?) ORDER BY id"""
    best = Selection(limit=pictures, rank=survey.heading.rank)
    shown = survey.select(best) if survey.heading.shape is not None else []
    return {
        "facts": survey.facts(),
        "progress": progress,
        "page": survey.columns(sql, [points, MOST_FAILED], single=True),
        "pictures": {i: base64.b64encode(png(survey.picture(i), most=PIXELS)).decode() for i in shown},
        "stack": {**survey.stack(best).shown(), "by": _ranked_by(survey)} if shown else None,
        "marks": {**survey.marked(), "writable": False},
        "left_out": _left_out(good, bad, len(shown), points),
    }


def _ranked_by(survey: Points) -> str:
    return "misfit of the data" if survey.ranked else "value"


def _left_out(good: int, bad: int, pictures: int, points: int) -> str:
    def said(inside: int, all_of: int, what: str) -> str:
        return f"all {all_of:,} {what}" if inside >= all_of else f"the best {inside:,} of {all_of:,} {what}"

    parts = [said(min(points, good), good, "points")]
    if bad:
        parts.append(said(min(MOST_FAILED, bad), bad, "failed ones").replace("best", "first"))
    parts.append(said(pictures, good, "pictures") if pictures else "no pictures")
    return f"In this file: {', '.join(parts)}. The rest is in the ledger: `shardfit serve` shows it."


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
