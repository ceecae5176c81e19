"""Which points a survey runs: every combination, an even spread over the ranges, or a table of one's own."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.stats.latin import latin_hypercube
from shardfit.surveys.axes import Axis, Span

SWAPS = 50  # exchanges for each point, at most, that make a design's points different
MOST_BITS = 20  # of a Sobol sequence


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
    """Return n points of a Latin hypercube: along every axis they lie evenly. Lists of values are drawn from evenly.

    All points are different; lists have a limited number of combinations, and asking for more is an error.
    """
    _check_number(n)
    _check_combinations(axes, n)
    rng = np.random.default_rng(seed)
    return _distinct(_spread(axes, latin_hypercube(n, len(axes), rng)), rng)


def sobol(axes: Mapping[str, Axis], n: int, seed: int = 0) -> Design:
    """Return n points of a scrambled Sobol sequence, evenest where n is a power of two.

    Points of lists that the sequence meets again are passed over, so that all are different.
    """
    from scipy.stats import qmc

    _check_number(n)
    _check_combinations(axes, n)
    size = max(0, math.ceil(math.log2(n)))
    while True:
        sequence = qmc.Sobol(len(axes), seed=np.random.default_rng(seed))  # type: ignore[call-arg] (rng= in newer SciPy)
        found = _spread(axes, sequence.random_base2(size))
        points = tuple(dict.fromkeys(found.points))
        if len(points) >= n:
            return Design(found.names, points[:n])
        if size >= MOST_BITS:
            raise ValueError(f"a Sobol sequence does not reach {n} of these combinations. Use latin or grid.")
        size += 1


def lines(axes: Mapping[str, Axis], n: int | None, along: Sequence[str], seed: int = 0) -> Design:
    """Return n lines of the grid: every value of the axes `along`, at n random combinations of the others; None: all.

    A part of a grid in which points can still start from each other, and truths still share their choices. Combinations
    are different, and those of n are the first of those of more: all of them, run with a limit, are the same part.

    Example: `lines(axes, 300, along=("simple",))` is 1,500 of the 7,500 points of the M87 grid.
    """
    for name in along:
        if name not in axes:
            raise ValueError(f"lines: along has {name!r}, which is no axis.{suggestion(name, axes)}")
    whole = grid(axes)
    others = {name: axis for name, axis in axes.items() if name not in along}
    combinations = grid(others).points if others else ((),)
    n = len(combinations) if n is None else n
    _check_number(n)
    if n > len(combinations):
        raise ValueError(f"a design of {n} lines: these lists have only {len(combinations)}. Ask for fewer.")
    order = np.random.default_rng(seed).permutation(len(combinations))[:n]
    rank = {combinations[i]: place for place, i in enumerate(order)}
    at = [whole.names.index(name) for name in others]
    placed = [(rank.get(tuple(point[i] for i in at)), point) for point in whole.points]
    kept = [(place, point) for place, point in placed if place is not None]
    return Design(whole.names, tuple(point for _, point in sorted(kept, key=lambda pair: pair[0])))


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


def _check_combinations(axes: Mapping[str, Axis], n: int) -> None:
    if any(isinstance(axis.values, Span) for axis in axes.values()):
        return
    most = math.prod(len(set(axis.values)) for axis in axes.values())
    if n > most:
        raise ValueError(f"a design of {n} points: these lists have only {most} combinations. Ask for fewer.")


def _distinct(design: Design, rng: np.random.Generator) -> Design:
    """Return the design without repeated points, each axis keeping its values: points exchange a value with others."""
    points = [list(point) for point in design.points]
    counts = Counter(map(tuple, points))
    for _ in range(SWAPS * len(points)):
        again = [i for i, point in enumerate(points) if counts[tuple(point)] > 1]
        if not again:
            return Design(design.names, tuple(map(tuple, points)))
        i, j, k = again[rng.integers(len(again))], int(rng.integers(len(points))), int(rng.integers(len(design.names)))
        before = [tuple(points[i]), tuple(points[j])]
        points[i][k], points[j][k] = points[j][k], points[i][k]
        after = [tuple(points[i]), tuple(points[j])]
        counts.subtract(before)
        counts.update(after)
        if counts[after[0]] > 1 or counts[after[1]] > 1:  # no gain: take it back
            points[i][k], points[j][k] = points[j][k], points[i][k]
            counts.subtract(after)
            counts.update(before)
    return _filled(design, points)


def _filled(design: Design, points: list[list[Any]]) -> Design:
    """Return the design with repeated points replaced by combinations that it lacks, in order."""
    seen = dict.fromkeys(map(tuple, points))
    values = [sorted(set(column), key=repr) for column in zip(*points, strict=True)]
    for combination in itertools.product(*values):
        if len(seen) == len(points):
            break
        seen.setdefault(combination)
    return Design(design.names, tuple(seen))


def _spread(axes: Mapping[str, Axis], unit: np.ndarray) -> Design:
    columns = [[_at(axis.values, u) for u in column] for axis, column in zip(axes.values(), unit.T, strict=True)]
    return Design(tuple(axes), tuple(zip(*columns, strict=True)))


def _at(values: Any, u: float) -> Any:
    return values.at(float(u)) if isinstance(values, Span) else values[min(int(u * len(values)), len(values) - 1)]
