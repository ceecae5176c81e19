"""A fit on two processes of which one dies, hangs or is slow."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from benchmarks.reliability.trials import EQUAL, REFUSED, WRONG, Outcome

RANKS = ("dead rank", "dead rank, restarted", "slow rank", "rank that hangs")
SLOW = 3.0  # seconds for which a slow rank does nothing
LONGEST = 900.0


def work(folder: str) -> None:
    """Fit on all processes; each writes its number first."""
    import shardfit as sf
    from benchmarks.reliability.small import decay

    rank = jax.process_index()
    mesh = sf.mesh()
    problem = decay(False)
    Path(folder, f"{rank}.pid").write_text(str(os.getpid()))
    run = sf.RunDir(Path(folder) / "run", seconds=0.0)
    slow = {"every": 1, "callback": lambda _: time.sleep(0.05)}
    answer = sf.fit(problem, "lbfgs", mesh=mesh, run_dir=run, progress=False, certify=False, **slow)
    if rank == 0:
        found = [float(answer.value), *(float(leaf) for leaf in jax.tree.leaves(answer.params)), answer.steps]
        Path(folder, "answer.json").write_text(json.dumps(found))


def rank_trial(name: str, folder: Path, number: int) -> Outcome:
    """Return what became of a fit one of whose two ranks is disturbed."""
    whole = folder / "whole"
    if not whole.exists():
        code, text = _launched(whole, lambda: None)
        if code:
            raise RuntimeError(f"two ranks fail without any fault: {text}")
    rng = random.Random(f"{name} {number}")
    place, rank = folder / f"{name} {number}", rng.randrange(2)
    delay = rng.uniform(0, 1)

    def disturb() -> None:
        time.sleep(delay)
        pid = _pid(place / f"{rank}.pid")
        if name.startswith("dead"):
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        if name == "slow rank":
            time.sleep(SLOW)
            os.kill(pid, signal.SIGCONT)

    code, text = _launched(place, disturb, ("--restarts", "1") if "restarted" in name else ())
    return judged(code, text, place, whole, lambda: _launched(place, lambda: None))


def judged(code: int, text: str, place: Path, whole: Path, again) -> Outcome:
    """Judge by the exit code and the answers. again: runs it once more, undisturbed."""
    if code and "rank" not in text:
        return Outcome(WRONG, f"exit code {code} without a word of the rank: {text[-200:]}")
    if code:
        second, words = again()
        if second:
            return Outcome(WRONG, f"it does not go on: {words[-200:]}")
    one, other = (json.loads((folder / "answer.json").read_text()) for folder in (whole, place))
    if not np.array_equal(one, other):
        return Outcome(WRONG, f"the answer differs: {other}, unbroken {one}")
    return Outcome(REFUSED if code else EQUAL, text[-200:] if code else "")


def _launched(place: Path, disturb, options: tuple[str, ...] = ()) -> tuple[int, str]:
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("*.pid"):
        old.unlink()
    words = ["-m", "shardfit", "launch", "-n", "2", *options, "--", __file__, str(place)]
    with open(place / "log", "w+") as log:
        job = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, start_new_session=True)
        try:
            while not all((place / f"{rank}.pid").exists() for rank in range(2)) and job.poll() is None:
                time.sleep(0.05)
            if job.poll() is None:
                disturb()
            code = job.wait(LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            code = -1
        log.seek(0)
        return code, log.read()


def _pid(path: Path) -> int:
    return int(path.read_text())


if __name__ == "__main__":
    work(sys.argv[1])
