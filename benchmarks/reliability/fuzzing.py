"""One reader against damaged files: what it does with each is judged in a process that may crash, hang or run out.

Allowed is to read the same as before, to read something sane, or to refuse with a clear error that names the file.
Forbidden is everything else; a reader whose files carry checksums may not read anything that was not written.
"""

import contextlib
import gc
import hashlib
import json
import logging
import os
import random
import resource
import select
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reliability.mutation import mutated
from shardfit.core.errors import CheckpointError, NonFiniteError

SECONDS = 5.0  # of a processor that one input may take: a busy machine is no fault of the reader's
LONGEST = 60.0  # ... after which a process that cannot be interrupted is killed
ASLEEP = 600.0  # seconds without a word, after which one that waits for something is
MEMORY = 1 << 30  # bytes beyond those of the process itself; what asks for more is refused them
GROWTH = 256 << 20  # bytes of memory that one input may use
UNFIT = 3  # exit code of a process that cannot read the seeds themselves
NAME = "fuzzed"  # of the folder, which a clear error names
CLEAR = (ValueError, CheckpointError, NonFiniteError, FileNotFoundError)  # these very types, not what derives from them
SAME, SANE, REFUSED = "same", "sane", "refused"
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Reader:
    """A reader and valid files for it. seeds: folders by their files; read(folder) returns what was read.

    finite(content): arrays that must be finite. sealed: files have checksums. named: errors name the file.
    """

    name: str
    seeds: Sequence[Files]
    read: Callable[[Path], Any]
    finite: Callable[[Any], Sequence[Any]] = lambda content: ()
    sealed: bool = False
    named: bool = True
    most: int = 6  # things that are wrong in one input
    beside: tuple[str, ...] = ()  # files by which SQLite keeps a writer away while it reads


@dataclass(frozen=True)
class Outcome:
    """What became of an input. kind: same, sane, refused, or the name of what is forbidden; text: details of that."""

    number: int
    kind: str
    text: str = ""
    seconds: float = 0.0
    growth: int = 0


def damaged(reader: Reader, number: int) -> tuple[int, dict[str, bytes]]:
    """Return the number of a seed and its files, one or two of them damaged; the same for the same number."""
    rng = random.Random(f"{reader.name} {number}")
    which = rng.randrange(len(reader.seeds))
    files = dict(reader.seeds[which])
    for name in rng.sample(sorted(files), min(len(files), rng.choice((1, 1, 1, 2)))):
        other = rng.choice(reader.seeds)
        content = files[name]
        for _ in range(rng.randint(1, reader.most)):
            content = mutated(content, rng, rng.choice(list(other.values())))
        files[name] = content
    return which, files


def judge(reader: Reader, number: int, folder: Path, expected: Sequence[str]) -> Outcome:
    """Return the outcome of one input. expected: digests of what the seeds hold."""
    which, files = damaged(reader, number)
    lay_out(folder, files)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    kind, text = _read(reader, folder, expected[which])
    seconds = time.process_time() - began
    growth = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if kind in (SAME, SANE, REFUSED):
        written = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        changed = {n for n in {*written, *files} - {*reader.beside} if written.get(n) != files.get(n)}
        if changed:
            kind, text = "files written", f"{', '.join(sorted(changed))}; {text}"
        elif growth > GROWTH:
            kind, text = "memory", f"{growth >> 20} MB for {sum(map(len, files.values()))} bytes; {text}"
    return Outcome(number, kind, text, seconds, growth)


def _read(reader: Reader, folder: Path, expected: str) -> tuple[str, str]:
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = reader.read(folder)
            found = digest(content)
            bad = [
                a for a in map(np.asarray, reader.finite(content)) if a.dtype.kind in "fc" and not np.isfinite(a).all()
            ]
    except TimeoutError:
        return "hang", f"more than {SECONDS:g} s"
    except Exception as error:
        return verdict(error, reader.named)
    if found == expected:
        return SAME, ""
    if reader.sealed:
        return "altered content was read", ""
    return ("content is not finite", "") if bad else (SANE, "")


