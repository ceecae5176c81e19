"""Which points of a survey to keep: by thresholds, by several measures at once, by how well known truths come back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardfit.surveys.heading import axis_column, quoted
from shardfit.surveys.reading import Survey

Combination = frozenset[tuple[str, Any]]  # of (axis, value)


def below(survey: Survey, limits: Mapping[str, float]) -> list[int]:
    """Return the points whose columns do not exceed the limits, those with the lowest sum of them first.

    Example: `below(survey, {"data.cphase": 2.0, "data.logcamp": 2.0})`.
    """
    if not limits:
        raise ValueError("below: no limits were given. Name at least one column, such as {'data.cphase': 2.0}.")
    names = [quoted(survey.column_name(name)) for name in limits]
    where = " AND ".join(f"{name} <= ?" for name in names)
    rows = survey.ledger.rows(f"WHERE NOT failed AND {where} ORDER BY {' + '.join(names)}, id", list(limits.values()))
    return [row["id"] for row in rows]


def pareto(survey: Survey, by: Sequence[str]) -> list[int]:
    """Return the points that no other beats in one of the columns without losing in another, by the first column.

    Example: `pareto(survey, ("data.cphase", "data.logcamp", "reg.tv"))`.
    """
    names = [survey.column_name(name) for name in by]
    chosen = ", ".join(["id", *map(quoted, names)])
    full = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in names)
    table = np.array(survey.ledger.select(f"SELECT {chosen} FROM points WHERE NOT failed AND {full}"), float)
    table = table.reshape(-1, 1 + len(names))
    # sorted by the first column (then the others), a point can only be beaten by one before it
    table = table[np.lexsort(table.T[::-1][:-1])] if len(table) else table
    front = np.empty((0, len(names)))
    kept = []
    for number, *values in table:
        beaten = np.all(front <= values, axis=1) & np.any(front < values, axis=1)
        if not beaten.any():
            front = np.vstack([front, values])
            kept.append(int(number))
    return kept


def marginals(survey: Survey, points: Iterable[int]) -> dict[str, dict[Any, float]]:
    """Return for every axis the share of some points at each of its values, relative to all points of the survey.

    1 means that the selection does not care, 3 that this value is three times as frequent in it as in the survey.
    """
    chosen = set(points)
    found = {}
    for name in survey.heading.axes:
        rows = survey.ledger.select(f"SELECT id, {quoted(axis_column(name))} FROM points")
        counts: dict[Any, list[int]] = {}
        for number, value in rows:
            count = counts.setdefault(value, [0, 0])
            count[0] += number in chosen
            count[1] += 1
        whole = max(1, sum(c[0] for c in counts.values())) / max(1, sum(c[1] for c in counts.values()))
        found[name] = {value: (c[0] / c[1]) / whole for value, c in sorted(counts.items(), key=lambda x: str(x[0]))}
    return found


def trained(
    survey: Survey, truth_axis: str, match: Callable[[str, np.ndarray], float], limits: Mapping[str, float]
) -> dict[Combination, dict[str, float]]:
    """Return the combinations of all other axes' values that bring every known truth back, with their matches.

    limits: the least match by truth; a combination is kept if it reaches every one. Others as in `matches`.
    """
    return {
        combination: found
        for combination, found in matches(survey, truth_axis, match, limits).items()
        if all(name in found and found[name] >= least for name, least in limits.items())
    }


def matches(
    survey: Survey, truth_axis: str, match: Callable[[str, np.ndarray], float], truths: Iterable[str]
) -> dict[Combination, dict[str, float]]:
    """Return how alike pictures and truths are: a number by truth for every combination of the other axes' values.

    truth_axis: the axis that names the truth a point was fitted to; match(truth, picture): how alike they are.
    """
    wanted = set(truths)
    others = [name for name in survey.heading.axes if name != truth_axis]
    columns = ", ".join(quoted(axis_column(name)) for name in [truth_axis, *others])
    found: dict[Combination, dict[str, float]] = {}
    for number, truth, *rest in survey.ledger.select(f"SELECT id, {columns} FROM points WHERE NOT failed"):
        if truth in wanted:
            found.setdefault(_named(others, rest), {})[truth] = match(truth, survey.picture(number))
    return found


def points_at(survey: Survey, combinations: Iterable[Combination], leaving_out: Sequence[str] = ()) -> list[int]:
    """Return the points whose axes (but those left out) have one of these combinations of values, in order.

    Axes are compared by name, whatever their order; raises if the combinations are of other axes.
    """
    wanted = set(combinations)
    names = [name for name in survey.heading.axes if name not in leaving_out]
    for combination in wanted:
        if {name for name, _ in combination} != set(names):
            there = ", ".join(sorted(name for name, _ in combination))
            raise ValueError(
                f"points_at: the combinations are of the axes {there}, the survey has {', '.join(sorted(names))}. Give "
                "surveys over the same axes, or name those to leave out."
            )
    columns = ", ".join(quoted(axis_column(name)) for name in names)
    rows = survey.ledger.select(f"SELECT id, {columns} FROM points ORDER BY id")
    return [number for number, *values in rows if _named(names, values) in wanted]


def _named(names: Sequence[str], values: Sequence[Any]) -> Combination:
    return frozenset(zip(names, values, strict=True))
