"""Starting `shardfit launch` from a test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run_command(*words, environ=None, seconds=150):
    """Run a command and return what subprocess.run returns, output as text."""
    # what the caller put first stays first: the processes import the shardfit that is tested
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(HERE.parent.parent)]))
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths, **(environ or {})}
    return subprocess.run(
        [str(word) for word in words], env=environ, capture_output=True, text=True, timeout=seconds, check=False
    )


@pytest.fixture
def launch():
    """Function that launches a script of this folder in n processes."""

    def run(n, script, *args, options=()):
        return run_command(sys.executable, "-m", "shardfit", "launch", "-n", n, *options, "--", HERE / script, *args)

    return run
