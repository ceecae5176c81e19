"""What a run left for its page may be damaged; the page and `show` say so, or do without it."""

import json

import pytest

from shardfit.io.live import Live, read_live
from shardfit.report.html import render_main
from shardfit.report.live.pages import index_sections, run_sections
from shardfit.report.live.state import state_of
from shardfit.report.study import Study


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"{", b"[]", b"[" * 20_000, b'{"sections": {"a": 1}}'],
    ids=["bytes", "cut", "list", "nested", "sections"],
)
def test_damaged_extra_is_named(content, tmp_path):
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(ValueError, match="report.json") as caught:
        Study.read(tmp_path)
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("sections", [["a"], [{"blocks": 3}], [{"blocks": [{"rows": [1], "header": []}]}], [None]])
def test_sections_of_another_build_are_named(sections, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps({"sections": sections}))
    with pytest.raises(ValueError, match="report.json.*not built as expected"):
        Study.read(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [{"done": "x"}, {"total": [1]}, {"left": 1e400}, {"updated": float("nan")}, {"began": -1e30}, {"done": 10**400}],
)
def test_a_word_with_wrong_numbers_is_none(wrong, tmp_path):
    Live(tmp_path, "a").publish(1, 2)
    content = json.loads((tmp_path / "live.json").read_text())
    assert read_live(tmp_path) is not None
    (tmp_path / "live.json").write_text(json.dumps(content | wrong))
    assert read_live(tmp_path) is None


def page(folder):
    state = state_of(folder)
    return "".join(render_main("a", sections) for sections in (run_sections(state), index_sections([state], ["a"])))


def test_the_page_shows_what_it_can(tmp_path):
    Live(tmp_path, "a").publish(1, 2, curves={"value": ([1, 2], [1.0, 2.0], "evaluations")})
    content = json.loads((tmp_path / "live.json").read_text())
    content |= {
        "done": None,
        "curves": {"value": [[1, 10**400, 3], [-1e308, 1e308, 1], "steps"], "odd": [["a"], [None], "steps"]},
    }
    (tmp_path / "live.json").write_text(json.dumps(content))
    (tmp_path / "events.jsonl").write_text('{"time": 1e300, "event": "far"}\n{"time": 1e18, "event": "near"}\n')
    assert all(word in page(tmp_path) for word in ("far", "near", "Not enough yet"))


def test_the_page_of_a_damaged_answer_says_so(tmp_path):
    (tmp_path / "result.json").write_bytes(b"{")
    (tmp_path / "arrays.npz").write_bytes(b"")
    assert "cannot be read" in page(tmp_path)
