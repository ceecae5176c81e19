"""Folders of this user alone, for what is run or trusted when it is read back: compiled programs, built libraries."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this package among the user's caches; XDG_CACHE_HOME moves it."""
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]) / "shardfit"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "shardfit"
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "shardfit" / "cache"
    return Path.home() / ".cache" / "shardfit"


def private_folder(path: str | Path) -> Path:
    """Make a folder that only this user may enter, if there is none; raise PermissionError if others could write to it.

    The folder itself must be the user's own, no link, and closed to all others; nobody but the user and root may be
    able to put another in its place. Groups may write to the folders above: many systems give every user an own group.
    """
    folder = Path(path).expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name != "posix":  # elsewhere the user's profile is private and modes say nothing
        return folder
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise PermissionError(f"{folder} is a link. Name the folder itself.")
    if facts.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user. Use a folder of your own.")
    if facts.st_mode & 0o022:
        raise PermissionError(
            f"other users can write to {folder}, so programs in it cannot be trusted. Delete it, or name another."
        )
    for above in folder.resolve().parents:
        facts = above.stat()
        if facts.st_uid not in (os.geteuid(), 0) or (facts.st_mode & 0o002 and not facts.st_mode & stat.S_ISVTX):
            raise PermissionError(f"other users could replace {folder}: they can write to {above}. Use another folder.")
    return folder
