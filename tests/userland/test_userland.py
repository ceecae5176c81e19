"""What the guides say can be written outside of the library works there: fresh and resumed, on one device and on two.

The package `decaylab` is imported anew for every run, as by another process: nothing but its files is the same.
"""

import dataclasses
import importlib
import sys
from pathlib import Path

import numpy as np
import optax
import pytest

import shardfit as sf
from shardfit.sciences import get_science
from tests.interrupting import interrupt
from tests.test_docs import blocks

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs/extending.md"
SHORT: dict = {"progress": False, "certify": False}  # what the certificate finds is tested elsewhere


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(HERE / "packages")
    yield
    forget()


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] in ("decaylab", "guide")]:
        del sys.modules[name]


def lab(module):
    """Return a module of the package, as a new process would have it."""
    forget()
    return importlib.import_module(f"decaylab.{module}")


def science():
    """Return the science that the package has registered, as it does when it is installed."""
    forget()
    return get_science("decaylab", "survey")


def guide(monkeypatch, folder):
    """Return the code of the guide on extending, word for word, as a module; what it prints is left out."""
    forget()
    text = "\n".join(block for _, block in blocks(GUIDE, "python") if "SCIENCE" not in block)
    lines = [line for line in text.splitlines() if not line.startswith("print(")]
    (folder / "guide.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("guide")


def solver_of(name, monkeypatch, folder):
    if name in ("descend", "Descent"):
        one = getattr(guide(monkeypatch, folder), name)
        return one if name == "descend" else one(rate=0.05)
    if name == "optax":
        return optax.chain(optax.scale_by_adam(), optax.scale(-0.05))
    one = getattr(lab("solvers"), name)
    return one if name == "by_scipy" else one()


@pytest.mark.parametrize("name", ["Descent", "descend", "by_scipy", "Walk", "optax"])
def test_solvers_go_on_where_they_were_and_end_where_they_would(name, monkeypatch, tmp_path):
    def fit(rows, maxiter, run_dir=None, resume="auto"):
        solver, options = solver_of(name, monkeypatch, tmp_path), {"maxiter": maxiter}
        if isinstance(solver, sf.Solver):
            solver, options = dataclasses.replace(solver, **options), {}
        problem, mesh = lab("terms").problem(), sf.mesh(rows=rows)
        return sf.fit(problem, solver, mesh=mesh, run_dir=run_dir, resume=resume, **options, **SHORT)

    fit(1, 4, tmp_path / "run")
    resumed, again, whole = fit(2, 9, tmp_path / "run", "must"), fit(1, 9, tmp_path / "run", "must"), fit(1, 9)
    assert resumed.steps == whole.steps > 4
    assert resumed.value == pytest.approx(whole.value, rel=1e-9)
    assert again.timings == resumed.timings  # it was kept, not computed


@pytest.mark.parametrize("term", ["all", "host"])
def test_terms_transforms_and_priors(term, tmp_path):
    def fit(rows, maxiter, run_dir=None, resume="auto", floor=0.0):
        terms = lab("terms")
        terms.settings.FLOOR = floor
        if term == "host":  # what is called there has no derivative
            problem, solver = terms.problem(term, bounds={"a": (0.0, 4.0), "tau": (0.1, 2.0)}), sf.Swarm(polish=None)
        else:
            more = {"transforms": {"tau": terms.Squared()}, "priors": {"a": terms.Cauchy(5.0)}}
            problem, solver = terms.problem(term, **more), sf.LBFGS()
        solver, mesh = dataclasses.replace(solver, maxiter=maxiter), sf.mesh(rows=rows)
        return sf.fit(problem, solver, mesh=mesh, run_dir=run_dir, resume=resume, **SHORT)

    fit(1, 2, tmp_path)
    resumed, again, whole = fit(2, 6, tmp_path, "must"), fit(1, 6, tmp_path, "must"), fit(1, 6)
    assert resumed.value == pytest.approx(whole.value, rel=1e-9)
    assert again.timings == resumed.timings  # it was kept, not computed
    with pytest.raises(sf.CheckpointError, match="belongs to another fit: model of term"):
        fit(1, 6, tmp_path, floor=0.5)


def test_a_solver_without_either_loop(tmp_path):
    results = [sf.fit(lab("terms").problem(), lab("solvers").Once(), mesh=sf.mesh(rows=n), **SHORT) for n in (1, 2)]
    assert results[0].value == pytest.approx(results[1].value)
    assert results[0].steps == 1


def test_a_series_goes_on_in_the_fit_that_was_interrupted(monkeypatch, tmp_path):
    def run(rows, resume="auto", folder=tmp_path):
        run = sf.RunOptions(mesh=sf.mesh(rows=rows), run_dir=folder, resume=resume, progress=False)
        return lab("series").sharpened(run)

    with monkeypatch.context() as patched:
        interrupt(patched, 2)
        broken, answer = run(1)
    assert len(broken.results) == 2
    assert answer.status is sf.Status.INTERRUPTED
    whole = run(1, folder=None)[1]
    series, resumed = run(2, "must")
    assert [sorted(path.name for path in tmp_path.iterdir())] == [["width-01", "width-02", "width-03"]]
    assert ["earlier" in result.certificate for result in series.results] == [False, True, True]
    assert (resumed.steps, resumed.status) == (whole.steps, whole.status)
    assert resumed.value == pytest.approx(whole.value, rel=1e-9)
    assert run(1, "must")[1].timings == resumed.timings  # it was kept, not computed


def test_surveys_with_a_solver_a_picture_and_an_executor(monkeypatch, tmp_path):
    def survey(rows):
        solver = dataclasses.replace(guide(monkeypatch, tmp_path).Descent(rate=0.02), maxiter=6)
        module, control = science().module("survey"), sf.SurveyControl(slots=1, progress=False)
        problem, axes, _ = module.make({"maxiter": 6}, {})
        chosen = {"picture": sf.Picture((2, 2), draw=module.picture), "mesh": sf.mesh(rows=rows), "control": control}
        return sf.survey(problem, axes, run_dir=tmp_path / f"on{rows}", solver=solver, **chosen)

    fresh = [survey(rows).column("value") for rows in (1, 2)]
    assert len(fresh[0]) == 2
    np.testing.assert_allclose(fresh[1], fresh[0])
    np.testing.assert_array_equal(survey(1).column("value"), fresh[0])
    for _ in range(2):
        module = science().module("survey")
        options = {"arguments": ({"maxiter": 20}, {}), "parts": 2, "executor": module.Inline(), "progress": False}
        parts = sf.survey_parts(module.make, run_dir=tmp_path / "parts", **options)
        assert len(parts) == 2 and parts.complete
