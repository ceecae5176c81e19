"""Compiled programs are kept for the next process: where, when not, and what damage does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from shardfit.io import compile_cache
from shardfit.io.compile_cache import VARIABLE, prune, use_compile_cache

PROGRAM = """
import json, sys, warnings
from pathlib import Path
import jax, numpy as np
import shardfit as sf
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(1) if event.endswith("cache_hits") else None)
rows = {"x": np.linspace(0, 1, 50), "y": 3 * np.linspace(0, 1, 50)}
objective = sf.Objective({"line": sf.residual_term(lambda p, rows: rows["y"] - p["slope"] * rows["x"], rows)})
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    result = sf.fit(sf.Problem(objective, {"slope": 1.0}), "lm", progress=False, certify=False)
folder = jax.config.jax_compilation_cache_dir
print(json.dumps([float(result.params["slope"]), len(hits), folder, len(warned)]))
"""


def run(home: Path, **variables: str) -> tuple[float, int, str | None, int]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", VARIABLE))}
    environment = {**plain, "XDG_CACHE_HOME": str(home), **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    slope, hits, folder, _ = run(tmp_path)
    assert folder is not None
    assert Path(folder).is_relative_to(tmp_path / "shardfit")
    assert not hits
    entries = [path for path in Path(folder).iterdir() if path.name.endswith("-cache")]
    assert entries
    again, hits, _, warned = run(tmp_path)
    assert again == slope == pytest.approx(3.0)
    assert hits == len(entries)
    assert not warned
    for path in entries:
        path.write_bytes(path.read_bytes()[:-7])
    damaged, hits, _, warned = run(tmp_path)  # compiled again, with a word of JAX about every entry
    assert (damaged, hits, warned) == (slope, 0, len(entries))


@pytest.fixture
def undecided(monkeypatch, tmp_path):
    """A process that has not fitted anything yet, and settings of JAX that are put back."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setattr(compile_cache, "_decided", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
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
    monkeypatch.setattr(compile_cache, "_decided", False)
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
    monkeypatch.setattr(compile_cache, "_decided", False)
    monkeypatch.setenv(VARIABLE, str(undecided / "shardfit" / "compiled"))
    with pytest.raises(ValueError, match=f"{VARIABLE}=.*other users can write"):
        use_compile_cache()


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
