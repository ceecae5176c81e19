"""Solvers of a survey's points: one for all, or one for every combination of the options that are axes.

Points whose solvers have equal options share programs and batches; groups of other options follow each other.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardfit.core.problem import Problem
from shardfit.solve.base import Solver, check_options
from shardfit.solve.box_search import BoxSearch
from shardfit.solve.capabilities import require
from shardfit.solve.registry import as_solver
from shardfit.solve.step import StepSolver
from shardfit.surveys.axes import Axis
from shardfit.surveys.designs import Design
from shardfit.surveys.point import SurveyPoint


@dataclass(frozen=True, eq=False)
class Solvers:
    """make: returns a solver with further options; options: those that are axes, by the axis."""

    make: Callable[..., StepSolver]
    options: Mapping[str, str]

    def options_at(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that the axes set at a point."""
        return {option: point[name] for name, option in self.options.items()}

    def at(self, point: Mapping[str, Any]) -> StepSolver:
        """Return the solver of a point."""
        return self.make(**self.options_at(point))

    def groups(self, points: Iterable[SurveyPoint]) -> list[tuple[StepSolver, list[SurveyPoint]]]:
        """Return the points by their solver, in the order of the first of each."""
        groups: dict[tuple, list[SurveyPoint]] = {}
        for point in points:
            groups.setdefault(tuple(point.axes[name] for name in self.options), []).append(point)
        return [(self.at(some[0].axes), some) for some in groups.values()]


def solvers_of(problem: Problem, solver: Any, options: Mapping[str, Any], axes: Mapping[str, Axis]) -> Solvers:
    """Return the solvers of a survey; raise for one that cannot take its points. solver, options: as of `survey`."""
    on_axes = {name: axis.option for name, axis in axes.items() if isinstance(axis, Axis) and axis.option}
    for name, option in on_axes.items():
        if option in options or list(on_axes.values()).count(option) > 1:
            raise TypeError(f"survey: the solver's option {option!r} is set by axis {name!r}. Give it once.")

    def make(**more: Any) -> StepSolver:
        if isinstance(solver, Solver) and more and not options:
            check_options(solver.name, type(solver), more)
            chosen: Solver = replace(solver, **more)
        else:
            chosen = as_solver(solver, **options, **more)
        require(problem, chosen, "survey")
        assert isinstance(chosen, StepSolver)  # what slots declare
        return chosen

    return Solvers(make, on_axes)


def check_solvers(solvers: Solvers, design: Design) -> None:
    """Raise, before anything runs, for options that a solver of some point does not have or take."""
    places = [design.names.index(name) for name in solvers.options]
    for values in dict.fromkeys(tuple(point[i] for i in places) for point in design.points):
        solvers.at(dict(zip(solvers.options, values, strict=True)))


def require_to_go_on(solver: StepSolver, **asked: Any) -> None:
    """Raise where points are to go on from earlier answers, and the solver searches the whole box anew."""
    given = [name for name, value in asked.items() if value]
    if given and isinstance(solver, BoxSearch):
        raise ValueError(
            f"survey: solver {solver.name!r} searches the box anew and goes on from no earlier answer, as "
            f"{' and '.join(given)} would have it. Leave it out."
        )
