import json

import numpy as np
import pytest

from shardfit.report.gallery.columns import as_numbers, encode
from shardfit.report.gallery.query import Points, _rate
from shardfit.report.gallery.selection import Selection
from tests.report.fake_survey import GRID, write_survey
from tests.report.hostile_survey import DROP, FORMULA, IMAGE, write_hostile

COUNT = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_survey(tmp_path_factory.mktemp("survey"), COUNT, side=8, total=200)


@pytest.fixture(scope="module")
def points(folder):
    survey = Points.open(folder)
    yield survey
    survey.close()


@pytest.fixture(scope="module")
def table(points):
    """All points as columns, read by the ledger itself."""
    ledger = points.ledger
    return {key: ledger.column(key) for key in ledger.heading.columns()}


def decoded(column):
    """What the page makes of a packed column."""
    import base64

    found = np.frombuffer(base64.b64decode(column["data"]), f"<{column['type']}")
    if "levels" not in column:
        return found
    return np.array([np.nan if level is None else level for level in column["levels"]])[found]


def sorted_by(selection):
    return "value" if selection.sort == "rank" else selection.sort  # no axis of this survey is a known weight


def chosen(selection, table):
    """The same selection by NumPy: independent of SQL."""
    inside = ~table["failed"].astype(bool)
    for key, (low, high) in selection.ranges.items():
        inside &= (table[key] >= (-np.inf if low is None else low)) & (table[key] <= (np.inf if high is None else high))
    for key, names in selection.choices.items():
        inside &= np.isin(table[key], names)
    values, ids = table[sorted_by(selection)][inside], table["id"][inside].astype(int)
    order = np.lexsort((ids, -values if selection.descending else values))
    return ids[order][: selection.limit].tolist()


SELECTIONS = [
    Selection(),
    Selection(sort="part.data.amp", descending=True),
    Selection(ranges={"axis.tv": (1.0, 100.0)}),
    Selection(ranges={"axis.systematic": (None, 0.01), "part.data.cphase": (1.0, 3.0)}, sort="axis.tv"),
    Selection(choices={"axis.start": ("disk",)}, limit=7),
    Selection(ranges={"value": (1e9, None)}),
    Selection(limit=0),
]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_selection_is_numpys(points, table, selection):
    found = points.select(selection)
    assert found == chosen(selection, table)
    assert points.count(selection) == len(chosen(Selection(selection.ranges, selection.choices), table))


def test_selection_from_json(points):
    asked = {"ranges": {"axis.tv": [None, 10]}, "choices": {"axis.start": ["disk"]}, "sort": "value", "limit": 5}
    expected = Selection({"axis.tv": (None, 10.0)}, {"axis.start": ("disk",)}, "value", limit=5)
    assert Selection.from_json(json.dumps(asked), points.heading) == expected
    assert Selection.from_json("", points.heading) == Selection()


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ('{"sort": "value; DROP TABLE points"}', "no column"),
        ('{"sort": "value\\" DESC --"}', "no column"),
        ('{"ranges": {"1=1 OR value": [0, 1]}}', "no column"),
        ('{"choices": {"nope": []}}', "no column"),
        ('{"ranges": {"value": [0]}}', "values to unpack"),
        ('{"ranges": {"value": ["x", 1]}}', "could not convert"),
        ('{"ranges": {"value": [Infinity, null]}}', "finite"),
        ('{"limit": "many"}', "invalid literal"),
        ("[1]", "no selection"),
        ("{", "no selection"),
    ],
)
def test_what_is_no_selection_is_refused(points, asked, complaint):
    with pytest.raises(ValueError, match=complaint):
        Selection.from_json(asked, points.heading)


def test_pages_cover_the_ledger_once(points, table):
    after, seen, values = (-1.0, -1), [], []
    while (page := points.page(after, 40))["count"]:
        assert page["count"] <= 40
        seen += decoded(page["columns"]["id"]).tolist()
        values += decoded(page["columns"]["value"]).tolist()
        after = tuple(page["last"])
    assert sorted(seen) == list(range(COUNT))
    np.testing.assert_array_equal(np.array(values)[np.argsort(seen)], table["value"])


