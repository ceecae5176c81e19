"""Successive halving: all points take a few steps, the best of them more, the best of those the rest."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Halving:
    """After `first` steps one point in `factor` continues to `factor` times as many, and so on to the full number.

    score: parts of the objective whose sum ranks points, lower is better. Without it the value ranks them, which
    compares points fairly only if no axis changes a weight.
    """

    first: int = 25
    factor: float = 2.0
    score: tuple[str, ...] = ()

    def __post_init__(self):
        if self.first < 1 or not self.factor > 1:
            raise ValueError(f"{self}: first must be at least 1 and factor above 1.")

    def rungs(self, maxiter: int) -> list[int]:
        """Return the steps taken on every rung; together they are maxiter."""
        steps, at = [], self.first
        while at * self.factor <= maxiter:
            steps.append(math.ceil(at) - sum(steps))
            at *= self.factor
        return [*steps, maxiter - sum(steps)]

    def survivors(self, scores: Mapping[int, float]) -> set[int]:
        """Return the points that continue; equal scores are ordered by number, so that every run decides alike."""
        return set(self.ranked(scores)[: math.ceil(len(scores) / self.factor)])

    def ranked(self, scores: Mapping[int, float]) -> list[int]:
        """Return the points from best to worst."""
        return sorted(scores, key=lambda i: (math.inf if math.isnan(scores[i]) else scores[i], i))

    def score_of(self, value: float, parts: Mapping[str, float]) -> float:
        """Return the number that ranks a point."""
        return sum(parts[name] for name in self.score) if self.score else value

    def check(self, parts: Iterable[str]) -> None:
        """Raise for a score of unknown parts."""
        for name in self.score:
            if name not in parts:
                raise ValueError(f"Halving: score {name!r} is no part of the objective. Known: {', '.join(parts)}.")
