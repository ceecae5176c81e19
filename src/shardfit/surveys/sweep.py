"""Warm starts: along one axis every point starts where its neighbour ended.

Which point is whose neighbour follows from the design alone, never from which of them happened to end first. So a
survey that was killed, or ran with other timing, starts every point from the same numbers.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.surveys.designs import Design
from shardfit.surveys.point import SurveyPoint

Parents = tuple[int | None, ...]


class Wait:
    """What a queue gives when its next points wait for others to end."""


WAIT = Wait()


def parents_of(design: Design, axis: str | None) -> Parents:
    """Return the point from which each one starts, None where it has the start of its own.

    It is the one that is equal but for the axis, where it has the next larger value.
    """
    if axis is None:
        return (None,) * len(design)
    if axis not in design.names:
        raise ValueError(f"survey: sweep={axis!r} is no axis.{suggestion(axis, design.names)}")
    place = design.names.index(axis)
    lines: dict[tuple, list[tuple[Any, int]]] = {}
    for number, point in enumerate(design.points):
        value = point[place]
        if isinstance(value, str):
            raise ValueError(f"survey: sweep={axis!r} goes from large values to small ones, but {value!r} is a text.")
        lines.setdefault(point[:place] + point[place + 1 :], []).append((value, number))
    parents: list[int | None] = [None] * len(design)
    for line in lines.values():
        values = sorted({value for value, _ in line}, reverse=True)
        first = {value: min(n for v, n in line if v == value) for value in values}  # of points that are there twice
        larger = dict(zip(values[1:], values, strict=False))
        for value, number in line:
            parents[number] = first[larger[value]] if value in larger else None
    return tuple(parents)


def turns_of(parents: Parents) -> list[tuple[int, int]]:
    """Return for each point the one that its line begins with, and how many must end before it can begin.

    In this order lines are finished one after the other: a survey that has not ended yet holds whole ones.
    """
    turns: dict[int, tuple[int, int]] = {}
    for number in range(len(parents)):
        line, at = [], number
        while at is not None and at not in turns:
            line.append(at)
            at = parents[at]
        first, depth = (line[-1], -1) if at is None else turns[at]
        for one in reversed(line):
            depth += 1
            turns[one] = first, depth
    return [turns[i] for i in range(len(parents))]


def lines_of(numbers: Sequence[int], parents: Parents) -> list[list[int]]:
    """Return points that depend on each other together, for workers that do not see each other's."""
    turns = turns_of(parents)
    lines: dict[int, list[int]] = {}
    for number in numbers:
        lines.setdefault(turns[number][0], []).append(number)
    return list(lines.values())


class SweepQueue:
    """The points to run, each given out once its parent has ended, those of lines that have begun first.

    start(parent) returns the coordinates at which a point begins whose parent has ended, None if that one has failed.
    """

    def __init__(self, points: Sequence[SurveyPoint], parents: Parents, start: Callable[[int], np.ndarray | None]):
        self.parents, self.start, self.turns = parents, start, turns_of(parents)
        self.points = {point.id: point for point in points}
        self.children: dict[int, list[int]] = {}
        self.ready: list[tuple[tuple[int, int], int]] = []
        for number in self.points:
            above = parents[number]
            if above in self.points:
                self.children.setdefault(above, []).append(number)  # pyright: ignore[reportArgumentType]
            else:
                self._release(number)
        self.left = len(self.points)

    def __iter__(self) -> Iterator[SurveyPoint | Wait]:
        return self

    def __next__(self) -> SurveyPoint | Wait:
        if not self.left:
            raise StopIteration
        if not self.ready:
            return WAIT
        self.left -= 1
        point = self.points[heapq.heappop(self.ready)[1]]
        above = self.parents[point.id]
        z = None if above is None else self.start(above)
        return point if z is None else replace(point, z=z, parent=above)

    def ended(self, points: Sequence[SurveyPoint]) -> None:
        """Take note of points that are in the ledger now."""
        for point in points:
            for child in self.children.pop(point.id, ()):
                self._release(child)

    def _release(self, number: int) -> None:
        heapq.heappush(self.ready, (self.turns[number], number))
