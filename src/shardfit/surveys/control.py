"""How a survey runs: what may change from call to call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardfit.core.mesh import RUNS
from shardfit.io.run_dir import require_resume
from shardfit.surveys.point import SurveyPoint


@dataclass(frozen=True, eq=False)
class SurveyControl:
    """How a survey runs; none of it but `more` changes the answers beyond rounding.

    Attributes
    ----------
    slots
        fits that share a batch; None: chosen by memory, 'measure': tried out.
    limit
        most points in this call; 0: only points that already continue in float64 are finished.
    retry
        run failed points again.
    resume
        'auto' continues a survey found in the folder, 'must' fails if there is none, 'never' starts over: points, tags
        and notes that are there are removed.
    more
        further steps, in float64, for points that did not converge, when all that start from each other have
        ended; None: none.
    progress
        whether a line shows how far it is; None shows it on a terminal.
    on_points
        on_points(points) is called after every write.

    """

    slots: int | str | None = None
    limit: int | None = None
    retry: bool = False
    more: int | None = None
    progress: bool | None = None
    on_points: Callable[[list[SurveyPoint]], Any] | None = None
    resume: str = "auto"

    def __post_init__(self):
        require_resume(self.resume)
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"survey: limit={self.limit} must not be negative.")
        if self.more is not None and self.more < 1:
            raise ValueError(f"survey: more={self.more} must be at least 1.")
        whole = isinstance(self.slots, int) and not isinstance(self.slots, bool) and self.slots >= 1
        if not (whole or self.slots in (None, "measure")):
            raise ValueError(
                f"survey: slots={self.slots!r} must be a number, at least 1, 'measure', or None to choose."
            )

    def check(self, mesh: Any) -> None:
        """Raise for a number of slots that the devices cannot share."""
        runs = 1 if mesh is None else mesh.shape.get(RUNS, 1)
        if isinstance(self.slots, int) and self.slots % runs:
            raise ValueError(
                f"survey: {self.slots} slots cannot be split over {runs} devices. Use a multiple of {runs}."
            )
