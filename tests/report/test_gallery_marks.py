"""Rank, tags and notes, exports and single points of the gallery."""

import io
import json
import socket
import sqlite3
import threading
import time
import tomllib
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from shardfit.core.errors import CheckpointError
from shardfit.core.status import Status
from shardfit.report.gallery.exports import configuration, fits_cube
from shardfit.report.gallery.query import Points
from shardfit.report.gallery.selection import Selection
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.marks import marks, note, tag
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.reading import Survey

CONFIG = """\
science = "vlbi"
out = "x"

[vlbi]
data = "ring"

[axes]
tv = [1, 10, 100]

[design]
kind = "latin"  # all of it goes
points = 3

[solver]
name = "lbfgs"
"""
PARTS = ("data.cphase", "data.amp", "reg.tv", "offset.cphase")


def write(folder, count=6):
    """A survey whose weight is an axis: the value is lowest where the data are fitted worst."""
    extent = (8.0, -8.0, -6.0, 6.0)
    about = {"picture": "", "shape": (3, 4), "extent": extent, "extent_unit": "µas", "picture_unit": "Jy/pixel"}
    heading = Heading("s", count, {"tv": ""}, PARTS, {"m": (1,)}, weighted=True, **about)
    one = SurveyPoint(0, {}, Status.CONVERGED_VALUE.name, params=np.zeros(1).tobytes(), finished=1.0)
    records = []
    for i in range(count):
        parts = dict(zip(PARTS, (1.0 + i, 2.0, 0.5, -1.0), strict=True))
        status = one.status if i % 2 == 0 else Status.MAX_STEPS.name
        picture = np.roll(np.arange(12.0).reshape(3, 4) ** 2, i, axis=1)
        point = {"axes": {"tv": 10.0**i}, "value": 10.0 - i, "parts": parts, "status": status, "picture": picture}
        records.append(replace(one, id=i, finished=1.0 + i, **point))
    with Ledger.create(folder, heading) as ledger:
        ledger.write(records)
    (folder / "survey.toml").write_text(CONFIG)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path)


def test_weights_as_axes_rank_by_the_misfit(folder):
    points = Points.open(folder)
    try:
        assert points.heading.rank == ("part.data.cphase", "part.data.amp")
        assert points.facts()["rank"] == "rank"
        asked = Selection.from_json("", points.heading)
        assert points.select(asked) == [0, 1, 2, 3, 4, 5]
        assert points.select(Selection.from_json('{"sort": "value"}', points.heading)) == [5, 4, 3, 2, 1, 0]
        few = Selection.from_json('{"ranges": {"rank": [null, 4.5]}}', points.heading)
        assert points.select(few) == [0, 1]
        header, first, *_ = points.rows(asked)
        assert dict(zip(header, first, strict=True))["rank"] == "3.0"
        assert [row["id"] for row in points.survey.best(2)] == [0, 1]
        assert points.progress()["converged"] == 3
    finally:
        points.close()


def test_an_endless_limit(folder):
    points = Points.open(folder)
    assert len(list(points.rows(Selection.from_json('{"limit": 1e30}', points.heading)))) == 7
    points.close()


def test_tags_and_notes_are_kept(folder):
    assert tag(folder, [1, 3, 99], "top set") == 2
    note(folder, 3, "a ring")
    with Survey(folder) as survey:
        assert marks(survey.ledger) == {1: (("top set",), ""), 3: (("top set",), "a ring")}
    points = Points.open(folder)
    chosen = Selection.from_json('{"tag": "top set"}', points.heading)
    assert points.select(chosen) == [1, 3]
    assert points.marked() == {"tags": {"top set": [1, 3]}, "notes": {3: "a ring"}}
    points.close()
    tag(folder, [1], "top set", remove=True)
    note(folder, 3, "")
    with Survey(folder) as survey:
        assert marks(survey.ledger) == {3: (("top set",), "")}
    with pytest.raises(KeyError, match="point 99"):
        note(folder, 99, "nothing")
    with pytest.raises(ValueError, match="needs a name"):
        tag(folder, [1], "")


def test_what_was_marked_by_hand_is_noticed(folder):
    tag(folder, [1], "top set")
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE marks SET tag = 'worst'")
    with Survey(folder) as survey, pytest.raises(CheckpointError, match="does not match its checksum"):
        marks(survey.ledger)


def test_a_point_tells_how_to_run_it_again(folder):
    points = Points.open(folder)
    found = points.point(2)
    assert found["command"].endswith(" 2")
    again = tomllib.loads(found["configuration"])
    assert again["design"] == {"kind": "table", "table": [{"tv": 100.0}]}
    assert again["solver"] == {"name": "lbfgs"}
    assert again["vlbi"] == {"data": "ring"}
    with pytest.raises(KeyError, match="not finished"):
        points.point(77)
    points.close()


