"""One writer at a time: a lock on a folder that ends with the process that holds it, however that ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from shardfit.core.errors import CheckpointError


@contextlib.contextmanager
def only_writer(folder: str | Path, name: str = "lock") -> Iterator[None]:
    """Hold a folder for this process; raise if another one holds it. Where the system has no such locks, do nothing."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            raise CheckpointError(
                f"{folder} is in use by another process{f' ({owner})' if owner else ''}. Wait for it, stop it, or use "
                "another run directory."
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield
