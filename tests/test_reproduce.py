"""Published headlines: each has suites that exist, fields that those suites write, and a table."""

import re
import string

import pytest

from benchmarks import __main__ as runner
from benchmarks import report
from benchmarks.reproduce import __main__ as reproduce
from benchmarks.reproduce.headlines import HEADLINES


@pytest.mark.parametrize("name", HEADLINES)
def test_a_headline_names_its_suites_source_and_hardware(name):
    headline = HEADLINES[name]
    fields = [field for row in headline.rows for _, field, _, _ in string.Formatter().parse(row.here) if field]
    assert fields and {field.partition(" ")[0] for field in fields} <= set(headline.suites) <= set(runner.known())
    assert all(re.fullmatch(r"\w+ [^.\[\]]+(\[[^\[\]]+\])+", field) for field in fields)
    assert headline.source and headline.hardware and headline.note and "{" not in headline.note


@pytest.mark.parametrize("name", HEADLINES)
def test_the_table_has_a_line_for_each_row(name):
    table = report.headline(name)
    assert table.count("\n| ") == len(HEADLINES[name].rows) + 1
    assert table in report.TARGET.read_text()


def test_what_was_not_run_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.headline("diffopt-smf").count("| not run yet |") == len(HEADLINES["diffopt-smf"].rows)


def test_a_case_that_a_suite_does_not_have_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.keep("xpcs", {"cases": {"another": {}}})
    with pytest.raises(KeyError):
        report.headline("xpcs-fit")


def test_the_command_lists_shows_and_runs(monkeypatch, capsys):
    reproduce.main([])
    listed = capsys.readouterr().out
    assert all(name in listed for name in HEADLINES)
    reproduce.main(["eht-survey", "--show"])
    assert "7,500" in capsys.readouterr().out
    asked = []
    monkeypatch.setattr(runner, "main", asked.append)
    reproduce.main(["diffopt-smf", "diffopt-swarm", "--quick"])
    assert asked == [["diffopt_examples", "--quick"]]
    with pytest.raises(SystemExit):
        reproduce.main(["eht-surveys"])
