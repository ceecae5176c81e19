"""The gallery of a survey with 50,000 points, in a real browser: how soon it is there, and how soon it answers.

server: the ledger's part, CPU seconds in one process. first: the 2,000 points that a page asks for first; all: the
columns of all points, in two pieces; sorted: numbers of the best 1,000 within two ranges, of all points; table: the
same points as CSV; mean: mean and standard deviation of 1,000 pictures. page: wall seconds in headless Chromium. paint:
something is seen; usable: the first points can be used; complete: all are there; filter: from a slider's move to the
drawn answer, all views, median; rank: the same for another ranking. Needs Chromium, see tests/pages/chromium.py.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all of one process", "browser": "headless, beside its server"}
COUNT, SIDE, REPEATS = 50_000, 16, 7
FILTER = """(async () => {
  const [low] = document.querySelectorAll('#filters input');
  const start = performance.now();
  low.value = %d;
  low.dispatchEvent(new Event('input'));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
})()"""
RANK = """(async () => {
  const [rank] = document.querySelectorAll('#tools select');
  const start = performance.now();
  rank.value = rank.options[%d].value;
  rank.onchange();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
})()"""


def run(quick: bool) -> dict[str, dict]:
    """Return the figures."""
    from tests.pages.conftest import serving
    from tests.report.fake_survey import write_survey

    with tempfile.TemporaryDirectory() as folder:
        where = write_survey(Path(folder), 2_000 if quick else COUNT, SIDE)
        cases = {"server": _server(where)}
        with serving(where) as address:
            cases["page"] = _page(address, 2_000 if quick else COUNT)
    return cases


def _server(where: Path) -> dict:
    from shardfit.report.gallery.query import Points
    from shardfit.report.gallery.selection import Selection

    points = Points.open(where)
    ranges = {"axis.tv": (1.0, 100.0), "part.data.cphase": (0.0, 5.0)}
    best = Selection(ranges, limit=1000, rank=points.heading.rank)

    def everything() -> None:
        after = (-1.0, -1)
        while (page := points.page(after))["count"]:
            after = tuple(page["last"])

    def mean() -> None:
        points.stacks = {}
        points.stack(best)

    asked = {
        "first": lambda: points.page(limit=2000),
        "all": everything,
        "sorted": lambda: points.select(best),
        "table": lambda: sum(len(row) for row in points.rows(best)),
        "mean": mean,
    }
    about = {"points": points.progress()["done"], "columns": len(points.keys())}
    found = {name: _cpu(work) for name, work in asked.items()}
    points.close()
    return about | found


def _cpu(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def _page(address: str, count: int) -> dict:
    from tests.pages.chromium import browsing, find_chromium

    binary = find_chromium()
    if binary is None:
        raise RuntimeError("the suite gallery needs Chromium: install it, or set SHARDFIT_CHROMIUM to its path.")
    with browsing(binary) as page:
        page.size(1440, 900)
        with page.visit(address):
            paint = page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            usable = page.run("Number(document.body.dataset.usable)")
            page.wait(f"document.body.dataset.drawn.startsWith('{count} ')", 120)
            complete = page.run("performance.now()")
            page.run("new Promise((done) => setTimeout(done, 2000))")
            filters = [page.run(FILTER % step) for step in (1, 2, 3, 2, 1, 2, 1)]
            ranks = [page.run(RANK % place) for place in (1, 2, 3, 2, 1, 2, 1)]
    times = {"paint": paint, "usable": usable, "complete": complete}
    times |= {"filter": statistics.median(filters), "rank": statistics.median(ranks)}
    return {name: value / 1e3 for name, value in times.items()}
