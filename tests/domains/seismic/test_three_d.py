"""Three dimensions: the analytic solution, the plane case, derivatives, and what is checked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import Simulation, acquisition, largest_dt, propagate, ricker
from tests.domains.seismic.cases import fast_compile_jit, relative

ENGINES = ["jax", pytest.param("native", marks=pytest.mark.slow)]


@pytest.mark.parametrize("engine", ENGINES)
def test_analytic_solution(engine):
    """A source w in one cell is w dh³ δ, whose wave is dh³ w(t - r / v) / (4 π r)."""
    n, dh, v, f, nt = 40, 10.0, 2000.0, 25.0, 155
    sim = Simulation((n, n, n), dh, 1e-3, nt, v, f, 8, widths=0)
    source, receivers = np.array((20, 20, 20)), np.array([(28, 20, 20), (20, 26, 26), (25, 25, 14)])
    shots = acquisition(sim, [source], receivers)
    found = jax.jit(lambda v: propagate(sim, v, ricker(f, sim.dt, nt), shots, engine))(jnp.full(sim.shape, v))[0]
    for trace, place in zip(found, receivers, strict=True):
        r = dh * np.linalg.norm(place - source)
        q = (np.pi * f * (np.arange(nt) * sim.dt - r / v - 1.5 / f)) ** 2
        assert relative(trace, dh**3 * (1 - 2 * q) * np.exp(-q) / (4 * np.pi * r)) < 0.03


@pytest.mark.parametrize("engine", ENGINES)
def test_sum_along_y_is_the_plane_case(engine):
    """If nothing depends on y, waves summed along it obey the equation in two dimensions, edges included."""
    nt, ny, f = 45, 45, 40.0
    plane = Simulation((12, 14), (10.0, 9.0), 1e-3, nt, 2500.0, f, 4, widths=(3, 4, 5, 2))
    solid = Simulation((12, ny, 14), (10.0, 11.0, 9.0), 1e-3, nt, 2500.0, f, 4, widths=(3, 4, 0, 0, 5, 2))
    velocity = jnp.asarray(np.random.default_rng(0).uniform(1800, 2500, plane.shape))
    wavelet = ricker(f, plane.dt, nt)
    flat = acquisition(plane, [(3, 4.4)], [(6, 9)])
    deep = acquisition(solid, [(3, ny // 2, 4.4)], [(6, y, 9) for y in range(ny)])
    expected = fast_compile_jit(lambda v: propagate(plane, v, wavelet, flat, engine="jax"))(velocity)[0, 0]
    spread = jnp.broadcast_to(velocity[:, None], solid.shape)
    found = fast_compile_jit(lambda v: propagate(solid, v, wavelet, deep, engine))(spread)[0].sum(0)
    assert relative(found, expected) < 1e-6  # what reaches the ends in y


@pytest.mark.parametrize("free_surface", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_derivatives(free_surface):
    """Forward against reverse mode, and both against finite differences."""
    nt, widths = 24, (0 if free_surface else 2, 3, 0, 2, 3, 0)
    sim = Simulation((5, 6, 7), (10.0, 9.0, 11.0), 1e-3, nt, 2600.0, 60.0, 2, widths, free_surface)
    rng = np.random.default_rng(0)
    velocity, m = jnp.asarray(rng.uniform(1800, 2500, sim.shape)), jnp.asarray(rng.normal(size=sim.shape))
    shots = acquisition(sim, [(1, 2, 3), (3, 4, 5)], [(2, 3, 4), (4, 1.5, 6)])
    wavelet, d = rng.normal(size=nt), jnp.asarray(rng.normal(size=(2, 2, nt)))

    def traces(v):
        return propagate(sim, v, wavelet, shots, "jax", memory="segmented")

    def both(v):
        step = jax.lax.map(lambda h: jnp.vdot(traces(v + h * m), d), jnp.array([1e-2, -1e-2]))
        return jnp.vdot(jax.jvp(traces, (v,), (m,))[1], d), jnp.vdot(m, jax.vjp(traces, v)[1](d)[0]), step

    pushed, pulled, (up, down) = fast_compile_jit(both)(velocity)
    assert float(pushed) == pytest.approx(float(pulled), rel=1e-11)
    assert float(up - down) / 2e-2 == pytest.approx(float(pulled), rel=1e-6)


def test_what_is_checked_and_said():
    sim = Simulation((10, 11, 12), 10.0, 1e-3, 20, 2500.0, 60.0)
    assert sim.widths == (20,) * 6
    assert sim.v_max * largest_dt(sim) / 10 == pytest.approx(2 / np.sqrt(16 / 3 * 3))
    with pytest.raises(ValueError, match=r"positions are \(z, y, x\)"):
        acquisition(sim, [(2, 3)], [(1, 1)])
    with pytest.raises(ValueError, match="axis y: 11 is outside"):
        acquisition(sim, [(2, 11, 3)], [(1, 1, 1)])
    with pytest.raises(ValueError, match="one per edge"):
        Simulation((10, 11, 12), 10.0, 1e-3, 20, 2500.0, 60.0, widths=(1, 2, 3, 4))
