"""Rules that every page keeps to, wide and narrow, light and dark: it fits, can be read, and has no errors."""

import os
from pathlib import Path

import numpy as np
import pytest

from shardfit.io.files import write_json
from shardfit.io.live import Live
from shardfit.io.process_liveness import own_process
from shardfit.report.blocks import PngBlock
from shardfit.report.html import write_report
from shardfit.report.sections import badge_of, report_of
from shardfit.report.style import new_figure, png_bytes
from tests.pages.conftest import running
from tests.report.conftest import make_result
from tests.report.fake_survey import write_survey

RULES = (Path(__file__).parent / "rules.js").read_text(encoding="utf-8")
WIDTHS = (1600, 1000, 390)
LONG = "a_run_of_the_second_night_with_all_baselines_and_a_name_that_does_not_end"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a run in every state, some with long names and odd numbers."""
    root = tmp_path_factory.mktemp("runs")
    command = {"command": ["fit", f"{LONG}.toml"], "exit": None, "folder": f"/data/{LONG}", "process": own_process()}
    gone = {**own_process(), "started": "1"}
    states = {
        "begun": {},
        "killed": {"process": gone},
        "failed": {"exit": 2, "error": f"{LONG}.toml, key 'rate': 3 is not a number of this kind.\nGive one."},
        "interrupted": {"exit": 130},
        LONG: {"exit": 1, "seconds": 12345.678},
    }
    for name, more in states.items():
        (root / name).mkdir()
        write_json(root / name / "command.json", {**command, "began": "2026-01-01T00:00:00+00:00", **more})
        os.utime(root / name / "command.json", (1, 1))
    (root / "series").mkdir()
    write_json(root / "series" / "command.json", {**command, "began": "2026-01-01T00:00:00+00:00"})
    curve = np.arange(1, 50), np.exp(-np.arange(1.0, 50)), "evaluations"
    numbers = {"value": -1234567.89123456, "evaluations": 123456789, "seconds": 3725.123456, "steps per second": 1 / 3}
    for place in (root / "fit", root / "series" / "band-01"):
        place.mkdir(parents=True)
        Live(place, LONG).publish(3, 12, left=90.123456, numbers=numbers, curves={"lowest value": curve})
    write_survey(root / "survey", 40, side=8)
    return root


@pytest.fixture(scope="module")
def address(root):
    from shardfit.report.live.server import Runs
    from shardfit.report.server import Guard

    with running(Guard(Runs(root), None)) as served:
        yield served


def broken(page, width, dark):
    page.size(width, 900, dark)
    page.frame()
    return page.run(RULES)


def looked_at(page, address, ready="document.readyState === 'complete' && !!document.querySelector('h1')"):
    """Every rule that a page breaks, by width and colours; the browser leaves it at the end."""
    page.command("Page.navigate", url=address)
    page.wait(f"location.href.startsWith({address!r}) && {ready}")
    try:
        found = {(width, dark): broken(page, width, dark) for width in WIDTHS for dark in (False, True)}
        return {where: what for where, what in found.items() if what}
    finally:
        page.command("Page.navigate", url="about:blank")


@pytest.mark.parametrize("run", ["", "begun", "killed", "failed", "interrupted", LONG, "fit", "series"])
def test_pages_of_runs(page, address, run):
    assert looked_at(page, f"{address}run/{run}/" if run else address) == {}


def test_the_gallery(page, address):
    stack = "document.querySelector('#stack')"  # pale until its pictures are there
    ready = f"!!{stack}?.querySelector('img') && getComputedStyle({stack}).opacity === '1'"
    assert looked_at(page, f"{address}run/survey/", ready) == {}


def test_a_report(page, tmp_path):
    pytest.importorskip("matplotlib")
    odd = {"solver": f"lbfgs({LONG}=True)", "value": -1234567.89123456, "evaluations": 123456789}
    odd["params"] = {LONG: np.linspace(0.0, 1.0, 12), "b": np.full(40, 1e-300)}
    result = make_result(**odd, stderr=None, units={LONG: "Å²/s"})
    picture = PngBlock(png_bytes(new_figure()), "A figure.")
    sections = report_of(result, [picture], environment={"devices": [LONG] * 8, "python": "3.11"})
    path = write_report(tmp_path / "report.html", LONG, sections, badge=badge_of(result), subtitle=LONG)
    assert looked_at(page, path.as_uri()) == {}
