"""The sources of an earlier commit, for suites that compare this library with itself."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from benchmarks.peers import ROOT


def sources(commit: str, folder: Path, programs: tuple[str, ...] = ()) -> Path:
    """Return a folder with the sources and benchmarks of a commit of this repository.

    programs: files of today's benchmarks that take the place of theirs.
    """
    packed = subprocess.run(["git", "archive", commit, "src", "benchmarks"], cwd=ROOT, capture_output=True)
    if packed.returncode:
        raise RuntimeError(f"commit {commit} is not here, which a clone with its whole history has.")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    for name in programs:
        shutil.copy(ROOT / "benchmarks" / name, folder / "benchmarks")
    return folder
