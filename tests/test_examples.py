"""Every example runs as it stands, in a process of its own, with warnings as errors."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "path", [EXAMPLES[0], *(pytest.param(p, marks=pytest.mark.slow) for p in EXAMPLES[1:])], ids=lambda p: p.stem
)
def test_example(path, tmp_path):
    done = subprocess.run([sys.executable, "-W", "error", path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
