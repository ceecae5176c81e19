"""Hyper-parameters of priors: each combination of a small design is weighted by its evidence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from shardfit.core.problem import Problem
from shardfit.sampling.refits.evidence import log_evidence, require_densities
from shardfit.sampling.refits.frame import Frame
from shardfit.surveys.axes import Axis, Start, apply, check_axes
from shardfit.surveys.designs import Design, grid


@dataclass(frozen=True, eq=False)
class Hyper:
    """A problem for every point of a design, with its log evidence and its share of the posterior."""

    design: Design
    problems: list[Problem]
    log_z: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Probability of every point, all equally probable before the data."""
        likely = np.exp(self.log_z - self.log_z.max())
        return likely / likely.sum()

    def counts(self, draws: int) -> np.ndarray:
        """Return how many of the draws each point gets: in all as many as asked for, none off by more than one."""
        ends = np.floor(np.cumsum(self.shares) * draws + 0.5).astype(int)
        ends[-1] = draws
        return np.diff(ends, prepend=0)

    def table(self) -> dict[str, np.ndarray]:
        """Return values of the axes, log evidence and share, by name."""
        columns = zip(self.design.names, zip(*self.design.points, strict=True), strict=True)
        return {f"hyper_{name}": np.array(column) for name, column in columns} | {
            "hyper_log_evidence": self.log_z,
            "hyper_share": self.shares,
        }

    @property
    def note(self) -> str:
        """What to know about the design."""
        best = int(np.argmax(self.shares))
        told = f"Hyper-parameters: {len(self.problems)} combinations, the most probable {self.design[best]}."
        for name, column in zip(self.design.names, zip(*self.design.points, strict=True), strict=True):
            if len(set(column)) > 1 and self.design[best][name] in (min(column), max(column)):
                told += f" {name} is at the end of its values: widen the axis."
        return told


def weigh(problem: Problem, axes: Mapping[str, Axis], frame: Callable[[Problem, int], Frame], mesh: Any) -> Hyper:
    """Return the combinations of the axes' values. frame(problem, number) finds the mode of each."""
    check_axes(problem, axes)
    require_densities(problem)
    design = grid(axes)
    problems, found = [], []
    for number in range(len(design)):
        start = apply(Start(problem.objective, problem.x0), axes, design[number])
        if jax.tree.structure(start.objective) != jax.tree.structure(problem.objective):
            raise ValueError(f"rto: at {design[number]} the objective has other terms. Axes change values only.")
        own = problem.replace(objective=start.objective, x0=start.params, priors=None)
        problems.append(own)
        found.append(log_evidence(own, np.asarray(frame(own, number).center), mesh).log_z)
    return Hyper(design, problems, np.array(found))
