"""Self-calibration: golden costs and visibilities, known gains, invariance of closures, derivatives, refusals."""

import subprocess
import sys
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi import gain_solver, selfcal
from shardfit.domains.vlbi.closures import quadrangles, triangles
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, gaussian
from shardfit.domains.vlbi.recipes import known_image, observe
from shardfit.domains.vlbi.selfcal import GainTable, apply_gains, gain_cost, self_calibrate, solve_gains
from tests.domains.vlbi.golden import arrays, numbers, observation, relative

GOLDEN_TOLERANCE = {"tolerance": (0.02, 0.2)}


@pytest.fixture(scope="module")
def golden():
    z, n = arrays("real_101_lo"), numbers("real_101_lo")
    image = Image({"I": z["image"].reshape(n["npix"], n["npix"])}, n["psize_rad"])
    return observation("real_101_lo", "prep"), image, z, n


@pytest.fixture(scope="module")
def ring():
    truth = known_image("ring", 32)
    clean, spoilt = (
        observe(truth, noise=False, gains=g, random_phase=p, seed=2) for g, p in ((0.0, False), (0.1, True))
    )
    return truth, clean, spoilt


@pytest.mark.parametrize("method", ["phase", "amp", "both"])
def test_cost_at_fixed_gains(golden, method):
    obs, image, z, n = golden
    cost = gain_cost(obs, image, z["selfcal_cost_gains"], method=method, **GOLDEN_TOLERANCE)
    times = np.unique(obs.time)
    at = np.abs(times - n["selfcal_cost"]["scan_time"]).argmin()
    assert cost[at] == pytest.approx(n["selfcal_cost"][method], rel=1e-12)


@pytest.mark.parametrize("method", ["phase", "both"])
def test_calibrated_visibilities(golden, method):
    obs, image, z, _ = golden
    found = self_calibrate(obs, image, method=method, **GOLDEN_TOLERANCE)
    assert found.gains.converged.all()
    order = np.lexsort((z["prep_i2"], z["prep_i1"], z["prep_time"]))
    ours = np.lexsort((obs.ant2, obs.ant1, obs.time))
    # the reference's solver works by finite differences; agreement is 1e-6
    assert relative(found.data.vis["I"][ours], z[f"selfcal_{method}_vis"][order]) < 1e-5
    if method == "both":
        assert relative(found.data.sigma["I"][ours], z["selfcal_both_sigma"][order]) < 1e-5
    else:
        np.testing.assert_allclose(found.data.sigma["I"], obs.sigma["I"], rtol=1e-14)


def test_known_gains_are_found(ring):
    truth, clean, spoilt = ring
    before = spoilt.vis["I"].copy()
    found = self_calibrate(spoilt, truth, tolerance=10.0)
    assert found.gains.converged.all()
    # a wide tolerance still pulls amplitudes a little towards 1 where they are poorly known
    np.testing.assert_allclose(found.data.vis["I"], clean.vis["I"], rtol=2e-3, atol=1e-5)
    np.testing.assert_array_equal(spoilt.vis["I"], before)
    assert found.data.sigma["I"].std() != spoilt.sigma["I"].std()


def test_phases_alone(ring):
    truth, clean, spoilt = ring
    found = self_calibrate(spoilt, truth, method="phase")
    np.testing.assert_allclose(np.abs(found.gains.gain), 1, rtol=1e-12)
    np.testing.assert_allclose(np.abs(found.data.vis["I"]), np.abs(spoilt.vis["I"]), rtol=1e-12)
    strong = clean.snr > 5
    assert np.abs(np.angle(found.data.vis["I"] / clean.vis["I"]))[strong].max() < 0.02


def test_amplitudes_alone_ignore_phases(ring):
    truth, clean, spoilt = ring
    turned = spoilt.replace(vis={"I": np.abs(spoilt.vis["I"]) + 0j})
    one, two = (solve_gains(obs, truth, method="amp", tolerance=1.0) for obs in (spoilt, turned))
    np.testing.assert_array_equal(one.gain.imag, 0)
    np.testing.assert_allclose(one.gain, two.gain, rtol=1e-9)
    known = np.abs(spoilt.vis["I"] / clean.vis["I"])
    at = np.searchsorted(one.start, spoilt.time)
    product = np.abs(one.gain[at, spoilt.ant1] * one.gain[at, spoilt.ant2])
    strong = spoilt.snr > 50
    assert np.abs(product / known - 1)[strong].max() < 0.02


