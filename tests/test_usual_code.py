"""Tests of XLA's usual code, in a session that compiles as users do (see tests/conftest.py)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.parametrize("speed", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_with_usual_code(speed):
    files = [path for path in TESTS.rglob("test_*.py") if "mark.usual_code" in path.read_text(encoding="utf-8")]
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" in flag]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", f"usual_code and {speed}", *files],
        cwd=TESTS.parent,
        env=os.environ | {"SHARDFIT_TEST_CODE": "usual", "XLA_FLAGS": " ".join(flags)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert re.search(r"[1-9]\d* passed", done.stdout)
