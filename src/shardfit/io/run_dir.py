"""Run directory: what a fit leaves behind, and what it needs to go on after a crash.

config.json (identity, versions), env.json (versions, devices), events.jsonl (append-only), ckpt/ (state), result.json
and arrays.npz (the answer). Every file is replaced atomically or appended to and has a checksum; state and answer name
the run they belong to; nothing is pickled. Of several processes all read, and the first writes and holds the lock.
"""

import contextlib
import copy
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.core.mesh import leads, spans_processes
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.distributed.exchange import meet, require_same, share
from shardfit.io.files import read_arrays, read_json, write_arrays, write_json
from shardfit.io.journal import Journal
from shardfit.io.lock import only_writer
from shardfit.io.results import read_result, require_storable, save_result
from shardfit.options.common import RESUME

FORMAT = 3
INSTEAD = (
    "Numbers, arrays and objects of Python code in its place can be compared, or what is made inside the function."
)
ANEW = "Use resume='never' to start over."
PACKAGES = ("shardfit", "jax", "jaxlib", "numpy", "scipy", "optax", "optimistix", "equinox")
STATE = ("result.json", "arrays.npz", "ckpt/state.npz", "ckpt/journal.bin")
HISTORY = ("value", "gradient", "step", "seconds")


class RunDir:
    """A folder for one fit. seconds: least time between checkpoints (0: after every look of the host)."""

    def __init__(self, path: str | Path, seconds: float = 10.0):
        self.path = Path(path)
        self.seconds = seconds
        self.leg = 1  # of the fit (solve/legs.py), whose state and journal are written
        self.last_saved = 0.0
        self.mesh, self.shared, self.writes = None, False, True
        self.run, self.notes, self.failure = "", [], ""
        self.lock = contextlib.ExitStack()

    def begin(self, problem: Problem | None, identity: Any, resume: str, mesh: Any = None) -> bool:
        """Take the folder for a run; return whether there is one to continue. Raise if it belongs to another.

        problem: whose parameters are to be stored, None for a run without; identity: from `shardfit.check.identity`,
        with facts, unidentified and digest.
        """
        require_resume(resume)
        self.leg = 1
        if problem is not None:
            require_storable(problem)
        self.mesh, self.shared, self.writes = mesh, spans_processes(mesh), leads(mesh)
        self.run, self.notes, self.failure = identity.digest, [], ""
        known = (self.path / "config.json").exists()
        if resume == "must" and not known:
            raise CheckpointError(f"{self.path} holds no run to resume. Check the path, or use resume='auto'.")
        self._take_lock()
        if resume != "never":
            self._require_same_run(identity, known)
        if identity.unidentified:
            self.notes.append(f"This run cannot be resumed: {'; '.join(identity.unidentified)}. {INSTEAD}")
        if self.shared:  # also: nothing is written before all have read
            self._require_seen({"what is there": known})
        if self.writes:
            self._write_heading(identity, anew=resume == "never")
        if self.shared:
            meet(self.mesh)
        self.last_saved = time.monotonic()
        return known and resume != "never"

    def close(self) -> None:
        """Let go of the folder."""
        self.lock.close()

    def _take_lock(self) -> None:
        text = ""
        if self.writes:
            try:
                self.lock.enter_context(only_writer(self.path))
            except (CheckpointError, OSError) as error:
                text = str(error) if isinstance(error, CheckpointError) else f"{self.path} cannot be used: {error}."
        if self.shared:
            text = str(share({"error": np.array(text)}, self.mesh)["error"])
        if text:
            raise CheckpointError(text)

    def _require_same_run(self, identity: Any, known: bool) -> None:
        """Raise if the folder holds anything but this run, and note what has changed around it."""
        if not known:
            left = [name for name in STATE if (self.path / name).exists()]
            if left:
                raise CheckpointError(f"{self.path}: config.json is missing, {', '.join(left)} is there. {ANEW}")
            return
        path = self.path / "config.json"
        try:
            earlier = read_json(path)
        except ValueError as error:
            raise CheckpointError(f"{error} {ANEW}") from None
        kinds = {"facts": dict, "packages": dict, "unidentified": list}
        if earlier.get("format") != FORMAT or any(not isinstance(earlier.get(n), kind) for n, kind in kinds.items()):
            raise CheckpointError(f"{path} is not what this version of shardfit writes. {ANEW}")
        facts, versions, unidentified = (earlier[name] for name in kinds)
        changed = _changes(versions, environment()["packages"])
        differing = [name for name in {**identity.facts, **facts} if facts.get(name) != identity.facts.get(name)]
        if "solver" in differing:  # then its options differ too, and say nothing more
            differing = [name for name in differing if not name.startswith("solver's ")]
        if differing:
            hint = f" Versions have changed too ({changed}), which can change what is traced." if changed else ""
            raise CheckpointError(
                f"{self.path} belongs to another fit: {', '.join(differing)} differ(s).{hint} Use another run_dir, "
                "or resume='never' to start this one over."
            )
        if unidentified:
            reasons = "; ".join(map(str, unidentified))
            raise CheckpointError(f"{self.path} cannot be resumed: {reasons}. {INSTEAD} {ANEW}")
        if changed:
            self.notes.append(f"Started with other versions: {changed}.")
            self.event("versions changed", versions=changed)

    def _write_heading(self, identity: Any, anew: bool) -> None:
        try:
            if anew:
                self.clear()
            (self.path / "ckpt").mkdir(parents=True, exist_ok=True)
            facts = {"facts": dict(identity.facts), "unidentified": list(identity.unidentified)}
            write_json(self.path / "config.json", {"format": FORMAT, **facts, "packages": environment()["packages"]})
            write_environment(self.path)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be written ({error}). Use another run_dir.") from error

    def clear(self) -> None:
        """Remove the state and the answer of an earlier fit, nothing else."""
        for name in ("config.json", *STATE):
            (self.path / name).unlink(missing_ok=True)
        for path in self.path.glob("ckpt/*-[0-9]*.*"):  # of later legs
            path.unlink()

    # ---- while it runs ------------------------------------------------------------------------------------------

    def event(self, kind: str, **details: Any) -> None:
        """Append a line to events.jsonl."""
        line = json.dumps({"time": time.time(), "event": kind, **details})

        def write():
            with open(self.path / "events.jsonl", "a") as file:
                file.write(line + "\n")

        self.attempt(write)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of events.jsonl; one that is torn or damaged is left out."""
        path = self.path / "events.jsonl"
        for line in path.read_bytes().splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and isinstance(event.get("event"), str):
                    yield event

    def attempt(self, write: Callable[[], Any]) -> None:
        """Write if this process does; after a failure the run goes on without its folder."""
        if not self.writes or self.failure:
            return
        try:
            write()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.failure:
            self.failure = error.strerror or str(error)
            text = f"{self.path} cannot be written ({self.failure}). The fit continues in memory and returns a result."
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def due(self) -> bool:
        """Return whether the next checkpoint should be written."""
        return self.writes and time.monotonic() - self.last_saved >= self.seconds

    def save_run(self, run: Any, history: dict[str, np.ndarray]) -> None:
        """Write the state of a device loop."""
        arrays = {f"run{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}
        arrays |= {f"history_{name}": column for name, column in history.items()} | {"run": np.array(self.run)}
        self.attempt(lambda: write_arrays(self._of_leg("state.npz"), arrays))
        self.last_saved = time.monotonic()
        self.event("checkpoint", evaluations=len(history["value"]))

    def load_run(self, like: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
        """Return the stored state in the structure of `like`, and the history; None if there is none."""
        path = self._of_leg("state.npz")
        arrays = self._own_arrays(path)
        if arrays is None:
            return None
        leaves, treedef = jax.tree.flatten(like)
        stored = [arrays.get(f"run{i}") for i in range(len(leaves))]
        history = {n.removeprefix("history_"): a for n, a in arrays.items() if n.startswith("history_")}
        fits = len({len(history.get(name, ())) for name in HISTORY}) == 1 and set(HISTORY) <= set(history)
        for old, new in zip(stored, leaves, strict=True):
            fits = fits and old is not None and old.shape == new.shape and old.dtype == new.dtype
        if not fits:
            raise CheckpointError(f"{path} does not fit this solver's state. {ANEW}")
        return jax.tree.unflatten(treedef, [jax.numpy.asarray(a) for a in stored]), history

    def require_same_state(self, stored: Any) -> None:
        """Raise where processes have read different states."""
        if self.shared:
            facts = {"the stored state": stored and [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(stored[0])]}
            self._require_seen(facts)

    def _require_seen(self, facts: dict[str, Any]) -> None:
        require_same(f"{self.path} must be on a file system that all processes see", facts, self.mesh)

    def journal(self, z0: np.ndarray) -> Journal:
        """Return the journal of a host solver's evaluations."""
        return Journal(self._of_leg("journal.bin"), z0, self.run, self._fail)

    def _of_leg(self, name: str, leg: int | None = None) -> Path:
        """Return the file of a leg of the run; that of the first has the plain name."""
        leg = self.leg if leg is None else leg
        stem, _, suffix = name.partition(".")
        return self.path / "ckpt" / (name if leg == 1 else f"{stem}-{leg}.{suffix}")

    def save_leg(self, leg: int, found: dict[str, Any]) -> None:
        """Write from where a leg begins, and what is known there."""
        arrays = {name: np.array(value) for name, value in found.items() if value is not None}
        self.attempt(lambda: write_arrays(self._of_leg("start.npz", leg), arrays | {"run": np.array(self.run)}))

    def load_leg(self, leg: int) -> dict[str, np.ndarray] | None:
        """Return from where a leg begins; None where it has not begun."""
        return self._own_arrays(self._of_leg("start.npz", leg))

    def _own_arrays(self, path: Path) -> dict[str, np.ndarray] | None:
        """Return what this run wrote to a file; None if there is none."""
        if not path.exists():
            return None
        try:
            arrays = read_arrays(path)
        except ValueError as error:
            raise CheckpointError(f"{error} {ANEW}") from None
        if str(arrays.pop("run", "")) != self.run:
            raise CheckpointError(f"{path} is of another run. {ANEW}")
        return arrays

    # ---- the answer ---------------------------------------------------------------------------------------------

    def earlier_result(self, problem: Problem) -> Result | None:
        """Return the stored result of this run with the problem's own parameter tree; None if there is none."""
        if not (self.path / "result.json").exists():
            return None
        try:
            result, run = read_result(self.path, problem.x0)
        except (ValueError, FileNotFoundError) as error:
            raise CheckpointError(f"{error} Or delete result.json to compute it from the checkpoint.") from None
        if run != self.run:
            raise CheckpointError(f"{self.path}: result.json is of another run. Delete it, or use resume='never'.")
        derived = {} if problem.decode is None else problem.decode(result.params)
        units = dict(zip(problem.space.labels, problem.unit_labels(), strict=True))
        return _noted(replace(result, derived=derived, units=units, problem=problem.name), self.notes)

    def finish(self, result: Result) -> Result:
        """Store the result of this run and return it, with a note where it could not be stored."""
        result = _noted(result, self.notes)
        if self.writes:
            try:
                save_result(result, self.path, self.run)
            except (OSError, TypeError) as error:
                self._fail(error if isinstance(error, OSError) else OSError(str(error)))
                self.failure = f"the result is not stored: {self.failure}"
        self.event("finished", status=result.status.name, value=result.value)
        failure = self.failure
        if self.shared:
            failure = str(share({"text": np.array(failure)}, self.mesh)["text"])
        return _noted(result, [f"The run directory could not be written ({failure})."] if failure else [])


