import csv
import io
import json
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the gallery's server needs shardfit[serve]")
pytest.importorskip("httpx2", reason="the test client needs httpx2")
from starlette.testclient import TestClient

from shardfit.cli import main
from shardfit.report.gallery.query import Points
from shardfit.report.gallery.selection import Selection
from shardfit.report.server import create_app, is_loopback
from tests.report.fake_survey import write_survey
from tests.report.hostile_survey import write_hostile

TOKEN = "a-token"


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    survey = Points.open(write_survey(tmp_path_factory.mktemp("survey"), 40, side=8))
    yield survey
    survey.close()


def client_of(points, token=TOKEN):
    return TestClient(create_app(points, token), base_url="http://127.0.0.1:8650", raise_server_exceptions=False)


@pytest.fixture
def client(points):
    """One that has shown its token."""
    inside = client_of(points)
    assert inside.get(f"/?token={TOKEN}").status_code == 200
    return inside


ADDRESSES = (
    "/",
    "/page/gallery.js",
    "/api/survey",
    "/api/points",
    "/api/points.csv",
    "/api/picture/0.png",
    "/api/stack",
    "/api/point/0/figures",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_without_the_token(points, client, address):
    stranger = client_of(points)
    for refused in (stranger.get(address), stranger.get(address, params={"token": "wrong"})):
        assert refused.status_code == 403
        assert "M87" not in refused.text
        assert "set-cookie" not in refused.headers
    stranger.cookies.set("shardfit-8650", "wrong")
    assert stranger.get(address).status_code == 403
    assert client.get(address).status_code == 200


def test_cookie_is_out_of_reach_of_scripts_and_other_sites(points):
    cookie = client_of(points).get(f"/?token={TOKEN}").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_every_answer_has_strict_headers(points, client):
    for answer in (client.get("/"), client.get("/nowhere"), client_of(points).get("/")):
        assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


def test_without_token_only_local_names_are_answered(points):
    assert client_of(points, None).get("/").status_code == 200
    rebound = {"host": "evil.example:8650"}
    assert client_of(points, None).get("/", headers=rebound).status_code == 403


@pytest.mark.parametrize(
    "address",
    [
        "/page/../../../../etc/passwd",
        "/page/..%2f..%2fserver.py",
        "/page/%2e%2e/server.py",
        "/page/main.js",
        "/page/",
        "/ledger.sqlite",
        "/api/picture/../ledger.sqlite",
        "/api/picture/-1.png",
        "/api/picture/999.png",
        "/api/picture/x.png",
    ],
)
def test_only_known_names_are_found(client, address):
    assert client.get(address).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_reading(client, method):
    assert client.request(method, "/api/points").status_code == 405


@pytest.mark.parametrize(
    "address",
    [
        "/api/stack?selection={",
        '/api/points.csv?selection={"sort":"value--"}',
        "/api/points?finished=x",
        "/api/points?id=99999999999999999999999",
        "/api/picture/99999999999999999999999.png",
        "/api/picture/0.png?palette=../x",
        "/api/picture/0.png?most=0",
        "/api/picture/0.png?with=a",
    ],
)
def test_bad_questions_are_told_so_in_plain_text(client, address):
    answer = client.get(address)
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")


def test_points_come_in_pages(client):
    first = client.get("/api/points", params={"limit": 15}).json()
    finished, number = first["last"]
    rest = client.get("/api/points", params={"finished": finished, "id": number}).json()
    assert (first["count"], rest["count"]) == (15, 25)


def test_table_is_the_selection_in_order(client, points):
    selection = {"ranges": {"axis.tv": [0, 10]}, "sort": "part.data.amp", "descending": True}
    answer = client.get("/api/points.csv", params={"selection": json.dumps(selection)})
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    asked = Selection(ranges={"axis.tv": (0, 10)}, sort="part.data.amp", descending=True)
    assert [int(row["id"]) for row in rows] == points.select(asked)
    amps = [float(row["part.data.amp"]) for row in rows]
    assert amps == sorted(amps, reverse=True)
    assert {float(row["axis.tv"]) for row in rows} <= {0.0, 1.0, 10.0}


def test_pictures_and_arrays(client, points):
    best = points.select(Selection(limit=3))
    answer = client.get(f"/api/picture/{best[0]}.png", params={"with": ",".join(map(str, best)), "stretch": "log"})
    assert answer.content.startswith(b"\x89PNG")
    assert answer.headers["content-type"] == "image/png"
    array = np.load(io.BytesIO(client.get(f"/api/picture/{best[0]}.npy").content), allow_pickle=False)
    np.testing.assert_array_equal(array, points.picture(best[0]))


def test_mean_and_spread(client, points):
    asked = {"selection": json.dumps({"limit": 5})}
    pictures = np.stack([points.picture(i) for i in points.select(Selection(limit=5))]).astype(float)
    for kind, expected in (("mean", pictures.mean(axis=0)), ("sd", pictures.std(axis=0))):
        array = np.load(io.BytesIO(client.get("/api/stack.npy", params={"kind": kind, **asked}).content))
        np.testing.assert_allclose(array, expected, rtol=1e-10, atol=1e-18)
    told = client.get("/api/stack", params=asked).json()
    assert (told["count"], told["of"]) == (5, points.count(Selection()))
    assert told["highest"]["mean"] == pytest.approx(pictures.mean(axis=0).max())


def test_why_a_point_has_no_figures(client):
    told = client.get("/api/point/0/figures").json()
    assert told["figures"] == [] and "configuration file" in told["why"]
    assert client.get("/api/point/0").json()["why"] == told["why"]
    assert client.get("/api/point/999/figures").status_code == 404


def test_harmful_names_are_data(tmp_path):
    survey = Points.open(write_hostile(tmp_path))
    inside = client_of(survey)
    inside.get(f"/?token={TOKEN}")
    for address in ("/api/survey", "/api/points"):
        assert inside.get(address).headers["content-type"] == "application/json"
    assert inside.get("/api/stack").json()["count"] == 11
    survey.close()


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback(host, local):
    assert is_loopback(host) is local


def test_open_to_the_network_without_token_is_refused(tmp_path, capsys):
    assert main(["serve", str(tmp_path), "--host", "0.0.0.0", "--no-token"]) == 2
    assert "whole network" in capsys.readouterr().err


def test_no_folder_there(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_command_serves_until_interrupted(tmp_path):
    folder = write_survey(tmp_path, 60, side=200)
    command = [sys.executable, "-m", "shardfit", "serve", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("page: ").strip()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(address.replace("/?", "/api/points.fits?"), timeout=30) as slow:
            slow.read(1)  # a download that nobody reads on
            server.send_signal(signal.SIGINT)
            began = time.monotonic()
            _, errors = server.communicate(timeout=30)
            assert time.monotonic() - began < 5  # half a second, and what a busy machine adds
    finally:
        server.kill()
        server.communicate()
    assert server.returncode == 0
    assert errors == ""
