"""Compiled programs are let go before the limit of memory maps, and fits after that are the same."""

import jax
import pytest

import shardfit as sf
from benchmarks.reliability.small import ROWS, START, residual
from shardfit.core import loaded_programs
from shardfit.core.loaded_programs import n_maps, release_compiled_programs

pytestmark = pytest.mark.skipif(not n_maps(), reason="this system does not tell its memory maps")


@pytest.mark.parametrize(("limit", "calls"), [(10**9, 0), (100, 1)])
def test_only_if_they_are_many(limit, calls, tmp_path, monkeypatch):
    cleared = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    monkeypatch.setattr(loaded_programs, "EVERY", 1)
    monkeypatch.setattr(loaded_programs, "_calls_left", 0)
    monkeypatch.setattr(loaded_programs, "LIMIT", tmp_path / "limit")
    (tmp_path / "limit").write_text(f"{limit}\n")
    release_compiled_programs()
    assert len(cleared) == calls


def test_where_the_system_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(loaded_programs, "MAPS", tmp_path / "none")
    monkeypatch.setattr(loaded_programs, "LIMIT", tmp_path / "none")
    assert n_maps() == 0 and loaded_programs._limit() == loaded_programs.USUAL_LIMIT
    release_compiled_programs()


@pytest.mark.slow
def test_many_models_stay_below_the_limit(tmp_path, monkeypatch):
    """Without the limit each fit of a new function adds some 150 maps; with it, what came before is gone."""

    def fitted(k):
        terms = {"decay": sf.residual_term(lambda p, rows: residual(p, rows) + 1e-9 * k, ROWS)}
        return sf.fit(sf.Problem(sf.Objective(terms), START), "lbfgs", progress=False, certify=False)

    first, before = fitted(0), n_maps()
    added = -before + (fitted(1), n_maps())[1]
    assert added > 20
    monkeypatch.setattr(loaded_programs, "EVERY", 1)
    monkeypatch.setattr(loaded_programs, "_calls_left", 0)
    monkeypatch.setattr(loaded_programs, "LIMIT", tmp_path / "limit")
    (tmp_path / "limit").write_text(f"{round(before / loaded_programs.SHARE)}")
    seen = []
    for k in range(2, 6):
        fitted(k)
        seen.append(n_maps())
    assert max(seen) < before + 2.5 * added
    again = fitted(0)
    assert again.value == first.value and again.params == first.params
