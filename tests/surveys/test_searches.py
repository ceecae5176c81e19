"""Swarms and CMA-ES as solvers of a survey's points: many searches share a batch, each as if it were alone."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf

SEARCHES = {"swarm": {"particles": 20, "restarts": 1, "stagnation": 15}, "cmaes": {"population": 12, "restarts": 1}}


def wavy(x, rows, depth):
    """Many minima, the lowest at the middle of the rows; no use of gradients is made of it."""
    return (x["p"] - rows["c"]) ** 2 + depth * jnp.sin(3 * (x["p"] - 0.3)) ** 2 / 4


def wavy_problem(precision="float64"):
    rows = {"c": np.linspace(0.1, 0.5, 4)}
    terms = {"wavy": sf.statistic_term(lambda x, r, d: jnp.sum(wavy(x, {"c": r["c"][:, None]}, d), 1), rows, 1.0)}
    return sf.Problem(sf.Objective(terms), {"p": np.full(2, 2.5)}, bounds=(-3.0, 3.0), precision=precision)


def depth_axis(values=(0.5, 1.0, 2.0, 4.0, 8.0)):
    return sf.Axis(values, lambda s, v: s._replace(objective=s.objective.with_args(wavy=(v,))))


def searched(run_dir, name, slots, **options):
    chosen: dict[str, Any] = {"maxiter": 60, "problem": wavy_problem(), "mesh": None} | SEARCHES[name] | options
    control = sf.SurveyControl(slots, progress=False)
    problem = chosen.pop("problem")
    return sf.survey(problem, {"depth": depth_axis()}, run_dir=run_dir, solver=name, control=control, **chosen)


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_share_a_batch(tmp_path, name):
    """Every point finds the lowest minimum, whatever shares its batch, and as often as told."""
    with searched(tmp_path / "few", name, 2) as few, searched(tmp_path / "all", name, 5) as every:
        assert few.complete and every.complete and not few.failures()
        np.testing.assert_allclose(few.column("value"), every.column("value"), rtol=1e-12)
        points = next(iter(SEARCHES[name].values()))
        for row in few.ledger.rows():
            assert row["evaluations"] % points == 0 and 0 < row["steps"] <= 60
            grid = np.linspace(-3, 3, 20_001)
            lowest = 2 * np.min(
                sum((grid - c) ** 2 for c in np.linspace(0.1, 0.5, 4))
                + row["axis.depth"] * np.sin(3 * (grid - 0.3)) ** 2
            )
            assert row["value"] == pytest.approx(lowest, rel=1e-2)
            assert row["part.wavy"] == row["value"]


def test_searches_on_devices_in_single_precision(tmp_path):
    where = sf.mesh(rows=2, runs=2)
    with searched(tmp_path, "swarm", 4, mesh=where, problem=wavy_problem("float32")) as found:
        assert found.complete and not found.failures()
        assert found.params(0)["p"].dtype == np.float32


@pytest.mark.parametrize(("given", "value"), [("polish", "lbfgsb"), ("keep", 2)])
def test_options_of_a_single_swarm_are_refused(tmp_path, given, value):
    with pytest.raises(ValueError, match=f"swarm with {given} is a run of its own"):
        sf.survey(wavy_problem(), {"depth": depth_axis()}, run_dir=tmp_path / "run", solver=sf.Swarm(**{given: value}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", [{"polish": 10}, {"sweep": "depth"}, {"halving": sf.Halving(2)}])
def test_a_search_goes_on_from_nothing(tmp_path, given):
    with pytest.raises(ValueError, match=f"as {next(iter(given))} would have it"):
        searched(tmp_path / "run", "cmaes", 2, **given)
    with pytest.raises(TypeError, match="must be a number of steps"):
        searched(tmp_path / "run", "cmaes", 2, polish="lbfgsb")
    assert not (tmp_path / "run").exists()


def test_a_search_needs_a_box(tmp_path):
    with pytest.raises(ValueError, match="has no finite bounds"):
        searched(tmp_path / "run", "cmaes", 2, problem=wavy_problem().replace(bounds=None))
