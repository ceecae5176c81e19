"""What a survey varies: an axis is a list of values and how one of them changes the start of a fit.

A point of a survey is the problem's own objective and start after every axis has set its value. Axes change leaves
(weights, arguments, rows, the start), never shapes, so that points can share a batch; what changes shapes is another
problem.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem

PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Span:
    """A range of values for Latin hypercubes and Sobol sequences; log: even in the logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self):
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"Span({self.low}, {self.high}): the ends must be finite numbers in rising order.")
        if self.log and self.low <= 0:
            raise ValueError(f"Span({self.low}, {self.high}): a logarithmic range needs positive ends.")

    def at(self, u: float) -> float:
        """Return the value at a fraction u of the range."""
        if self.log:
            return float(self.low * (self.high / self.low) ** u)
        return float(self.low + (self.high - self.low) * u)

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __iter__(self) -> Iterator[float]:
        """Some values that stand for all: the ends and one between."""
        return iter((self.at(0.0), self.at(0.5), self.at(1.0)))


class Start(NamedTuple):
    """Where a fit starts: an objective and parameters; point: the values of all axes at this point."""

    objective: Objective
    params: Any
    point: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Axis:
    """Values, and what each does.

    values: numbers or texts, as they appear in the table, or a Span; change(start, value) returns the changed Start;
    unit: of the values. option: of the solver, which the values set; such an axis changes nothing else.

    Example: `Axis((0.5, 1.0), lambda start, v: start._replace(objective=start.objective.with_weights(tv=v)))`.
    """

    values: Sequence[Any] | Span
    change: Callable[[Start, Any], Start]
    unit: str = ""
    option: str = ""

    def __post_init__(self):
        if isinstance(self.values, Span):
            return
        values = tuple(v.item() if isinstance(v, np.generic) else v for v in self.values)
        if not values:
            raise ValueError("an axis needs at least one value.")
        for value in values:
            if not isinstance(value, PLAIN):
                raise TypeError(f"axis value {value!r} must be a number or a text: it is a cell of the table.")
            if value != value or (isinstance(value, int) and abs(value) >= 1 << 63):
                raise ValueError(f"axis value {value!r}: a table cannot hold it. Use a finite number, or a text.")
        object.__setattr__(self, "values", values)


def weight_axis(name: str, values: Sequence[float] | Span) -> Axis:
    """Return the axis of a term's weight. name: 'term', or 'term.product' where a term has several.

    Example: `{"tv": weight_axis("reg.tv", (0, 1, 10, 100))}`.
    """
    term, _, product = name.partition(".")

    def change(start: Start, value: float) -> Start:
        new: Any = {product: value} if product else value
        return start._replace(objective=start.objective.with_weights(**{term: new}))

    return Axis(values, change)


def start_axis(starts: Sequence[Any]) -> Axis:
    """Return the axis of different starts: fits of one problem from many places. starts: pytrees like x0."""
    return Axis(range(len(starts)), lambda start, i: start._replace(params=starts[int(i)]))


def solver_axis(option: str, values: Sequence[Any] | Span) -> Axis:
    """Return the axis of an option of the solver, such as "memory" or "learning_rate".

    Points whose solvers have equal options share a batch and its programs; groups of other options follow each other.

    Example: `{"rate": solver_axis("learning_rate", (1e-3, 1e-2, 1e-1))}`.
    """
    return Axis(values, lambda start, _: start, option=option)


def seed_axis(seeds: Sequence[int], change: Callable[[Start, np.random.Generator], Start]) -> Axis:
    """Return the axis of random realisations, such as bootstrapped data: change(start, generator of that seed)."""
    return Axis(seeds, lambda start, seed: change(start, np.random.default_rng(int(seed))))


def check_axes(problem: Problem, axes: Mapping[str, Axis]) -> None:
    """Raise for axes that cannot be applied, or that change nothing."""
    if not axes:
        raise ValueError('survey: there are no axes. Give at least one, such as {"tv": weight_axis("tv", (0, 1))}.')
    for name, axis in axes.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"survey: axis name {name!r} must be a text.")
        if not isinstance(axis, Axis):
            raise TypeError(
                f"survey: axis {name!r} is {type(axis).__name__}. Make it with weight_axis, start_axis, seed_axis "
                "or Axis."
            )


class CannotMake(ValueError):
    """The data or the start of one point cannot be made, or are no finite numbers: this point fails, others do not."""


def apply(start: Start, axes: Mapping[str, Axis], point: Mapping[str, Any]) -> Start:
    """Return the start of one point, the axes applied in their order; raise CannotMake if one of them raises."""
    for name in point:
        if name not in axes:
            raise ValueError(f"survey: no axis {name!r}.{suggestion(name, axes)}")
    start = start._replace(point=point)
    for name, axis in axes.items():
        if name in point:
            try:
                start = axis.change(start, point[name])
            except Exception as error:  # whatever an axis meets, such as a file that is gone
                told = " ".join(str(error).split())
                why = f"{type(error).__name__}: {told}" if told else type(error).__name__
                raise CannotMake(f"axis {name!r} = {point[name]!r} cannot be made: {why}") from error
    return start
