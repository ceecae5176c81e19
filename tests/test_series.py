"""Any series of fits: folders, one certificate, the best, the sum; interrupted and resumed equals unbroken."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from tests.interrupting import interrupt

ROWS = {"x": np.linspace(0, 2, 24), "y": np.exp(-1.7 * np.linspace(0, 2, 24))}
STARTS = [{"a": 3.0, "k": 0.2}, {"a": 0.5, "k": 4.0}, {"a": 1.5, "k": 1.0}]


def decay(params, rows):
    return params["a"] * jnp.exp(-params["k"] * rows["x"]) - rows["y"]


def bent(params, rows):
    return decay(params, rows) + 0.01 * params["k"] * rows["x"] ** 2


def problem(start, fn=decay):
    x0 = {name: np.float64(value) for name, value in start.items()}
    return sf.Problem(sf.Objective({"data": sf.residual_term(fn, ROWS)}), x0)


def chain(run=None, scales=(1.0, 1.3, 1.6), prefix="scale-"):
    """Fit three times, each from a multiple of the last answer, with few steps."""
    series, start = sf.FitSeries(run, prefix, solver="lbfgs", maxiter=6, progress=False), STARTS[0]
    for scale in scales:
        result = series.fit(problem({name: scale * float(value) for name, value in start.items()}))
        if series.interrupted:
            break
        start = result.params
    return series


def test_every_fit_has_a_folder_and_resuming_gives_the_same(tmp_path, monkeypatch):
    whole = chain()
    run = sf.RunOptions(run_dir=sf.RunDir(tmp_path, seconds=0.0))
    with monkeypatch.context() as patched:
        interrupt(patched, 2)
        broken = chain(run)
    assert broken.interrupted
    assert len(broken.results) == 2
    assert broken.answer().status is sf.Status.INTERRUPTED
    again = chain(dataclasses.replace(run, resume="must"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scale-01", "scale-02", "scale-03"]
    assert again.results[0].timings == broken.results[0].timings  # it was kept, not computed
    for found, expected in zip(again.results, whole.results, strict=True):
        assert (found.value, found.steps, found.status) == (expected.value, expected.steps, expected.status)
        assert found.params == expected.params
        np.testing.assert_array_equal(found.history["value"], expected.history["value"])


def test_must_insists_on_the_first_fit_only(tmp_path):
    for missing in (sf.RunOptions(resume="must"), sf.RunOptions(run_dir=tmp_path, resume="must")):
        with pytest.raises(sf.CheckpointError, match="no run to resume"):
            sf.FitSeries(missing)
    chain(sf.RunOptions(run_dir=tmp_path), scales=(1.0,))
    assert len(chain(sf.RunOptions(run_dir=tmp_path, resume="must")).results) == 3


def test_each_program_is_certified_once():
    series = sf.FitSeries(solver="lm", progress=False)
    for fn in (decay, decay, bent, bent):
        series.fit(problem(STARTS[2], fn))
    assert [result.certificate.get("earlier", False) for result in series.results] == [False, True, False, True]
    later = sf.FitSeries(certificate=series.results[0].certificate, solver="lm", progress=False)
    assert later.fit(problem(STARTS[2], bent)).certificate["earlier"]
    unchecked = sf.FitSeries(solver="lm", progress=False)
    assert unchecked.fit(problem(STARTS[2]), certify=False).certificate is None
    assert "earlier" not in unchecked.fit(problem(STARTS[2])).certificate


def test_the_best_counts_and_steps_are_of_all():
    series = sf.FitSeries(solver="lm", progress=False)
    for start in STARTS:
        series.fit(problem(start), maxiter=1 if start is STARTS[0] else 50)
    first, second, third = series.results
    assert series.best() == int(np.argmin([result.value for result in series.results]))
    answer = series.answer()
    assert answer.value == min(result.value for result in series.results)
    for name in ("steps", "evaluations"):
        assert getattr(answer, name) == sum(getattr(result, name) for result in series.results)
    assert answer.timings["total"] == sum(result.timings["total"] for result in series.results)
    assert "of all 3 fits" in answer.message
    assert series.answer(first).status is sf.Status.MAX_STEPS
    assert series.answer(first, planned=True).status is sf.Status.COMPLETED
    series.results[:] = [dataclasses.replace(second, value=np.nan), third, second]
    assert (series.best(), series.best(since=2)) == (1, 2)
    series.results[:] = [dataclasses.replace(second, value=np.nan)]
    assert series.best() == 0


def test_attempts_at_one_fit_are_inside_its_folder(tmp_path):
    series = chain(sf.RunOptions(run_dir=tmp_path), scales=(1.0,))
    inner = series.within("other")
    assert inner.folder == tmp_path / "scale-01" / "other01"
    assert inner.fit(problem(STARTS[1])).certificate["earlier"]
    assert series.within("other", 2).folder == tmp_path / "scale-02" / "other01"