def test_a_flipped_byte_is_told(folder):
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE found SET params = x'0000000000000001' WHERE id = 2")
    points = Points.open(folder)
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        points.point(2)
    points.close()


def test_pictures_that_are_too_large(folder):
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE found SET picture = zeroblob(100000000) WHERE id = 2")
    points = Points.open(folder)
    with pytest.raises(CheckpointError, match="too large"):
        points.picture(2)
    points.close()


def test_linked_configurations_are_not_read(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "secret.toml"
    other.write_text('science = "vlbi"\n')
    (folder / "survey.toml").unlink()
    (folder / "survey.toml").symlink_to(other)
    with Survey(folder) as survey:
        assert not list(configuration(survey, [1]))


def test_pictures_as_fits(folder):
    fits = pytest.importorskip("astropy.io.fits")
    with Survey(folder) as survey:
        raw = b"".join(fits_cube(survey, [4, 1]))
        hdu = fits.open(io.BytesIO(raw))[0]
        np.testing.assert_array_equal(hdu.data[0][::-1], survey.picture(4))
        np.testing.assert_array_equal(hdu.data[1][::-1], survey.picture(1))
    assert hdu.header["CDELT1"] == pytest.approx(-4e-6 / 3600)
    assert hdu.header["CRPIX1"] == pytest.approx(2.5)  # the middle of four pixels
    assert hdu.header["CRPIX2"] == pytest.approx(2.0)
    assert hdu.header["BUNIT"] == "JY/PIXEL"


def test_aligned_pictures_have_no_spread(folder):
    with Survey(folder) as survey:
        _, loose = survey.mean_and_sd([0, 1, 2, 3])
        mean, tight = survey.mean_and_sd([0, 1, 2, 3], align=True)
        np.testing.assert_allclose(mean, survey.picture(0))
    assert loose.max() > 1
    assert tight.max() < 1e-9


def test_a_query_that_never_ends_is_ended(folder):
    from shardfit.surveys import database

    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with (
        Survey(folder) as survey,
        pytest.raises(CheckpointError, match="took more than"),
        database.explained(folder),
        database.limited(survey.ledger.connection, 0.2),
    ):
        survey.ledger.connection.execute(endless).fetchall()


def server(folder, **options):
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    testing = pytest.importorskip("starlette.testclient")
    from shardfit.report.server import create_app

    points = Points.open(folder)
    client = testing.TestClient(create_app(points, "token", **options), base_url="http://127.0.0.1")
    client.get("/?token=token")
    return client, points


def test_the_page_writes_only_if_it_may(folder):
    send = {"content": json.dumps({"points": [2], "tag": "good"}), "headers": {"Content-Type": "application/json"}}
    client, points = server(folder)
    assert client.post("/api/mark", **send).status_code == 403
    assert client.get("/api/marks").json() == {"tags": {}, "notes": {}, "writable": False}
    points.close()
    client, points = server(folder, write=True)
    assert client.post("/api/mark", **send).json()["tags"] == {"good": [2]}
    plain = {**send, "headers": {"Content-Type": "text/plain"}}
    assert client.post("/api/mark", **plain).status_code == 415
    answer = client.post("/api/mark", **{**send, "content": json.dumps({"points": [2], "note": "so"})})
    assert answer.json()["notes"] == {"2": "so"}
    client.cookies.clear()
    assert client.post("/api/mark", **send).status_code == 403
    points.close()


def test_exports_of_a_selection(folder):
    client, points = server(folder)
    asked = {"selection": json.dumps({"ranges": {"axis.tv": [5, 2000]}})}
    assert client.get("/api/points.fits", params=asked).content.startswith(b"SIMPLE")
    design = tomllib.loads(client.get("/api/points.toml", params=asked).text)["design"]
    assert [row["tv"] for row in design["table"]] == [10.0, 100.0, 1000.0]
    assert client.get("/api/point/2").json()["axes"] == {"tv": 100.0}
    assert client.get("/api/point/99").status_code == 404
    aligned = client.get("/api/stack.npy", params={**asked, "kind": "sd", "align": "true"}).content
    assert np.load(io.BytesIO(aligned)).max() < 1e-9
    points.close()


def test_exports_hold_every_selected_point(folder, monkeypatch):
    """However many are shown, or sent at once."""
    from shardfit.report import server as module
    from shardfit.report.gallery import exports

    for name in ("MOST_STACKED", "MOST_POINTS"):
        monkeypatch.setattr(module, name, 2)
    monkeypatch.setattr(exports, "AT_ONCE", 4)
    client, points = server(folder, write=True)
    design = tomllib.loads(client.get("/api/points.toml").text)["design"]
    assert [row["tv"] for row in design["table"]] == [10.0**i for i in range(6)]
    cube = client.get("/api/points.fits").content
    assert b"NAXIS3  =                    6" in cube and b"PLANE 6 IS POINT 5" in cube
    mean = np.load(io.BytesIO(client.get("/api/stack.npy").content))
    np.testing.assert_allclose(mean, points.survey.mean_and_sd(range(6))[0])
    shown = client.get("/api/stack").json()
    assert (shown["count"], shown["of"]) == (2, 6)  # and the page says so
    send = {"points": list(range(6)), "tag": "all"}
    assert client.post("/api/mark", json=send).json()["tags"] == {"all": list(range(6))}
    points.close()


BAD_MARKS = (
    *("[]", "1", "null", '{"points": 3}', '{"points": [1]}', "[" * 50_000, "\xff"),
    *('{"points": [], "note": "a"}', '{"points": ["a"], "tag": "a"}', '{"points": [1.5], "tag": "a"}'),
    *('{"points": [1e999], "tag": "a"}', '{"points": [true], "tag": "a"}', '{"points": [1], "tag": 3}'),
    '{"points": [1], "tag": ""}',
)


@pytest.mark.parametrize("body", BAD_MARKS, ids=range(len(BAD_MARKS)))
def test_marks_that_are_none(folder, body):
    client, points = server(folder, write=True)
    answer = client.post("/api/mark", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and len(answer.text) < 300
    assert points.marked() == {"tags": {}, "notes": {}}
    points.close()


def test_a_ledger_that_is_busy_stops_nobody_else(folder):
    """A tag has to wait until another program has written; pages do not wait for the tag."""
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    head = "POST /api/mark?token=t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n"
    other = sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)
    with closing(other), served(folder, write=True) as port:
        other.execute("BEGIN IMMEDIATE")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as writer:
            writer.sendall(head.encode() + b'{"points": [1], "tag": "a"}')
            time.sleep(0.1)
            with socket.create_connection(("127.0.0.1", port), timeout=5) as reader:
                reader.sendall(b"GET /api/survey?token=t HTTP/1.1\r\nHost: x\r\n\r\n")
                assert reader.recv(12) == b"HTTP/1.1 200"
            other.execute("ROLLBACK")
            assert writer.recv(12) == b"HTTP/1.1 200"


def test_links_to_other_folders_are_not_gathered(folder, tmp_path_factory):
    elsewhere = write(tmp_path_factory.mktemp("elsewhere"))
    (folder / "parts").symlink_to(elsewhere)
    with Ledger.open(folder) as ledger, pytest.raises(CheckpointError, match="is a link"):
        ledger.gather()


def test_half_a_request_is_not_waited_for(folder, monkeypatch):
    """A connection that never sends a whole head is closed."""
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    from shardfit.report import listening

    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.3)
    with served(folder) as port:
        half_requests(port)


