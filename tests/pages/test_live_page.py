"""The page of a run in a real browser: it follows the run without being asked, and fits a phone."""

import pytest

from shardfit.io.live import Live
from tests.pages.conftest import running
from tests.report.fake_survey import write_survey


@pytest.fixture
def address(tmp_path):
    from shardfit.report.live.server import Runs
    from shardfit.report.server import Guard

    say(tmp_path / "waves", 3)
    write_survey(tmp_path / "survey", 12, side=4)
    with running(Guard(Runs(tmp_path), None)) as served:
        yield served


def say(folder, step):
    folder.mkdir(exist_ok=True)
    curve = list(range(1, step + 1)), [10.0 / i for i in range(1, step + 1)], "evaluations"
    Live(folder, "waves").publish(step, 12, left=60.0, numbers={"value": 10.0 / step}, curves={"value": curve})


def test_a_page_follows_its_run(page, address, tmp_path):
    page.command("Page.navigate", url=address)
    page.wait("!!document.querySelector('table')")
    assert "waves" in page.run("document.querySelector('table').innerText")
    page.run("[...document.querySelectorAll('a')].find((a) => a.innerText === 'waves').click()")
    page.wait("document.querySelector('h1')?.innerText === 'waves'")
    assert "25 %" in page.run("document.querySelector('main').innerText")
    say(tmp_path / "waves", 9)
    page.wait("document.querySelector('main').innerText.includes('75 %')")  # without being asked to
    assert page.run("document.querySelector('svg .curve').getAttribute('d').split('L').length") == 9
    page.size(390, 800)
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.command("Page.navigate", url="about:blank")  # so that it does not miss its server


def test_a_survey_of_the_index_opens_its_gallery(page, address):
    with page.visit(f"{address}run/survey/"):
        assert page.run("document.body.dataset.drawn").startswith("1")
