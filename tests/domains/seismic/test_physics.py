"""What waves must do whatever the code: reciprocity, quiet edges, polarity at a free surface, adding up."""

import jax
import numpy as np
import pytest

from shardfit.domains.seismic import Simulation, acquisition, propagate, ricker, select
from tests.domains.seismic.cases import needs_compiler, relative

pytestmark = needs_compiler


def wave(sim, velocity, sources, receivers, f=25.0, **options):
    shots = acquisition(sim, sources, receivers)
    return np.asarray(propagate(sim, velocity, ricker(f, sim.dt, sim.nt), shots, **{"engine": "native", **options}))


@pytest.mark.parametrize("scaling", ["physical", "raw"])
@pytest.mark.parametrize("a", [(5, 6), (7.3, 6.6)])
def test_reciprocity(scaling, a):
    sim = Simulation((40, 50), 10.0, 1e-3, 300, 2600.0, 25.0, scaling=scaling)
    velocity = np.full(sim.shape, 2000.0)
    velocity[20:] = 2500.0
    b = (33, 41)
    there, back = wave(sim, velocity, [a], [b])[0, 0], wave(sim, velocity, [b], [a])[0, 0]
    ratio = (2500 / 2000) ** 2 if scaling == "raw" else 1.0  # a raw source lacks the factor v² of its own place
    assert relative(there, ratio * back) < 1e-6  # the absorbing layers are not symmetric


@pytest.mark.parametrize(("width", "limit"), [(20, 0.003), (10, 0.005)])
def test_edges_absorb(width, limit):
    """Against a domain too large for echoes."""
    nt, far = 500, 70
    near = Simulation((60, 60), 10.0, 1e-3, nt, 2000.0, 15.0, widths=width)
    large = Simulation((60 + 2 * far, 60 + 2 * far), 10.0, 1e-3, nt, 2000.0, 15.0, widths=0)
    receivers = np.array([(10, 50), (30, 55), (50, 10)])
    found = wave(near, np.full(near.shape, 2000.0), [(30, 20)], receivers, 15.0)
    expected = wave(large, np.full(large.shape, 2000.0), [(30 + far, 20 + far)], receivers + far, 15.0)
    assert relative(found, expected) < limit


def test_free_surface_reverses_polarity():
    """The echo of the surface is the direct wave of a mirrored source with its sign changed."""
    sim = Simulation((60, 80), 10.0, 1e-3, 400, 2000.0, 20.0, 8, free_surface=True)
    tall = Simulation((121, 80), 10.0, 1e-3, 400, 2000.0, 20.0, 8)
    source, receiver = (20, 40), (20, 42)
    found = wave(sim, np.full(sim.shape, 2000.0), [source], [receiver], 20.0)
    direct = wave(tall, np.full(tall.shape, 2000.0), [(80, 40)], [(80, 42)], 20.0)
    mirrored = wave(tall, np.full(tall.shape, 2000.0), [(40, 40)], [(80, 42)], 20.0)
    assert relative(found - direct, -mirrored) < 0.01
    near = wave(sim, np.full(sim.shape, 2000.0), [(20, 40)], [(0.001, 42), (10, 42)], 20.0)[0]
    assert np.abs(near[0]).max() < 1e-3 * np.abs(near[1]).max()


def test_sources_add_up_and_shots_stand_alone():
    sim = Simulation((30, 40), 10.0, 1e-3, 200, 2200.0, 25.0)
    velocity = np.random.default_rng(0).uniform(1800, 2200, sim.shape)
    a, b, receivers = (3, 5), (12, 30.5), [(4, 20), (20, 8)]
    alone = wave(sim, velocity, [[a], [b]], receivers)
    together = wave(sim, velocity, [[a, b]], receivers)
    assert relative(together[0], alone.sum(0)) < 1e-12
    assert relative(wave(sim, velocity, [[a, a]], receivers)[0], 2 * alone[0]) < 1e-12
    # another number of points, padded with weight 0, and a shot on its own
    ragged = acquisition(sim, [[a], [a, b]], [[(4, 20), (20, 8)], [(4, 20)]])
    wavelet = ricker(25.0, sim.dt, sim.nt)
    found = np.asarray(propagate(sim, velocity, wavelet, ragged))
    np.testing.assert_allclose(found[0], alone[0], atol=1e-14)
    np.testing.assert_allclose(found[1, 0], together[0, 0], atol=1e-14)
    assert not found[1, 1].any()
    single = propagate(sim, velocity, wavelet, select(ragged, [1]))
    np.testing.assert_array_equal(single[0], found[1])


def test_vmap_over_shots_and_models():
    sim = Simulation((20, 24), 10.0, 1e-3, 80, 2500.0, 25.0, 2, widths=5)
    shots = acquisition(sim, [(3, 5), (4, 15)], [(2, 20), (15, 3)])
    wavelet = ricker(25.0, sim.dt, sim.nt)
    velocities = np.random.default_rng(0).uniform(1800, 2500, (3, *sim.shape))

    def loss(velocity, shots):
        traces = propagate(sim, velocity, wavelet, jax.tree.map(lambda x: x[None], shots), engine="native")
        return (traces**2).sum()

    each = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(loss), (None, 0)), (0, None)))(velocities, shots)
    for i, velocity in enumerate(velocities):
        for j in range(2):
            value, gradient = jax.value_and_grad(loss)(velocity, jax.tree.map(lambda x, j=j: x[j], shots))
            assert float(each[0][i, j]) == pytest.approx(float(value), rel=1e-12)
            assert relative(each[1][i, j], gradient) < 1e-12
