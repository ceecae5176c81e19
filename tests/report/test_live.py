"""Pages of runs while they run: what folders say, what pages show, and what is refused."""

import json
import os
import re
import time

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the server needs shardfit[serve]")
pytest.importorskip("httpx2", reason="the test client needs httpx2")
from starlette.testclient import TestClient

import shardfit as sf
from shardfit.io import live
from shardfit.io.files import write_json
from shardfit.io.live import Live, read_live, thinned
from shardfit.io.process_liveness import own_process
from shardfit.report.folders import require_kind
from shardfit.report.live.curves import Curve
from shardfit.report.live.pages import index_sections, run_sections
from shardfit.report.live.server import Runs
from shardfit.report.live.state import runs_below, state_of
from shardfit.report.server import Guard
from tests.report.fake_survey import write_survey


def line(p, rows):
    return rows["y"] - p[0] * rows["x"] - p[1]


def problem(name="line"):
    x = np.linspace(0.0, 1.0, 50)
    rows = {"x": x, "y": 2.0 * x - 1.0}
    return sf.Problem(sf.Objective({"line": sf.residual_term(line, rows)}), np.zeros(2), name=name)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs: a fit that has ended, one that runs, a survey, and things that are none."""
    root = tmp_path_factory.mktemp("runs")
    sf.fit(problem(), "lm", run_dir=root / "a" / "line", progress=False)
    (root / "b").mkdir()
    Live(root / "b", "waves").publish(
        3, 12, left=90.0, numbers={"value": 1.5}, curves={"value": ([1, 2, 3], [1e3, 1e1, 1e-2], "evaluations")}
    )
    write_survey(root / "survey", 12, side=4)
    (root / "notes").mkdir()
    (root / "notes" / "todo.txt").write_text("nothing")
    return root


@pytest.fixture
def client(root):
    runs = Runs(root)
    yield TestClient(Guard(runs, None), base_url="http://127.0.0.1:8650", raise_server_exceptions=False)
    runs.close()


def test_the_index_lists_runs(client, root):
    page = client.get("/").text
    assert "a/line/" in page and "run/b/" in page and "run/survey/" in page and "notes" not in page
    page = page.replace("\N{NO-BREAK SPACE}", " ")
    assert "25 %" in page and "1 min 30 s left" in page and "running" in page
    assert re.search(r"<td[^>]*>value [\d.e-]+</td>", page)  # what the fit that has ended came to
    assert [s.folder.name for s in runs_below(root)].count("line") == 1


def test_a_running_run(client):
    page = client.get("/run/b/").text
    assert "3 of 12 steps" in page and "<svg" in page and "running" in page and 'href="../../"' in page
    main = client.get("/run/b/?part=main").text
    assert main.startswith("<header>") and "<html" not in main


def test_an_ended_run(client, root):
    page = client.get("/run/a/line/").text
    assert "Converged" in page and "finished" in page and ">converged<" in page
    assert "<th>parameter</th>" in page and "<th>unit</th>" not in page  # there are none
    assert client.get("/run/a/line/report.html").status_code == 404
    sf.save_result(sf.load_result(root / "a/line"), root / "a/line")
    (root / "a/line/report.html").write_text("<html><script>alert(1)</script></html>")
    answer = client.get("/run/a/line/report.html")
    assert answer.status_code == 200 and "sandbox" in answer.headers["content-security-policy"]


def test_a_survey_has_its_gallery(client):
    assert client.get("/run/survey/").status_code == 200
    assert "gallery.js" in client.get("/run/survey/").text
    assert client.get("/run/survey/api/survey").json()["facts"]["total"] == 12
    assert client.get("/run/survey", follow_redirects=False).status_code == 307


@pytest.mark.parametrize(
    "address",
    ["/run/nothing/", "/run/../", "/run/%2e%2e/", "/run/notes/", "/etc/passwd", "/run/%2Fetc/", "/run/a/line/../../.."],
)
def test_only_runs_are_shown(client, address):
    assert client.get(address).status_code in (404, 200)
    assert "root:" not in client.get(address).text and "nothing</" not in client.get(address).text
    if address not in ("/run/../", "/run/%2e%2e/", "/run/a/line/../../.."):
        assert client.get(address).status_code == 404


def test_links_are_not_followed(root, tmp_path, client):
    secret = tmp_path / "secret"
    sf.fit(problem("secret"), "lm", run_dir=secret, progress=False)
    os.symlink(secret, root / "link")
    try:
        assert "run/link" not in client.get("/").text
        assert client.get("/run/link/").status_code == 404
    finally:
        os.unlink(root / "link")


def test_foreign_hosts_are_refused(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403


def test_hostile_words(tmp_path):
    content = {"title": "<script>x</script>", "unit": "<b>", "updated": time.time(), "began": 0.0, "process": 1}
    content |= {
        "done": "<i>",
        "total": None,
        "left": "soon",
        "numbers": {"<u>": "<s>"},
        "curves": {"<a>": [["x"], [1], "<em>"]},
    }
    (tmp_path / "live.json").write_text(json.dumps(content))
    page = TestClient(Guard(Runs(tmp_path), None), base_url="http://localhost").get("/").text
    assert (
        "<script>x" not in page and "<u>" not in page and "<s>" not in page and "<a>" not in page and "<em>" not in page
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"title": 1}', "[" * 100_000, '{"title": "a", "unit": "b"}'])
def test_a_damaged_word_is_none(tmp_path, text):
    (tmp_path / "live.json").write_text(text)
    assert read_live(tmp_path) is None


def test_a_run_that_fell_silent(tmp_path):
    Live(tmp_path, "x").publish(1, 2)
    old = json.loads((tmp_path / "live.json").read_text())
    assert state_of(tmp_path).badge().text == "running"
    (tmp_path / "live.json").write_text(json.dumps(old | {"updated": old["updated"] - 3600}))
    os.utime(tmp_path / "live.json", (1, 1))
    assert state_of(tmp_path).badge().text == "silent"


def test_a_fit_tells_where_it_stands_and_then_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    told = []

    def look(shot):
        told.append(read_live(tmp_path))

    sf.fit(problem(), "lbfgs", run_dir=tmp_path, callback=look, every=1, progress=False)
    known = [one for one in told if one]
    assert known and known[-1]["title"] == "line" and known[-1]["numbers"]["evaluations"] > 1
    assert len(known[-1]["curves"]["lowest value"][0]) == known[-1]["numbers"]["evaluations"]
    assert read_live(tmp_path) is None and state_of(tmp_path).badge() == ("converged", "good")


def test_the_state_of_what_has_ended_is_its_verdict(tmp_path):
    sf.fit(problem(), "adam", maxiter=2, run_dir=tmp_path / "stopped", progress=False)
    write_survey(tmp_path / "doubtful", 100, side=4)
    write_survey(tmp_path / "incomplete", 3, side=4, total=9)
    states = {state.folder.name: state for state in runs_below(tmp_path)}
    assert {name: state.badge() for name, state in states.items()} == {
        "stopped": ("step limit reached", "warn"),
        "doubtful": ("doubtful", "warn"),
        "incomplete": ("incomplete", "warn"),
    }
    (tmp_path / "stopped" / "result.json").write_text("{")
    assert state_of(tmp_path / "stopped").badge() == ("unreadable", "warn")


def test_curves_are_thinned_and_drawn():
    x, y = thinned(range(10_000), [float("nan"), *range(9_999)])
    assert len(x) == 400 and y[0] is None
    drawn = Curve("a & b", [1, 2, 3], [1.0, 1e3, 1e6]).render()
    assert "a &amp; b" in drawn and "1e+06" in drawn
    assert "Not enough" in Curve("c", [1], [1.0]).render()
    assert "2.001" in Curve("d", [1, 2], [2.0, 2.001]).render()
    assert "<svg" in Curve("flat", [1, 2], [0.0, 0.0]).render()


def test_a_command_of_several_fits_shows_its_newest_picture(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from shardfit.cli import current

    monkeypatch.setattr(current, "EVERY_SECONDS", 0.0)
    with current.Current(tmp_path, "M87", True) as told:
        told.publish(1, 4, {"χ² cphase": 1.5}, {"objective": ((1,), (30.0,), "fits")}, Figure)
        blocks = [block for section in run_sections(state_of(tmp_path)) for block in section.blocks]
        page = "".join(block.render() for block in blocks)
        assert "1 of 4 fits" in page and "χ² cphase" in page and "<figcaption>current" in page
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == []
    with current.Current(tmp_path / "other", "M87", False) as told:
        told.publish(1, 4, {}, {}, Figure)
    assert not (tmp_path / "other").exists()


def command_of(folder, **more):
    folder.mkdir(parents=True, exist_ok=True)
    content = {"command": ["fit", "fit.toml"], "exit": None, "folder": "/", "process": own_process(), **more}
    write_json(folder / "command.json", content)
    os.utime(folder / "command.json", (1, 1))  # nothing was written for long
    return state_of(folder)


def test_a_process_that_writes_nothing_is_running(tmp_path):
    state = command_of(tmp_path, began="2026-01-01T00:00:00+00:00")
    assert state.badge().text == "running"
    assert "running for" in "".join(section.render() for section in run_sections(state))


def test_a_process_that_is_gone_was_killed(tmp_path):
    gone = own_process() | {"number": 2**22 + 1}
    again = own_process() | {"started": "1"}  # its number has gone to another process
    for name, process in {"gone": gone, "again": again}.items():
        state = command_of(tmp_path / name, process=process)
        assert state.badge().text == "killed"
        assert "same command again to continue" in "".join(section.render() for section in run_sections(state))
    assert command_of(tmp_path / "far", process=gone | {"host": "another"}).badge().text == "silent"
    for odd in (None, 3, [], {"host": own_process()["host"], "number": "1"}, own_process() | {"number": -1}):
        assert command_of(tmp_path / "odd", process=odd).badge().text in ("silent", "running")


def test_the_error_of_a_failed_run_is_shown(tmp_path):
    state = command_of(tmp_path, exit=2, error="night 3 has <no> calibration\nGive one.")
    page = "".join(section.render() for section in run_sections(state))
    assert state.badge().text == "failed" and "night 3 has &lt;no&gt; calibration\nGive one." in page
    for more, why in (
        ({"exit": 2, "error": "night 3"}, "failed: night 3"),
        ({"exit": 130}, "interrupted"),
        ({}, "not ended"),
    ):
        command_of(tmp_path, **more)
        with pytest.raises(FileNotFoundError, match=why):
            require_kind(tmp_path)


def test_numbers_of_a_part_are_named_as_such(tmp_path):
    (tmp_path / "band-01").mkdir()
    Live(tmp_path / "band-01", "waves").publish(
        3, 12, left=90.0, numbers={"seconds": 61.2, "steps per second": 0.2246601}
    )
    page = "".join(section.render() for section in run_sections(state_of(tmp_path)))
    assert "done of band-01" in page and "left of band-01" in page and "1 min 1 s" in page and ">0.225<" in page
    index = "".join(section.render() for section in index_sections([state_of(tmp_path)], ["run/x%20y/b/"]))
    assert "of\N{NO-BREAK SPACE}band-01" in index and ">x y/b</a>" in index


def test_a_run_that_was_killed_has_no_time_left(tmp_path):
    (tmp_path / "band-01").mkdir()
    Live(tmp_path / "band-01", "waves").publish(3, 12, left=90.0)
    old = json.loads((tmp_path / "band-01" / "live.json").read_text())
    (tmp_path / "band-01" / "live.json").write_text(json.dumps(old | {"updated": old["updated"] - 3600}))
    os.utime(tmp_path / "band-01" / "live.json", (1, 1))
    state = command_of(tmp_path, process=own_process() | {"started": "1"})
    page = "".join(section.render() for section in run_sections(state))
    assert "left of" not in page and "Was running band-01" in page
    index = "".join(section.render() for section in index_sections([state], ["run/b/"]))
    assert "left" not in index.replace("text-align", "")


def test_pictures_beside_the_answer_are_shown(tmp_path):
    png = b"\x89PNG\r\n\x1a\n" + bytes(20)
    (tmp_path / "image.png").write_bytes(png)
    command_of(tmp_path, exit=0)
    page = "".join(section.render() for section in run_sections(state_of(tmp_path)))
    assert page.count("<img") == 1 and "<figcaption>image</figcaption>" in page


def test_a_run_that_spoke_just_before_it_was_killed(tmp_path):
    Live(tmp_path, "waves").publish(3, 12, left=90.0)
    state = command_of(tmp_path, process=own_process() | {"started": "1"}, began="2026-01-01T12:30:00+00:00")
    page = "".join(section.render() for section in run_sections(state))
    assert state.badge().text == "killed" and "same command again to continue" in page and ">left<" not in page
    assert "2026-01-01 12:30:00 UTC" in page


def test_places_of_a_curve_are_told_as_counts():
    drawn = Curve("value", [1, 11210], [1.0, 2.0], "draws").render()
    assert ">11,210<" in drawn and ">draws<" in drawn
