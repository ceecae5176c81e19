"""Weak scaling over processes: loss and gradient of a stellar mass function, 10⁶ halos and one thread in each.

ours: seconds of an evaluation with N processes; peer: of a process's own rows without exchange, while the others do the
same. exchange: share of the time that the sums over processes take, waiting for the slowest included.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import ROOT, THREADS

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "one in each process"}
ROWS = 1_000_000
PROCESSES = (1, 2, 4)


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every number of processes."""
    return {f"weak-{n}": launched(n, "processes_run.py", str(ROWS // 10 if quick else ROWS)) for n in PROCESSES}


def launched(n: int, script: str, *words: str) -> dict:
    """Return what the first of n processes writes to the file that is a script's first argument."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        started = [sys.executable, "-m", "shardfit", "launch", "-n", str(n), "--timeout", "120", "--"]
        command = [*started, str(ROOT / "benchmarks" / script), str(answer), *words]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **THREADS}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{n} processes failed:\n{done.stderr[-2000:]}")
        return json.loads(answer.read_text())
