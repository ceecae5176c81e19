import base64
import hashlib
import json
import re

import pytest

from shardfit.cli import main
from shardfit.report.gallery.assets import SCRIPTS, asset, joined_scripts
from shardfit.report.gallery.offline import write_offline
from tests.report.fake_survey import write_survey
from tests.report.hostile_survey import SCRIPT, VECTOR, write_hostile

EMBEDDED = re.compile(r'<script type="application/json" id="embedded">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = write_survey(tmp_path_factory.mktemp("survey"), 60, side=8)
    return write_offline(folder, pictures=10, points=30).read_text(encoding="utf-8")


def embedded(page):
    return json.loads(EMBEDDED.search(page)[1])


def test_report_of_a_survey_is_its_gallery(tmp_path, capsys):
    folder = write_survey(tmp_path, 5, side=4)
    assert main(["report", str(folder)]) == 0
    assert "report.html" in capsys.readouterr().out
    assert embedded((folder / "report.html").read_text(encoding="utf-8"))["progress"]["done"] == 5


def test_best_points_and_pictures_are_inside_and_the_rest_is_told(page):
    content = embedded(page)
    failed = content["progress"]["failed"]
    assert content["page"]["count"] == 30 + failed
    assert len(content["pictures"]) == 10
    assert content["stack"]["count"] == 10
    assert all(base64.b64decode(p).startswith(b"\x89PNG") for p in content["pictures"].values())
    assert f"the best 30 of {60 - failed} points" in content["left_out"]
    assert f"the best 10 of {60 - failed} pictures" in content["left_out"]


def test_page_needs_and_allows_nothing_else(page):
    bare = EMBEDDED.sub("", page)
    assert not re.search(r'(?:src|href)="(?!data:image/svg)', bare)
    assert not re.search(r"https?://", bare)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; img-src data:; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        content = re.search(f"<{tag}>(.*?)</{tag}>", bare, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_harmful_texts_do_not_leave_the_data(tmp_path):
    page = write_offline(write_hostile(tmp_path)).read_text(encoding="utf-8")
    assert SCRIPT not in page
    assert VECTOR not in page
    assert len(re.findall("<script", page)) == 2
    assert SCRIPT in embedded(page)["facts"]["name"]


def test_every_script_is_joined_after_what_it_needs():
    joined = joined_scripts()
    assert not re.search(r"^(?:import|export)\b", joined, re.MULTILINE)
    for place, name in enumerate(SCRIPTS):
        needed = re.findall(r'from "\./([\w.]+)"', asset(name))
        assert set(needed) <= set(SCRIPTS[:place]), name
        assert "innerHTML" not in asset(name)
        assert "insertAdjacentHTML" not in asset(name)
