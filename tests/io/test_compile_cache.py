"""Compiled programs are kept for the next process: where, when not, and what damage does."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from shardfit.io import compile_cache
from shardfit.io.compile_cache import VARIABLE, not_kept, programs_kept, prune, use_compile_cache

PROGRAM = """
import json, sys, warnings
from pathlib import Path
import jax, numpy as np
import shardfit as sf
hits = []
def callers_own(x):
    return x + 1
jax.jit(callers_own)(1.0)
jax.monitoring.register_event_listener(lambda event, **_: hits.append(1) if event.endswith("cache_hits") else None)
rows = {"x": np.linspace(0, 1, 50), "y": 3 * np.linspace(0, 1, 50)}
objective = sf.Objective({"line": sf.residual_term(lambda p, rows: rows["y"] - p["slope"] * rows["x"], rows)})
def look(snapshot):
    jax.jit(callers_own)(np.zeros(3))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    result = sf.fit(sf.Problem(objective, {"slope": 1.0}), "lm", progress=False, certify=False, callback=look, every=1)
jax.jit(callers_own)(np.zeros(5))
assert jax.config.jax_compilation_cache_dir is None and jax.config.jax_persistent_cache_min_compile_time_secs == 1.0
print(json.dumps([float(result.params["slope"]), len(hits), len(warned)]))
"""


def run(home: Path, **variables: str) -> tuple[float, int, int]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", VARIABLE))}
    environment = {**plain, "XDG_CACHE_HOME": str(home), **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    slope, hits, _ = run(tmp_path)
    assert not hits
    entries = list((tmp_path / "shardfit" / "compiled").glob("*/*-cache"))
    assert entries
    assert not [path for path in entries if "callers" in path.name]
    again, hits, warned = run(tmp_path)
    assert again == slope == pytest.approx(3.0)
    assert hits == len(entries)
    assert not warned
    for path in entries:
        path.write_bytes(path.read_bytes()[:-7])
    damaged, hits, warned = run(tmp_path)  # compiled again, with a word of JAX about every entry
    assert (damaged, hits, warned) == (slope, 0, len(entries))


@pytest.fixture
def undecided(monkeypatch, tmp_path):
    """A process that has not fitted anything yet, and settings of JAX that are put back."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    compile_cache._folder.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()
    yield tmp_path
    compile_cache._folder.cache_clear()
    reset_cache()
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_variable_turns_it_off_or_moves_it(undecided, monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    use_compile_cache()
    assert jax.config.jax_compilation_cache_dir is None
    assert not list(undecided.iterdir())
    monkeypatch.setenv(VARIABLE, str(undecided / "mine"))
    use_compile_cache()  # decided once for a process
    assert jax.config.jax_compilation_cache_dir is None
    compile_cache._folder.cache_clear()
    use_compile_cache()
    assert Path(str(jax.config.jax_compilation_cache_dir)).parent == undecided / "mine"


@pytest.mark.parametrize(
    ("name", "value"), [("jax_compilation_cache_dir", "x"), ("jax_enable_compilation_cache", False)]
)
def test_settings_of_the_user_stay(undecided, name, value):
    jax.config.update(name, value)
    folder, least = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    use_compile_cache()
    assert jax.config.jax_compilation_cache_dir == folder
    assert jax.config.jax_persistent_cache_min_compile_time_secs == least
    assert not list(undecided.iterdir())


def test_a_folder_open_to_others_is_not_used(undecided, monkeypatch, caplog):
    (undecided / "shardfit" / "compiled").mkdir(parents=True)
    (undecided / "shardfit" / "compiled").chmod(0o777)
    use_compile_cache()
    assert jax.config.jax_compilation_cache_dir is None
    assert "other users can write to" in caplog.text
    compile_cache._folder.cache_clear()
    monkeypatch.setenv(VARIABLE, str(undecided / "shardfit" / "compiled"))
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{VARIABLE}=.*other users can write"), programs_kept():
            pass


def test_blocks_in_several_threads_put_settings_back_when_the_last_ends(undecided):
    """JAX has one setting for all threads: it is ours while any of them fits."""
    fits, seen = [programs_kept() for _ in range(2)], []
    folder = lambda: jax.config.jax_compilation_cache_dir  # noqa: E731
    fits[0].__enter__()
    ours = folder()
    assert ours is not None and Path(ours).is_relative_to(undecided)
    with ThreadPoolExecutor(1) as other:
        other.submit(fits[1].__enter__).result()
        fits[0].__exit__(None, None, None)
        assert folder() == ours
        other.submit(not_kept(lambda: seen.append(folder()))).result()
        assert seen == [None] and folder() == ours
        other.submit(fits[1].__exit__, None, None, None).result()
    assert folder() is None
    with pytest.raises(ZeroDivisionError), programs_kept():
        jax.config.update("jax_compilation_cache_dir", "of the caller")
        _ = 1 / 0
    assert folder() == "of the caller"


def test_old_entries_go(tmp_path):
    for k in range(10):
        path = tmp_path / ("old" if k < 5 else "new") / f"{k}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (k, k))
    prune(tmp_path, max_bytes=1000)
    assert len(list(tmp_path.glob("*/*"))) == 10
    prune(tmp_path, max_bytes=999)
    assert sorted(path.name[0] for path in tmp_path.glob("*/*")) == list("3456789")
    prune(tmp_path, max_entries=5)
    assert sorted(path.name[0] for path in tmp_path.glob("*/*")) == list("6789")
