"""Run directory: what a fit leaves behind, and what it needs to go on after a crash.

config.json (what was asked), env.json (versions, devices, data digest), events.jsonl (append-only), ckpt/ (state),
result.json + arrays.npz (the answer). Every file is replaced atomically or appended to; nothing is pickled.
Of several processes all read, and rank 0 writes.
"""

import json
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.core.mesh import leads, spans_processes
from shardfit.distributed.exchange import meet, require_same
from shardfit.io.files import read_arrays, write_arrays, write_atomic
from shardfit.io.journal import Journal

RESUME = ("auto", "must", "never")


class RunDir:
    """A folder for one fit. seconds: least time between checkpoints (0: after every look of the host)."""

    def __init__(self, path: str | Path, seconds: float = 10.0):
        self.path = Path(path)
        self.seconds = seconds
        self.last_saved = 0.0
        self.shared, self.writes = False, True

    def open(self, asked: dict, resume: str, mesh: Any = None) -> bool:
        """Prepare the folder; return whether there is a run to go on with. Raise if it belongs to another fit."""
        if resume not in RESUME:
            raise ValueError(f"resume={resume!r} must be one of {', '.join(map(repr, RESUME))}.")
        config = self.path / "config.json"
        known = config.exists()
        if resume == "must" and not known:
            raise CheckpointError(f"{self.path} holds no run to resume. Check the path, or use resume='auto'.")
        if known and resume != "never":
            earlier = _read_json(config)
            differing = [name for name in asked if earlier.get(name) != asked[name]]
            if differing:
                raise CheckpointError(
                    f"{self.path} belongs to another fit: {', '.join(differing)} differ(s). Use another run_dir, "
                    "or resume='never' to start this one anew."
                )
        self.shared, self.writes = spans_processes(mesh), leads(mesh)
        if self.shared:  # also: nothing is written before all have read
            require_same(f"{self.path} must be on a file system that all processes see", {"what is there": known})
        if self.writes:
            if known and resume == "never":
                self.clear()
            (self.path / "ckpt").mkdir(parents=True, exist_ok=True)
            _write_json(config, asked)
            _write_json(self.path / "env.json", environment())
        if self.shared:
            meet()
        self.last_saved = time.monotonic()
        return known and resume != "never"

    def clear(self) -> None:
        """Remove the state and the answer of an earlier fit, nothing else."""
        for name in ("config.json", "result.json", "arrays.npz", "ckpt/state.npz", "ckpt/journal.bin"):
            (self.path / name).unlink(missing_ok=True)

    def event(self, kind: str, **details: Any) -> None:
        """Append a line to events.jsonl."""
        if not self.writes:
            return
        line = json.dumps({"time": time.time(), "event": kind, **details})
        with open(self.path / "events.jsonl", "a") as file:
            file.write(line + "\n")

    def due(self) -> bool:
        """Return whether the next checkpoint should be written."""
        return self.writes and time.monotonic() - self.last_saved >= self.seconds

    def save_run(self, run: Any, history: dict[str, np.ndarray]) -> None:
        """Write the state of a device loop."""
        if not self.writes:
            return
        arrays = {f"run{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}
        arrays |= {f"history_{name}": column for name, column in history.items()}
        write_arrays(self.path / "ckpt" / "state.npz", arrays)
        self.last_saved = time.monotonic()
        self.event("checkpoint", evaluations=len(history["value"]))

    def load_run(self, like: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
        """Return the stored state in the structure of `like`, and the history; None if there is none."""
        path = self.path / "ckpt" / "state.npz"
        if not path.exists():
            return None
        try:
            arrays = read_arrays(path)
        except ValueError as error:
            raise CheckpointError(f"{error} Delete it to start anew.") from None
        leaves, treedef = jax.tree.flatten(like)
        stored = [arrays.get(f"run{i}") for i in range(len(leaves))]
        for old, new in zip(stored, leaves, strict=True):
            if old is None or old.shape != new.shape or old.dtype != new.dtype:
                raise CheckpointError(f"{path} does not fit this solver's state. Use resume='never' to start anew.")
        history = {n.removeprefix("history_"): a for n, a in arrays.items() if n.startswith("history_")}
        return jax.tree.unflatten(treedef, [jax.numpy.asarray(a) for a in stored]), history

    def require_same_state(self, stored: Any) -> None:
        """Raise where processes have read different states."""
        if self.shared:
            facts = {"the stored state": stored and [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(stored[0])]}
            require_same(f"{self.path} must be on a file system that all processes see", facts)

    def journal(self, z0: np.ndarray) -> Journal:
        """Return the journal of a host solver's evaluations."""
        return Journal(self.path / "ckpt" / "journal.bin", z0)


def environment() -> dict:
    """Return versions and devices."""
    packages = {}
    for name in ("shardfit", "jax", "jaxlib", "numpy", "scipy", "optax", "optimistix"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    devices = [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]
    return {"python": platform.python_version(), "packages": packages, "devices": devices}


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is damaged ({error}). Use resume='never' to start anew.") from None


def _write_json(path: Path, content: dict) -> None:
    write_atomic(path, lambda file: file.write(json.dumps(content, indent=1).encode()))
