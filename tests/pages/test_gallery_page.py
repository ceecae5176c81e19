"""The gallery as a person meets it, in a real browser; what it shows is compared with the ledger read by itself."""

import json
import threading
from dataclasses import replace
from urllib.parse import quote, unquote

import numpy as np
import pytest

from shardfit.report.gallery.offline import write_offline
from shardfit.surveys.ledger import Ledger
from tests.pages.conftest import serving
from tests.report.fake_survey import records, write_survey
from tests.report.hostile_survey import IMAGE, VECTOR, write_hostile

COUNT = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_survey(tmp_path_factory.mktemp("survey"), COUNT, side=16)


@pytest.fixture(scope="module")
def table(folder):
    """Columns of the good points, in the order of their numbers."""
    with Ledger.open(folder, read_only=True) as ledger:
        good = ledger.column("failed") == 0
        return {key: ledger.column(key)[good] for key in ledger.heading.columns()} | {"n_failed": int((~good).sum())}


@pytest.fixture(scope="module")
def address(folder):
    with serving(folder) as served:
        yield served


@pytest.fixture
def gallery(page, address):
    page.open(address)
    return page


def drawn(page) -> tuple[int, int]:
    """How many points the page has, and how many are selected."""
    page.frame()
    return tuple(map(int, page.run("document.body.dataset.drawn").split()))


def ranges(page) -> dict:
    """The ranges the page has put into its address."""
    page.wait("location.hash.includes('ranges')")
    page.run("new Promise((done) => setTimeout(done, 350))")  # the address follows a little later
    return json.loads(unquote(page.run("location.hash"))[1:])["ranges"]


def inside(table, bounds) -> np.ndarray:
    kept = np.ones(len(table["id"]), bool)
    for key, (low, high) in bounds.items():
        kept &= table[key] >= (-np.inf if low is None else low)
        kept &= table[key] <= (np.inf if high is None else high)
    return kept


def first_tile(page) -> str:
    return page.run("document.querySelector('.tile').title")


def test_load(gallery, table):
    assert drawn(gallery) == (COUNT, len(table["id"]))
    assert "M87" in gallery.run("document.title")
    assert gallery.run("document.querySelector('#badge').textContent") == "doubtful"  # some points failed
    assert f"{COUNT} / {COUNT}" in gallery.run("document.querySelector('#figures').textContent")
    best = int(table["id"][table["value"].argmin()])
    assert first_tile(gallery).startswith(f"point {best}:")
    gallery.wait("[...document.querySelectorAll('.tile img')].every((i) => i.complete && i.naturalWidth === 16)")
    gallery.wait("document.querySelectorAll('#stack img').length === 2")
    assert "token" not in gallery.run("location.href")


def test_only_what_is_in_sight_exists(gallery, table):
    assert gallery.run("document.querySelectorAll('.tile').length") < len(table["id"]) / 2
    gallery.run("document.querySelector('#wall').scrollTop = 1e6")
    gallery.frame()
    worst = int(table["id"][table["value"].argmax()])
    gallery.wait(f"[...document.querySelectorAll('.tile')].some((t) => t.title.startsWith('point {worst}:'))")


def test_sort(gallery, table):
    gallery.click("[data-tab=table]")
    gallery.frame()
    amp = table["part.data.amp"]
    for expected in (amp.argmin(), amp.argmax()):
        gallery.run(
            "[...document.querySelectorAll('#table .heading button')].find((b) => b.title.endsWith('data.amp')).click()"
        )
        gallery.frame()
        shown = gallery.run("document.querySelector('#table button.row span').textContent")
        assert int(shown) == table["id"][expected]
    order = "document.querySelector('#table [aria-sort=descending]').textContent"
    assert gallery.run(order).startswith("data.amp")


