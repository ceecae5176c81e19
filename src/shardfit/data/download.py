"""Public files that are too large, or not ours to ship: fetched when asked for, and checked."""

import hashlib
import os
import shutil
import urllib.request
from pathlib import Path

SECONDS = 60  # without a byte before a server is given up


def cache_folder() -> Path:
    """Return where downloaded data are kept: the folder named by SHARDFIT_DATA, or the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SHARDFIT_DATA") or Path(base) / "shardfit" / "data")


def fetch(url: str, path: Path, sha256: str) -> Path:
    """Return the file `path`, downloaded if it is not there; either way it is what its checksum says."""
    if path.is_file():
        return checked(path, sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as source, open(partial, "wb") as target:
            shutil.copyfileobj(source, target)
        os.replace(checked(partial, sha256), path)
    except OSError as error:
        raise OSError(
            f"{url} could not be downloaded ({error}). Without a network: fetch it on another machine and put it into "
            f"{path.parent}."
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return path


def checked(path: Path, sha256: str) -> Path:
    """Return the path of a file that is what it should be."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} is not the file it should be: its SHA-256 is {found[:16]}…, not {sha256[:16]}…. Delete it and get "
            "it again."
        )
    return path
