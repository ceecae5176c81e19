"""Designs: which points, in which order; successive halving: which of them go on."""

import numpy as np
import pytest

from shardfit.surveys.axes import Axis, Span, weight_axis
from shardfit.surveys.designs import Design, grid, latin, lines, sobol, table
from shardfit.surveys.halving import Halving
from shardfit.surveys.reading import Survey
from shardfit.surveys.run import survey
from tests.surveys.small import AXES, POINTS, cells, problem, run


def nothing(start, value):
    return start


LISTS = {"a": Axis((1, 2, 3), nothing), "b": Axis(("x", "y"), nothing)}
RANGES = {"log": Axis(Span(1e-3, 1e3, log=True), nothing), "even": Axis(Span(-1, 1), nothing), "list": LISTS["b"]}


def test_grid():
    design = grid(LISTS)
    assert design.points == ((1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "x"), (3, "y"))
    assert design[3] == {"a": 2, "b": "y"}
    with pytest.raises(ValueError, match="'log' is a range, of which a grid cannot take every value. Use latin"):
        grid(RANGES)


@pytest.mark.parametrize("make", [latin, sobol])
def test_one_point_in_every_slice(make):
    n = 16
    design = make(RANGES, n, seed=3)
    columns = dict(zip(design.names, zip(*design.points, strict=True), strict=True))
    slices = {"log": (np.log10(columns["log"]) + 3) / 6, "even": (np.array(columns["even"]) + 1) / 2}
    for unit in slices.values():
        assert sorted((unit * n).astype(int)) == list(range(n))
    assert columns["list"].count("x") == n // 2
    assert make(RANGES, n, seed=3) == design
    assert make(RANGES, n, seed=4) != design


def test_sobol_sequences_can_be_extended():
    assert sobol(RANGES, 32).points[:11] == sobol(RANGES, 11).points
    assert len(sobol(RANGES, 1)) == 1


@pytest.mark.parametrize("make", [latin, sobol])
def test_no_points(make):
    with pytest.raises(ValueError, match="a design of 0 points has nothing to run"):
        make(RANGES, 0)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([{"a": 1, "b": "x"}, {"a": 1, "c": "x"}], "point 1 of the table has 'c', which is no axis"),
        ([{"a": 1}], "point 0 of the table has no value for 'b'"),
        ([{"a": 4, "b": "x"}], "point 0 of the table has a = 4, which its axis does not have"),
        ([], "a design of 0 points"),
    ],
)
def test_tables_that_do_not_fit(points, words):
    with pytest.raises(ValueError, match=words):
        table(LISTS, points)


def test_lines_are_whole_and_those_of_fewer_come_first():
    few, many = lines(FOUR, 7, ("b", "e")), lines(FOUR, 125, ("b", "e"))
    assert len(few) == 7 * 5 * 3 and len(many) == len(grid(FOUR)) and set(many.points) == set(grid(FOUR).points)
    assert many.points[: len(few)] == few.points
    for first in range(0, len(few), 15):
        line = [few[i] for i in range(first, first + 15)]
        assert len({(p["a"], p["c"], p["d"]) for p in line}) == 1 and len({(p["b"], p["e"]) for p in line}) == 15
    assert lines(FOUR, 7, ("b", "e"), seed=1) != few
    assert lines(LISTS, 1, ("a", "b")).points == grid(LISTS).points


@pytest.mark.parametrize(
    ("n", "along", "words"),
    [
        (4, ("b",), "a design of 4 lines: these lists have only 3"),
        (0, ("b",), "a design of 0 points"),
        (1, ("c",), "along has 'c', which is no axis"),
    ],
)
def test_lines_that_do_not_exist(n, along, words):
    with pytest.raises(ValueError, match=words):
        lines(LISTS, n, along)


def test_a_table_within_ranges():
    point = {"log": 0.5, "even": -0.3, "list": "y"}
    assert table(RANGES, [point])[0] == point
    with pytest.raises(ValueError, match="even = 2.0, which its axis does not have"):
        table(RANGES, [point | {"even": 2.0}])


def test_a_design_of_other_axes(tmp_path):
    with pytest.raises(ValueError, match=r"the design is of \('a',\), the axes are .* Make them agree"):
        survey(problem(), AXES, run_dir=tmp_path, design=Design(("a",), ((1,),)))


def test_points_of_a_range_run(tmp_path):
    """The same weights as an axis of their own give the same answers."""
    axes = AXES | {"soft": weight_axis("reg.soft", Span(0.3, 3.0, log=True))}
    points = [POINTS[0] | {"soft": 0.3}, POINTS[0] | {"soft": 3.0}, POINTS[0] | {"soft": 1.0}]
    with (
        survey(problem(), axes, run_dir=tmp_path / "a", design=table(axes, points), maxiter=200) as found,
        run(tmp_path / "b", points) as lists,
    ):
        np.testing.assert_array_equal(found.column("value"), lists.column("value"))


