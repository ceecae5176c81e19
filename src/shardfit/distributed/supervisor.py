"""The parent of many processes: starts them, ends all when one fails, and starts again from the last checkpoint.

Every process leads a group of its own, so that what it starts ends with it; a killed parent takes all along, for the
processes ask the system to end them with it (`shardfit rank`).
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from shardfit.distributed.launchers import EXCHANGE_SECONDS, FOLLOWED, START_SECONDS, free_port

GRACE_SECONDS = 6.0  # for the others to notice a failure and say so, before they are asked to end
TERM_SECONDS = 3.0  # between asking and forcing
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Job:
    """What to run, in how many processes, and where their output goes: None shows rank 0's, and errors of all.

    timeout, start_timeout: seconds that processes wait for each other in an exchange, and before work.
    """

    command: tuple[str, ...]
    size: int
    devices: int = 1
    timeout: int = EXCHANGE_SECONDS
    start_timeout: int = START_SECONDS
    logs: str | None = None


def supervise(job: Job, restarts: int = 0, shrink: bool = False) -> int:
    """Run a job, again if need be; return 0, or the exit code of the process that failed."""
    for left in range(restarts, -1, -1):
        codes, hung = run_once(job)
        blamed = culprits(codes, hung)
        if not blamed:
            return 0
        for rank, reason in blamed.items():
            _say(f"rank {rank} {reason}; all processes were ended.")
        if left and shrink:
            job = replace(job, size=max(1, job.size - len(blamed)))
        if left:
            _say(f"starting again with {job.size} process{'es' * (job.size > 1)} ({left} restart(s) left).")
    return exit_code([codes[rank] for rank in blamed])


def exit_code(codes: Sequence[int]) -> int:
    """Return the code of the first process that failed by itself; one ended by a signal gives 128 more than it."""
    return codes[0] if codes[0] > 0 else 128 - codes[0]


def run_once(job: Job) -> tuple[list[int], list[int]]:
    """Run a job to its end; return every rank's exit code, and the ranks that had to be ended by force."""
    with _processes(job) as children, _signals_stop():
        while True:
            codes = [child.poll() for child in children]
            if all(code == 0 for code in codes):
                break
            if any(codes):  # neither 0 nor still running
                _wait(children, GRACE_SECONDS)
                break
            time.sleep(POLL_SECONDS)
        hung = [rank for rank, child in enumerate(children) if child.poll() is None]
    return [child.returncode for child in children], hung


def culprits(codes: Sequence[int], hung: Sequence[int]) -> dict[int, str]:
    """Return what happened to the ranks that failed by themselves; the others only followed."""
    own = {rank: code for rank, code in enumerate(codes) if code not in (0, FOLLOWED) and rank not in hung}
    # JAX aborts the processes that lose rank 0, or that are told of another's death: they follow
    if any(code != -signal.SIGABRT for code in own.values()) or hung:
        own = {rank: code for rank, code in own.items() if code != -signal.SIGABRT}
    blamed = {rank: _reason(code) for rank, code in own.items()}
    return blamed or dict.fromkeys(hung, "hung") or {r: _reason(c) for r, c in enumerate(codes) if c}


def _reason(code: int) -> str:
    return f"failed with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"


@contextlib.contextmanager
def _processes(job: Job) -> Iterator[list[subprocess.Popen]]:
    """Start all processes; end what is left of them whatever happens."""
    coordinator = f"127.0.0.1:{free_port()}"
    children: list[subprocess.Popen] = []
    if job.logs:
        Path(job.logs).mkdir(parents=True, exist_ok=True)
    try:
        for rank in range(job.size):
            children.append(_start(job, rank, coordinator))
        yield children
    finally:
        _end(children)


def _start(job: Job, rank: int, coordinator: str) -> subprocess.Popen:
    # the number of devices is ours to say: a count left in XLA_FLAGS would contradict it
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
    environ = os.environ | {
        "SHARDFIT_RANK": str(rank),
        "SHARDFIT_SIZE": str(job.size),
        "SHARDFIT_COORDINATOR": coordinator,
        "SHARDFIT_DEVICES": str(job.devices),
        "SHARDFIT_TIMEOUT": str(job.timeout),
        "SHARDFIT_START_TIMEOUT": str(job.start_timeout),
        "SHARDFIT_PARENT": str(os.getpid()),
        "XLA_FLAGS": flags.strip(),
    }
    # libraries with threads of their own would each take the whole machine
    environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // job.size)))
    command = [sys.executable, "-m", "shardfit", "rank", "--", *job.command]
    options = {"env": environ, "start_new_session": True}
    if job.logs is None:
        return subprocess.Popen(command, stdout=None if rank == 0 else subprocess.DEVNULL, **options)
    with open(Path(job.logs) / f"rank-{rank}.log", "ab", buffering=0) as log:
        if rank > 0:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        for source, shown in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            threading.Thread(target=_copy, args=(source, shown.buffer, os.dup(log.fileno())), daemon=True).start()
        return child


def _copy(source: IO[bytes], shown: IO[bytes], log: int) -> None:
    """Show and keep what a process says, line by line."""
    for line in source:
        os.write(log, line)
        shown.write(line)
        shown.flush()
    os.close(log)


def _end(children: list[subprocess.Popen]) -> None:
    """Ask every group to end, then force what remains, grandchildren included."""
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
