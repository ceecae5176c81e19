"""The judge of the fault campaign notices wrong answers, lost work and unclear errors; a bad run does not pass."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from benchmarks import faults, soak
from benchmarks.reliability import ranks, trials
from benchmarks.reliability.children import Ended
from benchmarks.reliability.kinds import SHARE, stormy
from benchmarks.reliability.small import decay
from benchmarks.reliability.trials import judged, weathered

ROOT = Path(faults.__file__).parents[1]
EXPECTED = {"x": np.array([1.0, 2.0]), "steps": np.array(7)}
DONE, KILLED = Ended("done"), Ended("killed", "signal 9")


def how(first, second, found=EXPECTED):
    return judged(first, second, EXPECTED, lambda: found).how


def test_equal_and_refused():
    assert how(KILLED, DONE) == how(DONE, DONE) == trials.EQUAL
    assert how(Ended("refused", "the disk is full"), DONE) == trials.REFUSED


@pytest.mark.parametrize(
    "found",
    [
        {"x": np.array([1.0, np.nextafter(2.0, 3)]), "steps": np.array(7)},
        {"x": np.array([1.0, 2.0])},
        {**EXPECTED, "y": np.array(0)},
        {**EXPECTED, "x": np.array([1.0, 2.0], np.float32)},
    ],
    ids=["last digit", "missing", "too much", "type"],
)
def test_any_difference_is_wrong(found):
    assert how(KILLED, DONE, found) == trials.WRONG


@pytest.mark.parametrize(
    "ends", [(Ended("KeyError"), DONE), (KILLED, Ended("refused", "damaged")), (Ended("hang"), DONE)]
)
def test_a_run_that_does_not_go_on_is_wrong(ends):
    assert how(*ends) == trials.WRONG


def test_an_answer_that_cannot_be_read_is_wrong():
    def read():
        raise ValueError("damaged")

    assert "cannot be read: ValueError: damaged" in judged(KILLED, DONE, EXPECTED, read).text


def test_success_without_finite_numbers_is_wrong(tmp_path):
    result = sf.fit(decay(False), "lbfgs", progress=False, certify=False)
    sf.save_result(result, tmp_path)
    assert result.success and weathered(tmp_path).how == trials.MARKED
    sf.save_result(replace(result, params=result.params | {"a": np.nan}), tmp_path)
    assert weathered(tmp_path).how == trials.WRONG
    sf.save_result(replace(result, status=sf.Status.NONFINITE, value=np.nan), tmp_path)
    assert weathered(tmp_path).how == trials.MARKED


def test_a_storm_is_where_it_is_said_and_not_at_the_start():
    def model(params, rows):
        return rows * params["k"]

    rows = jnp.ones(10)
    totals = np.linspace(2.1, 3.0, 400)
    for storm, per_evaluation in (("evaluations", 10), ("rows", 1)):
        bad = [int(jnp.isnan(stormy(model, storm)({"a": 1.0, "k": t - 1.0}, rows)).sum()) for t in totals]
        assert set(bad) == {0, per_evaluation}
        assert abs(np.mean(np.array(bad) > 0) - SHARE) < 0.1
        assert jnp.isfinite(stormy(model, storm)({"a": 1.0, "k": 1.0}, rows)).all()
    assert stormy(model, "") is model


def test_ranks_are_judged_by_code_words_and_answer(tmp_path):
    for name, answer in (("whole", [1.0, 2.0]), ("same", [1.0, 2.0]), ("other", [1.0, 2.1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "answer.json").write_text(json.dumps(answer))
    whole, judge = tmp_path / "whole", ranks.judged
    assert judge(0, "", tmp_path / "same", whole, None).how == trials.EQUAL
    assert judge(0, "", tmp_path / "other", whole, None).how == trials.WRONG
    assert judge(1, "rank 1 was ended by SIGKILL", tmp_path / "same", whole, lambda: (0, "")).how == trials.REFUSED
    assert judge(1, "rank 1 was ended by SIGKILL", tmp_path / "same", whole, lambda: (1, "no")).how == trials.WRONG
    assert judge(1, "Segmentation fault", tmp_path / "same", whole, lambda: (0, "")).how == trials.WRONG


def test_trials_are_kept_and_counted(tmp_path):
    kept = faults.Kept(tmp_path / "a" / "faults.jsonl")
    kept.add("survey", "killed", 0, trials.Outcome("equal"))
    kept.add("survey", "disk full", 0, trials.Outcome("WRONG", "lost"))
    again = faults.Kept(tmp_path / "a" / "faults.jsonl")
    assert again.has("survey", "killed", 0) and not again.has("survey", "killed", 1)
    row = faults.table(again.trials)["survey"]
    assert (row["killed"], row["disk full"], row["trials"], row["equal"], row["WRONG"]) == (1, 1, 2, 1, 1)


def test_growth_is_seen_and_a_saw_tooth_is_not_growth():
    steady = [(k, 1000 + 50 * (k % 7), 600, 0.1 * k) for k in range(1, 51)]
    rising = [(k, 1000 + 50 * k, 600 + 10 * k, 0.1 * k) for k in range(1, 51)]
    assert abs(soak.summary(steady)["memory_growth"]) < 0.05 and soak.summary(steady)["maps_growth"] == 0
    assert soak.summary(rising)["memory_growth"] > 0.3 and soak.summary(rising)["maps_growth"] > 0.2


TINY = """
import os, sys, random
from pathlib import Path
import numpy as np
from benchmarks.reliability import trials
from benchmarks.reliability.kinds import Kind
from shardfit.io.files import read_arrays, write_arrays

def answer(folder):
    return read_arrays(folder / "state.npz") if (folder / "state.npz").exists() else {}

trials.answer = answer

def sound(folder, storm):
    folder.mkdir(exist_ok=True)
    done = int(answer(folder).get("done", 0))
    for k in range(done, 6):
        write_arrays(folder / "state.npz", {"done": np.array(k + 1)})

def forgetful(folder, storm):
    sound(folder, storm)
    again = (folder / "begun").exists()
    (folder / "begun").write_text("x")
    if again:
        write_arrays(folder / "state.npz", {"done": np.array(7)})

for work in (sound, forgetful):
    folder = Path(sys.argv[1]) / work.__name__
    bench = trials.prepared(Kind("tiny", work), folder)
    hows = [trials.killed(bench, folder / str(k), random.Random(k)).how for k in range(3)]
    hows.append(trials.disk_full(bench, folder / "full", random.Random(0)).how)
    print(*hows)
"""


@pytest.mark.processes
def test_a_tiny_campaign_passes_a_sound_run_and_fails_a_bad_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TINY, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=200
    )
    sound, bad = done.stdout.splitlines()
    assert sound.split()[:3] == ["equal"] * 3 and sound.split()[3] in ("equal", "refused"), done.stderr
    assert "WRONG" in bad


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("suite", ["faults", "soak"])
def test_a_small_campaign(suite):
    words = [sys.executable, "-m", "benchmarks", suite, "--quick"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(not case.get("WRONG") for case in found.values()), done.stdout
