"""One writer at a time: a lock on a folder that ends with the process that holds it, however that ends."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from shardfit.core.errors import CheckpointError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # of some network file systems


@contextlib.contextmanager
def only_writer(folder: str | Path, name: str = "lock") -> Iterator[None]:
    """Hold a folder for this fit or survey; raise if another thread or process holds it.

    Where the system or the file system has no such locks, do nothing.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise CheckpointError(
                f"{folder} is in use by {_holder(file.read(64).strip())}. Wait for it, stop it, or use another run "
                "directory."
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        with contextlib.suppress(OSError):  # the lock holds on a full disk too
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
        yield


def _holder(text: str) -> str:
    if text == f"process {os.getpid()}":
        return "another thread of this process"
    return f"another process{f' ({text})' if text.startswith('process ') else ''}"
