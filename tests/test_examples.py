"""Every example runs as it stands, with warnings as errors."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
LONG = (
    "kde_descent",
    "posterior_of_a_source",
    "posterior_of_galaxies",
    "posterior_of_layers",
    "seismic_elastic",
    "seismic_inversion",
    "stellar_mass_function",
)
ALONE = ("many_devices", "many_processes")  # they decide how JAX starts
# two workers may write and read the same compiled program at once: JAX then compiles it anew
WARNINGS = ["-W", "error", "-W", "ignore:Error reading persistent compilation cache entry:UserWarning"]


def examples(alone):
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
        for path in EXAMPLES
        if (path.stem in ALONE) == alone
    ]


@pytest.mark.parametrize("path", examples(alone=False))
def test_example(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("path", examples(alone=True))
def test_example_that_starts_jax(path, tmp_path):
    done = subprocess.run([sys.executable, *WARNINGS, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
