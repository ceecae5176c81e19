"""Every point of a survey equals the same point fitted alone, whatever the slots, the company and the devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from shardfit import Interval, Objective, Problem, mesh, residual_penalty, residual_term, statistic_term
from shardfit.surveys.axes import start_axis, weight_axis
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.run import survey
from tests.surveys.small import (
    LATER,
    MAXITER,
    NEVER,
    POINTS,
    SLOTS,
    A,
    P,
    Y,
    alone,
    cells,
    found_at,
    point,
    problem,
    residual,
    run,
)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    with run(tmp_path_factory.mktemp("usual")) as found:
        yield found


def test_float64_points_equal_fits(usual):
    for number in range(0, len(POINTS), 2):
        fitted = alone(problem(), POINTS[number])
        value, params, steps = found_at(usual, number)
        assert value == pytest.approx(fitted.value, rel=1e-12)
        np.testing.assert_allclose(params, fitted.params["m"], rtol=0, atol=1e-12)
        assert steps == fitted.steps


def test_float32_points_equal_fits(tmp_path):
    """Steps may differ where a decision hangs on the last bit, so they are given a tolerance of one."""
    small = problem("float32")
    with run(tmp_path, POINTS[:6], the_problem=small) as found:
        assert found.params(0)["m"].dtype == np.float32
        for number in (0, 3, 5):
            fitted = alone(small, POINTS[number])
            value, params, steps = found_at(found, number)
            assert value == pytest.approx(fitted.value, rel=1e-6)
            np.testing.assert_allclose(params, fitted.params["m"], rtol=0, atol=1e-3)
            assert abs(steps - fitted.steps) <= 1


@pytest.mark.parametrize("slots", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 8, 16))])
def test_any_number_of_slots(usual, tmp_path, slots):
    with run(tmp_path, slots=slots) as found:
        assert found.complete
        np.testing.assert_allclose(found.column("value"), usual.column("value"), rtol=1e-12)
        np.testing.assert_array_equal(found.column("steps"), usual.column("steps"))


def test_company_does_not_matter_to_the_bit(usual, tmp_path):
    reference = cells(usual, without=("seconds", "finished", "id"))
    mixed = [*POINTS[::-1], *(point(soft=3, boot=b) for b in range(2, 8))]
    with run(tmp_path / "mixed", mixed) as found:
        others = cells(found, without=("seconds", "finished", "id"))
    assert all(others[key] == reference[key] for key in reference)
    with run(tmp_path / "few", POINTS[4:6]) as found:
        few = cells(found, without=("seconds", "finished", "id"))
    assert all(reference[key] == few[key] for key in few)


def test_points_are_started_in_the_order_of_the_design(tmp_path):
    seen = []
    run(tmp_path, POINTS, slots=SLOTS, limit=5, on_points=lambda records: seen.extend(r.id for r in records)).close()
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.fixture
def compilations():
    """List of what JAX compiles during a test."""
    events = []

    def listen(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_rows_and_slots_split_over_devices(usual, tmp_path, compilations):
    after_points = []
    with run(tmp_path, POINTS, mesh=mesh(2, 2), on_points=lambda _: after_points.append(len(compilations))) as found:
        assert after_points[0] > 0
        assert len({*after_points[1:]}) == 1, "slots stay where they are, so nothing compiles again"
        np.testing.assert_allclose(found.column("value"), usual.column("value"), rtol=1e-12)
        np.testing.assert_array_equal(found.column("steps"), usual.column("steps"))
    run(tmp_path, POINTS).close()  # the same survey without devices: rows are the same rows


def test_slots_that_cannot_be_split(tmp_path):
    with pytest.raises(ValueError, match="3 slots cannot be split over 2 devices"):
        run(tmp_path, slots=3, mesh=mesh(1, 2))


@pytest.mark.parametrize("slots", [0, 2.0, True, "many"])
def test_slots_that_are_no_number(tmp_path, slots):
    with pytest.raises(ValueError, match="must be a number, at least 1, 'measure', or None"):
        run(tmp_path, slots=slots)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [None, "measure"])
def test_slots_are_chosen(usual, tmp_path, slots):
    with run(tmp_path, slots=slots) as found:
        np.testing.assert_allclose(found.column("value"), usual.column("value"), rtol=1e-12)
        assert "slots of" in found.ledger.told("slots")


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_point_that_fails_touches_no_other(usual, tmp_path):
    reference = cells(usual, without=("seconds", "finished", "id"))
    sick = [point(**NEVER), *POINTS[:3], point(**LATER), *POINTS[3:9], point(**NEVER, boot=1), *POINTS[9:]]
    with run(tmp_path, sick) as found:
        assert found.complete
        all_cells = cells(found, without=("seconds", "finished", "id"))
        assert all(all_cells[key] == reference[key] for key in reference)
        failures = found.failures()
        assert [row["id"] for row in failures] == [0, 11]
        assert all(row["status"] == "NONFINITE" and row["value"] is None for row in failures)
        assert all("infinite at the start. Start where the model is defined" in row["reason"] for row in failures)
        assert found.status()["NONFINITE"] == 2
        assert all(row["id"] not in (0, 11) for row in found.best())

    seen = []
    with run(tmp_path, sick, retry=True, on_points=seen.extend) as found:
        assert sorted(r.id for r in seen) == [0, 11]
        assert {row["attempt"] for row in found.failures()} == {2}
        assert len(found) == len(sick)
    run(tmp_path, sick, on_points=seen.extend).close()
    assert len(seen) == 2  # failures are run again only when asked


def test_listeners_run_in_the_callers_precision_and_their_errors_leave_it_alone(tmp_path):
    def fail(records):
        assert jnp.ones(()).dtype == np.float32
        raise OSError("no more")

    with pytest.raises(OSError, match="no more") as caught:  # what is caught keeps the loop's frame alive
        run(tmp_path, on_points=fail)
    assert jnp.ones(()).dtype == np.float32
    assert caught.tb is not None
    with run(tmp_path) as found:
        assert found.complete


# ---- other solvers ------------------------------------------------------------------------------------------------


def test_adam(tmp_path):
    options = {"solver": "adam", "learning_rate": 0.01, "maxiter": 60}
    points = [*POINTS[:4], point(**LATER), *POINTS[4:6]]
    with run(tmp_path, points, **options) as found:
        for number in (0, 3, 4, 6):
            value, params, steps = found_at(found, number)
            fitted = alone(problem(), points[number], **options)
            assert value == pytest.approx(fitted.value, rel=1e-12)
            np.testing.assert_allclose(params, fitted.params["m"], rtol=0, atol=1e-12)
            assert steps == fitted.steps
        (row,) = found.failures()
        assert row["id"] == 4  # went well for some steps, then not
        assert 1 < row["steps"] < 60
        assert row["value"] is not None


def noisy_distance(x, rows, key):
    return (x["m"][0] - rows["y"] + 0.1 * jax.random.normal(key)) ** 2


@pytest.mark.slow
def test_random_numbers_belong_to_the_point(tmp_path):
    term = statistic_term(noisy_distance, {"y": Y}, loss=lambda total, key: total, stochastic=True)
    noisy = Problem(Objective({"data": term}), {"m": np.zeros(P)})
    axes = {"data": weight_axis("data", (0.5, 1.0, 1.5, 2.0, 2.5, 3.0))}
    options = {"solver": "adam", "maxiter": 20, "control": SurveyControl(SLOTS)}
    with pytest.raises(ValueError, match="'data' draws new random numbers at every step, which solver 'lbfgs'"):
        survey(noisy, axes, run_dir=tmp_path)
    survey(noisy, axes, run_dir=tmp_path / "broken", **{**options, "control": SurveyControl(SLOTS, limit=3)}).close()
    with (
        survey(noisy, axes, run_dir=tmp_path / "broken", **options) as broken,
        survey(noisy, axes, run_dir=tmp_path / "whole", **options) as whole,
        survey(noisy, axes, run_dir=tmp_path / "other", seed=1, **options) as other,
    ):
        assert cells(broken) == cells(whole)
        assert not np.array_equal(other.column("value"), whole.column("value"))


def nearer(x, prior):
    return x["m"] - prior


def test_levenberg_marquardt_with_bounds(tmp_path):
    rows = {"A": A, "y": Y, "sigma": np.ones(len(Y))}
    terms = {"data": residual_term(residual, rows, 0.0), "reg": residual_penalty(nearer, np.zeros(P), weight=1.0)}
    bounded = Problem(Objective(terms), {"m": np.zeros(P)}, bounds={"m": (-0.5, 10.0)})
    axes = {"reg": weight_axis("reg", (0.1, 1.0, 10.0, 100.0, 1000.0))}
    with pytest.raises(TypeError, match=r"control=SurveyControl\(progress=...\)"):
        survey(bounded, axes, run_dir=tmp_path / "refused", progress=False)
    with survey(
        bounded, axes, run_dir=tmp_path / "lm", solver="lm", control=SurveyControl(SLOTS), maxiter=MAXITER
    ) as found:
        assert found.complete
        for number, weight in enumerate(axes["reg"].values):
            stacked = np.vstack([A, np.sqrt(weight) * np.eye(P)])
            exact = lsq_linear(stacked, np.concatenate([Y, np.zeros(P)]), (-0.5, 10.0), method="bvls")
            value, params, _ = found_at(found, number)
            assert value == pytest.approx(exact.cost, rel=1e-12)
            np.testing.assert_allclose(params, exact.x, rtol=0, atol=1e-8)
        assert found.params(0)["m"].min() == -0.5


@pytest.mark.parametrize(("solver", "options"), [("lbfgsb", {}), ("adam", {"batch": 8}), (None, {})])
def test_solvers_that_cannot_share_a_batch(tmp_path, solver, options):
    with pytest.raises(ValueError, match="cannot share a batch. Use 'lbfgs', .*, 'lm', 'swarm', 'cmaes', 'adam'"):
        run(tmp_path, solver=solver, **options)
    assert not (tmp_path / "ledger.sqlite").exists()


def test_least_squares_needs_residuals(tmp_path):
    with pytest.raises(TypeError, match="'lm' needs residuals, but 'reg' has none"):
        run(tmp_path, solver="lm")


def test_an_unknown_option(tmp_path):
    with pytest.raises(TypeError, match="no option 'maxitr'"):
        run(tmp_path, maxitr=3)


def test_a_start_outside_its_transform(tmp_path):
    inside = Problem(problem().objective, {"m": np.zeros(P)}, transforms={"m": Interval(-2, 2)})
    with pytest.raises(ValueError, match="outside its transform's range"):
        survey(inside, {"start": start_axis([{"m": np.full(P, 3.0)}])}, run_dir=tmp_path)


@pytest.mark.parametrize("kind", [int, float])
def test_whole_numbers_as_starts(tmp_path, kind):
    """A start of whole numbers is fitted, not returned."""
    x = np.linspace(0, 1, 9)
    line = Objective({"line": residual_term(lambda p, rows: p["a"] * rows["x"] - rows["y"], {"x": x, "y": 3.3 * x})})
    starts = start_axis([{"a": kind(1)}, {"a": kind(7)}])
    found = survey(Problem(line, {"a": 0.0}), {"start": starts}, run_dir=tmp_path, control=SurveyControl(2))
    assert [float(found.params(i)["a"]) for i in (0, 1)] == pytest.approx([3.3, 3.3], rel=1e-5)


@pytest.mark.parametrize(("cheap", "most"), [(1 << 22, 12), (0, 40)])
def test_cheap_points_change_places_in_larger_groups(tmp_path, monkeypatch, cheap, most):
    """Where a point takes a tenth of a millisecond, the calls that take and load it are what it costs."""
    from shardfit.surveys import engine

    calls, take = [], engine.take
    monkeypatch.setattr(engine, "CHEAP", cheap)
    monkeypatch.setattr(engine, "take", lambda *a: calls.append(1) or take(*a))
    with run(tmp_path, POINTS * 2, slots=16) as found:
        assert found.complete and not found.failures()
        assert len(calls) <= most and (cheap or len(calls) == 2 * len(POINTS))
