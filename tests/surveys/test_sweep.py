"""Warm starts along an axis, float64 for points that met no tolerance, and going on with them."""

from itertools import product

import numpy as np
import pytest

from shardfit import fit
from shardfit.surveys.axes import Start, apply
from shardfit.surveys.designs import Design, table
from shardfit.surveys.sweep import WAIT, SweepQueue, lines_of, parents_of, turns_of
from tests.surveys.small import AXES, MAXITER, PRIORS, alone, cells, found_at, point, problem, run

POINTS = [point(soft=s, prior=p, boot=b) for s, p, b in product((0.3, 1, 3), PRIORS, (0, 1, 2))]
SWEPT = {"sweep": "soft", "ftol": 0.0, "gtol": 0.0, "patience": 5, "ptol": 1e-8}


def test_the_parent_is_the_neighbour_with_the_next_larger_value():
    design = Design(("a", "w"), ((0, 1.0), (0, 100.0), (1, 1.0), (0, 10.0), (1, 1.0), (2, 5.0), (1, 3.0)))
    parents = parents_of(design, "w")
    assert parents == (3, None, 6, 1, 6, None, None)
    assert turns_of(parents) == [(1, 2), (1, 0), (6, 1), (1, 1), (6, 1), (5, 0), (6, 0)]
    assert lines_of([0, 2, 3, 5], parents) == [[0, 3], [2], [5]]
    assert parents_of(design, None) == (None,) * 7


def test_wrong_axes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="sweep='sofd' is no axis. Did you mean 'soft'"):
        parents_of(table(AXES, POINTS), "sofd")
    with pytest.raises(ValueError, match="'one' is a text|'zero' is a text"):
        parents_of(table(AXES, POINTS), "prior")


def test_a_queue_gives_a_point_out_when_its_parent_has_ended():
    design = table(AXES, POINTS[:1] + POINTS[6:7] + POINTS[12:13])
    points = [found_point(i, design) for i in range(3)]
    queue = SweepQueue(points, parents_of(design, "soft"), lambda parent: np.full(2, float(parent)))
    first = next(queue)
    assert first.id == 2 and first.parent is None and next(queue) is WAIT
    queue.ended([first])
    second = next(queue)
    assert second.id == 1 and second.parent == 2 and second.z.tolist() == [2, 2] and next(queue) is WAIT
    queue.ended([second])
    assert next(queue).id == 0
    with pytest.raises(StopIteration):
        next(queue)


def test_lines_that_have_begun_are_finished_first():
    design = table(AXES, [point(soft=s, boot=b) for b in (0, 1) for s in (0.3, 1, 3)])
    queue = SweepQueue([found_point(i, design) for i in range(6)], parents_of(design, "soft"), lambda parent: None)
    order = []
    while len(order) < 6:  # one slot: a point ends before the next begins
        given = next(queue)
        order.append(given.id)
        queue.ended([given])
    assert order == [2, 1, 0, 5, 4, 3]


def found_point(number, design):
    from shardfit.surveys.point import SurveyPoint

    return SurveyPoint(number, design[number])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    with run(tmp_path_factory.mktemp("swept"), POINTS, **SWEPT) as found:
        yield found


def test_points_start_where_their_parent_ended(swept):
    rows = {row["id"]: row for row in swept.ledger.rows()}
    parents = parents_of(table(AXES, POINTS), "soft")
    assert [rows[i]["parent"] for i in range(len(POINTS))] == list(parents)
    child = next(i for i, parent in enumerate(parents) if parent is not None)
    changed = apply(Start(problem().objective, problem().x0), AXES, POINTS[child]).objective
    there = problem().replace(objective=changed, x0=swept.params(parents[child]))
    options = {k: v for k, v in SWEPT.items() if k != "sweep"}
    again = fit(there, "lbfgs", maxiter=MAXITER, certify=False, progress=False, **options)
    value, params, steps = found_at(swept, child)
    assert value == pytest.approx(again.value, rel=1e-12) and steps == again.steps
    np.testing.assert_allclose(params, again.params["m"], rtol=1e-10)


