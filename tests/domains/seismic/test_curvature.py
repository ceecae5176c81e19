"""The Hessian's diagonal from noise: against J itself, column by column, and on any number of devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import shardfit as sf
from shardfit.domains.seismic import (
    ElasticSimulation,
    Recording,
    Simulation,
    WaveOptions,
    acquisition,
    curvature,
    hessian_diagonal,
    low_pass,
    propagate,
    ricker,
)
from shardfit.domains.seismic.bands import filtered

SIM = Simulation((14, 18), 20.0, 4e-3, 90, 2600.0, 12.0, widths=6)
VELOCITY = 1900 + 30.0 * np.arange(14)[:, None] + np.zeros(18)
SHOTS = acquisition(SIM, [(1, 3), (1, 14)], [(1, x) for x in range(0, 18, 2)])
WAVES = WaveOptions(precision="float64")


def recorded(sim=SIM, weights=None):
    data = np.random.default_rng(0).normal(size=(2, 9, sim.nt))
    return Recording(SHOTS, ricker(12.0, sim.dt, sim.nt), data, weights)


def exact(weights, response):
    """Column by column."""
    with jax.enable_x64(True):

        def traces(v):
            return filtered(propagate(SIM, v, ricker(12.0, SIM.dt, SIM.nt), SHOTS), response)

        units = jnp.eye(VELOCITY.size).reshape(-1, *SIM.shape)
        columns = jax.jit(lambda: jax.lax.map(lambda u: jax.jvp(traces, (jnp.asarray(VELOCITY),), (u,))[1], units))()
        return np.asarray(jnp.sum(columns**2 * weights[..., None], (1, 2, 3))).reshape(SIM.shape)


def test_noise_gives_the_diagonal(monkeypatch):
    """Of filtered traces, some of which do not count; the mean of many draws, smoothed as one is."""
    weights = np.random.default_rng(1).uniform(0.5, 1.5, (2, 9))
    weights[0, :4] = 0
    response = low_pass(SIM, 12.0)
    monkeypatch.setattr(curvature, "SMOOTHED", 1.0)
    expected = gaussian_filter(exact(weights, response), 1.0, mode="nearest", truncate=8.0)
    draws = [
        hessian_diagonal(
            SIM, {"velocity": VELOCITY}, recorded(weights=weights), response=response, seed=seed, waves=WAVES
        )["velocity"]
        for seed in range(120)
    ]
    ratio = np.mean(draws, 0) / expected
    ratio /= np.median(ratio)
    assert np.abs(ratio - 1).max() < 0.35  # a few standard deviations of 120 draws, 240 squares in the poorest cell
    assert np.std(ratio) < 0.1
    assert expected.max() > 20 * expected.min()


def test_devices_share_the_probes():
    one, two = (
        hessian_diagonal(SIM, {"velocity": VELOCITY}, recorded(), mesh=mesh, waves=WAVES)["velocity"]
        for mesh in (None, sf.mesh(rows=2))
    )
    assert two == pytest.approx(one, rel=1e-10)


def test_what_is_held_sets_no_scale():
    held = np.ones(SIM.shape)
    held[:3] = 0
    whole, below = (
        hessian_diagonal(SIM, {"velocity": VELOCITY}, recorded(), movable=movable, waves=WAVES)["velocity"]
        for movable in (None, held)
    )
    assert below.max() < 0.5 * whole.max()  # cells of sources and receivers are lit more than others
    assert (below > 0).all()


@pytest.mark.slow
def test_elastic_fields_share_a_factor():
    """Twice the unit of a parameter is four times its curvature; the ratio of fields is that of J's columns."""
    sim = ElasticSimulation(SIM.shape, 20.0, 4e-3, 90, 2600.0, 12.0, widths=6)
    medium = {"vp": VELOCITY, "vs": VELOCITY / 2, "rho": np.full(SIM.shape, 2000.0)}
    found = hessian_diagonal(
        sim, {n: medium[n] for n in ("vp", "vs")}, recorded(sim), {"rho": medium["rho"]}, waves=WAVES
    )
    assert set(found) == {"vp", "vs"}
    with jax.enable_x64(True):

        def traces(change, name):
            changed = {n: jnp.asarray(x) + (change if n == name else 0) for n, x in medium.items()}
            return propagate(sim, changed, ricker(12.0, sim.dt, sim.nt), SHOTS)

        bump = gaussian_filter(np.pad([[1.0]], ((8, 5), (9, 8))), 0.01)
        slopes = {n: jax.jvp(lambda c, n=n: traces(c, n), (jnp.zeros(SIM.shape),), (bump,))[1] for n in found}
        ratio = float(jnp.sum(slopes["vs"] ** 2) / jnp.sum(slopes["vp"] ** 2))
    assert found["vs"][8, 9] / found["vp"][8, 9] == pytest.approx(ratio, rel=0.6)  # one draw, averaged over cells
