"""Microcanonical chains on densities whose moments are known, on meshes, from starts that are no good, and resumed."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from benchmarks.problems import posteriordb
from shardfit.core.precision import arithmetic
from shardfit.core.status import Status
from shardfit.sampling.chains.mams import MAMS, autocorrelation_times, turned
from shardfit.sampling.quality.judgement import judge
from shardfit.sampling.quality.outside import mass_outside
from shardfit.sampling.run import usual_method
from tests.sampling.test_nuts import around_one, gamma, gaussian, narrow, require_moments, run
from tests.sampling.test_run import QUICK, by_quadrature, problem

BRIEF = MAMS(chains=4, warmup=100, settling=60, draws=500)


def test_directions_turn_as_the_differential_equation_says():
    """du/dt = (u uᵀ - 1) slope / (n - 1), and kinetic energy grows by -∫ u·slope dt."""
    rng, n, time, steps = np.random.default_rng(0), 5, 0.7, 4000
    slope, u = rng.normal(size=n) * 3, rng.normal(size=n)
    u /= np.linalg.norm(u)
    with arithmetic("float64"):
        found, gain = (
            np.asarray(x)[..., 0] for x in turned(jnp.asarray(u[:, None]), jnp.asarray(slope[:, None]), time)
        )
    work, dt = 0.0, time / steps

    def rate(u):
        return (u * (u @ slope) - slope) / (n - 1)

    for _ in range(steps):
        middle = u + 0.5 * dt * rate(u)
        work += dt * (middle @ slope)
        u = u + dt * rate(middle)
    np.testing.assert_allclose(found, u, atol=1e-6)
    np.testing.assert_allclose(gain, -work, atol=1e-5)


def test_a_gaussian():
    """Moments of a correlated normal density, statistics of draws, and the same draws however the run is cut."""
    made, covariance = gaussian(4, 1e3)
    drawn, state = run(made, BRIEF)
    require_moments(drawn["z"], np.ones(4), covariance, 0.12)
    assert not drawn["diverging"].any() and 0.8 < drawn["accept"].mean() < 0.97
    assert abs(drawn["virial"].mean() - 1) < 0.1
    assert drawn["gradients"].sum() + drawn["warmup_gradients"].sum() == 4 * (int(state.tick) - 1)
    assert np.all(drawn["gradients"] == drawn["gradients"][:1])  # nobody waits
    white = np.linalg.solve(np.asarray(state.metric.root), np.linalg.cholesky(covariance))
    np.testing.assert_allclose(np.linalg.svd(white)[1], 1, rtol=0.3)
    np.testing.assert_array_equal(run(made, BRIEF, ticks=7)[0]["z"], drawn["z"])
    assert not np.any(run(made, BRIEF, seed=1)[0]["z"] == drawn["z"])


def test_steps_that_are_too_long_leave_no_bias():
    """Half of all transitions refused, by steps with a large error of the energy: two gamma densities keep theirs."""
    made = sf.Problem(
        sf.Objective({"a": sf.penalty(lambda x: gamma({"a": x["a"]}) + gamma({"a": x["b"]}))}),
        {"a": 2.0, "b": 2.0},
        transforms={"a": "log", "b": "log"},
    )
    solver = MAMS(chains=16, warmup=100, settling=60, draws=1000, target_accept=0.5, temper=2.0)
    drawn, _ = run(made, solver, given={"root": np.full(2, 0.6)})
    assert drawn["accept"].mean() < 0.65
    x = np.exp(drawn["z"])
    np.testing.assert_allclose(x.mean((0, 1)), 4, atol=0.15)
    np.testing.assert_allclose(x.var((0, 1)), 4, atol=0.5)


def test_starts_without_a_density_move_to_the_centre():
    solver = MAMS(chains=4, warmup=60, settling=30, draws=50)
    made = sf.Problem(sf.Objective({"wall": sf.penalty(lambda x: jnp.sum(narrow(x)))}), np.zeros(2))
    drawn, state = run(made, solver)
    assert Status.of(state.status) is Status.COMPLETED and np.all(np.abs(drawn["z"]) < 0.1)
    assert Status.of(run(made.replace(x0=np.full(2, 5.0)), solver)[1].status) is Status.NONFINITE


def test_correlation_times_are_those_of_an_autoregression():
    rng, steps, phi = np.random.default_rng(0), 4000, 0.8
    path = np.zeros((steps, 1, 4))
    for i in range(1, steps):
        path[i] = phi * path[i - 1] + rng.normal(size=(1, 4))
    with arithmetic("float64"):
        np.testing.assert_allclose(autocorrelation_times(jnp.asarray(path)), (1 + phi) / (1 - phi), rtol=0.15)


def test_runs_go_on_and_grow(tmp_path):
    """Through `sample`: the density's moments, the report's numbers, and the same draws from what is stored."""
    whole = sf.sample(problem(), "mams", run_dir=tmp_path / "run", **QUICK | {"draws": 400, "chains": 4})
    means, sds = by_quadrature()
    np.testing.assert_allclose(whole.summary()["mean"], means, atol=0.2 * min(sds))
    np.testing.assert_allclose(whole.summary()["sd"], sds, rtol=0.15)
    assert abs(whole.extra["virial"] - 1) < 5 * whole.extra["virial_error"] and whole.extra["shift"] < 0.2
    longer = sf.sample(problem(), "mams", run_dir=tmp_path / "run", **QUICK | {"draws": 450, "chains": 4})
    np.testing.assert_array_equal(longer.z[:, :400], whole.z)
    assert len(np.unique(longer.z[0, :, 0])) > 350
    with pytest.raises(sf.CheckpointError, match="settling"):
        sf.sample(problem(), "mams", run_dir=tmp_path / "run", settling=30, **QUICK | {"chains": 4})


@pytest.mark.parametrize(
    "wrong", [{"warmup": 5}, {"settling": 5}, {"target_accept": 1.0}, {"max_steps": 0}, {"metric": "flat"}]
)
def test_options_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MAMS(**wrong)


def test_one_coordinate_is_refused():
    made = sf.Problem(sf.Objective({"data": sf.residual_term(around_one, {"a": np.ones((3, 1))})}), np.zeros(1))
    with pytest.raises(ValueError, match="Use 'nuts'"):
        run(made, BRIEF)


@pytest.mark.slow
def test_rows_and_chains_over_devices():
    """On 2 x 2 devices, with chains that do not divide by them, the moments stay."""
    made, covariance = gaussian(4, 1e3)
    drawn, _ = run(made, MAMS(chains=3, warmup=100, settling=60, draws=600), on=sf.mesh(rows=2, runs=2))
    require_moments(drawn["z"], np.ones(4), covariance, 0.18)


@pytest.mark.slow
def test_groups_give_the_same_draws_on_any_devices():
    options = {**QUICK, "width": 1, "start": "x0", "chains": 4, "draws": 40}
    alone = sf.sample(problem(), "mams", **options)
    spread = sf.sample(problem(), "mams", mesh=sf.mesh(rows=1, runs=4), **options)
    np.testing.assert_array_equal(alone.z, spread.z)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(posteriordb.load()))
def test_reference_posteriors(name):
    """Means and standard deviations of posteriordb's reference draws; what is not settled says so."""
    known = posteriordb.load()[name]
    found = sf.sample(known.problem, "mams", draws=2000, progress=False)
    assert found.verdict(), found.verdict()
    for label, draws in known.numbers(found.draws).items():
        told = known.moments[label]
        assert abs(draws.mean() - told["mean"]) < 0.15 * told["sd"], label
        assert abs(draws.std() / told["sd"] - 1) < 0.15, label


