"""The parent of many processes: starts them, ends all when one fails, and starts again from the last checkpoint.

Every process leads a group of its own, so that what it starts ends with it; a killed parent takes all along, for the
processes ask the system to end them with it, or on another host watch their connection (`shardfit rank`).
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from shardfit.distributed.hosts import NO_CONNECTION, Facts, HostError, coordinator_of, inspect_hosts, over_ssh
from shardfit.distributed.launchers import (
    EXCHANGE_SECONDS,
    FAILED,
    FOLLOWED,
    JUDGED,
    START_SECONDS,
    STDIN,
    UNMET,
    WAITED_FOR,
    free_port,
)

DONE = (0, JUDGED)
# of JAX's coordination service, as a process that it ends writes them; the messages beside them say what happened
TRACES = re.compile(
    rb"\s+@\s+0x[0-9a-f]+|\*\*\* Check failure stack trace"
    rb"|[IWEF]\d{4} [\d:.]+ +\d+ (coordination_service\w*\.cc|preemption_sync_manager\.cc|client\.h):\d+\]"
    rb"|Additional GRPC error information from remote target coordination_service|:UNKNOWN:Error received from peer"
    rb"|The tasks have crashed\. Check the task logs"
)
GRACE_SECONDS = 6.0  # for the others to notice a failure and say so, before they are asked to end
TERM_SECONDS = 3.0  # between asking and forcing
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Job:
    """What to run, in how many processes, and where their output goes: None shows rank 0's, and errors of all.

    timeout, start_timeout: seconds that processes wait for each other in an exchange, and before work. hosts: the host
    of every rank, reached by the command ssh; empty: all are of this machine. script: file that they need there.
    """

    command: tuple[str, ...]
    size: int
    devices: int = 1
    timeout: int = EXCHANGE_SECONDS
    start_timeout: int = START_SECONDS
    logs: str | None = None
    hosts: tuple[str, ...] = ()
    ssh: tuple[str, ...] = ()
    script: str | None = None

    def without(self, ranks: Iterable[int]) -> "Job":
        """Return the job without some of its processes; one at least is left."""
        left = [rank for rank in range(self.size) if rank not in set(ranks)] or [0]
        return replace(self, size=len(left), hosts=tuple(self.hosts[rank] for rank in left if self.hosts))


class Restarts(NamedTuple):
    """How often a job may start again; shrink: without those that failed, grow: later with all of them again."""

    number: int = 0
    shrink: bool = False
    grow: bool = False


ONCE = Restarts()


def supervise(job: Job, restarts: Restarts = ONCE) -> int:
    """Run a job, again if need be; return 0, UNMET if it ended so, or the exit code of the process that failed."""
    asked = job
    for left in range(restarts.number, -1, -1):
        job, facts = _ready(job, leave_out=restarts.shrink and left < restarts.number)
        codes, hung = run_once(job, facts)
        blamed = culprits(codes, hung, bool(job.hosts))
        if not blamed:
            return UNMET if JUDGED in codes else 0
        for rank, reason in blamed.items():
            where = f" ({job.hosts[rank]})" if job.hosts else ""
            _say(f"rank {rank}{where} {reason}; all processes were ended.")
        if left:
            job = following(asked, job, list(blamed), restarts)
            _say(f"starting again with {job.size} process{'es' * (job.size > 1)} ({left} restart(s) left).")
    return exit_code([codes[rank] for rank in blamed])


def following(asked: Job, job: Job, blamed: Sequence[int], restarts: Restarts) -> Job:
    """Return the job that follows one in which some ranks failed: as large as asked for, or without these."""
    if restarts.grow and job.size < asked.size:
        return asked
    return job.without(blamed) if restarts.shrink else job


def _ready(job: Job, leave_out: bool) -> tuple[Job, dict[str, Facts]]:
    """Return the job and what its hosts say of themselves; one that cannot take part is an error, or left out."""
    if not job.hosts:
        return job, {}
    try:
        return job, inspect_hosts(job.hosts, job.ssh, job.script)
    except HostError as error:
        lost = [rank for rank, host in enumerate(job.hosts) if host in error.wrong]
        if not leave_out or len(lost) in (0, job.size):
            raise
        _say(f"{error}\nIt is left out.")
        return _ready(job.without(lost), leave_out)


def exit_code(codes: Sequence[int]) -> int:
    """Return the code of the first process that failed by itself; one ended by a signal gives 128 more than it."""
    if codes[0] == WAITED_FOR:
        return FAILED
    return codes[0] if codes[0] > 0 else 128 - codes[0]


def run_once(job: Job, facts: Mapping[str, Facts]) -> tuple[list[int], list[int]]:
    """Run a job to its end; return every rank's exit code, and the ranks that had to be ended by force."""
    with _processes(job, facts) as children, _signals_stop():
        while True:
            codes = [child.poll() for child in children]
            if all(code in DONE for code in codes):
                break
            if any(code not in (*DONE, None) for code in codes):
                _wait(children, GRACE_SECONDS)
                break
            time.sleep(POLL_SECONDS)
        hung = [rank for rank, child in enumerate(children) if child.poll() is None]
    codes = [child.returncode for child in children]
    if job.hosts:  # the shell there says of a signal 128 + its number
        codes = [128 - code if 128 < code < NO_CONNECTION else code for code in codes]
    return codes, hung


