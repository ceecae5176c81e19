"""consensus: exact on Gaussians, right after correction elsewhere, the same after any interruption."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import shardfit
from shardfit.core.errors import CheckpointError
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import statistic_term
from shardfit.sampling.shards.shard_consensus import consensus
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.sampling.shards.shard_table import ShardTable
from shardfit.sampling.store import load_posterior
from tests.sampling.shard_cases import EVENTS, QUICK, N, decay, decay_posterior, line, line_posterior

K, POINTS = 4, 2000
QUIET = ShardControl(slots=2, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the run directory of a consensus."""
    folder = tmp_path_factory.mktemp("consensus") / "run"
    again(folder)
    return folder


@pytest.fixture(scope="module")
def drawn(folder):
    return again(folder)


def again(folder, **options):
    return consensus(line(), K, by="third", run_dir=folder, **{"control": QUIET, "correct": POINTS} | QUICK | options)


def moments(posterior):
    w = np.full(posterior.z.shape[1], 1 / posterior.z.shape[1]) if posterior.weights is None else posterior.weights[0]
    mean = w @ posterior.z[0]
    away = posterior.z[0] - mean
    return mean, (w[:, None] * away).T @ away


def require_moments(posterior, errors=0.2, spread=0.2):
    mean, covariance = line_posterior()
    sd = np.sqrt(np.diag(covariance))
    found = moments(posterior)
    np.testing.assert_allclose((found[0] - mean) / sd, 0, atol=errors)
    np.testing.assert_allclose(found[1] / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=spread)


@pytest.mark.slow
def test_corrected_answer(drawn):
    require_moments(drawn)
    assert drawn.extra["pareto_k"] < 0.5
    assert drawn.extra["effective"] > 200
    assert drawn.draws["w"].shape == (1, POINTS, 3)
    np.testing.assert_array_equal(drawn.draws["w"], drawn.z)
    assert drawn.units == {"w": "m"}
    assert "shards 4" not in str(drawn)


@pytest.mark.parametrize("rule", ["full", "debiased", "draws", "robust"])
def test_other_rules_need_no_new_draws(folder, rule):
    shards = {path.name: path.stat().st_mtime_ns for path in (folder / "shards").iterdir()}
    found = again(folder, rule=rule, correct=False)
    assert {path.name: path.stat().st_mtime_ns for path in (folder / "shards").iterdir()} == shards
    require_moments(found, 0.3, 0.3)
    assert found.weights is None


def test_diagnostics_are_those_of_the_shards(drawn):
    table = ShardTable(drawn.extra["shards"])
    assert table["rows"].sum() == N
    assert np.ptp(table["rows"]) <= 1
    assert table["rhat"].max() < 1.05
    assert table["ess"].min() > 100
    assert np.isnan(drawn.summary()["rhat"]).all()  # weighted draws always look perfect
    assert len(str(table).splitlines()) == K + 1
    assert drawn.evaluations == table["gradients"].sum()
    assert drawn.verdict()


def test_what_shards_suffer_from_is_told(drawn):
    columns = {name: column.copy() for name, column in drawn.extra["shards"].items()}
    columns["rhat"][1], columns["divergences"][2], columns["distance"][0], columns["skewness"][3] = 1.3, 0.2, 8, 2
    sick = replace(drawn, extra=drawn.extra | {"shards": columns})
    assert sick.verdict()  # the weights have put it right
    uncorrected = replace(drawn, extra={"shards": columns, "independent": True})
    assert uncorrected.verdict().status == "not_converged"
    for words in ("R-hat above 1.05: shard 1", "draws diverged: shard 2", "chance: shard 0", "Gaussian: shard 3"):
        assert words in str(sick)


def test_what_the_folder_keeps(folder, drawn):
    again(folder)
    stored = load_posterior(folder, like=line().x0)
    np.testing.assert_array_equal(stored.z, drawn.z)
    events = [json.loads(text) for text in (folder / "events.jsonl").read_text().splitlines()]
    assert sorted(e["number"] for e in events if e["event"] == "shard") == list(range(K))


def test_lost_shards_are_sampled_again_to_the_bit(folder, drawn, tmp_path):
    kept = {path.name: path.read_bytes() for path in (folder / "shards").iterdir()}
    for number in (0, 3):
        (folder / "shards" / f"{number:05d}.npz").unlink()
    np.testing.assert_array_equal(again(folder).z, drawn.z)
    with np.load(folder / "shards" / "00003.npz") as new:
        (tmp_path / "old.npz").write_bytes(kept["00003.npz"])
        with np.load(tmp_path / "old.npz") as old:
            assert set(old) == set(new)
            for name in set(old) - {"seconds", "sha256"}:
                np.testing.assert_array_equal(new[name], old[name])


def test_workers_draw_the_same(drawn, tmp_path):
    for size in (1, 2):
        with ThreadPoolExecutor(size) as pool:
            control = ShardControl(slots=2, executor=pool, progress=False)
            found = consensus(
                line, K, by="third", run_dir=tmp_path / str(size), control=control, correct=POINTS, **QUICK
            )
        np.testing.assert_array_equal(found.z, drawn.z)
        np.testing.assert_array_equal(found.weights, drawn.weights)
    assert not list(tmp_path.glob("*/shards/*.pulse"))


