"""How a recipe runs its fits: solver, devices, seed, folder. What it computes is in the recipe's own options."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardfit.core.errors import CheckpointError
from shardfit.io.run_dir import RunDir
from shardfit.options.common import resume_option, seed_option
from shardfit.options.declared import Options, option


@dataclass(frozen=True)
class RunOptions(Options):
    """Settings that all recipes share.

    Example: `image(obs, run=RunOptions(mesh=shardfit.mesh(rows=4), run_dir="runs/m87"))`.
    """

    solver: Any = option(None, "as for `fit`; None takes the recipe's own")
    mesh: Any = option(None, "devices to split the rows over, from `shardfit.mesh`; the answer does not depend on it")
    seed: int = seed_option()
    run_dir: str | Path | RunDir | None = option(None, "folder in which every fit keeps its checkpoints and result")
    resume: str = resume_option()
    progress: bool | None = option(
        None, "whether a line shows how far a fit is; None shows it on a terminal or for long runs"
    )

    @property
    def folder(self) -> Path | None:
        """The folder as a path; None without one."""
        return None if self.run_dir is None else _path(self.run_dir)

    def series(self, prefix: str) -> Callable[[int], dict[str, Any]]:
        """Return number → keywords of `fit` (all but solver), for fits 1, 2, ... in folders run_dir/<prefix>01, ...

        'must' fails if the first of them has not begun; the later ones begin when their turn comes.
        """
        if self.resume == "must" and not self._begun(prefix):
            raise CheckpointError(
                f"{_path(self.run_dir)} holds no run to resume. Check the path, or use resume='auto'."
            )
        resume = "auto" if self.resume == "must" else self.resume
        common = {"mesh": self.mesh, "seed": self.seed, "resume": resume, "progress": self.progress}
        return lambda number: {**common, "run_dir": self._folder(prefix, number)}

    def _begun(self, prefix: str) -> bool:
        first = self._folder(prefix, 1)
        return first is not None and (_path(first) / "config.json").exists()

    def _folder(self, prefix: str, number: int) -> Path | RunDir | None:
        if self.run_dir is None:
            return None
        place = _path(self.run_dir) / f"{prefix}{number:02d}"
        return RunDir(place, self.run_dir.seconds) if isinstance(self.run_dir, RunDir) else place


def _path(place: str | Path | RunDir | None) -> Path:
    return place.path if isinstance(place, RunDir) else Path(place or "")