def culprits(codes: Sequence[int], hung: Sequence[int], remote: bool = False) -> dict[int, str]:
    """Return what happened to the ranks that failed by themselves; the others only followed."""
    own = {rank: code for rank, code in enumerate(codes) if code not in (*DONE, FOLLOWED, WAITED_FOR)}
    own = {rank: code for rank, code in own.items() if rank not in hung}
    hung = sorted({*hung, *(rank for rank, code in enumerate(codes) if code == WAITED_FOR)})
    # JAX aborts the processes that lose rank 0, or that are told of another's death: they follow
    if any(code != -signal.SIGABRT for code in own.values()) or hung:
        own = {rank: code for rank, code in own.items() if code != -signal.SIGABRT}
    blamed = {rank: _reason(code, remote) for rank, code in own.items()}
    others = {rank: _reason(code, remote) for rank, code in enumerate(codes) if code not in DONE}
    return blamed or dict.fromkeys(hung, "hung") or others


def _reason(code: int, remote: bool) -> str:
    if remote and code == NO_CONNECTION:
        return "lost its connection: its host is down, or ssh failed"
    return f"failed with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"


@contextlib.contextmanager
def _processes(job: Job, facts: Mapping[str, Facts]) -> Iterator[list[subprocess.Popen]]:
    """Start all processes; end what is left of them whatever happens."""
    coordinator = coordinator_of(facts) if facts else f"127.0.0.1:{free_port()}"
    children: list[subprocess.Popen] = []
    readers: list[threading.Thread] = []
    if job.logs:
        Path(job.logs).mkdir(parents=True, exist_ok=True)
    try:
        for rank in range(job.size):
            children.append(_start(job, rank, coordinator, facts, readers))
        yield children
    finally:
        _end(children)
        for reader in readers:  # what they said last
            reader.join(TERM_SECONDS)


def _start(
    job: Job, rank: int, coordinator: str, facts: Mapping[str, Facts], readers: list[threading.Thread]
) -> subprocess.Popen:
    """Start one process, here or on its host, its output going where the job says."""
    words = [sys.executable, "-m", "shardfit", "rank", "--", *job.command]
    settings = _settings(job, rank, coordinator, facts)
    options: dict[str, Any] = {"start_new_session": True}
    if job.hosts:
        command = over_ssh(job.ssh, job.hosts[rank], settings, words)
        options["stdin"] = subprocess.PIPE  # held open: the process there ends when it is closed
    else:
        command, options["env"] = words, os.environ | settings
    if job.logs is None and rank == 0:  # its progress needs the terminal itself
        return subprocess.Popen(command, stdout=_own_output(), **options)
    if job.logs is None:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
        readers.append(threading.Thread(target=_show_errors, args=(child.stderr,), daemon=True))
        readers[-1].start()
        return child
    with open(Path(job.logs) / f"rank-{rank}.log", "ab", buffering=0) as log:
        if rank > 0:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        for source, shown in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            threading.Thread(target=_copy, args=(source, shown.buffer, os.dup(log.fileno())), daemon=True).start()
        return child


def _own_output() -> Any:
    """Return where this process prints, which a command may have turned elsewhere; None where that is no file."""
    try:
        sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    sys.stdout.flush()
    return sys.stdout


def _settings(job: Job, rank: int, coordinator: str, facts: Mapping[str, Facts]) -> dict[str, str]:
    """Return the variables that tell a process its place."""
    # the number of devices is ours to say: a count left in XLA_FLAGS would contradict it
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
    host = job.hosts[rank] if job.hosts else None
    beside = job.hosts.count(host) if host else job.size
    cpus = facts[host].cpus if host else os.cpu_count() or 1
    # libraries with threads of their own would each take the whole machine
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, cpus // beside)))
    return {
        "SHARDFIT_RANK": str(rank),
        "SHARDFIT_SIZE": str(job.size),
        "SHARDFIT_LOCAL_RANK": str(job.hosts[:rank].count(host) if host else rank),
        "SHARDFIT_LOCAL_SIZE": str(beside),
        "SHARDFIT_COORDINATOR": coordinator,
        "SHARDFIT_DEVICES": str(job.devices),
        "SHARDFIT_TIMEOUT": str(job.timeout),
        "SHARDFIT_START_TIMEOUT": str(job.start_timeout),
        "SHARDFIT_PARENT": STDIN if host else str(os.getpid()),
        "XLA_FLAGS": flags.strip(),
        "OMP_NUM_THREADS": threads,
    }


def _show_errors(source: IO[bytes]) -> None:
    """Show what a process writes as errors, without stack traces of JAX's coordination service."""
    for line in source:
        if not TRACES.match(line):
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()


def _copy(source: IO[bytes], shown: IO[bytes], log: int) -> None:
    """Show and keep what a process says, line by line."""
    for line in source:
        os.write(log, line)
        shown.write(line)
        shown.flush()
    os.close(log)


def _end(children: list[subprocess.Popen]) -> None:
    """Ask every group to end, then force what remains, grandchildren included."""
    for child in children:
        if child.stdin is not None:
            child.stdin.close()
    if any(child.stdin is not None for child in children):
        _wait(children, TERM_SECONDS)
    if any(child.poll() is None for child in children):
        _signal(children, signal.SIGTERM)
        _wait(children, TERM_SECONDS)
    _signal(children, signal.SIGKILL)
    for child in children:
        child.wait()


def _signal(children: list[subprocess.Popen], number: int) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone already
            os.killpg(child.pid, number)


def _wait(children: list[subprocess.Popen], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(child.poll() is None for child in children):
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, through every `finally`."""

    def stop(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    print(f"shardfit launch: {text}", file=sys.stderr, flush=True)
