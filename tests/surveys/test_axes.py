"""Axes: every kind changes the answer, and what cannot be an axis is refused before any work."""

import weakref
from dataclasses import replace

import numpy as np
import pytest

from shardfit import Above, Objective, Problem, SurveyControl, mesh, penalty
from shardfit.core.digests import digest
from shardfit.core.errors import CheckpointError
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
        shapes = [leaf.shape for leaf in found.unplaced().leaves_of({"boot": 1})[0]]
        assert shapes == [(N,), (P,)]  # the matrix is given again by the axis, but it is the same


def test_rows_follow_their_shards():
    """On any mesh, and none, what differs lies where the problem's own rows are placed."""
    axes = {"late": Axis((0, 1), lambda s, i: with_rows(s, y=Y + i * np.arange(N)))}
    for over in (None, mesh(2, 1), mesh(8, 1)):
        found = variants(problem(), axes, over)
        (leaf,), _ = found.leaves_of({"late": 1})
        (own,), _ = found.leaves_of({"late": 0})
        np.testing.assert_array_equal(own, found.placed(over).terms[0].rows["y"])  # pyright: ignore
        assert set(np.round(leaf - own)) == set(range(N))
        assert found.unplaced().leaves_of({"late": 1})[0][0].shape == (N,)


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


# ---- values that cannot be made ---------------------------------------------------------------------------------


def data_axis(values, there, made=None):
    """An axis of files, of which some are not there; made: what was read is noted there."""

    def change(start, value):
        if made is not None:
            made.append(value)
        if value not in there:
            raise OSError(f"no file {value}")
        return with_rows(start, y=Y + (np.nan if there[value] is None else there[value]))

    return Axis(values, change)


def fitted(run_dir, axes, **options):
    control = SurveyControl(4, retry=options.pop("retry", False))
    chosen = {"maxiter": 100, "control": control} | options
    return survey(problem(), axes, run_dir=run_dir, **chosen)


def test_a_value_that_cannot_be_read_fails_alone_and_is_tried_again(tmp_path):
    there = {i: 0.01 * i for i in range(5)} | {3: None}  # NaN
    axes = {"soft": AXES["soft"], "file": data_axis(range(6), there)}
    with fitted(tmp_path, axes) as found:
        assert found.complete and found.status()["FAILED"] == 6
        reasons = {row["axis.file"]: row["reason"] for row in found.failures()}
        assert reasons == {
            3: "survey: {'soft': 3, 'file': 3} puts NaN or infinity into the objective.",
            5: "axis 'file' = 5 cannot be made: OSError: no file 5",
        }
        assert found.params(found.failures()[0]["id"])["m"].shape == (P,)
        good = {row["id"]: row["value"] for row in found.best()}
    there |= {3: 0.5, 5: 0.6}  # the files are there now
    with fitted(tmp_path, axes) as found:
        assert found.status()["FAILED"] == 6  # not without being asked
    with fitted(tmp_path, axes, retry=True) as found:
        assert "FAILED" not in found.status() and len(found.best()) == 18
        assert good.items() <= {row["id"]: row["value"] for row in found.best()}.items()
    there[1] = 0.7  # other data under an old name
    with pytest.raises(CheckpointError, match="axis 'file' differ"):
        fitted(tmp_path, axes)
    there[1], there[2] = 0.01, None
    with pytest.raises(CheckpointError, match="values of axis 'file' that could not be made differ"):
        fitted(tmp_path, axes)


def test_points_that_cannot_be_made_wait_for_nobody(tmp_path):
    """Nor does anybody wait for them: not the next of a sweep, not a survey of which they are the first ones."""
    axes = {"soft": AXES["soft"], "file": data_axis(range(6), {5: 0.1})}
    with fitted(tmp_path / "sweep", axes, sweep="soft") as found:
        assert found.complete and found.status()["FAILED"] == 15
    with fitted(tmp_path / "measured", axes, control=SurveyControl(slots="measure")) as found:
        assert found.complete and len(found.best()) == 3


def test_an_axis_of_which_nothing_can_be_made_is_refused(tmp_path):
    with pytest.raises(OSError, match="no file 0"):
        fitted(tmp_path / "run", {"file": data_axis(range(3), {})})
    assert not (tmp_path / "run").exists()


def test_data_are_made_one_at_a_time_and_once(tmp_path):
    """To tell a survey from another all of them are made, but none is kept until a slot needs it."""
    made, alive, most = [], [], [0]

    class Data(np.ndarray):
        pass

    def change(start, i):
        made.append(i)
        y = (Y + 0.01 * i).view(Data)
        alive.append(weakref.ref(y))
        most[0] = max(most[0], sum(one() is not None for one in alive))
        return with_rows(start, y=y)

    axes = {"boot": Axis(range(40), change)}
    fitted(tmp_path, axes, design=table(axes, [{"boot": 7}])).close()
    assert len(made) <= 40 + 2 + 2  # the first two tell what differs, and a slot needs one
    assert most[0] <= 5


def test_what_only_late_values_change_is_part_of_the_identity(tmp_path):
    def change(scale):
        def changed(start, i):
            return with_rows(start, y=Y + 0.1 * i, sigma=np.full(N, scale if i == 5 else 1.0))

        return {"boot": Axis(range(6), changed)}

    one, same, other = (variants(problem(), change(scale), left_out={}) for scale in (2.0, 2.0, 3.0))
    assert len(one.varied) == 2 and one.digests == same.digests != other.digests
    each = [one.unplaced().leaves_of({"boot": i}) for i in range(6)]
    assert one.digests == {"boot": digest(each)}  # as of a list of them, which ledgers of earlier versions hold
