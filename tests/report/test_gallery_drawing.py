"""Figures of single points: drawn by another process, kept, given up in time, and never by a stranger's code."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest

from shardfit.report.gallery import drawing
from shardfit.report.gallery.draw_worker import packed
from shardfit.report.gallery.drawing import WORKER, CannotDraw, Drawer, Gone
from shardfit.report.gallery.query import Points
from shardfit.report.gallery.selection import Selection
from shardfit.surveys.reading import Survey
from tests.report.fake_survey import write_survey

CONFIG = 'science = "vlbi"\nout = "x"\n[vlbi]\ndata = "ring"\n[axes]\ntv = [1, 2]\n'
# answers every question after some seconds with what was asked, or as it is told to
FAKE = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(asked["point"].get("wait", 0))
    if asked["point"].get("end"): sys.exit(3)
    if asked["point"].get("wrong"): print(json.dumps({"error": "no such file"}), flush=True); continue
    png = "iVBORw0KGgo="
    print(json.dumps({"figures": [{"name": "a", "caption": json.dumps(asked["settings"]), "png": png}]}), flush=True)
"""


def drawn(drawer, key, point=None):
    return drawer.ask(key, point or {}, {"I": np.zeros(3)}).result(timeout=30)


@pytest.fixture
def drawer(tmp_path):
    (tmp_path / "survey.toml").write_text(CONFIG)
    made = Drawer(tmp_path, [sys.executable, "-c", FAKE], seconds=20)
    yield made
    made.close()


def test_figures_are_drawn_once(drawer):
    (figure,) = drawn(drawer, 1, {"tv": 1})
    assert json.loads(figure["caption"]) == {"data": "ring"}
    process = drawer.process
    assert drawn(drawer, 1, {"tv": 1, "end": True}) == [figure]  # kept: nobody is asked
    drawn(drawer, 2, {"tv": 2})
    assert drawer.process is process and process.poll() is None
    for key in range(3, 3 + drawing.KEPT):
        drawn(drawer, key, {})
    assert len(drawer.kept) == drawing.KEPT and 1 not in drawer.kept


def test_what_goes_wrong_is_told_and_the_next_point_drawn(drawer):
    with pytest.raises(CannotDraw, match="no such file"):
        drawn(drawer, 1, {"wrong": True})
    with pytest.raises(CannotDraw, match="has ended"):
        drawn(drawer, 1, {"end": True})
    assert drawn(drawer, 1, {})
    drawer.seconds = 0.2
    with pytest.raises(CannotDraw, match="more than 0.2 s"):
        drawn(drawer, 2, {"wait": 60})
    assert drawer.process is None
    drawer.seconds = 20
    assert drawn(drawer, 2, {})


def test_what_nobody_waits_for_is_dropped_from_the_queue(drawer):
    """Leafing through many points: the process stays, those that were left are never drawn."""
    first = drawer.ask(1, {"wait": 0.5}, {})
    process = _until(lambda: drawer.process)
    left = [drawer.ask(key, {"wait": 60}, {}) for key in range(2, 20)]
    last = drawer.ask(20, {}, {})
    assert all(one.cancel() for one in left)
    assert last.result(timeout=20)
    assert first.done() and set(drawer.kept) == {1, 20} and drawer.process is process


