"""Wall and CPU seconds of a call that is already compiled."""

import time
from collections.abc import Callable
from typing import Any

ROUNDS = 3


def warm(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Call once to compile, then to measure; return the result, and the least wall and CPU seconds of this process."""
    call()
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        best = [min(best[0], time.perf_counter() - wall), min(best[1], time.process_time() - cpu)]
    return result, *best