def test_damage_and_other_runs_are_refused(folder):
    path = folder / "shards" / "00001.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-200] + bytes(200))
    with pytest.raises(CheckpointError, match=r"00001.npz is damaged.*Delete it and run again"):
        again(folder)
    path.write_bytes((folder / "shards" / "00002.npz").read_bytes())
    with pytest.raises(CheckpointError, match="holds shard 2. Delete it"):
        again(folder)
    path.write_bytes(whole)
    for changes, words in (({"seed": 1}, "seed"), ({"draws": 260}, "draws"), ({"control": ShardControl(3)}, "slots")):
        with pytest.raises(CheckpointError, match=f"belongs to another fit: .*{words}"):
            again(folder, **changes)
    with pytest.raises(CheckpointError, match="number of shards"):
        consensus(line(), 3, by="third", run_dir=folder, control=QUIET, **QUICK)
    known = (folder / "config.json").read_bytes()
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="start.npz is of another run"):
        again(folder, seed=1)
    (folder / "config.json").write_bytes(known)


@pytest.mark.slow
def test_a_transformed_parameter():
    """Prior and Jacobian are shared among shards: the rate has the known gamma posterior."""
    mean, sd = decay_posterior()
    options = QUICK | {"draws": 1000}
    found = consensus(decay(), 5, control=ShardControl(progress=False), **options)
    weights, rate = found.weights[0], found.draws["rate"][0]
    assert weights @ rate == pytest.approx(mean, abs=0.1 * sd)
    assert np.sqrt(weights @ (rate - mean) ** 2) == pytest.approx(sd, rel=0.08)


def test_a_silent_worker_is_reported(tmp_path):
    release = threading.Event()
    caller = threading.current_thread()

    def slow():
        if threading.current_thread() is not caller:
            release.wait(60)
        return line()

    with ThreadPoolExecutor(1) as pool:
        control = ShardControl(slots=4, executor=pool, patience=0.5, progress=False)
        try:
            with pytest.raises(TimeoutError, match="shards 0, 1, 2, 3: its worker has not responded") as caught:
                consensus(slow, K, run_dir=tmp_path, control=control, **QUICK)
        finally:
            release.set()
    assert "the same call samples the rest" in str(caught.value.__notes__)


def test_a_worker_with_another_problem(tmp_path):
    caller = threading.current_thread()

    def make():
        made = line()
        return made if threading.current_thread() is caller else made.replace(x0={"w": np.ones(3)})

    other = QUICK | {"draws": 100}  # a worker keeps what it knows of a run
    with ThreadPoolExecutor(1) as pool, pytest.raises(CheckpointError, match="this worker's problem is another one"):
        consensus(make, K, run_dir=tmp_path, control=ShardControl(executor=pool, progress=False), **other)


def test_bad_input():
    mass = Objective({"mass": statistic_term(lambda p, r: r["t"] * p["a"], {"t": EVENTS}, loss=lambda s: s**2)})
    with pytest.raises(TypeError, match="split needs losses that are plain sums over rows, but 'mass'"):
        consensus(Problem(mass, {"a": 1.0}), 2)
    with pytest.raises(ValueError, match="121 rows for 122 shards"):
        consensus(line(), 122)
    with pytest.raises(ValueError, match="40 rows labelled 1 for 41 shards"):
        consensus(line(), 41, by="third")
    with pytest.raises(ValueError, match="unknown rule 'fall'"):
        consensus(line(), 2, rule="fall")
    with pytest.raises(TypeError, match="solver 'nuts' has no option 'chain'. Did you mean 'chains'"):
        consensus(line(), 2, chain=4)
    with pytest.raises(ValueError, match="temper is 1 / shards"):
        consensus(line(), 2, temper=1.0)
    with pytest.raises(TypeError, match="give a function without arguments"):
        consensus(line(), 2, control=ShardControl(workers=2))
    with pytest.raises(ValueError, match="slots=0 must be a whole number"):
        consensus(line(), 2, control=ShardControl(slots=0))
    for wrong in ({"patience": 0}, {"workers": 0}):
        with pytest.raises(ValueError, match="must be"):
            ShardControl(**wrong)


@pytest.mark.slow
def test_single_precision():
    found = consensus(line().replace(precision="float32"), K, correct=POINTS, control=QUIET, **QUICK)
    require_moments(found)
    assert found.z.dtype == np.float32


@pytest.mark.slow
def test_devices(drawn):
    """Shards over `runs` draw the same to the bit; with the rows of each over `rows` sums have another order."""
    options = {"by": "third", "correct": POINTS, "control": QUIET, **QUICK}
    spread = consensus(line(), K, mesh=shardfit.mesh(1, 2), **options)
    for name, column in drawn.extra["shards"].items():
        np.testing.assert_array_equal(spread.extra["shards"][name], column, err_msg=name)
    np.testing.assert_array_equal(spread.extra["uncorrected_mean"], drawn.extra["uncorrected_mean"])
    require_moments(spread)
    require_moments(consensus(line(), K, mesh=shardfit.mesh(2, 2), **options))


def test_progress(capsys, monkeypatch, tmp_path, folder):
    for number in (1, 2):
        (folder / "shards" / f"{number:05d}.npz").unlink()
    monkeypatch.setattr("shardfit.io.progress.PLAIN_SECONDS", 0.0)
    again(folder, correct=False, control=ShardControl(slots=2))
    shown = capsys.readouterr().err
    assert "line: 0 of 2 shards" in shown
    assert "line: 2 of 2 shards, 0 divergences, R-hat 1.0" in shown
