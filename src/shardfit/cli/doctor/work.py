"""Whether the machine works: a small fit, a ledger, kept programs, processes that find each other."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shardfit.cli.doctor.finding import BAD, GOOD, NOTE, Finding

SLOPE, OFFSET = 2.0, -1.0
START_SECONDS = 120
RANKS = """
import numpy as np, shardfit as sf
part = sf.my_rows(100)
x = np.linspace(0.0, 1.0, 100)[part]
rows = {"x": x, "y": 2.0 * x - 1.0}
mesh = sf.mesh()
objective = sf.Objective({"line": sf.residual_term(lambda p, r: r["y"] - p[0] * r["x"] - p[1], rows)}).place_local(mesh)
answer = sf.fit(sf.Problem(objective, np.zeros(2)), "lm", mesh=mesh, progress=False).params
assert np.allclose(answer, [2.0, -1.0], atol=1e-8), answer
"""


def small_fit() -> Finding:
    """A line through a hundred rows, in float64, certified."""
    import numpy as np

    import shardfit as sf

    began = time.perf_counter()
    x = np.linspace(0.0, 1.0, 100)
    rows = {"x": x, "y": SLOPE * x + OFFSET}
    term = sf.residual_term(lambda p, r: r["y"] - p[0] * r["x"] - p[1], rows)
    result = sf.fit(sf.Problem(sf.Objective({"line": term}), np.zeros(2)), "lm", progress=False)
    error = float(np.abs(np.asarray(result.params) - [SLOPE, OFFSET]).max())
    text = f"a line, right to {error:.0e}, {time.perf_counter() - began:.1f} s with compiling"
    if not result.success or error > 1e-8:
        return Finding("a small fit", BAD, f"{text}; {result.message}", "Reinstall jax and jaxlib of one version.")
    return Finding("a small fit", GOOD, text)


def kept_programs() -> Finding:
    """Where compiled programs are kept for the next process, and whether that works."""
    from shardfit.io.compile_cache import OFF, VARIABLE, cache_home, private_folder
    from shardfit.planning.units import bytes_text

    wanted = os.environ.get(VARIABLE, "")
    if wanted.lower() in OFF:
        return Finding("kept programs", NOTE, f"{VARIABLE}={wanted}: none are kept", f"Unset {VARIABLE} to keep them.")
    home = Path(wanted).expanduser() if wanted else cache_home() / "compiled"
    try:
        private_folder(home)
    except (OSError, RuntimeError) as error:
        return Finding("kept programs", NOTE, f"none are kept: {error}", f"Name a folder of your own: {VARIABLE}=DIR.")
    sizes = [path.stat().st_size for path in home.glob("*/*") if path.is_file()]
    return Finding("kept programs", GOOD, f"{len(sizes):,} in {home}, {bytes_text(sum(sizes))}")


def ledgers() -> Finding:
    """Whether the present folder's file system locks and syncs as SQLite needs."""
    if not os.access(".", os.W_OK):
        return Finding("ledgers", NOTE, "the present folder cannot be written", "Surveys need a folder of your own.")
    with tempfile.TemporaryDirectory(dir=".", prefix=".shardfit-doctor-") as folder:
        connection = sqlite3.connect(Path(folder) / "ledger.sqlite")
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            connection.execute("CREATE TABLE points (id INTEGER)")
            connection.execute("INSERT INTO points VALUES (1)")
            connection.commit()
            count = connection.execute("SELECT count(*) FROM points").fetchone()[0]
        finally:
            connection.close()
    if mode != "wal" or count != 1:
        remedy = "Put run directories on a local disk, or on a file system with locks."
        return Finding("ledgers", BAD, f"SQLite answers with journal mode {mode}", remedy)
    return Finding("ledgers", GOOD, "SQLite works in the present folder")


def processes() -> Finding:
    """Two processes of this machine that fit a line together."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "line.py"
        script.write_text(RANKS, encoding="utf-8")
        command = [sys.executable, "-m", "shardfit", "launch", "-n", "2", "--start-timeout", "60", "--", str(script)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return Finding("processes", BAD, f"two did not find each other within {START_SECONDS} s", _REMEDY)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        return Finding("processes", BAD, f"two could not work together: {lines[-1]}", _REMEDY)
    return Finding("processes", GOOD, f"two fitted a line together, {time.perf_counter() - began:.0f} s with starting")


_REMEDY = "See docs/processes.md: localhost must resolve, and no firewall may block its ports."
CHECKS = (small_fit, kept_programs, ledgers)
LONG = (processes,)