def verdict(error: BaseException, named: bool = True) -> tuple[str, str]:
    """Return what an error counts as, and its text."""
    text = f"{type(error).__name__}: {error}"[:300]
    inner: BaseException | None = error
    while inner is not None:  # a reader may hide it behind a clear error; the memory was asked for all the same
        if isinstance(inner, MemoryError):
            return "memory", text
        inner = inner.__cause__ or inner.__context__
    if type(error) not in CLEAR:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return type(error).__name__, f"{text} at {Path(frame.filename).name}:{frame.lineno}"
    if named and NAME not in str(error):
        return "error without a name", text
    return (REFUSED, text) if len(str(error)) > 20 else ("error without a reason", text)


def digest(content: Any) -> str:
    """Return a checksum of everything in a value."""
    total = hashlib.sha256()
    for piece in _pieces(content):
        total.update(piece)
    return total.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype.str}{value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, Mapping):
        for name in sorted(value, key=repr):  # JSON objects have no order
            yield repr(name).encode()
            yield from _pieces(value[name])
    elif isinstance(value, list | tuple | np.ndarray):
        yield f"{len(value)}".encode()
        for inner in value:
            yield from _pieces(inner)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _pieces(getattr(value, field.name))
    else:
        yield repr(value).encode()


def lay_out(folder: Path, files: Files) -> None:
    """Make a folder hold these files and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(reader: Reader, count: int, folder: Path, first: int = 0) -> list[Outcome]:
    """Return the outcomes of so many inputs; a process that ends over one of them is replaced."""
    found: list[Outcome] = []
    while len(found) < count:
        start = first + len(found)
        source, child = _worker(reader, range(start, first + count), folder)
        silent, pending = False, b""
        while not silent:
            silent = not _speaks(source, child)
            news = b"" if silent else os.read(source, 1 << 16)
            if not news:
                break
            *lines, pending = (pending + news).split(b"\n")
            found += [Outcome(**json.loads(line)) for line in lines]
        if silent:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        os.close(source)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNFIT:
            raise RuntimeError(f"{reader.name}: the files that are to be damaged cannot be read")
        if len(found) < count:
            kind = "hang" if silent else "crash"
            found.append(Outcome(first + len(found), kind, f"the process ended with status {status}"))
    return found


def _speaks(source: int, child: int) -> bool:
    """Wait for a word of a process, or its end; return False if it has worked, or slept, for too long without one."""
    began, used = time.monotonic(), _seconds_of(child)
    while not select.select([source], [], [], 5.0)[0]:
        if _seconds_of(child) - used > LONGEST or time.monotonic() - began > ASLEEP:
            return False
    return True


def _seconds_of(child: int) -> float:
    """Return the seconds of a processor that a process has used."""
    words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _expected(reader: Reader, place: Path) -> list[str]:
    """Return digests of what the seeds hold."""
    try:
        shutil.rmtree(place, ignore_errors=True)
        digests = []
        for files in reader.seeds:
            lay_out(place, files)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                digests.append(digest(reader.read(place)))
        return digests
    except BaseException:
        traceback.print_exc()
        os._exit(UNFIT)


def _worker(reader: Reader, numbers: range, folder: Path) -> tuple[int, int]:
    """Fork a process that judges inputs; return the pipe with a line for each, and its number."""
    source, target = os.pipe()
    child = os.fork()
    if child:
        os.close(target)
        return source, child
    try:
        logging.disable(logging.CRITICAL)
        place, expected = folder / NAME, _expected(reader, folder / NAME)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        with os.fdopen(target, "w", buffering=1) as out:
            for number in numbers:
                outcome = judge(reader, number, place, expected)
                out.write(json.dumps(outcome.__dict__) + "\n")
                if number % 500 == 0:
                    gc.collect()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
