"""Success: whether an answer may be trusted, decided here for every result of every science.

Badges, `success`, `--json` and exit codes are all read off the verdict, so they cannot disagree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardfit.core.status import Status

HIGH, LOW = 1.5, 0.4  # reduced χ² outside of which a model, or the errors it was given, are doubtful
SCATTER = 5.0  # standard deviations by which that of few residuals may be off
MOST_NAMES = 8  # that a reason lists
STOPPED = 130  # exit code of what was interrupted
TONES = ("good", "warn", "bad", "plain")
ENDED = (Status.CONVERGED_GRADIENT, Status.CONVERGED_VALUE, Status.CONVERGED_STEP, Status.CONVERGED_PROGRESS)
WORDS = {  # of a status: what a badge says, and its tone
    **dict.fromkeys(ENDED, ("converged", "good")),
    Status.COMPLETED: ("completed", "plain"),
    Status.RUNNING: ("running", "plain"),
    Status.STALLED: ("stalled", "warn"),
    Status.NONFINITE: ("non-finite", "bad"),
    Status.MAX_STEPS: ("step limit reached", "warn"),
    Status.INTERRUPTED: ("interrupted", "warn"),
    Status.FAILED: ("failed", "bad"),
}
DOUBTFUL = "doubtful"


@dataclass(frozen=True)
class Verdict:
    """Whether an answer may be trusted. word, tone: of its badge; reasons: why not; notes: what it rests on."""

    word: str
    tone: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def success(self) -> bool:
        """Whether nothing speaks against the answer."""
        return not self.reasons

    @property
    def exit(self) -> int:
        """Exit code of a command that ends with this answer: 0, 1 if it should not be trusted, 130 if interrupted."""
        return STOPPED if self.interrupted else int(not self.success)

    def __bool__(self):
        return self.success


def decide(
    status: Status,
    doubts: Iterable[str] = (),
    *,
    not_numbers: Sequence[str] = (),
    undetermined: Sequence[str] = (),
    at_bound: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on an answer.

    doubts: what the science says against it; not_numbers: names of what is NaN; undetermined: of parameters about which
    the data say nothing; at_bound: of those that a bound stopped. A success has met a tolerance, or taken all steps of
    a plan, and has none of the first three. An active bound is no doubt: whoever set it allows for it. It is named, and
    the badge is not that of a minimum.
    """
    word, tone = WORDS[status]
    ended = status.converged or status is Status.COMPLETED
    reasons = () if ended else (f"{status.message}.",)
    reasons += (f"Not a number: {listed(not_numbers)}.",) if not_numbers else ()
    reasons += (f"The data do not determine {listed(undetermined)}.",) if undetermined else ()
    reasons += tuple(dict.fromkeys(doubts))
    notes = (f"At a bound: {listed(at_bound)}.",) if at_bound else ()
    if ended and reasons:
        word, tone = DOUBTFUL, "warn"
    elif ended and at_bound:
        word, tone = f"{word} at a bound", "plain"
    return Verdict(word, tone, reasons, notes, status is Status.INTERRUPTED)


def chi2_doubt(chi2: float, dof: int, of: str = "") -> str:
    """Return what is odd about χ² of residuals in units of known errors, '' if nothing is."""
    if dof <= 0:
        return ""
    reduced, chance = chi2 / dof, SCATTER * (2 / dof) ** 0.5
    told = f"Reduced χ²{of} is {reduced:.3g} of {dof:,} degrees of freedom"
    if not reduced <= max(HIGH, 1 + chance):
        return f"{told}: the model does not explain the data within their errors, or these are too small."
    if reduced < min(LOW, 1 - chance):
        return f"{told}: the errors are too large, or noise is fitted."
    return ""


def listed(names: Sequence[str]) -> str:
    """Return names with commas between, the first few of many."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
