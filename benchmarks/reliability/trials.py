"""One trial of every fault: a run meets it, goes on once it is over, and its answer is compared with an unbroken run's.

Outcomes: 'equal', the answer is that of the unbroken run to the bit; 'refused', a clear error, and once its cause is
gone the same call gives that answer; 'marked', a run that cannot succeed says so and holds no number that is wrong.
Anything else is a defect.
"""

import contextlib
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.reliability import children
from benchmarks.reliability.children import Child, Ended
from benchmarks.reliability.kinds import Kind, answer
from benchmarks.reliability.mutation import mutated

EQUAL, REFUSED, MARKED, WRONG = "equal", "refused", "marked", "WRONG"
NOT_STATE = ("lock",)
SPARE = 1 << 30  # bytes of a disk that has space again
Answer = dict[str, np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """What became of a trial. text: what happened, for a defect."""

    how: str
    text: str = ""


@dataclass(frozen=True)
class Bench:
    """Where trials of a kind of run are made. whole: how the unbroken run ended; expected: its answer."""

    kind: Kind
    folder: Path
    whole: Ended
    expected: Answer

    def child(self, place: Path, prepare: children.Hook | None = None, storm: str = "") -> Child:
        """Start the run in a folder."""
        place.mkdir(parents=True, exist_ok=True)
        # the log is beside: where the disk is full it could not be written
        log = self.folder / f"{place.name}.log"
        return Child(partial(self.kind.work, place / "run", storm), log, prepare)

    def finish(self, place: Path, first: Ended) -> Outcome:
        """Run once more without a fault, and judge. first: how the run under the fault ended."""
        return judged(first, self.child(place).wait(), self.expected, partial(answer, place / "run"))


def prepared(kind: Kind, folder: Path) -> Bench:
    """Return a bench with the unbroken run; one before it fills the cache of compiled programs."""
    for name in ("warm", "whole"):
        place = folder / name
        place.mkdir(parents=True)
        ended = Child(partial(kind.work, place / "run", ""), place / "log").wait()
        if ended.how != "done":
            raise RuntimeError(f"{kind.name}: the run fails without any fault ({ended.how}: {ended.text})")
    found = answer(folder / "whole" / "run")
    if not found or not same(found, answer(folder / "warm" / "run")):
        raise RuntimeError(f"{kind.name}: two unbroken runs differ, so that nothing can be compared")
    return Bench(kind, folder, ended, found)


def judged(first: Ended, second: Ended, expected: Answer, read: Callable[[], Answer]) -> Outcome:
    """Judge a run that met a fault, and the run after it, by how both ended and what was found.

    read: returns the answer in the folder.
    """
    for ended in (first, second):
        if ended.how not in ("done", "refused", "killed"):
            return Outcome(WRONG, f"{ended.how}: {ended.text}")
    if second.how != "done":
        return Outcome(WRONG, f"the run did not go on: {second.how}: {second.text}")
    try:
        found = read()
    except Exception as error:
        return Outcome(WRONG, f"the answer cannot be read: {type(error).__name__}: {error}")
    if not same(found, expected):
        return Outcome(WRONG, f"the answer differs: {', '.join(differing(found, expected))[:300]}")
    return Outcome(REFUSED if first.how == "refused" else EQUAL, first.text)


def same(found: Answer, expected: Answer) -> bool:
    """Whether two answers are equal to the bit."""
    return not differing(found, expected)


def differing(found: Answer, expected: Answer) -> list[str]:
    """Return the names of numbers that differ, or that only one answer has."""
    names = sorted({*found, *expected})
    return [n for n in names if n not in found or n not in expected or not _equal(found[n], expected[n])]


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


# ---- the faults -----------------------------------------------------------------------------------------------------


def killed(bench: Bench, place: Path, rng: random.Random) -> Outcome:
    """Kill it twice: before or after a random write, and at a random instant of its work."""
    at = partial(children.count_writes, rng.randint(1, max(1, bench.whole.writes)), rng.random() < 0.5)
    first = bench.child(place, at).wait()
    child = bench.child(place)
    child.kill_after(rng.uniform(0, bench.whole.seconds))
    child.wait()
    return bench.finish(place, first)


def disk_full(bench: Bench, place: Path, rng: random.Random) -> Outcome:
    """Let the disk be full at some size of the folder; then there is space again."""
    used = sum(path.stat().st_size for path in (bench.folder / "whole").rglob("*") if path.is_file())
    with _disk(place, round(rng.uniform(0.05, 0.95) * used)) as (limit, grow):
        first = bench.child(place, limit).wait()
        grow()
        return bench.finish(place, first)


def damaged(bench: Bench, place: Path, rng: random.Random) -> Outcome:
    """Cut off a file of a run that was killed, or has ended, or flip bits of it; then the file as it was."""
    if rng.random() < 0.5:
        shutil.copytree(bench.folder / "whole", place)
    else:
        at = partial(children.count_writes, rng.randint(1, max(1, bench.whole.writes)))
        bench.child(place, at).wait()
    files = sorted(p for p in (place / "run").rglob("*") if p.is_file() and p.name not in NOT_STATE)
    if not files:
        return bench.finish(place, Ended("killed"))
    chosen = rng.choice(files)
    content = chosen.read_bytes()
    chosen.write_bytes(content[: rng.randrange(len(content) + 1)] if rng.random() < 0.5 else mutated(content, rng))
    first = bench.child(place).wait()
    if first.how == "refused":
        chosen.write_bytes(content)
    outcome = bench.finish(place, first)
    return outcome if outcome.how != WRONG else Outcome(WRONG, f"{chosen.relative_to(place)}: {outcome.text}")


def clock_jumps(bench: Bench, place: Path, rng: random.Random) -> Outcome:
    """Let clocks jump, kill the run, and let it go on with clocks that jump."""
    child = bench.child(place, partial(children.jumping_clocks, rng.randrange(1000)))
    child.kill_after(rng.uniform(0.3, 1.0) * bench.whole.seconds)
    child.wait()
    first = bench.child(place, partial(children.jumping_clocks, rng.randrange(1000))).wait()
    return bench.finish(place, first)


def nan_storm(bench: Bench, place: Path, rng: random.Random) -> Outcome:
    """Let the model be NaN at random; the run ends with finite numbers, marks what has none, or says why it cannot."""
    storm = rng.choice(bench.kind.storms)
    ended = bench.child(place, storm=storm).wait()
    if ended.how != "done":
        return Outcome(REFUSED if ended.how == "refused" else WRONG, f"{storm}: {ended.how}: {ended.text}")
    return weathered(place / "run")


def weathered(folder: Path) -> Outcome:
    """Judge what a storm has left: success, and a point that counts, need finite numbers."""
    from shardfit.io.results import load_result
    from shardfit.report.folders import LEDGER, POSTERIOR, RESULT
    from shardfit.sampling.store import load_posterior
    from shardfit.surveys.reading import Survey

    for path in folder.rglob(LEDGER):
        with Survey(path.parent) as survey:
            for row in survey.ledger.rows():
                if not row["failed"] and not np.isfinite(row["value"]):
                    return Outcome(WRONG, f"point {row['id']} counts, its value is {row['value']}")
    for path in folder.rglob(POSTERIOR):
        if not np.isfinite(load_posterior(path.parent).z).all():
            return Outcome(WRONG, "draws are not finite")
    for path in folder.rglob(RESULT):
        result = load_result(path.parent)
        finite = all(np.isfinite(leaf).all() for name, leaf in answer(path.parent).items() if "part" not in name)
        if result.status.converged and not finite:
            return Outcome(WRONG, "a fit that is called converged is not finite")
    return Outcome(MARKED)


def two_writers(bench: Bench, place: Path, rng: random.Random) -> Outcome:
    """Start the run twice in one folder; one writes, the other is told to wait or finds the answer."""
    one = bench.child(place)
    while one.seconds() < rng.uniform(0, 0.7) * bench.whole.seconds and not one._is_over():
        time.sleep(children.POLL)
    other = bench.child(place)
    ends = [one.wait(), other.wait()]
    if not any(ended.how == "done" for ended in ends):
        return Outcome(WRONG, f"neither has ended well: {ends[0].text}; {ends[1].text}")
    worst = next((ended for ended in ends if ended.how != "done"), ends[0])
    return bench.finish(place, worst)


FAULTS = {
    "killed": killed,
    "disk full": disk_full,
    "damaged file": damaged,
    "clock jumps": clock_jumps,
    "NaN storm": nan_storm,
    "two writers": two_writers,
}


@contextlib.contextmanager
def _disk(place: Path, size: int) -> Iterator[tuple[children.Hook, Callable[[], None]]]:
    """Make a disk of so many bytes at a place; without the right to do so, a limit of what one file may hold.

    Gives what a process calls first, and what makes space.
    """
    place.mkdir(parents=True)
    made = _mount("-t", "tmpfs", "-o", f"size={max(size, 1 << 16)}", "none", place)
    try:
        if made:
            yield children.count_writes, lambda: _require(_mount("-o", f"remount,size={SPARE}", place))
        else:
            yield partial(children.small_files, size // 4), lambda: None
    finally:
        if made:
            subprocess.run(["umount", "-l", str(place)], check=True)


def _mount(*words: object) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(["mount", *map(str, words)], capture_output=True, check=False).returncode == 0
    return False


def _require(done: bool) -> None:
    if not done:
        raise RuntimeError("the small disk cannot be made larger")
