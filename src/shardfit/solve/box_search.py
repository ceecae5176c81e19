"""What searches without a gradient share: a finite box, many points a tick, and failures that count as infinite."""

from collections.abc import Mapping
from typing import Any, ClassVar

from shardfit.core.problem import Problem
from shardfit.solve.points import values_at
from shardfit.solve.step import StepSolver
from shardfit.solve.swarm_start import require_box


class BoxSearch(StepSolver):
    """A search in a box; its state counts `nonfinite` evaluations, and by `restart` how often it began anew."""

    at_once: int | None
    needs: ClassVar[str] = "value"
    bounded: ClassVar[bool] = True
    stochastic: ClassVar[bool] = True
    any_length: ClassVar[bool] = True

    def require_least(self, least: Mapping[str, float]) -> None:
        """Raise if an option is given and below its least value."""
        for option, smallest in least.items():
            given = getattr(self, option)
            if given is not None and given < smallest:
                raise ValueError(f"{self.name}: {option}={given} must be at least {smallest}.")

    def check(self, problem: Problem) -> None:
        """Raise unless there is a finite box."""
        require_box(problem.space, problem.box)

    def evaluate(self, space, objective, z, key):
        """Return the values at z (points, n)."""
        return values_at(space, objective, z, key, self.at_once)

    def again(self, state: Any) -> str:
        """Say how often it began anew, for a note."""
        raise TypeError(f"{type(self).__name__} must define again")

    def note(self, state):
        """Say how many evaluations failed and how often it began anew."""
        failed = int(state.nonfinite)
        notes = [f"{failed} evaluations were not finite and counted as infinite."] if failed else []
        return " ".join([*notes, self.again(state)] if int(state.restart) else notes)


def times(count: Any) -> str:
    """Return a number of repetitions in words."""
    return f"{int(count)} time{'s' * (int(count) > 1)}"
