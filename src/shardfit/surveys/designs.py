"""Which points a survey runs: every combination, an even spread over the ranges, or a table of one's own."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.stats.latin import latin_hypercube
from shardfit.surveys.axes import Axis, Span


@dataclass(frozen=True)
class Design:
    """Points in the order in which they are run; a point's number is its place here."""

    names: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return dict(zip(self.names, self.points[number], strict=True))


def grid(axes: Mapping[str, Axis]) -> Design:
    """Return every combination of the axes' values; the last axis changes fastest."""
    for name, axis in axes.items():
        if isinstance(axis.values, Span):
            raise ValueError(f"axis {name!r} is a range, of which a grid cannot take every value. Use latin or sobol.")
    return Design(tuple(axes), tuple(itertools.product(*(axis.values for axis in axes.values()))))


def latin(axes: Mapping[str, Axis], n: int, seed: int = 0) -> Design:
    """Return n points of a Latin hypercube: along every axis they lie evenly. Lists of values are drawn from evenly."""
    _check_number(n)
    return _spread(axes, latin_hypercube(n, len(axes), np.random.default_rng(seed)))


def sobol(axes: Mapping[str, Axis], n: int, seed: int = 0) -> Design:
    """Return n points of a scrambled Sobol sequence, evenest where n is a power of two."""
    from scipy.stats import qmc

    _check_number(n)
    sequence = qmc.Sobol(len(axes), seed=np.random.default_rng(seed))  # type: ignore[call-arg] (rng= in newer SciPy)
    return _spread(axes, sequence.random_base2(max(0, math.ceil(math.log2(n))))[:n])


def table(axes: Mapping[str, Axis], points: Sequence[Mapping[str, Any]]) -> Design:
    """Return points as given, each with a value for every axis."""
    rows = []
    for i, point in enumerate(points):
        for name in point:
            if name not in axes:
                raise ValueError(f"point {i} of the table has {name!r}, which is no axis.{suggestion(name, axes)}")
        missing = [name for name in axes if name not in point]
        if missing:
            raise ValueError(f"point {i} of the table has no value for {', '.join(map(repr, missing))}.")
        for name, axis in axes.items():
            if point[name] not in axis.values:
                raise ValueError(f"point {i} of the table has {name} = {point[name]!r}, which its axis does not have.")
        rows.append(tuple(point[name] for name in axes))
    _check_number(len(rows))
    return Design(tuple(axes), tuple(rows))


def _check_number(n: int) -> None:
    if n < 1:
        raise ValueError(f"a design of {n} points has nothing to run. Ask for at least one.")


def _spread(axes: Mapping[str, Axis], unit: np.ndarray) -> Design:
    columns = [[_at(axis.values, u) for u in column] for axis, column in zip(axes.values(), unit.T, strict=True)]
    return Design(tuple(axes), tuple(zip(*columns, strict=True)))


def _at(values: Any, u: float) -> Any:
    return values.at(float(u)) if isinstance(values, Span) else values[min(int(u * len(values)), len(values) - 1)]
