"""Programs that are compiled in other threads while this one traces the next: XLA lets go of the interpreter's lock."""

import contextlib
from threading import Thread
from typing import Any


class Ahead:
    """Programs under way; `wait` before any of them is called, or it is compiled twice."""

    def __init__(self):
        self._threads: list[Thread] = []

    def compile(self, jitted: Any, *args: Any) -> None:
        """Trace and lower a call of a compiled function here, where errors of a model are raised; compile elsewhere."""
        lowered = jitted.lower(*args)
        thread = Thread(target=_compiled, args=(lowered,))
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Return when all are compiled."""
        while self._threads:
            self._threads.pop().join()


def _compiled(lowered: Any) -> None:
    with contextlib.suppress(Exception):  # the call will meet it again, where somebody can be told
        lowered.compile()
