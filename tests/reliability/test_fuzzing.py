"""The judge of the fuzz campaign notices all that is forbidden, and a few damaged files of every kind are read."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import fuzz as suite
from benchmarks.reliability import fuzzing, seeds
from benchmarks.reliability.fuzzing import Reader, damaged, digest, judge, lay_out, verdict
from benchmarks.reliability.readers import READERS, _files

SEED = {"a.txt": b"1 2 3\n4 5 6\n" * 20}


def table(folder):
    """A sound reader."""
    try:
        found = np.loadtxt(folder / "a.txt", ndmin=2)
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder}/a.txt is no table: {error}.") from None
    if found.shape[1] != 3:
        raise ValueError(f"{folder}/a.txt has {found.shape[1]} columns.")
    return found


def outcomes(read, tmp_path, count=60, **options):
    reader = Reader("table", [SEED], read, **options)
    lay_out(tmp_path / fuzzing.NAME, SEED)
    expected = [digest(read(tmp_path / fuzzing.NAME))]
    return {judge(reader, k, tmp_path / fuzzing.NAME, expected).kind for k in range(count)}


@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_sound_reader_passes(tmp_path):
    assert outcomes(table, tmp_path) == {"same", "sane", "refused"}


def _raising(error):
    def read(folder):
        if (folder / "a.txt").read_bytes() != SEED["a.txt"]:
            raise error
        return 1

    return read


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("a"), "KeyError"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "fuzzed"), "UnicodeDecodeError"),
        (RecursionError("fuzzed is nested too deeply to be read"), "RecursionError"),
        (ValueError("it is damaged, which is a pity"), "error without a name"),
        (ValueError("fuzzed"), "error without a reason"),
        (ValueError("fuzzed/a.txt is damaged: it has no rows"), "refused"),
    ],
)
def test_errors(error, kind, tmp_path):
    assert outcomes(_raising(error), tmp_path, 3) == {kind}


def test_memory_that_is_asked_for_is_noticed_behind_a_clear_error():
    try:
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("fuzzed/a.txt is damaged: it has no rows") from None
    except ValueError as error:
        assert verdict(error)[0] == "memory"


def test_what_is_read_is_judged(tmp_path):
    def altered(folder):
        return (folder / "a.txt").read_bytes()

    assert "altered content was read" in outcomes(altered, tmp_path, sealed=True)
    not_finite = {"finite": lambda content: [np.array([1.0, np.nan])]}
    assert "content is not finite" in outcomes(altered, tmp_path, **not_finite)

    def writes(folder):
        (folder / "b.txt").write_bytes(b"a")
        return (folder / "a.txt").read_bytes()

    assert outcomes(writes, tmp_path, 3) == {"files written"}
    assert "files written" not in outcomes(writes, tmp_path, 3, beside=("b.txt",))


def test_a_reader_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzing, "SECONDS", 0.1)

    def read(folder):
        while (folder / "a.txt").read_bytes() != SEED["a.txt"]:
            pass
        return 1

    assert outcomes(read, tmp_path, 1) == {"hang"}


def test_inputs_are_the_same_for_the_same_number():
    reader = Reader("table", [SEED], table)
    assert damaged(reader, 7) == damaged(reader, 7)
    assert len({damaged(reader, k)[1]["a.txt"] for k in range(50)}) > 45


def test_defects_are_counted_and_told():
    reader = Reader("table", [SEED], table)
    found = [fuzzing.Outcome(0, "same"), fuzzing.Outcome(1, "crash", "signal 11", 0.5, 7)]
    line = suite.counted(found)
    assert (line["inputs"], line["same"], line["forbidden"], line["slowest"], line["memory"]) == (2, 1, 1, 0.5, 7)
    assert suite.told(reader, found) == ["table: 1 × crash, input 1: signal 11"]


CRASHING = """
import os, signal, sys
from pathlib import Path
from benchmarks.reliability import fuzzing
fuzzing.LONGEST, fuzzing.ASLEEP = 60, 2.0

def read(folder):
    content = (folder / "a.txt").read_bytes()
    if content != b"abc" * 50:
        number[0] += 1
        if number[0] % 3 == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number[0] % 3 == 2:
            raise ValueError("fuzzed/a.txt is not what it was")
        signal.pause()
    return 1

number = [int(sys.argv[2])]
reader = fuzzing.Reader("crashing", [{"a.txt": b"abc" * 50}], read)
print([outcome.kind for outcome in fuzzing.fuzz(reader, 3, Path(sys.argv[1]))])
"""


@pytest.mark.processes
def test_processes_that_crash_or_wait_for_ever_are_replaced(tmp_path):
    """Every process counts anew: from 0 the first input crashes; from 1 the first is refused, and the next waits."""
    for first, expected in ((0, "['crash', 'crash', 'crash']"), (1, "['refused', 'hang', 'refused']")):
        words = [sys.executable, "-c", CRASHING, str(tmp_path), str(first)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=Path(suite.__file__).parents[1], timeout=120)
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.filterwarnings("ignore")
def test_few_damaged_files_of_many_kinds(tmp_path):
    made = tmp_path / "seeds"
    for make in (seeds.vlbi, seeds.xpcs, seeds.seismic, seeds.configurations):
        make(made)
    for name in sorted(path.name for path in made.iterdir()):
        reader = Reader(name, [_files(seed) for seed in sorted((made / name).iterdir())], **READERS[name])
        expected = []
        for files in reader.seeds:
            lay_out(tmp_path / fuzzing.NAME, files)
            expected.append(digest(reader.read(tmp_path / fuzzing.NAME)))
        for number in range(10_000, 10_012):
            outcome = judge(reader, number, tmp_path / fuzzing.NAME, expected)
            assert outcome.kind in ("same", "sane", "refused"), (name, outcome)


@pytest.mark.slow
@pytest.mark.processes
def test_a_small_campaign():
    words = [sys.executable, "-m", "benchmarks", "fuzz", "--quick"]
    environ = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(suite.__file__).parents[1], env=environ)
    assert not done.returncode and "×" not in done.stdout, done.stdout + done.stderr
