"""How a recipe runs its fits: solver, devices, seed, folder. What it computes is in the recipe's own options."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
        if isinstance(self.run_dir, RunDir):
            return self.run_dir.path
        return None if self.run_dir is None else Path(self.run_dir)

    @property
    def later(self) -> "RunOptions":
        """The same for what begins later in a run: 'must' insists on its first fit only."""
        return replace(self, resume="auto") if self.resume == "must" else self

    def part(self, name: str) -> Path | RunDir | None:
        """Return the folder of a part of the run, with its time between checkpoints; None without a folder."""
        if self.folder is None or not isinstance(self.run_dir, RunDir):
            return None if self.folder is None else self.folder / name
        return RunDir(self.folder / name, self.run_dir.seconds)
