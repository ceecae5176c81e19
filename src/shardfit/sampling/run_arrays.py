"""Arrays of one run on disk: a file names the run that it belongs to, so that no other run takes it for its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.io.files import read_arrays, write_arrays

RUN = "run"


def write_run_arrays(path: Path, arrays: Mapping[str, Any], run: str) -> None:
    """Write arrays and the digest of their run, whole or not at all; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path, {**{name: np.asarray(array) for name, array in arrays.items()}, RUN: np.array(run)})


def read_run_arrays(path: Path, run: str, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a run; raise for a file that is damaged, saying the remedy, or of another run."""
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise CheckpointError(f"{error} {remedy}") from None
    if str(arrays.pop(RUN, "")) != run:
        raise CheckpointError(f"{path} is of another run. Use another run_dir, or resume='never' to start over.")
    return arrays