def test_closures_do_not_change(ring):
    truth, _, spoilt = ring
    found = self_calibrate(spoilt, truth.blur(5e-11), tolerance=0.5).data
    turn = np.deg2rad(triangles(found).value - triangles(spoilt).value)
    np.testing.assert_allclose(np.exp(1j * turn), 1, atol=1e-9)
    np.testing.assert_allclose(quadrangles(found).value, quadrangles(spoilt).value, atol=1e-9)
    np.testing.assert_allclose(found.snr, spoilt.snr, rtol=1e-12)


def test_cost_falls_and_is_least(ring):
    truth, _, spoilt = ring
    table = solve_gains(spoilt, truth)
    assert (table.cost_after <= table.cost_before).all()
    np.testing.assert_allclose(gain_cost(spoilt, truth, table.gain), table.cost_after, rtol=1e-9, atol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(5):
        near = table.gain * np.exp(1e-3 * (rng.normal(size=table.gain.shape) + 1j * rng.normal(size=table.gain.shape)))
        assert (gain_cost(spoilt, truth, near) >= table.cost_after * (1 - 1e-12)).all()


def test_reference_phase_and_fixed_stations(ring):
    truth, _, spoilt = ring
    table = solve_gains(spoilt, truth)
    first = table.solved.argmax(1)
    np.testing.assert_allclose(np.angle(table.gain[np.arange(len(table)), first]), 0, atol=1e-15)
    some = solve_gains(spoilt, truth, stations=("LM", "SM"))
    others = [k for k, name in enumerate(some.stations) if name not in ("LM", "SM")]
    np.testing.assert_array_equal(some.gain[:, others], 1)
    assert not some.solved[:, others].any()
    assert np.abs(np.angle(some.gain[:, some.stations.index("LM")])).max() > 0.5


def test_station_without_baselines_keeps_its_data(ring):
    truth, _, spoilt = ring
    short = solve_gains(spoilt, truth, uv_max=2e9)
    for k in range(len(short.stations)):
        np.testing.assert_array_equal(short.gain[~short.solved[:, k], k], 1)
    assert np.isfinite(short.gain).all()
    pv = short.stations.index("PV")  # all its baselines are long
    assert not short.solved[:, pv].any()
    here, everywhere = (apply_gains(spoilt, short, nearest=n) for n in (False, True))
    lm = spoilt.stations.index("LM")
    seen = set(short.start[short.solved[:, lm]])
    lonely = np.array([t not in seen for t in spoilt.time]) & ((spoilt.ant1 == lm) | (spoilt.ant2 == lm))
    assert lonely.any()
    changed = np.abs(everywhere.vis["I"] / here.vis["I"] - 1) > 1e-6
    assert changed[lonely].all()


def test_stations_held_between_zero_visibilities():
    truth = known_image("ring", 32)
    obs = observe(truth, noise=False, gains=0.0, random_phase=False)
    nothing = truth.replace(values={"I": np.zeros(truth.shape)})
    table = solve_gains(obs, nothing)
    np.testing.assert_allclose(table.gain, 1, atol=1e-3)  # the image says nothing about gains
    assert table.converged.all()


def test_intervals(ring):
    truth, _, spoilt = ring
    scans = spoilt.replace(scans=np.array([[0.0, 3.0], [3.1, 12.0]]) - 1e-4)
    by_scan = solve_gains(scans, truth, interval="scan")
    assert len(by_scan) == 2
    assert by_scan.stop[0] < by_scan.start[1]
    start, stop, group = selfcal.intervals(spoilt, 3600.0)
    np.testing.assert_array_equal(np.floor(start), np.unique(np.floor(spoilt.time)))
    assert ((start[group] <= spoilt.time) & (spoilt.time <= stop[group])).all()
    constant = observe(truth, noise=False, gains=0.0, random_phase=False)
    factor = {"AA": 1.1, "PV": 0.9 * np.exp(1j)}
    g = np.array([factor.get(name, 1.0) for name in constant.stations.names])
    moved = constant.replace(vis={"I": constant.vis["I"] * g[constant.ant1] * g[constant.ant2].conj()})
    back = self_calibrate(moved, truth, interval=1e6, tolerance=10.0)
    assert len(back.gains) == 1
    np.testing.assert_allclose(back.data.vis["I"], constant.vis["I"], rtol=1e-4, atol=1e-7)


def cost_of_one(x, row):
    """The cost of one interval as JAX differentiates it."""
    log_gain, phase = jnp.where(row["active"], x, 0.0)
    gain = jnp.exp(log_gain + 1j * phase)
    turned = gain[row["first"]] * gain[row["second"]].conj() * gain[row["third"]] * row["model"]
    off = (row["data"] - turned) * row["weight"]
    held = log_gain / jnp.where(log_gain > 0, row["limits"][0], row["limits"][1])
    return jnp.sum(jnp.abs(off) ** 2) + jnp.sum(held**2)


@pytest.mark.parametrize("method", ["phase", "amp", "both"])
def test_derivatives_against_automatic_differentiation(ring, method):
    truth, _, spoilt = ring
    rows = selfcal._batch(spoilt, truth, method, tolerance=(0.05, 0.3)).rows
    rows = replace(
        rows, third=(rows.first + 2 * rows.second) % rows.active.shape[2]
    )  # some are one of the two stations
    assert not rows.weight.all(), "no interval is padded"
    x = 0.3 * np.random.default_rng(3).normal(size=rows.active.shape)
    gradient, hessian = gain_solver.derivatives(x, rows)
    with arithmetic("float64"):
        plain = {f.name: np.asarray(getattr(rows, f.name)) for f in fields(rows)}
        value, slope, curvature = (
            jax.jit(jax.vmap(f(cost_of_one)))(x, plain) for f in (lambda f: f, jax.grad, jax.hessian)
        )
    np.testing.assert_allclose(gain_solver.cost(x, rows), value, rtol=1e-12)
    np.testing.assert_allclose(gradient, slope.reshape(gradient.shape), rtol=1e-9, atol=1e-12 * np.abs(slope).max())
    np.testing.assert_allclose(
        hessian, curvature.reshape(hessian.shape), rtol=1e-9, atol=1e-12 * np.abs(curvature).max()
    )
    np.testing.assert_array_equal(gradient.reshape(x.shape)[~rows.active], 0)


def test_calibration_does_without_jax():
    code = "import sys; from shardfit.domains.vlbi import self_calibrate; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_amplitudes_far_off_do_not_spoil_the_phases():
    """Curvature of Gauss and Newton would be wrong by the ratio of amplitudes, and steps overshoot or creep."""
    truth = known_image("crescent", 32)
    spoilt = observe(truth, gains=0.0, seed=1)
    for factor in (0.1, 3.0):
        assert solve_gains(spoilt, truth.normalise(0.6 * factor), method="phase").converged.all()


def test_opposite_data_are_turned_round():
    """All phases are 0 or π, where the cost has no gradient in the phases."""
    truth = gaussian(known_image("ring", 32), 0.6, 30 * UAS)
    obs = observe(truth, noise=False, gains=0.0, random_phase=False)
    flipped = np.where(obs.ant1 == 0, -1, 1) * np.where(obs.ant2 == 0, -1, 1)
    found = self_calibrate(obs.replace(vis={"I": obs.vis["I"] * flipped}), truth, method="phase")
    np.testing.assert_allclose(found.data.vis["I"], obs.vis["I"], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"method": "phases"}, "Did you mean 'phase'"),
        ({"stations": ("LMT",)}, "no station 'LMT'"),
        ({"tolerance": 0.0}, "must be positive"),
        ({"tolerance": (0.1, np.nan)}, "must be positive"),
        ({"tolerance": {"XX": 0.1}}, "no station 'XX'"),
        ({"uv_max": 1.0}, "no baseline is shorter"),
        ({"interval": "day"}, "'time', 'scan' or a length"),
        ({"interval": -3.0}, "'time', 'scan' or a length"),
    ],
)
def test_refused(ring, settings, why):
    truth, _, spoilt = ring
    with pytest.raises(ValueError, match=why):
        solve_gains(spoilt, truth, **settings)


def test_coarse_pixels_and_wrong_tables_are_refused(ring):
    truth, _, spoilt = ring
    with pytest.raises(ValueError, match="too coarse"):
        solve_gains(spoilt, truth.replace(pixel_rad=1e-9))
    table = solve_gains(spoilt, truth)
    fields = {name: getattr(table, name) for name in table.__dataclass_fields__}
    with pytest.raises(ValueError, match="zero or not finite"):
        GainTable(**{**fields, "gain": table.gain * np.nan})
    renamed = GainTable(**{**fields, "stations": tuple("ABCDEFGH")})
    with pytest.raises(ValueError, match="no gains of station"):
        apply_gains(spoilt, renamed)