def test_filter(gallery, table):
    """A slider's handle moved one step; page, server and NumPy agree on what is left."""
    gallery.run(
        """(() => { const row = [...document.querySelectorAll('.filter')].find((f) => f.textContent.startsWith('tv0'));
        const low = row.querySelector('input'); low.value = 2; low.dispatchEvent(new Event('input')); })()"""
    )
    bounds = ranges(gallery)
    assert bounds == {"axis.tv": [10, 1000]}
    expected = int(inside(table, bounds).sum())
    assert 0 < expected < len(table["id"])
    assert drawn(gallery) == (COUNT, expected)
    link = "document.querySelector('#downloads a').href"
    lines = gallery.run(f"fetch({link}).then((a) => a.text())").strip().splitlines()
    assert len(lines) == 1 + expected
    gallery.click("#reset")
    assert drawn(gallery) == (COUNT, len(table["id"]))


def test_select_by_rectangle_links_all_views(gallery, table):
    x, y = gallery.middle("#scatter")
    gallery.drag((x - 100, y + 90), (x, y))
    bounds = ranges(gallery)
    assert set(bounds) == {"part.data.cphase", "part.data.logcamp"}
    kept = inside(table, bounds)
    assert drawn(gallery) == (COUNT, int(kept.sum()))
    assert 0 < kept.sum() < len(kept)
    best = int(table["id"][kept][table["value"][kept].argmin()])
    assert first_tile(gallery).startswith(f"point {best}:")
    assert gallery.run("document.querySelectorAll('.filter.active').length") == 2
    assert gallery.run("document.querySelector('#selected').textContent") == f"{kept.sum():,}"


def test_select_on_an_upright_axis(gallery, table):
    box = gallery.run(
        "(({x, y, height}) => [x, y, height])(document.querySelector('#parallel').getBoundingClientRect())"
    )
    left, top, height = box
    gallery.drag((left + 34, top + height - 14), (left + 34, top + height * 0.75))
    bounds = ranges(gallery)
    assert list(bounds) == ["value"]
    assert drawn(gallery)[1] == int(inside(table, bounds).sum()) > 0
    gallery.drag((left + 34, top + height / 2))  # a click clears the axis
    assert drawn(gallery)[1] == len(table["id"])


def test_best_ones_only(gallery):
    gallery.run("(() => { const s = document.querySelectorAll('#tools select')[1]; s.value = '25'; s.onchange(); })()")
    assert drawn(gallery)[1] == 25
    assert "best of" in gallery.run("document.querySelector('#selected-of').textContent")


FIGURES = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    found = [{"name": n, "caption": f"{n} of <b>{asked['point']['tv']}", "png": png} for n in ("data", "residuals")]
    wrong = asked["point"]["tv"] > 1
    print(json.dumps({"error": "no such file"} if wrong else {"figures": found}), flush=True)
