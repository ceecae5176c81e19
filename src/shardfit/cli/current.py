"""What the page of a run of several fits shows between them: how many have ended, and the newest picture."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardfit.io.live import Live

PICTURE = "current"
EVERY_SECONDS = 5.0  # a drawing takes a few tenths: short runs draw none


class Current:
    """The running word of a command, told after each of its fits; a context that takes it back at the end."""

    def __init__(self, out: Path, title: str, writes: bool):
        self.live, self.began, self.drawn = Live(out if writes else None, title, "fits"), time.monotonic(), 0.0

    def publish(
        self,
        done: int,
        total: int,
        numbers: Mapping[str, Any],
        curves: Mapping[str, Sequence[Any]],
        draw: Callable[[], Any],
    ) -> None:
        """Tell that so many fits have ended. draw: makes the figure of what there is now."""
        folder = self.live.folder
        if folder is None:
            return
        spent = time.monotonic() - self.began
        self.live.publish(done, total, left=spent / done * (total - done), numbers=numbers, curves=curves)
        if spent - self.drawn < EVERY_SECONDS or done == total:
            return
        self.drawn = spent
        from shardfit.report.study import save_figure

        with contextlib.suppress(OSError):  # a full disk must not end a run for the sake of a picture
            save_figure(draw(), folder, PICTURE)

    def __enter__(self) -> "Current":
        return self

    def __exit__(self, *_: object) -> None:
        self.live.close()
        if self.live.folder is not None:
            with contextlib.suppress(OSError):
                (self.live.folder / "figures" / f"{PICTURE}.png").unlink(missing_ok=True)