def half_requests(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x")
        assert slow.recv(10) == b""  # closed, without an answer
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while not slow.recv(65536).endswith(b"token.\n"):
            pass
        slow.sendall(b"GET / HTTP/1.1\r\nHo")  # nor half of a second one
        assert slow.recv(10) == b""


def test_half_a_body_is_not_waited_for(folder, monkeypatch):
    pytest.importorskip("uvicorn", reason="the gallery's server needs shardfit[serve]")
    from shardfit.report import listening

    monkeypatch.setattr(listening, "BODY_SECONDS", 0.3)
    head = b"POST /api/mark?token=t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    with served(folder, write=True) as port:
        for sent in (head, head + b'{"points": [1]'):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
                slow.sendall(sent)
                while answer := slow.recv(65536):
                    assert answer.startswith(b"HTTP/1.1 503")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as quick:
            quick.sendall(head.replace(b"99", b"27") + b'{"points": [1], "tag": "a"}')
            answer = b""
            while not answer.endswith(b'"writable":true}'):
                answer += quick.recv(65536)
            time.sleep(0.6)  # the clock of the body has stopped: the connection is kept for more
            quick.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200") and quick.recv(10) == b"HTTP/1.1 4"


@contextmanager
def served(folder, **options):
    """Serve a survey from a thread, as `shardfit serve` does; yield the port."""
    from shardfit.report.listening import Server
    from shardfit.report.server import create_app

    points, listener = Points.open(folder), socket.create_server(("127.0.0.1", 0))
    server = Server(create_app(points, "t", **options), points.give_up)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        points.close()
