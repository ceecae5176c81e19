"""What the site does to a page before it is rendered."""

import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Take out marks for tests, of which `case[key][inner]` would be read as a link; link names to their reference."""
    if page.file.src_uri.startswith("decisions/"):  # found by a search, but after the pages that say how to do it
        page.meta["search"] = {"boost": 0.2}
    text = re.sub(r"<!--.*?-->", "", markdown)
    if page.file.src_uri == "api.md":
        text = re.sub(r"^- `(\w+)`:", r"- [`\1`][shardfit.\1]:", text, flags=re.MULTILINE)
    return text
