"""Every reader against damaged files: none may crash, hang, fail unclearly, take much memory, or read what is wrong.

SHARDFIT_BENCH_RUNS names a folder that keeps the readers that are done, which are not run again.
"""

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.reliability.fuzzing import REFUSED, SAME, SANE, Outcome, Reader, fuzz
from benchmarks.reliability.readers import readers
from shardfit.io.files import write_atomic

PEERS: tuple[str, ...] = ()
SETTINGS = {"precision": "as in the files", "threads": "one process at a time"}
INPUTS, FEW = 4800, 40  # of each reader; when quick
SHOWN = 3  # of everything forbidden


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Return what became of the inputs of every reader; raise if anything forbidden happened."""
    cases, defects = {}, []
    memory = Path("/dev/shm")  # files in memory, where there is such a folder
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for reader in readers(Path(folder) / "seeds"):
            outcomes = _kept(reader, FEW if quick else INPUTS, Path(folder))
            cases[reader.name] = counted(outcomes)
            defects += told(reader, outcomes)
            print(reader.name, cases[reader.name], flush=True)
    print("\n".join(defects))
    return cases


def _kept(reader: Reader, count: int, folder: Path) -> list[Outcome]:
    """Return outcomes, those of an earlier run where they were kept."""
    file = Path(os.environ.get("SHARDFIT_BENCH_RUNS", folder)) / "fuzz" / f"{reader.name} {count}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        outcomes = json.dumps([vars(outcome) for outcome in fuzz(reader, count, folder)])
        write_atomic(file, lambda out: out.write(outcomes.encode()))
    return [Outcome(**outcome) for outcome in json.loads(file.read_text())]


def counted(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return a line of the table."""
    kinds = Counter(outcome.kind for outcome in outcomes)
    allowed = {kind: kinds[kind] for kind in (SAME, SANE, REFUSED)}
    return {
        "inputs": len(outcomes),
        **allowed,
        "forbidden": len(outcomes) - sum(allowed.values()),
        "slowest": max(outcome.seconds for outcome in outcomes),
        "memory": max(outcome.growth for outcome in outcomes),
    }


def told(reader: Reader, outcomes: list[Outcome]) -> list[str]:
    """Return a few inputs of every kind of what is forbidden, to be looked at."""
    kinds: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.kind not in (SAME, SANE, REFUSED):
            kinds.setdefault(outcome.kind, []).append(outcome)
    return [
        f"{reader.name}: {len(found)} × {kind}, input {one.number}: {one.text}"
        for kind, found in kinds.items()
        for one in found[:SHOWN]
    ]