def test_at_the_end_nobody_is_kept_waiting(drawer):
    asked = [drawer.ask(key, {"wait": 60}, {}) for key in range(3)]
    _until(lambda: drawer.process)
    drawer.close()
    with pytest.raises(CannotDraw, match="server ends"):
        asked[0].result(timeout=20)
    assert all(one.cancelled() for one in asked[1:])
    with pytest.raises(CannotDraw, match="server ends"):
        drawn(drawer, 4)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "not run from a configuration file"),
        ("[", "cannot be read"),
        ('problem = "evil_module:make"\nout = "x"\n[axes]\n', "a function of its own, which the gallery does not run"),
        ('science = "astrology"\nout = "x"\n[axes]\n', "unknown science 'astrology'"),
        ('science = "vlbi"\nvlbi = 3\nout = "x"\n[axes]\n', "no settings"),
        ("science = 3\n", "a function of its own"),
    ],
)
def test_why_there_are_no_figures(tmp_path, config, words, monkeypatch):
    (tmp_path / "evil_module.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    if config is not None:
        (tmp_path / "survey.toml").write_text(config)
    made = Drawer(tmp_path)
    with pytest.raises(CannotDraw, match=words):
        drawn(made, 0)
    assert made.process is None and not (tmp_path / "ran").exists()


def test_a_configuration_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere.toml").write_text(CONFIG)
    (tmp_path / "survey.toml").symlink_to(tmp_path / "elsewhere.toml")
    assert "not run from a configuration" in Drawer(tmp_path).why


def test_files_beside_a_ledger_are_no_modules(tmp_path):
    """The folder in which the gallery is started may be a stranger's."""
    for name in ("numpy", "shardfit", "sitecustomize", "astrology"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    asked = {"science": "astrology", "settings": {}, "point": {}, "params": {"I": packed(np.zeros(2))}}
    command = Drawer(tmp_path).command
    assert command == [sys.executable, "-P", "-m", WORKER]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        input=json.dumps(asked) + "\nno JSON\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert "unknown science 'astrology'" in first["error"] and second["error"] and not (tmp_path / "ran").exists()


def test_a_stack_that_nobody_waits_for_is_given_up(tmp_path):
    points = Points.open(write_survey(tmp_path, 30, side=4))
    looks = iter([False] * 5 + [True])
    with pytest.raises(Gone):
        points.stack(Selection(), gone=lambda: next(looks))
    assert points.stack(Selection()).count > 5
    points.close()


@pytest.fixture
def slow_survey(tmp_path, monkeypatch):
    """A survey whose figures take a minute each; yields its folder and the drawers that were asked."""
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    folder = write_survey(tmp_path, 14, side=4)
    (folder / "survey.toml").write_text(CONFIG)
    fake, asked = FAKE.replace('asked["point"].get("wait", 0)', "60"), []
    ask = Drawer.ask

    def told(self, *point):
        self.command = [sys.executable, "-c", fake]
        asked.append((self, ask(self, *point)))
        return asked[-1][1]

    monkeypatch.setattr(Drawer, "ask", told)
    return folder, asked


def wanting(port, point):
    page = socket.create_connection(("127.0.0.1", port), timeout=20)
    page.sendall(f"GET /api/point/{point}/figures?token=a-token HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return page


def test_many_figures_starve_nobody_and_are_dropped_when_left(slow_survey):
    from tests.pages.conftest import serving

    folder, asked = slow_survey
    with Survey(folder) as survey:
        good = survey.ledger.ids(failed=False)[:12]
    with serving(folder) as address:
        port = int(address.split(":")[2].split("/")[0])
        pages = [wanting(port, point) for point in good]
        _until(lambda: len(asked) == len(good) and asked[0][0].process)
        began = time.monotonic()
        with urllib.request.urlopen(address.replace("/?", "/api/stack?"), timeout=20) as answer:
            assert answer.status == 200
        assert time.monotonic() - began < 10  # of the minutes that they all take
        for page in pages:
            page.close()
        _until(lambda: sum(one.cancelled() for _, one in asked) == len(good) - 1)  # all but the one that was begun
        asked[0][0].close()


def test_the_end_waits_for_no_figures(slow_survey):
    from shardfit.report.listening import Server
    from shardfit.report.server import create_app

    folder, asked = slow_survey
    points, listener = Points.open(folder), socket.create_server(("127.0.0.1", 0))
    server = Server(create_app(points, "a-token"), points.give_up)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    pages = [wanting(listener.getsockname()[1], point) for point in points.ledger.ids(failed=False)[:3]]
    _until(lambda: len(asked) == 3 and asked[0][0].process)
    began, server.should_exit = time.monotonic(), True
    thread.join(timeout=30)
    took = time.monotonic() - began
    for page in (*pages, listener):
        page.close()
    points.close()
    assert took < 2 and not thread.is_alive()


def _until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found
