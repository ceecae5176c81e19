"""One of many processes: how it joins the others, and how it ends when one of them fails.

A process that raises tells the others through JAX's coordination service and leaves at once, without the barrier JAX
holds at the end, where everybody would wait for everybody. A thread listens for such news. A process that is killed, or
hangs, cannot speak: the others find out in their next exchange, whose time is limited, and call the roll. The listening
threads answer, so that a process that only computes is told from one that has ended.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from shardfit.core.errors import LeaderFailedError
from shardfit.core.mesh import gather, latest_ranks, set_meeting
from shardfit.distributed.gpus import TERMINATE, exchange_flag, idle_gpus, installed, own_gpus, visible
from shardfit.distributed.launchers import (
    EXCHANGE_SECONDS,
    FAILED,
    FOLLOWED,
    START_SECONDS,
    WAITED_FOR,
    Place,
    find_place,
    require_free,
)

END_SECONDS = 3600  # the same at the very end: rank 0 may draw figures while the others have nothing left to do
POLL_SECONDS = 0.5
SAY_SECONDS = 10.0  # of waiting for rank 0, after which a process says so
ROLL_CALL_SECONDS = 3.0  # after a failed exchange: long enough for all the living to report
NEWS, PRESENT, ARRIVED, DONE = "shardfit/news/", "shardfit/present/", "shardfit/arrived/", "shardfit/done/"
ROLL = f"{NEWS}roll"  # beside the news, so that one question asks for both
_leaving = threading.Event()  # set once this process ends for a reason of its own
_group: int | None = None
COMMUNICATION = ("gloo", "collective operation", "barrier", "coordination", "heartbeat")


def join() -> None:
    """Make this process part of its job; does nothing where it is alone or has joined already.

    Must come before the first array. `shardfit launch` and `shardfit rank` call it before they run a script, so a
    script needs it only when started by `srun` or `mpiexec` directly.
    """
    if client() is not None:
        return
    place = find_place(os.environ)
    devices = int(os.environ.get("SHARDFIT_DEVICES", "0"))
    if devices:
        jax.config.update("jax_num_cpu_devices", devices)
    if place is None:
        return
    start, patience = _seconds("SHARDFIT_START_TIMEOUT", START_SECONDS), _seconds("SHARDFIT_TIMEOUT", EXCHANGE_SECONDS)
    n_gpus = installed()
    _limit_exchanges(patience, gpus=bool(n_gpus or visible(os.environ)))
    if place.rank == 0:
        require_free(place.coordinator)
    else:
        _wait_for_first(place, start)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    gpus = own_gpus(place, os.environ, n_gpus)
    try:
        jax.distributed.initialize(
            place.coordinator,
            place.size,
            place.rank,
            local_device_ids=gpus,
            cluster_detection_method="deactivate",
            initialization_timeout=start,
            heartbeat_timeout_seconds=patience,
            shutdown_timeout_seconds=END_SECONDS,
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {place.rank}: the {place.size} processes did not all join at {place.coordinator} within {start} s. "
            "Was each of them started? More time: --start-timeout, or SHARDFIT_START_TIMEOUT."
        ) from error
    _listen(place)
    sys.excepthook = lambda kind, error, trace: fail(error)
    set_meeting(lambda ranks, number: _meet(ranks, number, start))
    # the first exchange connects all with all, for which it would wait without our limit
    gather(np.zeros(1, np.uint8))
    if (idle := idle_gpus(place, os.environ, gpus, n_gpus)) and jax.devices()[0].platform != "cpu":
        sys.stderr.write(f"shardfit: rank {place.rank}: {idle}\n")


def _seconds(name: str, default: int) -> int:
    given = os.environ.get(name, str(default))
    if not given.isdigit() or int(given) < 1:
        raise ValueError(f"{name}={given!r} must be a whole number of seconds, at least 1.")
    return int(given)


def _wait_for_first(place: Place, seconds: int) -> None:
    """Wait until rank 0 listens, and say after a while that this process waits, and where."""
    host, _, port = place.coordinator.rpartition(":")
    began, said = time.monotonic(), False
    while time.monotonic() - began < seconds:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_SECONDS).close()
            return
        except OSError:
            time.sleep(POLL_SECONDS / 5)
        if not said and time.monotonic() - began > SAY_SECONDS:
            said = True
            sys.stderr.write(f"shardfit: rank {place.rank} waits for rank 0 at {place.coordinator}.\n")
    raise RuntimeError(
        f"rank {place.rank}: rank 0 does not answer at {place.coordinator} after {seconds} s. Did it start, and can "
        "this machine reach that address? Another one: SHARDFIT_COORDINATOR=host:port; more time: --start-timeout, or "
        "SHARDFIT_START_TIMEOUT."
    )


def _meet(ranks: tuple[int, ...], number: int, seconds: int) -> None:
    """Wait until every one of some ranks is at their meeting of this number."""
    name = f"shardfit/meeting/{'-'.join(map(str, ranks))}/{number}"
    try:
        client().wait_at_barrier(name, seconds * 1000, process_ids=list(ranks))
    except Exception as error:
        raise TimeoutError(
            f"barrier: not every process came within {seconds} s (--start-timeout, SHARDFIT_START_TIMEOUT): {error}"
        ) from error


def fail(error: BaseException) -> NoReturn:
    """Print the error, tell the other processes, and end this one."""
    alone = client() is None
    rank = 0 if alone else jax.process_index()
    if not alone and any(word in str(error).lower() for word in COMMUNICATION):
        lost, late = _roll_call(rank)
        if lost or late:
            text = f"{_named(lost or late)} {'ended or does not respond' if lost else 'hangs or is slow'}"
            for each in lost or late:
                _spread(each, f"{text}: the others waited for it")
            option = "--start-timeout" if isinstance(error, TimeoutError) else "--timeout"
            _leave(f"rank {rank}: {text}. If it was only slow, allow more time with {option}.", FOLLOWED)
    _leaving.set()
    if not alone and isinstance(error, LeaderFailedError):
        _leave(f"{_named([rank])}: {error}", FOLLOWED)
    if not isinstance(error, SystemExit | KeyboardInterrupt):
        traceback.print_exception(error)
    code = _own_code(error)
    if alone:
        _leave("", code)
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    _spread(rank, f"{_named([rank])} failed ({reason})")
    _leave(f"{_named([rank])} failed ({reason}).", code)


def set_group(number: int) -> None:
    """Say which group this process works in: named where it fails, and at the end all wait for the longest."""
    global _group
    _group = number


def _named(ranks: Sequence[int]) -> str:
    """Return names of ranks for a message; of those whom this process works with, the group too."""
    text = f"rank {', '.join(map(str, ranks))}"
    return text if _group is None or not set(ranks) <= set(latest_ranks()) else f"{text} (group {_group})"


def _own_code(error: BaseException) -> int:
    """Return the exit code that a script asked for; of any other failure 1."""
    asked = error.code if isinstance(error, SystemExit) else None
    return asked if isinstance(asked, int) and 0 < asked < 256 else FAILED


def die_with_parent(parent: int) -> None:
    """End this process when the one that started it ends, however that happens."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        _leave("the process that started it has ended.", FOLLOWED)


