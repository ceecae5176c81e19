import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from shardfit.core.status import Status
from shardfit.report import figures, style
from shardfit.report.blocks import Cards, Command, PngBlock, Section, Table, Text
from shardfit.report.html import Badge, icon, render_page, write_report
from shardfit.report.sections import badge_of, report_of

EVIL = "<script>alert('x')</script>\"onload=\"&"
VOID = {"meta", "link", "img", "br"}


class Balance(HTMLParser):
    """Collects tags and attributes, and fails on a tag that is closed out of order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes, self.text = [], set(), [], []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page(result, **options):
    return render_page(result.problem, report_of(result, **options), badge=badge_of(result))


def test_page_tells_the_result(result):
    text = "".join(Balance(page(result, environment={"python": "3.11", "devices": ["cpu:0", "cpu:1"]})).text)
    for expected in ("line", "converged", "12.5", "2.000", "0.013", "Hz", "w[1]", "2.0e-16", "3.0e-09", "500 ms"):
        assert expected in text
    assert "cpu:0, cpu:1" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": EVIL},
        {"note": EVIL},
        {"solver": EVIL},
        {"precision": EVIL},
        {"units": {"a": EVIL}},
        {"parts": {EVIL: 1.0}},
        {"derived": {EVIL: np.array(1.0)}},
        {"timings": {EVIL: 1.0}},
        {"params": {EVIL: np.array(1.0)}, "stderr": None},
        {"layout": {"platform": EVIL}},
        {"certificate": {"probe_rows": {EVIL: 3}, "finite_difference": {EVIL: 1e-9}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_text_is_escaped(changes, result):
    found = Balance(page(type(result)(**{**vars(result), **changes})))
    assert "script" not in found.seen
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert EVIL in "".join(found.text)


@pytest.mark.parametrize("block", [Text(EVIL), Table([EVIL], [[EVIL]], EVIL), Cards([(EVIL, EVIL, EVIL)])], ids=str)
def test_blocks_escape(block):
    found = Balance(Section(EVIL, [block, PngBlock(b"\x89PNG\r\n\x1a\n", EVIL)]).render())
    assert "script" not in found.seen
    assert dict(found.attributes)["alt"] == EVIL


def test_page_needs_nothing_from_outside(result, tmp_path):
    pytest.importorskip("matplotlib")
    path = write_report(
        tmp_path / "new" / "r.html",
        "t",
        report_of(result, [PngBlock(style.png_bytes(figures.convergence(result)), "c")]),
    )
    text = path.read_text()
    found = Balance(text)
    sources = [value for name, value in found.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "data:image/svg+xml;base64,")) for source in sources)
    assert not re.search(r"https?://|url\(|@import|//cdn", text)
    assert found.seen.isdisjoint({"script", "iframe", "object", "embed"})
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("status", list(Status))
def test_badge_and_remedy_of_every_status(status, result):
    changed = type(result)(**{**vars(result), "status": status})
    badge = badge_of(changed)
    assert badge.text == changed.verdict().word
    assert (badge.tone == "good") == status.converged
    assert status.remedy in "".join(Balance(page(changed)).text)


def test_bad_pictures_and_tones_are_refused():
    with pytest.raises(ValueError, match="not a PNG"):
        PngBlock(b"<svg onload=alert(1)>", "x")
    with pytest.raises(ValueError, match="tone 'loud'"):
        render_page("t", [], badge=Badge("x", "loud"))


def test_columns_of_numbers_are_marked():
    html = Table(["name", "n", "unit"], [["a", "-1.5e3", "Hz"], ["b", "–", "s"]]).render()
    assert html.count('class="n"') == 3


def test_table_rows_must_fit_the_header():
    with pytest.raises(ValueError):
        Table(["a", "b"], [["1", "2"], ["3"]]).render()


def test_tables_fit_a_phone():
    html = Table(["name", "file"], [["a", "SR1_M87_2017_101_lo_hops_netcal.uvfits"]], "a caption").render()
    assert html.index("a caption") < html.index('class="scroll"')  # it is not moved sideways with the table
    assert html.count('class="w"') == 2  # long names may be broken
    stacked = Table(["run", "state"], [["a", ""]], stacked=True).render()
    assert '<td data-name="state"></td>' in stacked and "thead" in stacked
    assert "thead" not in Table(["", ""], [["a", "b"]]).render()


@pytest.mark.parametrize(
    ("cell", "numeric"),
    [("1.5", True), ("-2e-07", True), ("3 min 20 s", True), ("4,096", True), ("0.02 → 0.01", True), ("–", True)]
    + [("2026-11-18 13:40:01", False), ("4899bb71de5c", False), ("53e7b383ec8b", False), ("12-a", False)],
)
def test_what_is_a_number(cell, numeric):
    assert ('class="n"' in Table(["x"], [[cell]]).render()) == numeric


def test_what_to_type_is_code():
    """Lines break between words and not after the hyphens of an option; messages tell commands between backticks."""
    html = Table(["", ""], [["command", Command("shardfit fit a.toml --out <b>")]]).render()
    assert "<span>--out</span> <span>&lt;b&gt;</span></code>" in html and 'class="facts"' in html
    assert "<code>shardfit show &lt;b&gt;</code> next" in Text("Run `shardfit show <b>` next").render()
    assert "<code>" not in Text("one ` only").render()


def test_a_wide_picture_can_be_read_on_a_phone():
    pytest.importorskip("matplotlib")
    wide, square = (PngBlock(style.png_bytes(style.new_figure(w, 1.0)), "a").render() for w in (2.0, 1.0))
    assert 'class="scroll wide"' in wide and f'width="{2 * style.DPI}" height="{style.DPI}"' in wide
    assert "wide" not in square


def test_every_page_has_the_same_icon():
    from shardfit.report.gallery.assets import PAGE, asset

    drawing = files("shardfit.report").joinpath("icon.svg").read_bytes()
    assert icon() in asset(PAGE) and icon() in render_page("t", [])
    assert (Path(__file__).parents[2] / "docs" / "icon.svg").read_bytes() == drawing


def test_numbers_of_many_digits_are_rounded(result):
    changes = {"derived": {"q": np.array(1 / 3)}, "solver": f"lm(ftol={1e-17 / 3!r}, maxiter=200)"}
    text = "".join(Balance(page(type(result)(**{**vars(result), **changes}))).text)
    assert "0.333333" in text and "0.3333333" not in text and "ftol=3.333e-18, maxiter=200" in text


def test_packages_are_told_in_one_line(result):
    text = page(result, environment={"python": "3.11", "packages": {"jax": "0.10", "numpy": "2.4"}})
    assert "<td>jax 0.10, numpy 2.4</td>" in text and "<td>3.11</td>" in text


def test_a_number_on_a_card_stays_in_one_line():
    html = Cards([("value", "0.00019141", ""), ("what", "a text that is rather long", "")]).render()
    assert html.count('class="value"') == 1 and html.count('class="value long"') == 1
