"""Every example runs as it stands, in a process of its own, with warnings as errors."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


# two workers may write and read the same compiled program at once: JAX then compiles it anew
WARNINGS = ["-W", "error", "-W", "ignore:Error reading persistent compilation cache entry:UserWarning"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path, tmp_path):
    done = subprocess.run([sys.executable, *WARNINGS, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
