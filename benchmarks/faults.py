"""Faults of machine and disk against every kind of run: none may lose or change an answer.

SHARDFIT_BENCH_RUNS names a folder that keeps the trials that were made, which are not made again; SHARDFIT_BENCH_TRIALS
is their number of each kind and fault (2), and SHARDFIT_BENCH_HOURS how long to go on.
"""

import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.reliability.kinds import KINDS, Kind
from benchmarks.reliability.ranks import RANKS, rank_trial
from benchmarks.reliability.trials import EQUAL, FAULTS, MARKED, REFUSED, WRONG, prepared

PEERS: tuple[str, ...] = ()
SETTINGS = {"precision": "float64", "threads": "as JAX chooses; one run at a time, two where two write or compute"}
TRIALS = 2  # of each kind of run and fault
QUICK = ("fit, lbfgs", "survey")


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Return the outcomes of every fault by kind of run."""
    trials = 1 if quick else int(os.environ.get("SHARDFIT_BENCH_TRIALS", TRIALS))
    end = time.monotonic() + 3600 * float(os.environ.get("SHARDFIT_BENCH_HOURS", 24))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as spare:
        kept = Kept(Path(os.environ.get("SHARDFIT_BENCH_RUNS", spare)) / "faults.jsonl")
        for kind in KINDS if not quick else [kind for kind in KINDS if kind.name in QUICK]:
            if time.monotonic() < end:
                against(kind, Path(spare) / "runs", trials, kept, end)
        for name in () if quick else RANKS:
            for number in range(trials):
                if time.monotonic() < end and not kept.has("ranks", name, number):
                    kept.add("ranks", name, number, rank_trial(name, Path(spare) / "ranks", number))
        return table(kept.trials)


class Kept:
    """Trials that were made, one line each in a file."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.trials: list[list[Any]] = [json.loads(line) for line in lines]

    def has(self, kind: str, fault: str, number: int) -> bool:
        """Whether this trial was made."""
        return any(trial[:3] == [kind, fault, number] for trial in self.trials)

    def add(self, kind: str, fault: str, number: int, outcome: Any) -> None:
        """Keep a trial, and tell it."""
        self.trials.append([kind, fault, number, outcome.how, outcome.text])
        with open(self.path, "a") as file:
            file.write(json.dumps(self.trials[-1]) + "\n")
        print(f"{kind}, {fault} {number}: {outcome.how} {outcome.text[:200]}".replace("\n", " "), flush=True)


def against(kind: Kind, folder: Path, trials: int, kept: Kept, end: float) -> None:
    """Make the trials of a kind of run that were not made yet."""
    missing = [(fault, n) for n in range(trials) for fault in FAULTS if not kept.has(kind.name, fault, n)]
    if not missing:
        return
    shutil.rmtree(folder, ignore_errors=True)
    bench = prepared(kind, folder)
    for fault, number in missing:
        if time.monotonic() > end:
            return
        place = folder / f"{fault}-{number}".replace(" ", "-")
        outcome = FAULTS[fault](bench, place, random.Random(f"{kind.name} {fault} {number}"))
        kept.add(kind.name, fault, number, outcome)
        shutil.rmtree(place, ignore_errors=True)


def table(trials: list[list[Any]]) -> dict[str, dict[str, Any]]:
    """Return by kind of run how many trials were made of every fault, and what became of all of them."""
    faults = [*FAULTS]
    cases: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(trial[0] for trial in trials):
        own = [trial for trial in trials if trial[0] == kind]
        made, ends = Counter(trial[1] for trial in own), Counter(trial[3] for trial in own)
        columns = {fault: made[fault] for fault in faults} if kind != "ranks" else dict.fromkeys(faults, 0)
        cases[kind] = {**columns, "trials": len(own), **{end: ends[end] for end in (EQUAL, REFUSED, MARKED, WRONG)}}
    return cases
