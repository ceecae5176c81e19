"""How a consensus runs: what may change from call to call."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class ShardControl:
    """How a consensus runs. All but slots leave its draws as they are, to the bit.

    Attributes
    ----------
    slots
        shards that share a batch on every device; None: chosen by their size. It changes the last digits of draws, so
        it belongs to the run.
    executor
        anything with concurrent.futures' `submit`; its workers sample whole shards.
    workers
        without an executor: processes of a local pool. None samples in this process.
    patience
        seconds without a sign of life after which a worker counts as hung. Compiling gives none.
    progress
        whether a line shows how far it is; None shows it on a terminal or for long runs.

    """

    slots: int | None = None
    executor: Any = None
    workers: int | None = None
    patience: float = 600.0
    progress: bool | None = None

    def __post_init__(self):
        if not self.patience > 0:
            raise ValueError(f"consensus: patience={self.patience} must be positive.")
        if self.workers is not None and (isinstance(self.workers, bool) or self.workers < 1):
            raise ValueError(f"consensus: workers={self.workers} must be at least 1.")

    @property
    def elsewhere(self) -> bool:
        """Whether workers sample."""
        return self.executor is not None or self.workers is not None
