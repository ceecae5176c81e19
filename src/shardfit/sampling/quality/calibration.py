"""Calibration: how truths rank among draws from the posteriors of data that were simulated from them.

If parameters come from the prior and data from the parameters, the truth is one more draw from the posterior, so its
rank among draws is uniform, for every parameter and every function of parameters and data. A method whose ranks are not
is wrong. Talts, Betancourt, Simpson, Vehtari and Gelman, arXiv:1804.06788.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardfit.sampling.quality.uniformity import UniformRanks

LEAST_P = 0.01
LEVELS = (0.5, 0.8, 0.9, 0.95)
CLEAR = 3.0  # standard errors from which on a shift or a width is named


@dataclass(frozen=True, eq=False)
class Calibration:
    """Ranks of truths among draws, and what they say of a method.

    ranks: (n, m) of n data sets, each 0 … draws, for the m quantities named: every free number of the parameters, and
    the log density, which sees what single numbers do not. draws: how many of each posterior were ranked. rhat,
    divergences: (n,) the largest and their number in each posterior. failed: data sets that gave no draws.

    Example: `assert calibrate(make_problem, x0, n=200).passed`.
    """

    names: tuple[str, ...]
    ranks: np.ndarray
    draws: int
    method: str
    rhat: np.ndarray
    divergences: np.ndarray
    failed: dict[int, str] = field(default_factory=dict)

    @cached_property
    def uniform(self) -> UniformRanks:
        """What the ranks of a calibrated method are."""
        return UniformRanks(len(self.ranks), self.draws)

    @cached_property
    def p_values(self) -> dict[str, np.ndarray]:
        """Probability (m,) of ranks as uneven as these, by test: 'histogram' (χ²), 'function' (largest excursion)."""
        return {
            "histogram": self.uniform.p_of_histogram(self.ranks),
            "function": self.uniform.p_of_function(self.ranks),
        }

    @property
    def p(self) -> float:
        """The smallest p value of all tests, times their number (Bonferroni), at most 1."""
        every = np.concatenate(list(self.p_values.values()))
        return float(min(1.0, every.min() * every.size))

    @property
    def passed(self) -> bool:
        """Whether ranks may be uniform, p above 0.01, and every data set gave draws."""
        return self.p > LEAST_P and not self.failed

    def coverage(self, level: float) -> np.ndarray:
        """Return the share (m,) of data sets whose truth lies within the central interval of this probability."""
        place = (self.ranks + 0.5) / (self.draws + 1)
        return np.mean(np.abs(place - 0.5) <= level / 2, axis=0)

    def shape(self, i: int) -> str:
        """Return in one or two words how the ranks of quantity i differ from uniform ones, '' if not clearly."""
        place, n = (self.ranks[:, i] + 0.5) / (self.draws + 1) - 0.5, len(self.ranks)
        told = []
        shift = place.mean() * np.sqrt(12 * n)
        if abs(shift) > CLEAR:
            told.append("too low" if shift > 0 else "too high")
        width = (12 * np.mean(place**2) - 1) * np.sqrt(n / 0.8)  # 0.8: variance of 12 u² for uniform u
        if abs(width) > CLEAR:
            told.append("too narrow" if width > 0 else "too wide")
        return ", ".join(told)

    def table(self) -> list[tuple[str, ...]]:
        """Return lines of text, the header first: p values, coverage of central intervals, how draws differ."""
        lines: list[tuple[str, ...]] = [
            ("quantity", "p histogram", "p function", *(f"{100 * level:g} %" for level in LEVELS), "draws are")
        ]
        covered = [self.coverage(level) for level in LEVELS]
        for i, name in enumerate(self.names):
            p = [f"{values[i]:.2g}" for values in self.p_values.values()]
            shares = [f"{100 * share[i]:.1f}" for share in covered]
            lines.append((name, *p, *shares, self.shape(i) or "as they should"))
        return lines

    @property
    def message(self) -> str:
        """The verdict in words."""
        n = len(self.ranks)
        word = "calibrated" if self.p > LEAST_P else "NOT calibrated"
        told = [f"{self.method} is {word}: p = {self.p:.2g} after Bonferroni, {n} data sets, {self.draws} draws each."]
        if self.failed:
            first = next(iter(self.failed.items()))
            told.append(f"{len(self.failed)} more data sets gave no draws, the first (number {first[0]}): {first[1]}")
        slow = int(np.sum(self.rhat > 1.05))
        if slow:
            told.append(f"{slow} posteriors have an R-hat above 1.05: draw more, for ranks of such chains say little.")
        if self.divergences.any():
            told.append(f"{int((self.divergences > 0).sum())} posteriors have divergences.")
        return " ".join(told)

    def __str__(self):
        lines = self.table()
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        shown = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([self.message, *shown])