def die_with_input() -> None:
    """End this process, and what it has started, when its standard input ends: the connection of another host's."""

    def wait():
        while os.read(0, 4096):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="shardfit-connection", daemon=True).start()


def client() -> Any:
    """Return JAX's connection to its coordination service; None in a process that is alone."""
    from jax._src import distributed  # JAX offers its coordination service nowhere else

    return distributed.global_state.client


def _limit_exchanges(seconds: int, gpus: bool) -> None:
    # XLA reads the variable when the first array is made; without a limit a process waits for the others for ever
    flags = (
        f"--xla_cpu_collective_timeout_seconds={seconds} --xla_cpu_collective_call_terminate_timeout_seconds={seconds}"
    )
    given = os.environ.get("XLA_FLAGS", "")
    if gpus and TERMINATE not in given:
        flags = f"{flags} {exchange_flag(seconds)}"
    os.environ["XLA_FLAGS"] = f"{given} {flags}".strip()


def _listen(place: Place) -> None:
    """Start the thread that ends this process when another one has failed, or when its parent is gone."""
    stop = threading.Event()
    parent = os.getppid()
    service = client()
    answered = False

    def wait():
        nonlocal answered
        while not stop.wait(POLL_SECONDS):
            try:
                news = service.key_value_dir_get(NEWS)
            except Exception:  # whatever it is: rank 0 does not answer
                if not stop.wait(ROLL_CALL_SECONDS):
                    _leave(f"rank {place.rank}: rank 0 ended or does not respond.", FOLLOWED)
                return
            if not answered and any(name == ROLL for name, _ in news):
                answered = True
                with contextlib.suppress(Exception):  # rank 0 is gone: the next question shows it
                    service.key_value_set(f"{PRESENT}{place.rank}", "")
            news = [(name, text) for name, text in news if name != ROLL]
            if _leaving.is_set():
                return
            if news:
                blamed = any(name == f"{NEWS}{place.rank}" for name, _ in news)
                if not stop.wait(ROLL_CALL_SECONDS / 2 if place.rank == 0 else 0.0):  # rank 0 keeps the news
                    _leave(f"rank {place.rank}: ends because {news[0][1]}.", WAITED_FOR if blamed else FOLLOWED)
                return
            if os.getppid() != parent:
                _leave(f"rank {place.rank}: the process that started it has ended.", FOLLOWED)

    thread = threading.Thread(target=wait, name="shardfit-listen", daemon=True)
    thread.start()

    def end():
        with contextlib.suppress(Exception):  # rank 0 is gone: the thread says so
            service.key_value_set(f"{DONE}{place.rank}", "")
            # a group may have hours left when another is done, longer than JAX's own wait at the end
            while _group is not None and len(service.key_value_dir_get(DONE)) < place.size:
                time.sleep(POLL_SECONDS)
        stop.set()
        thread.join()

    atexit.register(end)  # before JAX's own, registered earlier: afterwards there is nobody to ask


def _roll_call(rank: int) -> tuple[list[int], list[int]]:
    """Return the ranks that do not answer within a few seconds, and those that do but whose exchange did not fail."""
    service = client()
    try:
        service.key_value_set(f"{ARRIVED}{rank}", "")
        with contextlib.suppress(Exception):  # another has called it
            service.key_value_set(ROLL, "")
        time.sleep(ROLL_CALL_SECONDS)
        present, arrived = (
            {int(name.rpartition("/")[2]) for name, _ in service.key_value_dir_get(where)}
            for where in (PRESENT, ARRIVED)
        )
    except Exception:  # rank 0 keeps the list
        return [0], []
    ranks = latest_ranks()
    return [r for r in ranks if r not in present | arrived], [r for r in ranks if r not in arrived]


def _spread(blamed: int, text: str) -> None:
    with contextlib.suppress(Exception):  # said already, or nobody is there to say it to: they will find out
        client().key_value_set(f"{NEWS}{blamed}", text)
    if jax.process_index() == 0:
        time.sleep(2 * POLL_SECONDS + 0.5)  # the news ends with rank 0


def _leave(text: str, code: int) -> NoReturn:
    if text:
        sys.stderr.write(f"shardfit: {text}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
