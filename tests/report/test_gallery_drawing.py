"""Figures of single points: drawn by another process, kept, given up in time, and never by a stranger's code."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from shardfit.report.gallery import drawing
from shardfit.report.gallery.draw_worker import packed
from shardfit.report.gallery.drawing import WORKER, CannotDraw, Drawer, Gone
from shardfit.report.gallery.query import Points
from shardfit.report.gallery.selection import Selection
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


def never():
    return False


@pytest.fixture
def drawer(tmp_path):
    (tmp_path / "survey.toml").write_text(CONFIG)
    made = Drawer(tmp_path, [sys.executable, "-c", FAKE], seconds=20)
    yield made
    made.close()


def test_figures_are_drawn_once(drawer):
    (figure,) = drawer.draw(1, {"tv": 1}, {"I": np.zeros(3)}, never)
    assert json.loads(figure["caption"]) == {"data": "ring"}
    process = drawer.process
    assert drawer.draw(1, {"tv": 1, "end": True}, {}, never) == [figure]  # kept: nobody is asked
    drawer.draw(2, {"tv": 2}, {}, never)
    assert drawer.process is process and process.poll() is None
    for key in range(3, 3 + drawing.KEPT):
        drawer.draw(key, {}, {}, never)
    assert len(drawer.kept) == drawing.KEPT and 1 not in drawer.kept


def test_what_goes_wrong_is_told_and_the_next_point_drawn(drawer):
    with pytest.raises(CannotDraw, match="no such file"):
        drawer.draw(1, {"wrong": True}, {}, never)
    with pytest.raises(CannotDraw, match="has ended"):
        drawer.draw(1, {"end": True}, {}, never)
    assert drawer.draw(1, {}, {}, never)
    drawer.seconds = 0.2
    with pytest.raises(CannotDraw, match="more than 0.2 s"):
        drawer.draw(2, {"wait": 60}, {}, never)
    assert drawer.process is None
    drawer.seconds = 20
    assert drawer.draw(2, {}, {}, never)


def test_nobody_waits(drawer, monkeypatch):
    monkeypatch.setattr(drawing, "GRACE", 0.2)
    with pytest.raises(Gone):
        drawer.draw(1, {"wait": 60}, {}, lambda: True)
    assert drawer.process is None  # it was ended
    slow = threading.Thread(target=drawer.draw, args=(2, {"wait": 1.0}, {}, never))
    slow.start()
    time.sleep(0.2)
    with pytest.raises(Gone):  # not even begun
        drawer.draw(3, {}, {}, lambda: True)
    slow.join()
    assert 2 in drawer.kept and 3 not in drawer.kept


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
        made.draw(0, {}, {}, never)
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


def test_the_server_gives_up_when_the_page_is_left(tmp_path, monkeypatch):
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    from tests.pages.conftest import serving

    monkeypatch.setattr(drawing, "GRACE", 0.3)
    folder = write_survey(tmp_path, 3, side=4)
    (folder / "survey.toml").write_text(CONFIG)
    fake = FAKE.replace('asked["point"].get("wait", 0)', "60")
    began = []
    started = Drawer._started

    def start(self):
        began.append(self)
        self.command = [sys.executable, "-c", fake]
        return started(self)

    monkeypatch.setattr(Drawer, "_started", start)
    with serving(folder) as address:
        port = int(address.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as page:
            page.sendall(b"GET /api/point/0/figures?token=a-token HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            _until(lambda: began and began[0].process is not None)
        _until(lambda: began[0].process is None)  # left: the process that drew is ended, long before its 60 s


def _until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
