"""Links, anchors and pictures of the pages: what they name is there, every page can be found, pictures are small."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from docs.figures import recipes
from docs.figures.__main__ import MOST_BYTES, saved_by_pages
from shardfit.cli import commands

ROOT = Path(__file__).resolve().parents[1]
DOCS, FIGURES = ROOT / "docs", ROOT / "docs" / "figures"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\"")
SCIENCES = ("vlbi", "seismic", "population", "xpcs")


def prose(page):
    """The text of a page without code."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: "x" * len(code[0]), text)


def links(page):
    return [first or second for first, second in LINK.findall(re.sub(r"<!--.*?-->", "", prose(page)))]


@cache
def anchors(page):
    """What headings are called in an address, by the rule of Python-Markdown, which is GitHub's for these."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = []
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        plain = bare.encode("ascii", "ignore").decode()
        found.append(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        assert DOCS not in page.parents or DOCS in target.parents, f"{link}: leads out of the site"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_a_dead_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `word`\n\n[a](other.md) ![b](b.png) `[code](not/a/link.md)`\n\n```text\n[c](d.md)\n```\n")
    assert links(page) == ["other.md", "b.png"] and anchors(page) == ["one-word"]
    with pytest.raises(AssertionError, match=r"other\.md: there is no such file"):
        test_links_lead_somewhere(page)


def test_every_page_is_in_the_navigation():
    nav = re.search(r"^nav:\n(.*?)^\w", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE | re.DOTALL)
    listed = re.findall(r"([\w/.-]+\.md)$", nav[1], re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", [*SCIENCES, "surveys", *(f"tutorials/{name}" for name in SCIENCES)])
def test_a_page_of_a_science_begins_with_a_picture(name):
    before_the_first_section = prose(DOCS / f"{name}.md").split("\n## ")[0]
    assert "](figures/" in before_the_first_section or "](../figures/" in before_the_first_section


def test_pictures_are_made_shown_and_small():
    there = {path.stem for path in FIGURES.glob("*.png")}
    shown = {Path(link).stem for page in PAGES for link in links(page) if link.endswith(".png")}
    made = {**saved_by_pages(), **recipes.QUICK, **recipes.LONG}
    assert there == shown == set(made)
    assert not [path.name for path in FIGURES.glob("*.png") if path.stat().st_size > MOST_BYTES]


@pytest.mark.parametrize("name", [*recipes.QUICK, *recipes.LONG])
def test_recipes_are_understood(name):
    for words in map(shlex.split, {**recipes.QUICK, **recipes.LONG}[name].commands):
        if words[0] == "shardfit":
            parser = commands.Parser(prog="shardfit")
            commands.add_commands(parser, commands.all_commands(), words[1:])
            assert callable(commands.parse(parser, words[1:]).run)
