"""Compiled programs of a long process: they are let go before the system's limit of memory maps ends it.

JAX keeps every program that it has compiled, and each is mapped into memory in several pieces. Linux allows a process
65,530 of these: a loop of some 400 fits, each with a model function of its own, would reach that and crash
(docs/decisions/0022-loaded-programs.md).
"""

import ctypes
import gc
import logging
from pathlib import Path

import jax

log = logging.getLogger(__name__)

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
USUAL_LIMIT = 65_530
SHARE = 0.25  # of the limit: what is left is for the program at hand, and for memory
EVERY = 8  # calls; counting takes a millisecond and more
SELDOM = 64  # calls, while there are few: none of them adds more than some hundred maps
_calls_left = 0  # until maps are counted


def release_compiled_programs() -> None:
    """Let go of all compiled programs if they are many; what is needed again is read from the cache on disk.

    Called where work begins. Systems that do not tell their memory maps have no such limit, or none that is known.
    """
    global _calls_left
    _calls_left -= 1
    if _calls_left > 0:
        return
    count, most = n_maps(), SHARE * _limit()
    _calls_left = SELDOM if count < most / 4 else EVERY
    if count > most:
        log.info("%d memory maps: compiled programs are released", count)
        jax.clear_caches()
        gc.collect()
        return_memory()


def n_maps() -> int:
    """Return the number of memory maps of this process, 0 where the system does not tell."""
    try:
        return MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def _limit() -> int:
    try:
        return int(LIMIT.read_text())
    except (OSError, ValueError):
        return USUAL_LIMIT


def return_memory() -> None:
    """Give memory that is free inside the process back to the system, where the C library can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        log.debug("this C library has no malloc_trim")