def test_texts_and_levels_are_packed(points, table):
    columns = points.page()["columns"]
    assert columns["axis.start"]["levels"] == sorted(GRID["start"])
    assert columns["axis.tv"]["levels"] == list(GRID["tv"])
    assert {c["type"] for c in columns.values()} <= {"u1", "f8"}
    order = decoded(columns["id"]).argsort()
    np.testing.assert_array_equal(decoded(columns["axis.start"])[order], table["axis.start"])


def test_many_different_values_are_packed():
    texts = [f"t{i:05}" for i in range(300)]
    assert encode(texts, "text")["type"] == "u2"
    assert encode(np.arange(300.0), "number")["type"] == "f8"
    assert encode(np.arange(300.0), "number", single=True)["type"] == "f4"
    np.testing.assert_array_equal(as_numbers([1, None, "x", b"y", float("inf")]), [1, np.nan, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("limit", [1, 40])
def test_stack_is_numpys(points, limit):
    selection = Selection(sort="part.data.amp", limit=limit)
    pictures = np.stack([points.picture(i) for i in points.select(selection)]).astype(float)
    stack = points.stack(selection)
    assert stack.count == limit
    np.testing.assert_allclose(stack.mean, pictures.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(stack.sd, pictures.std(axis=0), rtol=1e-10, atol=1e-18)


def test_stack_of_nothing(points):
    with pytest.raises(ValueError, match="no points"):
        points.stack(Selection(limit=0))


def test_progress(points, table):
    progress = points.progress()
    assert (progress["done"], progress["failed"]) == (COUNT, table["failed"].sum())
    assert progress["state"] == "running"
    assert progress["rate"] == pytest.approx(20, rel=1e-3)
    assert progress["eta"] == pytest.approx(50 / 20, rel=1e-3)


def test_rate_leaves_a_pause_out():
    assert _rate([100.0 - 0.5 * i for i in range(20)] + [-5000.0 - i for i in range(50)]) == pytest.approx(2.0)
    batches = [100.0 * batch - 1e-5 * i for batch in (9, 8, 7) for i in range(16)]
    assert _rate(batches) == pytest.approx(47 / 200, rel=1e-3)  # not that of the points of a batch
    assert _rate([3000.0, 2000.0, 1000.0]) == pytest.approx(1e-3)  # slow, but steady
    assert _rate([5.0]) is None
    assert _rate([5.0, 5.0]) is None


def test_progress_of_a_survey_that_is_complete_or_stands_still(tmp_path):
    complete = Points.open(write_survey(tmp_path / "complete", 5, side=4))
    assert complete.progress()["state"] == "complete"
    doubtful = Points.open(write_survey(tmp_path / "doubtful", 100, side=4))
    assert doubtful.progress()["badge"] == ("doubtful", "warn")  # some failed, some stopped at their step limit
    still = Points.open(write_survey(tmp_path / "still", 5, side=4, total=9))
    assert still.progress()["state"] == "running"
    still.close()
    from shardfit.surveys.ledger import Ledger

    with Ledger.open(tmp_path / "still") as ledger:
        ledger.connection.execute("UPDATE points SET finished = finished - 4000")
    still = Points.open(tmp_path / "still")
    assert (still.progress()["state"], still.progress()["eta"]) == ("paused", None)
    empty = Points.open(write_survey(tmp_path / "empty", 0, side=4, total=9))
    counted = {"done": 0, "failed": 0, "converged": 0, "state": "waiting"}
    assert empty.progress() == counted | dict.fromkeys(("badge", "rate", "eta", "age"))
    assert empty.page()["count"] == 0
    for survey in (complete, doubtful, still, empty):
        survey.close()


def test_ledger_is_read_only(points):
    import sqlite3

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        points.ledger.connection.execute("DELETE FROM points")


def test_harmful_names_stay_names(tmp_path):
    survey = Points.open(write_hostile(tmp_path))
    asked = {"ranges": {f"axis.{DROP}": [3, 8], f"axis.{IMAGE}": [1, 1]}, "sort": f"axis.{DROP}", "descending": True}
    assert survey.select(Selection.from_json(json.dumps(asked), survey.heading)) == [7, 4]
    assert survey.progress()["done"] == 12
    header, *rows = survey.rows(Selection())
    assert f"axis.{IMAGE}" in header
    texts = {row[header.index("axis.text")] for row in rows}
    assert "'" + FORMULA in texts  # a spreadsheet shows it, and does not follow it
    assert FORMULA not in texts
    survey.close()