@pytest.mark.parametrize("limit", [1, 5])
def test_answers_do_not_depend_on_interruptions(swept, tmp_path, limit):
    for _ in range(-(-len(POINTS) // limit)):
        run(tmp_path, POINTS, limit=limit, **SWEPT).close()
    with run(tmp_path, POINTS, **SWEPT) as found:
        assert cells(found) == cells(swept)


def test_a_limit_gives_whole_lines(tmp_path):
    with run(tmp_path, POINTS, limit=6, **SWEPT) as found:
        rows = found.ledger.rows()
    lines = lines_of(range(len(POINTS)), parents_of(table(AXES, POINTS), "soft"))
    assert {row["id"] for row in rows} in [{*a, *b} for a, b in product(lines, lines)]


def test_the_child_of_a_failed_point_has_its_own_start(tmp_path):
    points = [point(soft=s, **({"power": -1.0} if s == 3 else {})) for s in (1, 3)]
    points += [point(soft=0.3, power=-1.0)]
    with run(tmp_path, points, **SWEPT) as found:
        rows = {row["id"]: row for row in found.ledger.rows()}
    assert rows[1]["failed"] and rows[2]["failed"] and rows[2]["parent"] is None and not rows[0]["failed"]


SHORT = {"maxiter": 3, "ftol": 1e-12, "gtol": 1e-9}


def test_points_that_met_no_tolerance_go_on_in_float64(tmp_path):
    single = problem("float32")
    with run(tmp_path / "short", POINTS[:6], the_problem=single, **SHORT) as short:
        assert short.status() == {"MAX_STEPS": 6} and short.converged == 0.0
    with run(tmp_path / "polished", POINTS[:6], the_problem=single, polish=200, **SHORT) as found:
        assert found.converged == 1.0
        assert set(found.column("attempt")) == {2} and found.column("steps").min() > 3
        for number, values in enumerate(POINTS[:6]):
            value, params, _ = found_at(found, number)
            assert params.dtype == np.float32
            # the data have been rounded to float32
            assert value == pytest.approx(alone(problem(), values).value, rel=1e-6)
        before = cells(found)
    with run(tmp_path / "polished", POINTS[:6], the_problem=single, polish=200, **SHORT) as found:
        assert cells(found) == before


def test_going_on_with_more_steps(tmp_path):
    run(tmp_path, POINTS[:4], **SHORT).close()
    with run(tmp_path, POINTS[:4], more=200, **SHORT) as found:
        assert found.converged == 1.0
        values = [alone(problem(), values).value for values in POINTS[:4]]
        np.testing.assert_allclose(found.column("value"), values, rtol=1e-9)


def test_points_of_lines_that_have_ended_go_on(tmp_path):
    """Others wait, since what starts from them starts where they stopped; the answers are those of one call."""
    options = {**SHORT, "sweep": "soft", "polish": 200}
    points = [point(soft=s, boot=b) for b in (0, 1) for s in (0.3, 1, 3)]
    with run(tmp_path / "parts", points, limit=4, **options) as found:
        status = {row["id"]: (row["attempt"], row["status"]) for row in found.ledger.rows()}
    assert status.pop(5) == (1, "MAX_STEPS") and set(status) == {0, 1, 2}
    assert {attempt for attempt, _ in status.values()} == {2}
    with run(tmp_path / "parts", points, **options) as found, run(tmp_path / "whole", points, **options) as whole:
        assert found.converged == 1.0
        np.testing.assert_allclose(found.column("value"), whole.column("value"), rtol=1e-9)
        assert found.column("parent")[:2].tolist() == whole.column("parent")[:2].tolist() == [1, 2]


def test_halving_and_sweeps_are_not_combined(tmp_path):
    from shardfit.surveys.halving import Halving

    with pytest.raises(ValueError, match="does not go with halving"):
        run(tmp_path, POINTS, halving=Halving(2), sweep="soft")
