"""How a fit ended. Codes are what device loops carry; the words are for people."""

from enum import Enum


class Status(Enum):
    """(code, what happened, what to do about it)."""

    RUNNING = (0, "still running", "")
    CONVERGED_GRADIENT = (1, "converged: the gradient is below gtol", "")
    CONVERGED_VALUE = (2, "converged: the value changes by less than ftol", "")
    CONVERGED_STEP = (3, "converged: the step is below xtol", "")
    STALLED = (
        4,
        "stalled: no step lowers the value any more, but no tolerance is met",
        "If the value is good enough this is rounding; otherwise rescale parameters, use float64 or another start.",
    )
    NONFINITE = (
        5,
        "non-finite: the value or gradient became NaN or infinite",
        "Bound or transform the parameters so that the model stays defined, or take smaller steps.",
    )
    MAX_STEPS = (6, "step limit reached before any tolerance was met", "Raise maxiter, or loosen the tolerances.")
    INTERRUPTED = (7, "interrupted; the best point so far is returned", "Resume with the same run_dir.")
    FAILED = (8, "the solver reported a failure of its own", "See the message; try another solver or start.")
    COMPLETED = (9, "completed: all planned steps were taken", "")
    CONVERGED_PROGRESS = (10, "converged: the last evaluations lowered the value by less than ptol", "")

    @property
    def code(self) -> int:
        """Number used inside device loops."""
        return self.value[0]

    @property
    def message(self) -> str:
        """What happened."""
        return self.value[1]

    @property
    def remedy(self) -> str:
        """What to change, or ''."""
        return self.value[2]

    @property
    def converged(self) -> bool:
        """Whether a tolerance was met."""
        return self.name.startswith("CONVERGED")

    @classmethod
    def of(cls, code: int) -> "Status":
        """Return the status of a code."""
        return next(s for s in cls if s.code == int(code))
