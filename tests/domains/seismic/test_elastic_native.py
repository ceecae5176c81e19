"""The compiled elastic engine: JAX's numbers forward and in reverse, and what must not matter."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.seismic import Checkpointed, Native, acquisition, propagate, ricker, select
from shardfit.domains.seismic.elastic import ElasticSimulation
from tests.domains.seismic.cases import fast_compile_jit, needs_compiler, relative
from tests.domains.seismic.lens import problem_of

pytestmark = needs_compiler


def case(order=4, free_surface=False, nt=60, **kinds):
    """A rough medium with a pond, another width on each edge, waves that reach all of them, points between cells."""
    n = 2 * order + 5
    widths = (0 if free_surface else 6, 7, 5, 4)
    sim = ElasticSimulation((n, n + 4), (10.0, 9.0), 1e-3, nt, 2600.0, 12.0, order, widths, free_surface, **kinds)
    rng = np.random.default_rng(order)
    medium = {"vp": rng.uniform(1900, 2500, sim.shape), "vs": rng.uniform(900, 1300, sim.shape)}
    medium["vs"][:3, 5:9] = 0.0
    medium["rho"] = rng.uniform(1000, 2500, sim.shape)
    high = 0 if free_surface else 0.7
    shots = acquisition(sim, [[(3, 4)], [(5.3, 6.6), (1, 9)]], [(2, 2), (n - 1, 5), (high, n + 1.4)])
    wavelet = np.stack([ricker(25.0, sim.dt, nt), -0.5 * ricker(30.0, sim.dt, nt)])
    return sim, jax.tree.map(jnp.asarray, medium), jnp.asarray(np.broadcast_to(wavelet[:, None], (2, 2, nt))), shots


def derivatives(given, engine, dtype: Any = np.float64):
    """Return traces, their change for a change of medium and wavelet, and the derivatives of a sum of them."""
    sim, medium, wavelet, shots = given
    rng = np.random.default_rng(0)
    draw = lambda x: jnp.asarray(rng.normal(size=x.shape), dtype)  # noqa: E731
    at = jax.tree.map(lambda x: x.astype(dtype), (medium, wavelet))
    change = jax.tree.map(draw, at)

    def traces(medium, wavelet):
        return propagate(sim, medium, wavelet, shots, engine=engine, memory="full")

    def all_of(at):
        found, changed = jax.jvp(traces, at, change)
        return found, changed, jax.vjp(traces, *at)[1](draw(found))

    return fast_compile_jit(all_of)(at)


CASES = [
    {},
    {"order": 8, "free_surface": True, "source": "force_z", "receiver": "velocity_x"},
    {"order": 2, "free_surface": True, "receiver": "velocity_z"},
    {"source": "force_x", "receiver": "velocity_z", "scaling": "raw"},
    {"order": 6, "source": "force_x", "free_surface": True, "scaling": "raw"},
]


@pytest.mark.parametrize("kinds", [*CASES[:2], *(pytest.param(c, marks=pytest.mark.slow) for c in CASES[2:])])
def test_numbers_are_those_of_jax(kinds):
    """Traces, forward and reverse mode with respect to vp, vs, rho and the wavelet, in float64 to its digits."""
    given = case(**kinds)
    found, expected = derivatives(given, Native(threads=1, segments=4)), derivatives(given, "jax")
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert relative(ours, np.asarray(theirs)) < 1e-12


@pytest.mark.slow
def test_float32_is_as_good_as_that_of_jax():
    given = case()
    exact = derivatives(given, "jax")
    for engine in ("jax", "native"):
        for ours, theirs in zip(*map(jax.tree.leaves, (derivatives(given, engine, np.float32), exact)), strict=True):
            assert relative(ours, np.asarray(theirs)) < 1e-5


def energy_and_gradient(given, settings):
    sim, medium, wavelet, shots = given

    def energy(m):
        return jnp.sum(propagate(sim, m, wavelet.astype(np.float32), shots, engine=settings) ** 2)

    return fast_compile_jit(jax.value_and_grad(energy))(jax.tree.map(lambda x: x.astype(np.float32), medium))


@pytest.mark.parametrize("settings", [Native(2, 4), Native(3, 4), Native(1, 1), Native(1, 13), Native(1, 60)])
def test_threads_and_segments_do_not_change_a_bit(settings):
    """Three threads share the rows of one shot."""
    sim, medium, wavelet, shots = case(order=8, free_surface=True, source="force_x", receiver="velocity_z")
    if settings.threads == 3:
        wavelet, shots = wavelet[1:], select(shots, slice(1, 2))
    given = sim, medium, wavelet, shots
    found, expected = energy_and_gradient(given, settings), energy_and_gradient(given, Native(1, 4))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(a, b)


def test_gradient_against_finite_differences():
    """Along a random change of all three parameters, for a model too small for layers to stay apart."""
    sim = ElasticSimulation((5, 6), (10.0, 9.0), 1e-3, 40, 2600.0, 12.0, 2, (0, 2, 1, 3), True, source="force_z")
    rng = np.random.default_rng(3)
    medium = {"vp": rng.uniform(1900, 2500, sim.shape), "vs": rng.uniform(900, 1300, sim.shape)}
    medium = jax.tree.map(jnp.asarray, {**medium, "rho": rng.uniform(1000, 2500, sim.shape)})
    change = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), medium)
    shots, wavelet = acquisition(sim, [(2, 2)], [(0, 4), (3, 1)]), rng.normal(size=sim.nt)

    def energy(m):
        return jnp.sum(propagate(sim, m, wavelet, shots, engine="native") ** 2)

    value, gradient = fast_compile_jit(energy), fast_compile_jit(jax.grad(energy))(medium)
    slope = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, change)))

    def at(h):
        return float(value(jax.tree.map(lambda m, c: m + h * c, medium, change)))

    assert (at(1e-2) - at(-1e-2)) / 2e-2 == pytest.approx(float(slope), rel=1e-6)


def test_shots_on_devices():
    """One device against three, of which one has padding only."""
    sim, medium, wavelet, shots = case()
    data = propagate(sim, medium, wavelet, shots, engine="native")
    start = {name: 0.97 * np.asarray(medium[name]) for name in ("vp", "vs")}
    options = {"known": {"rho": np.asarray(medium["rho"])}, "precision": "float64", "engine": "native"}
    problem = problem_of(sim, start, wavelet[:, :1], select(shots, slice(None)), np.asarray(data), **options)
    alone = problem.objective.value_and_grad(problem.x0)
    placed = problem.objective.place(sf.mesh(rows=3)).value_and_grad(problem.x0)
    for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(alone), strict=True):
        assert relative(a, np.asarray(b)) < 1e-11


def test_what_is_refused():
    sim, medium, wavelet, shots = case(nt=20)

    def energy(m, engine="native"):
        return jnp.sum(propagate(sim, m, wavelet, shots, engine=engine) ** 2)

    with pytest.raises(NotImplementedError, match="first derivatives only.*engine='jax'"):
        jax.grad(lambda m: jnp.sum(jax.grad(energy)(m)["vp"] ** 2))(medium)
    with pytest.raises(ValueError, match="unknown engine 'nativ'"):
        energy(medium, "nativ")
    # a strategy is the JAX engine's, whatever the sizes
    strategy = Checkpointed((2,))
    both = [propagate(replace(sim), medium, wavelet, shots, engine=e, memory=strategy) for e in ("native", "jax")]
    assert relative(both[0], np.asarray(both[1])) < 1e-12
