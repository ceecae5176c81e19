"""Success, badge, exit code and JSON of every kind of answer are one verdict, good or doctored; and of every command.

Commands that the other tests of this folder run are held to the same by `every_ending` in conftest.py.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from shardfit.core.status import Status
from shardfit.io.results import save_result
from shardfit.report.folders import verdict_in
from shardfit.report.posterior import report_posterior
from shardfit.report.run import report_run
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.store import doubted, save_posterior
from shardfit.surveys.ledger import Ledger
from tests.cli.conftest import badge_of, disagreements
from tests.cli.test_one_voice import KIND, RUN
from tests.command_line import run
from tests.report.conftest import make_result
from tests.report.fake_survey import heading, records

NAN, INF = np.array(np.nan), np.array(np.inf)
W = np.array([0.5, -0.25])
FITS = {  # what a result was doctored with: word, exit code
    "good": ({}, "converged", 0),
    "plan": ({"status": Status.COMPLETED}, "completed", 0),
    "no value": ({"value": np.nan}, "doubtful", 1),
    "no number": ({"params": {"a": NAN, "w": W}}, "doubtful", 1),
    "no error": ({"stderr": {"a": NAN, "w": W}}, "doubtful", 1),
    "no error, another at a bound": ({"stderr": {"a": NAN, "w": W}, "at_bound": ("w[0]",)}, "doubtful", 1),
    "no error at its bound": ({"stderr": {"a": NAN, "w": W}, "at_bound": ("a",)}, "converged at a bound", 0),
    "one of two at its bound": (
        {"stderr": {"a": W[0], "w": np.array([np.nan, np.nan])}, "at_bound": ("w[0]",)},
        "doubtful",
        1,
    ),
    "undetermined": ({"stderr": {"a": INF, "w": W}}, "doubtful", 1),
    "doubted": ({"doubts": ("χ² of cphase is 9.",)}, "doubtful", 1),
    "limit": ({"status": Status.MAX_STEPS}, "step limit reached", 1),
    "stalled": ({"status": Status.STALLED}, "stalled", 1),
    "failed": ({"status": Status.FAILED}, "failed", 1),
    "interrupted": ({"status": Status.INTERRUPTED}, "interrupted", 130),
}


def told(capsys, folder):
    code, out, err = run(capsys, "show", folder, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("name", FITS)
def test_a_fit(name, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("shardfit.report.run.standard_figures", lambda result: {})  # pictures say nothing of this
    changes, word, code = FITS[name]
    save_result(make_result(**changes), tmp_path)
    report_run(tmp_path)
    assert (verdict_in(tmp_path).word, verdict_in(tmp_path).exit) == (word, code)
    assert not disagreements(tmp_path, code) and badge_of(tmp_path)[0] == word
    said = told(capsys, tmp_path)
    assert said["success"] == (code == 0) == (not said["reasons"]) and said["badge"] == word
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored["success"] == said["success"]


def posterior(draws=1000, **changes):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4, draws, 1))
    return replace(Posterior({"a": z[..., 0]}, z, {}, None, "nuts", labels=("a",)), **changes)


POSTERIORS = {
    "good": ({}, "converged", 0),
    "few": ({"draws": 20}, "not converged", 1),
    "no number": ({"z": np.full((4, 1000, 1), np.nan)}, "not converged", 1),
    "no number, independent": (
        {"z": np.full((4, 1000, 1), np.nan), "extra": {"independent": True}},
        "not converged",
        1,
    ),
    "diverging": ({"stats": {"diverging": np.ones((4, 1000), bool)}}, "divergences", 1),
    "doubted": ({"extra": {"doubts": ["χ² of the draws is 9."]}}, "doubtful", 1),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_posterior(name, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("shardfit.report.posterior.standard_figures", lambda posterior: {})
    changes, word, code = POSTERIORS[name]
    changes = dict(changes)
    save_posterior(posterior(changes.pop("draws", 1000), **changes), tmp_path)
    report_posterior(tmp_path)
    assert not disagreements(tmp_path, code) and badge_of(tmp_path)[0] == word
    assert told(capsys, tmp_path)["success"] == (code == 0)


def test_doubts_of_a_posterior_are_kept_with_it(tmp_path):
    save_posterior(posterior(), tmp_path, "digest")
    changed = doubted(posterior(), ["χ² is 9."], tmp_path)
    assert not changed.verdict() and verdict_in(tmp_path).reasons == changed.verdict().reasons == ("χ² is 9",)
    assert doubted(changed, ["χ² is 9."], tmp_path) is changed
    assert doubted(changed, [], tmp_path).verdict() and verdict_in(tmp_path)


SURVEYS = {
    "good": ({}, 4, "complete", 0),
    "incomplete": ({}, 5, "incomplete", 1),
    "limit": ({"status": "MAX_STEPS"}, 4, "doubtful", 1),
    "failed": ({"status": "NONFINITE", "value": np.nan}, 4, "doubtful", 1),
    "given up early, as asked": ({"status": "STOPPED_EARLY"}, 4, "complete", 0),
}


@pytest.mark.parametrize("name", SURVEYS)
def test_a_survey(name, capsys, tmp_path):
    changes, total, word, code = SURVEYS[name]
    with Ledger.create(tmp_path, heading(total, 4)) as ledger:
        points = [replace(each, status="CONVERGED_VALUE") for each in records(range(4), 4)]
        ledger.write([*points[:3], replace(points[3], **changes)])
    assert not disagreements(tmp_path, code) and verdict_in(tmp_path).word == word
    assert told(capsys, tmp_path)["success"] == (code == 0)


# what decides the exit code of a command that computes in a run directory; a new one has to be put here
FROM = {
    "the result": """fit; population fit; population swarm; seismic invert; survey point; vlbi image; vlbi movie;
        vlbi weights""",
    "the results of all files": "xpcs fit; xpcs watch",
    "the posterior": "consensus; sample; vlbi posterior; xpcs sample",
    "the survey": "survey run",
    "whether every day has a Top Set": "vlbi study",
}


def test_every_command_has_a_verdict():
    known = sorted(name.strip() for names in FROM.values() for name in names.split(";"))
    assert known == sorted(name for name, kind in KIND.items() if kind == RUN)
