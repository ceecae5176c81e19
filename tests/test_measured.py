"""Figures in the documentation are those of the results files, and a peer's environment is built once."""

import json
import re
import shutil
import string
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import __main__ as runner
from benchmarks import peer_sources, peers, report

RECORD = {"date", "commit", "load", "cpu", "cores", "system", "packages", "peers", "settings", "seconds"}
# a number and a word of speed: what has to come from a measurement
SPEED = re.compile(
    r"\d\s*(ms|µs)\b|\d\s*(s|seconds|minutes|hours) of (CPU|wall)|\d\s*CPU[- ](s|seconds|ms)\b"
    r"|\d+(\.\d+)?\s*(times|×) (as fast|faster|slower|quicker|less (time|memory))|\d\s*%\s*(faster|slower)"
)
PROSE = [
    path
    for path in (report.ROOT / "README.md", *sorted((report.ROOT / "docs").rglob("*.md")))
    if path not in (report.TARGET, report.RELIABILITY) and path.exists()
]
RESULTS = sorted(path.stem for path in report.RESULTS.glob("*.json"))


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_page_is_what_the_results_give():
    assert report.TARGET.read_text() == report.page(), "run: python -m benchmarks report"
    assert report.RELIABILITY.read_text() == report.reliability(), "run: python -m benchmarks report"


def test_each_page_has_its_own_sections_only():
    """Published tables are on the page of measurements, not on that of reliability as well; no heading comes twice."""
    for page in (report.page(), report.reliability()):
        titles = re.findall(r"^##+ .*", page, re.MULTILINE)
        assert len(titles) == len(set(titles))
    assert "The published tables" in report.page() and "The published tables" not in report.reliability()


def test_the_summary_takes_its_figures_from_results(tmp_path, monkeypatch):
    ratio = report.Figure(report.kept("seismic")["cases"]["marmousi"]["cpu_ratio"])
    assert f"{ratio} | [Seismic waves]" in report.page().partition("\n## ")[0]
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.page().partition("\n## ")[0].count(report.NOT_RUN) > 10


def test_texts_and_results_belong_to_suites():
    pages = {path.stem for path in report.PAGES.glob("*.md")}
    assert {*report.ORDER, *report.CAMPAIGNS} == pages - {"head", "published", "reliability"}
    assert {*report.ORDER, *RESULTS} <= set(runner.known())


def test_a_peer_that_is_not_built_here_is_left_out(monkeypatch, capsys):
    monkeypatch.delenv("SHARDFIT_HOMODYNE", raising=False)
    runner.main(["xpcs_homodyne", "--quick"])
    told = capsys.readouterr().out
    assert "xpcs_homodyne: left out" in told and "SHARDFIT_HOMODYNE" in told and told.endswith("{}\n")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_bench_runs_every_suite_that_has_results():
    shown = subprocess.run(["make", "-n", "bench"], cwd=report.ROOT, capture_output=True, text=True, check=True).stdout
    named = re.search(r"for suite in (.*?);", shown)
    assert named and named[1].split() == RESULTS


