"""Axes: every kind changes the answer, and what cannot be an axis is refused before any work."""

from dataclasses import replace

import numpy as np
import pytest

from shardfit import Above, Objective, Problem, mesh, penalty
from shardfit.surveys.axes import Axis, Span, apply, seed_axis, start_axis, weight_axis
from shardfit.surveys.designs import table
from shardfit.surveys.run import survey
from shardfit.surveys.variants import variants
from tests.surveys.small import (
    AXES,
    POINTS,
    PRIORS,
    A,
    N,
    P,
    Y,
    point,
    problem,
    residual,
    rough,
    run,
    with_arg,
    with_rows,
)

# one value for each axis that is not the usual one, and gives a finite answer
OTHER = {
    "data": 2.0,
    "soft": 3,
    "prior": "one",
    "power": 4.0,
    "edge": 0.05,
    "offset": 0.5,
    "noise": 0.5,
    "boot": 1,
    "start": 1,
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """The usual point, then one for each axis."""
    points = [point(), *(point(**{name: value}) for name, value in OTHER.items())]
    with run(tmp_path_factory.mktemp("axes"), points) as found:
        yield found


@pytest.mark.parametrize("name", AXES)
def test_every_axis_changes_the_answer(changed, name):
    """A start changes the path only: on a convex problem steps or last bits differ, not the answer."""
    number = 1 + list(OTHER).index(name)
    distance = np.abs(changed.params(number)["m"] - changed.params(0)["m"]).max()
    if name == "start":
        assert 0 < distance < 1e-3
    else:
        assert distance > 1e-3


def test_only_what_differs_is_kept_for_each_slot():
    for precision in ("float64", "float32"):
        found = variants(problem(precision), {"boot": AXES["boot"], "prior": AXES["prior"]})
        shapes = [leaf.shape for leaf in found.leaves_of({"boot": 1})[0]]
        assert shapes == [(N,), (P,)]  # the matrix is given again by the axis, but it is the same


def test_rows_follow_their_shards():
    two = variants(problem(), AXES, mesh(2, 1))
    one = variants(problem(), AXES)
    long, short = (v.leaves_of(point(noise=0.5))[0] for v in (two, one))
    assert {leaf.shape for leaf in long} != {leaf.shape for leaf in short}
    assert {leaf.shape for leaf in two.unplaced().leaves_of(point())[0]} == {leaf.shape for leaf in short}


def bowl(x, centre, power):
    return sum((x["m"] - centre) ** 2) ** power


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_whole_numbers_in_the_problem_may_be_fractions_at_points(precision):
    objective = Objective({"bowl": penalty(bowl, np.zeros(2), 1, weight=1)})
    whole = Problem(objective, {"m": np.ones(2)}, precision=precision)
    axes = {
        "weight": weight_axis("bowl", (0, 0.25, 2)),
        "power": Axis((1, 1.5), lambda s, v: s._replace(objective=s.objective.with_args(bowl=(np.zeros(2), v)))),
    }
    leaves, _ = variants(whole, axes).leaves_of({"weight": 0.25, "power": 1.5})
    assert sorted(float(leaf) for leaf in leaves) == [0.25, 1.5]
    assert {leaf.dtype for leaf in leaves} == {np.dtype(precision)}


def with_weight(value):
    return lambda s, _: s._replace(objective=s.objective.with_weights(reg=value))


def other_objective(start, _):
    return start._replace(objective=Objective({"other": penalty(bowl, np.zeros(P), 1.0)}))


def fewer_rows(start, n):
    few = {"A": A[:n], "y": Y[:n], "sigma": np.ones(n)}
    return start._replace(objective=start.objective.with_rows(data=few))


REFUSED = {
    "nothing": (Axis((1, 2), lambda s, v: s), "'bad' changes nothing: all its points would be the same"),
    "the usual value": (weight_axis("data", (1.0,)), "'bad' changes nothing"),
    "the usual start": (start_axis([{"m": np.zeros(P)}]), "'bad' changes nothing"),
    "shape": (Axis((4, 5), with_arg(0, np.zeros)), r"changes the shape of an array from \(6,\) to \(4,\)"),
    "rows": (Axis((9,), fewer_rows), "shapes .* differ from"),
    "structure": (Axis((1,), other_objective), "the objective has other terms or functions than the problem's"),
    "NaN": (Axis((1,), with_arg(0, lambda _: np.full(P, np.nan))), "'bad' = 1 puts NaN or infinity into"),
    "infinite weight": (Axis((1,), with_weight({"soft": np.inf})), "puts NaN or infinity into"),
    "part": (weight_axis("reg.sofd", (1.0,)), "no part 'sofd' in this term. Did you mean 'soft'"),
    "term": (weight_axis("rex", (1.0,)), "no term 'rex' in this objective. Did you mean 'reg'"),
    "other start": (start_axis([{"m": np.zeros(P + 1)}]), "a start has other parameters or shapes"),
    "NaN start": (start_axis([{"m": np.full(P, np.nan)}]), "not finite"),
    "no axis": ((1, 2), "axis 'bad' is tuple. Make it with weight_axis"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_an_axis(tmp_path, case):
    axis, words = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=words):
        survey(problem(), {"bad": axis}, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_there_must_be_axes(tmp_path):
    with pytest.raises(ValueError, match="there are no axes. Give at least one"):
        survey(problem(), {}, run_dir=tmp_path)
    with pytest.raises(ValueError, match="axis name 3 must be a text"):
        survey(problem(), {3: AXES["data"]}, run_dir=tmp_path)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((), "at least one value"),
        ((np.zeros(2),), "must be a number or a text"),
        ((None,), "must be a number or a text"),
        ((np.nan,), "a table cannot hold it"),
        ((1 << 70,), "a table cannot hold it"),
    ],
)
def test_values_that_are_no_cells(values, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Axis(values, lambda s, v: s)


def test_numpy_values_become_plain():
    assert Axis(list(np.array([1, 2])), lambda s, v: s).values == (1, 2)
    assert all(type(v) is float for v in Axis(list(np.logspace(0, 1, 3)), lambda s, v: s).values)  # type: ignore[union-attr]


@pytest.mark.parametrize(("low", "high", "log"), [(1, 1, False), (2, 1, False), (0, 1, True), (-np.inf, 1, False)])
def test_spans_that_are_no_ranges(low, high, log):
    with pytest.raises(ValueError, match="rising order|positive ends"):
        Span(low, high, log=log)


def test_a_logarithmic_span():
    span = Span(1e-2, 1e2, log=True)
    assert [span.at(u) for u in (0, 0.5, 1)] == pytest.approx([1e-2, 1.0, 1e2])
    assert Span(0, 10).at(0.25) == 2.5


def test_two_axes_that_only_together_change_an_array():
    def first(start, value):
        return start

    def second(start, value):
        return with_rows(start, sigma=np.full(N, 2.0)) if start.point.get("first") == 2 else start

    both = {"first": Axis((1, 2), first), "second": Axis((1, 2), second), "data": AXES["data"]}
    with pytest.raises(ValueError, match="'first' changes nothing"):
        variants(problem(), both)


def test_seeds_give_the_same_data_again():
    drawn = []
    axis = seed_axis((3,), lambda s, g: drawn.append(g.normal()) or s)
    for _ in range(2):
        axis.change(None, 3)  # type: ignore[arg-type]
    assert drawn[0] == drawn[1]


def test_an_unknown_axis_in_a_point():
    with pytest.raises(ValueError, match="no axis 'sotf'. Did you mean 'soft'"):
        apply(None, AXES, {"sotf": 1})  # type: ignore[arg-type]


def test_a_problem_that_is_on_a_mesh_already():
    placed = problem()
    placed = placed.replace(objective=placed.objective.place(mesh(2)))
    with pytest.raises(ValueError, match="on a mesh already"):
        variants(placed, AXES)


# ---- which survey a folder holds ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taken")
    run(folder, POINTS[:2]).close()
    return folder


def other_axes(**changes):
    return lambda folder: survey(
        problem(), AXES | changes, run_dir=folder, design=table(AXES | changes, POINTS[:2]), maxiter=200
    )


def other_problem(name, change, **fields):
    """Return the small problem with one term's function, or its transform, changed."""
    terms = dict(problem().objective.items())
    terms[name] = replace(terms[name], **change)
    return Problem(Objective(terms), {"m": np.zeros(P)}, name="small", **fields)


OTHERS = {
    "design": lambda folder: run(folder, POINTS[1:3]),
    "total": lambda folder: run(folder, POINTS[:3]),
    "solver": lambda folder: run(folder, POINTS[:2], maxiter=100),
    "seed": lambda folder: run(folder, POINTS[:2], seed=1),
    "precision": lambda folder: run(folder, POINTS[:2], the_problem=problem("float32")),
    "start": lambda folder: run(folder, POINTS[:2], the_problem=problem().replace(x0={"m": np.full(P, 0.1)})),
    "model of term 'data'": lambda folder: run(
        folder, POINTS[:2], the_problem=other_problem("data", {"fn": lambda x, r, o: 1.01 * residual(x, r, o)})
    ),
    "model of term 'reg'": lambda folder: run(
        folder, POINTS[:2], the_problem=other_problem("reg", {"fn": lambda x, *a: rough({"m": x["m"] ** 2}, *a)})
    ),
    "transform of m": lambda folder: run(
        folder, POINTS[:2], the_problem=other_problem("data", {}, transforms={"m": Above(-9.0)})
    ),
    "solver's step": lambda folder: run(folder, POINTS[:2], solver="lbfgs", memory=7),
    "axis 'prior'": other_axes(
        prior=Axis(tuple(PRIORS), with_arg(0, {"zero": np.zeros(P), "one": np.full(P, 1.1)}.get))
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_survey_in_the_same_folder_is_refused(taken, what):
    from shardfit.core.errors import CheckpointError

    with pytest.raises(CheckpointError, match=rf"belongs to another survey: .*\b{what}.* Use another run directory"):
        OTHERS[what](taken)


def test_starts_leave_held_parameters_where_they_are():
    def square(p):
        return (p["a"] - 1) ** 2 + p["b"] ** 2

    held = Problem(Objective({"sum": penalty(square)}), {"a": 0.0, "b": 2.0}, fixed="b")
    found = variants(held, {"start": start_axis([{"a": 3.0, "b": 2.0}, {"a": 4.0, "b": 2.0}])})
    assert found.leaves_of({"start": 1})[1] == [4.0]
    with pytest.raises(ValueError, match="an axis starts b elsewhere, but the problem holds it"):
        variants(held, {"start": start_axis([{"a": 3.0, "b": 2.5}])})