"""


def test_figures_of_a_point_and_the_link_to_its_page(page, tmp_path, monkeypatch):
    import sys

    from shardfit.report.gallery import drawing

    folder = write_survey(tmp_path, 40, side=8)
    (folder / "survey.toml").write_text('science = "vlbi"\nout = "x"\n[vlbi]\ndata = "ring"\n[axes]\n')
    made = drawing.Drawer.__init__
    fake = [sys.executable, "-c", FIGURES]
    monkeypatch.setattr(drawing.Drawer, "__init__", lambda self, where: made(self, where, fake))
    with Ledger.open(folder, read_only=True) as ledger:
        good = {row["axis.tv"]: row["id"] for row in ledger.rows("WHERE NOT failed ORDER BY id DESC")}
    with serving(folder) as address:
        for tv, wanted in ((1.0, "data of <b>1"), (10.0, "It cannot be drawn: no such file")):
            page.command("Page.navigate", url="about:blank")  # another hash alone would load nothing
            with page.visit(f"{address}#" + quote(json.dumps({"open": good[tv]}))):
                page.wait(f"document.querySelector('#closeup h2')?.textContent === 'Point {good[tv]}'")
                page.wait(f"document.querySelector('.drawn').innerText.includes({json.dumps(wanted)})")
                count = page.run("[...document.querySelectorAll('.drawn img')].filter((i) => i.naturalWidth).length")
                assert count == (2 if tv == 1 else 0)
                page.key("Escape")
                page.wait(f"!decodeURIComponent(location.hash).includes('\"open\":{good[tv]}')")


def test_close_up_and_keys(gallery, table):
    order = table["id"][np.lexsort((table["id"], table["value"]))].astype(int)
    title = "document.querySelector('#closeup h2').textContent"
    gallery.click(".tile")
    assert gallery.run(title) == f"Point {order[0]}"
    gallery.key("ArrowRight")
    gallery.key("ArrowRight")
    assert gallery.run(title) == f"Point {order[2]}"
    gallery.key("ArrowLeft")
    assert gallery.run(title) == f"Point {order[1]}"
    gallery.key("Escape")
    assert not gallery.run("document.querySelector('#closeup').open")


@pytest.mark.parametrize(("place", "kind"), [(1, "png"), (2, "npy")])
def test_picture_is_saved(gallery, table, tmp_path, place, kind):
    best = int(table["id"][table["value"].argmin()])
    gallery.click(".tile")
    path = gallery.saved(tmp_path, f"#closeup a:nth-of-type({place})")
    assert path.name == f"point-{best}.{kind}"
    if kind == "npy":
        assert np.load(path, allow_pickle=False).shape == (16, 16)


def test_compare(gallery):
    for place in (1, 2, 3):
        gallery.run(f"document.querySelector('.cell:nth-child({place}) .pin').click()")
        gallery.frame()
    gallery.click("#compare")
    assert gallery.run("document.querySelectorAll('#closeup .card').length") == 3
    gallery.wait("[...document.querySelectorAll('#closeup img')].every((i) => i.complete && i.naturalWidth)")
    gallery.run("document.querySelector('#closeup .card .step').click()")
    gallery.frame()
    assert gallery.run("document.querySelectorAll('#closeup .card').length") == 2


def test_failed_points_say_why(gallery, table):
    gallery.click("[data-tab=failures]")
    gallery.frame()
    assert gallery.run("document.querySelectorAll('#failures button.row').length") == table["n_failed"] > 0
    assert "the line search found no lower value" in gallery.run("document.querySelector('#failed').innerText")
    lines = gallery.run("fetch(document.querySelector('#reasons a').href).then((a) => a.text())").strip().splitlines()
    assert len(lines) == 1 + table["n_failed"]


def test_address_brings_the_selection_back(gallery, table):
    x, y = gallery.middle("#scatter")
    gallery.drag((x - 100, y + 90), (x, y))
    before, _ = drawn(gallery), ranges(gallery)
    gallery.command("Page.reload")
    gallery.run("new Promise((done) => setTimeout(done, 100))")
    gallery.wait("document.body && document.body.dataset.drawn && !document.body.classList.contains('starting')")
    assert drawn(gallery) == before


def test_nothing_selected_is_said(gallery):
    gallery.run("location.hash = encodeURIComponent(JSON.stringify({ranges: {value: [1e9, null]}}))")
    gallery.command("Page.reload")
    gallery.wait("document.body && document.body.classList.contains('empty')")
    assert "Widen one" in gallery.run("document.querySelector('#nothing').innerText")


def test_new_points_appear_by_themselves(page, tmp_path):
    folder = write_survey(tmp_path, 20, side=8, total=60)
    with serving(folder) as address, page.visit(address):
        assert page.run("document.querySelector('#badge').textContent") == "running"
        assert drawn(page)[0] == 20
        with Ledger.open(folder) as ledger:
            ledger.write(list(records(range(20, 45), 8)))
            page.wait("document.body.dataset.drawn.startsWith('45 ')")
            page.wait("document.querySelector('#figures').textContent.includes('45 / 60')")
            # a worker's points come late: they were finished before the last ones that the page has
            late = list(records(range(45, 60), 8))
            ledger.write(late)
            ledger.connection.execute("UPDATE points SET finished = finished - 1000 WHERE id >= 50")
        page.wait("document.querySelector('#badge').textContent === 'doubtful'")
        page.wait("document.body.dataset.drawn.startsWith('60 ')")


def test_failed_point_that_is_run_again(page, tmp_path):
    folder = write_survey(tmp_path, 30, side=8, total=60)
    (good,) = records([0], 8)
    bad = replace(good, id=59, status="FAILED", value=float("nan"), reason="too short a rope")
    with Ledger.open(folder) as ledger:
        ledger.write([bad])
    with Ledger.open(folder) as ledger, serving(folder) as address, page.visit(address):
        failed = "Number(document.querySelector('#failures-count').textContent)"
        before, (points, selected) = page.run(failed), drawn(page)
        assert before > 0
        ledger.write([replace(bad, status="CONVERGED_VALUE", value=0.001, reason="", attempt=2)])
        page.wait(f"document.body.dataset.drawn === '{points} {selected + 1}'")
        assert page.run(failed) == before - 1
        assert first_tile(page).startswith("point 59:")


def test_survey_that_has_just_begun(page, tmp_path):
    folder = write_survey(tmp_path, 0, side=8, total=10)
    with serving(folder) as address, page.visit(address):
        assert "No point is finished yet" in page.run("document.querySelector('#nothing').innerText")
        with Ledger.open(folder) as ledger:
            ledger.write(list(records(range(10), 8)))
        page.wait("document.body?.dataset.drawn?.startsWith('10 ')")  # it loads itself anew: an axis is of texts
        page.wait("document.querySelectorAll('.tile').length > 5")


@pytest.mark.parametrize("live", [True, False])
def test_harmful_names_stay_text(page, tmp_path, live):
    folder = write_hostile(tmp_path)
    write_offline(folder)
    with serving(folder) as address, page.visit(address if live else f"file://{folder}/report.html"):
        assert drawn(page) == (12, 11)
        assert page.run("document.querySelectorAll('img[src=x], svg, aside b b, h1 b').length") == 0
        assert page.run(f"document.querySelector('#filters').textContent.includes({json.dumps(IMAGE)})")
        for tab in ("table", "failures"):
            page.click(f"[data-tab={tab}]")
        assert VECTOR in page.run("document.querySelector('#failed').innerText")
        page.click("#failures button.row")
        assert VECTOR in page.run("document.querySelector('#closeup').innerText")


def test_report_is_the_same_gallery_without_a_server(page, folder, table, tmp_path):
    write_offline(folder, pictures=50)
    page.open(f"file://{folder}/report.html")
    assert drawn(page) == (COUNT, len(table["id"]))
    page.wait("[...document.querySelectorAll('.tile img')].every((i) => i.complete && i.naturalWidth === 16)")
    page.wait("document.querySelector('#stack-note').textContent.includes('best 50')")
    x, y = page.middle("#scatter")
    page.drag((x - 100, y + 90), (x, y))
    assert 0 < drawn(page)[1] < len(table["id"])
    lines = page.saved(tmp_path, "#downloads button").read_text().splitlines()
    assert len(lines) == 1 + drawn(page)[1]
    assert lines[0].startswith('"id","status"')


def test_what_is_not_loaded_yet_is_not_passed_over(page, tmp_path, monkeypatch):
    """Two thousand points come first; a number of selected ones is not one of the survey until all are here."""
    from shardfit.report.gallery.query import Points

    rest, all_pages = threading.Event(), Points.page
    monkeypatch.setattr(Points, "page", lambda self, after, *n: _waited(after, rest) and all_pages(self, after, *n))
    count = "document.querySelector('#selected-of').innerText"
    with serving(write_survey(tmp_path, 2100, side=4)) as address, page.visit(address):
        assert page.run(count) == "selected points so far: 2,000 of 2,100 points are loaded"
        rest.set()
        page.wait("document.body.dataset.drawn.startsWith('2100 ')")
        page.frame()
        assert page.run(count) == "selected points"


def _waited(after, rest):
    return after[0] < 0 or rest.wait(20)