@pytest.mark.parametrize("page", sorted(report.PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_fields_of_a_text_are_case_and_key(page):
    """A dot in the name of a case would be taken for an attribute, after hours of work."""
    for _, field, _, _ in string.Formatter().parse(page.read_text()):
        assert field in (None, "table") or re.fullmatch(r"[^.\[\]]+(\[[^\[\]]+\])+", field), field


def test_a_suite_without_a_text_shows_all_its_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    about = {
        "date": "a day",
        "commit": "c0ffee",
        "cores": 2,
        "cpu": "a CPU",
        "load": 0.1,
        "load_after": 0.2,
        "seconds": 3,
    }
    record = {**about, "packages": {"jax": "1"}, "peers": {}, "settings": {"threads": "one"}}
    report.keep("another", {"record": record, "cases": {"a": {"ours": 0.12345, "peer": None}}})
    page = report.page()
    assert "## another" in page and "| a    | 0.1235 | –    |" in page and "Commit c0ffee" in page


@pytest.mark.parametrize("name", RESULTS)
def test_results_say_what_they_come_from_and_hold_numbers(name):
    def refuse(word):
        raise AssertionError(f"{name}.json holds {word}")

    text = (report.RESULTS / f"{name}.json").read_text()
    measured = json.loads(text, parse_constant=refuse)
    assert set(measured["record"]) >= RECORD
    assert measured["record"]["settings"].keys() >= {"precision", "threads"}


@pytest.mark.parametrize("name", report.ORDER)
def test_texts_of_the_page_hold_no_figure_of_speed(name):
    text = re.sub(r"\{[^{}]*\}", "", (report.PAGES / f"{name}.md").read_text())
    assert not SPEED.search(re.sub(r"^\|.*", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(report.ROOT)))
def test_no_figure_of_speed_without_a_mark(path):
    text = _without_code(path.read_text())
    assert not report.wrong_marks(text)
    bare = [line for line in text.splitlines() if SPEED.search(line) and "<!-- measured:" not in line]
    assert not bare, "say it in docs/measured.md, or mark it: <!-- measured: suite case[key]:unit -->"


def test_wrong_mark_and_bare_figure_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.keep("one", {"cases": {"fit-3": {"cpu_ours": 0.0421, "runs": 7, "inner": {"peer": None}}}})
    right = "takes 42.1 ms <!-- measured: one fit-3[cpu_ours]:ms -->"
    assert report.wrong_marks(right.replace(" <", "<")) == []
    assert report.wrong_marks(right.replace("42.1 ms ", "40 ms"))
    assert (
        report.fill("{fit-3[runs]} {fit-3[inner][peer]:s} {fit-3[cpu_ours]}", report.kept("one")["cases"])
        == "7 – 0.0421"
    )
    assert SPEED.search("it took 12 s of CPU time") and not SPEED.search("an exposure of 12 s")


def test_what_is_not_a_number_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        report.keep("one", {"cases": {"a": {"ours": float("nan")}}})


def test_environment_is_built_once_when_two_threads_want_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDFIT_BENCH_ENVS", str(tmp_path))
    builds, both = [], threading.Barrier(2)

    def build(folder, peer):
        builds.append(folder)
        time.sleep(0.05)
        folder.mkdir()

    def ask(_):
        both.wait(10)
        return peers.peer_python("swarm")

    monkeypatch.setattr(peers, "_build", build)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, range(2))) == [tmp_path / "swarm" / "bin" / "python"] * 2
    assert builds == [tmp_path / "swarm"]


def test_only_the_kernels_that_are_measured_are_compiled():
    rules = "set(NDIMS 1 2 3)\nset(ACCURACIES 2 4 6 8)\nset(DTYPES float double)\n"
    kept = "".join(f"  add_deepwave_cpu_object_library({name} ${{NDIM}})\n" for name in ("scalar", "elastic"))
    left_out = "  add_deepwave_cpu_mpml_object_library(elastic ${NDIM})\n"
    left_out += "  add_deepwave_cpu_object_library(elastic_born ${NDIM})\n"
    needed = "set(NDIMS 2 3)\nset(ACCURACIES 4 8)\nset(DTYPES float)\n"
    assert peer_sources._needed(rules + kept + left_out) == needed + kept
    with pytest.raises(RuntimeError, match="NDIMS"):
        peer_sources._needed("another layout")


@pytest.mark.slow
def test_a_survey_of_hours_goes_on(tmp_path, monkeypatch):
    """It ends when its hours are over, tells the share, goes on in the next run, and leaves nothing when it is done."""
    from benchmarks.m87_survey import run_lines
    from benchmarks.vlbi import M87

    monkeypatch.setenv("SHARDFIT_BENCH_RUNS", str(tmp_path))
    monkeypatch.setattr("benchmarks.m87_survey.CHECKED", 1)
    axes = {"systematic": (0.0, 0.02), "simple": (100, 1000), "tv": (1, 10)}
    monkeypatch.setenv("SHARDFIT_BENCH_HOURS", "0")
    part = run_lines("a", M87, axes, None, False)
    assert 0 < part["grid"]["share"] < 1 and (tmp_path / "a" / "ledger.sqlite").exists()
    monkeypatch.delenv("SHARDFIT_BENCH_HOURS")
    whole = run_lines("a", M87, axes, None, False)
    assert whole["grid"]["share"] == 1 and whole["grid"]["cpu_ours"] > part["grid"]["cpu_ours"]
    assert set(whole) == {"grid", "accuracy", "error-0", "error-2"} and not (tmp_path / "a").exists()