# ---- successive halving -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "factor", "maxiter", "expected"),
    [
        (25, 2, 100, [25, 25, 50]),
        (25, 2, 110, [25, 25, 60]),
        (25, 2, 20, [20]),
        (10, 3, 100, [10, 20, 70]),
        (3, 1.5, 8, [3, 2, 3]),
    ],
)
def test_rungs_together_are_all_steps(first, factor, maxiter, expected):
    rungs = Halving(first, factor).rungs(maxiter)
    assert rungs == expected
    assert sum(rungs) == maxiter


def test_survivors_do_not_depend_on_the_order():
    scores = {0: 3.0, 1: 1.0, 2: 1.0, 3: float("nan"), 4: 1.0}
    assert Halving(factor=2).survivors(scores) == {1, 2, 4}
    assert Halving(factor=3).survivors(dict(reversed(scores.items()))) == {1, 2}
    assert Halving().survivors({}) == set()


def test_scores():
    assert Halving(score=("a", "b")).score_of(9.0, {"a": 1.0, "b": 2.0, "c": 4.0}) == 3.0
    assert Halving().score_of(9.0, {"a": 1.0}) == 9.0


@pytest.mark.parametrize(("first", "factor"), [(0, 2), (5, 1), (5, float("nan"))])
def test_no_halving(first, factor):
    with pytest.raises(ValueError, match="first must be at least 1 and factor above 1"):
        Halving(first, factor)


HALVING = {"halving": Halving(2, 2.0, ("data",)), "maxiter": 8}  # rungs of 2, 2 and 4 steps


def test_what_halving_cannot_do(tmp_path):
    with pytest.raises(ValueError, match="score 'dta' is no part of the objective. Known: data, reg.soft, reg.steep"):
        run(tmp_path, halving=Halving(score=("dta",)))
    with pytest.raises(ValueError, match="does not go with halving, which ranks all points"):
        run(tmp_path, limit=3, **HALVING)
    assert not (tmp_path / "ledger.sqlite").exists()


class Stop(Exception):
    """What stands for a crash."""


def test_halving_survives_crashes(tmp_path):
    with run(tmp_path / "whole", **HALVING) as whole:
        assert whole.complete
        rows = whole.ledger.rows("ORDER BY id")
    stopped = [row for row in rows if row["status"] == "STOPPED_EARLY"]
    assert [sum(row["rung"] == level for row in stopped) for level in (0, 1)] == [6, 3]
    assert all(row["steps"] == (2, 4)[row["rung"]] for row in stopped)
    ranks = sorted(int(row["reason"].split()[1]) for row in stopped if row["rung"] == 0)
    assert ranks == [7, 8, 9, 10, 11, 12]
    assert stopped[0]["reason"].endswith(f"of {(12, 6)[stopped[0]['rung']]} after {stopped[0]['steps']} steps")
    assert not any(row["failed"] for row in rows)
    assert max(row["steps"] for row in rows) <= 8
    best_after_two = {row["id"] for row in rows} - {row["id"] for row in stopped if row["rung"] == 0}
    assert len(best_after_two) == 6

    for _ in range(20):  # every write is the last one of its process
        try:
            run(tmp_path / "broken", on_points=stop_at_something, **HALVING).close()
            break
        except Stop:
            continue
    with Survey(tmp_path / "broken") as broken, Survey(tmp_path / "whole") as whole:
        assert cells(broken) == cells(whole)


def stop_at_something(records):
    if records:
        raise Stop


def test_halving_is_part_of_a_survey(tmp_path):
    from shardfit.core.errors import CheckpointError

    run(tmp_path, **HALVING).close()
    with pytest.raises(CheckpointError, match="halving differ"):
        run(tmp_path, maxiter=8)


FOUR = {name: Axis((0, 1, 10, 100, 1000), nothing) for name in "abcd"} | {"e": Axis((1, 2, 3), nothing)}


@pytest.mark.parametrize("make", [latin, sobol])
def test_points_over_lists_are_all_different(make):
    for n in (300, 1200):
        design = make(FOUR, n)
        assert len(set(design.points)) == len(design) == n
        counts = [np.unique(column, return_counts=True)[1] for column in zip(*design.points, strict=True)]
        assert all(np.ptp(count) <= (1 if make is latin else 0.1 * n) for count in counts)


@pytest.mark.parametrize("make", [latin, sobol])
def test_more_points_than_combinations(make):
    assert set(make(LISTS, 6).points) == set(grid(LISTS).points)
    with pytest.raises(ValueError, match="only 6 combinations"):
        make(LISTS, 7)