def require_resume(resume: str) -> None:
    """Raise for what is no way to go on with a folder."""
    if resume not in RESUME:
        raise ValueError(f"resume={resume!r} must be one of {', '.join(map(repr, RESUME))}.")


@contextlib.contextmanager
def opened(run_dir: str | Path | RunDir | None) -> Iterator[RunDir | None]:
    """Give a run directory of one's own, which is let go at the end; None without one."""
    # a copy: one RunDir may be handed to several fits, each of which takes the folder for itself
    store = copy.copy(run_dir) if isinstance(run_dir, RunDir) else None if run_dir is None else RunDir(run_dir)
    if store is None:
        yield None
        return
    store.lock = contextlib.ExitStack()
    with contextlib.closing(store):
        yield store


def write_environment(folder: Path) -> None:
    """Write env.json."""
    write_json(folder / "env.json", environment())


def environment() -> dict:
    """Return versions and devices."""
    devices = [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]
    return {"python": platform.python_version(), "packages": dict(_packages()), "devices": devices}


@cache
def _packages() -> tuple[tuple[str, str], ...]:
    """Return names and versions; reading them takes as long as a small fit."""
    versions = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append((name, metadata.version(name)))
    return tuple(versions)


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'missing')}, now {now.get(name, 'missing')}" for name in names)


def _noted(result: Result, notes: list[str]) -> Result:
    new = [note for note in notes if note not in result.note]
    return replace(result, note=" ".join(filter(None, (result.note, *new)))) if new else result