class Diagonal(NamedTuple):
    """A metric of one's own: scales that are what they were at the start."""

    size: jax.Array

    @classmethod
    def of(cls, root):
        return cls(root)

    def along(self, momentum):
        return self.size[:, None] * momentum

    def gradient(self, slope):
        return slope / self.size[:, None]

    def renewed(self, z, gradients, counts):
        return self

    against = along


@dataclass(frozen=True, kw_only=True)
class Patient(MAMS):
    """A sampler of one's own: longer trajectories."""

    name: ClassVar[str] = "patient"

    def maintain(self, state):
        """Return the state with trajectories twice as long."""
        after = super().maintain(state)
        return after._replace(reach=2 * after.reach)


def test_samplers_and_metrics_of_ones_own(tmp_path):
    options = {"run_dir": tmp_path / "run", "metric": Diagonal, **QUICK}
    one = sf.sample(problem(), Patient, **options, settling=30)
    np.testing.assert_array_equal(sf.sample(problem(), Patient, **options, settling=30).z, one.z)
    assert one.method.startswith("patient(") and one.extra["trajectory"] > 0.9
    with pytest.raises(TypeError, match="derive it from ChainSolver"):
        sf.sample(problem(), dict)


@pytest.mark.parametrize(
    ("extra", "why"),
    [({"virial": 0.8, "virial_error": 0.01}, "virial 0.8"), ({"outside": 0.4}, "40 % of the density"), ({}, "")],
)
def test_laws_that_fail_are_no_success(extra, why):
    z = np.random.default_rng(0).normal(size=(4, 1000, 2))
    verdict = judge(z, {}, None, {"virial": 1.01, "virial_error": 0.01} | extra, ("a", "b"))
    assert bool(verdict) == (not why) and why in str(verdict)


def test_mass_beside_a_spike_is_seen():
    """Draws of the spike alone: half of the mass is a hundred times as wide."""
    rng = np.random.default_rng(0)
    z = 0.03 * rng.normal(size=(4, 500, 2))

    def density(x, slab=1.0):
        r = np.sum(x**2, -1)
        return -np.log(np.exp(-0.5 * r / 0.03**2) / 0.03**2 + slab * np.exp(-0.5 * r / 9) / 9 + 1e-300)

    assert 0.2 < mass_outside(density, z, density(z), 0) < 0.7
    assert mass_outside(lambda x: density(x, 0.0), z, density(z, 0.0), 0) < 1e-3


def test_the_sampler_is_chosen_by_the_number_of_coordinates():
    assert usual_method(problem(), {}) == ("nuts", "")
    many = sf.Problem(sf.Objective({"p": sf.penalty(lambda x: 0.5 * jnp.sum(x**2))}), np.zeros(201))
    assert usual_method(many, {})[0] == "mams" and "201 coordinates" in usual_method(many, {})[1]
    assert usual_method(many, {"max_depth": 8})[0] == "nuts"
