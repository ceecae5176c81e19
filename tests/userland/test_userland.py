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
from tests.test_docs import blocks

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs/extending.md"
QUIET = {"progress": False}


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


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", ["Descent", "descend", "by_scipy", "Walk", "optax"])
def test_solvers_go_on_where_they_were_and_end_where_they_would(name, rows, monkeypatch, tmp_path):
    def fit(maxiter, run_dir=None, resume="auto"):
        solver = solver_of(name, monkeypatch, tmp_path)
        options = {"maxiter": maxiter}
        if isinstance(solver, sf.Solver):
            solver, options = dataclasses.replace(solver, **options), {}
        problem, mesh = lab("terms").problem(), sf.mesh(rows=rows)
        return sf.fit(problem, solver, mesh=mesh, run_dir=run_dir, resume=resume, **options, **QUIET)

    fit(4, tmp_path / "run")
    resumed, again, whole = fit(9, tmp_path / "run", "must"), fit(9, tmp_path / "run", "must"), fit(9)
    assert resumed.steps == again.steps == whole.steps > 4
    for one in (resumed, again):
        assert one.params == whole.params and one.value == whole.value


@pytest.mark.parametrize("term", ["object", "partial", "host", "statistic_term", "penalty"])
def test_terms_transforms_and_priors(term, tmp_path):
    def fit(rows):
        terms = lab("terms")
        more = {"transforms": {"tau": terms.Squared()}, "priors": {"a": terms.Cauchy(5.0)}}
        problem = terms.problem(term, **more)
        solver = "lbfgsb" if term != "host" else sf.Swarm(maxiter=3, polish=None, seed_points=None)
        return sf.fit(problem, "lbfgs", mesh=sf.mesh(rows=rows), run_dir=tmp_path / f"on{rows}", maxiter=9, **QUIET)

    fresh = [fit(rows) for rows in (1, 2)]
    for rows, one in zip((1, 2), fresh, strict=True):
        again = fit(rows)
        assert again.value == one.value and again.timings == one.timings  # it was kept, not computed
    assert fresh[0].value == pytest.approx(fresh[1].value)
    lab("settings").FLOOR
