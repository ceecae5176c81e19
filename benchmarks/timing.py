"""Wall and CPU seconds of a call that is already compiled."""

import time
from collections.abc import Callable
from typing import Any


def warm(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Call once to compile, once to measure; return the result, wall seconds, CPU seconds of this process."""
    call()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu
