"""Network calibration: gains put in come out, stations without partner and closures stay."""

import numpy as np
import pytest

from shardfit.domains import vlbi
from shardfit.domains.vlbi.closures import quadrangles, triangles
from shardfit.domains.vlbi.network import solve_network
from shardfit.domains.vlbi.sites import sites

FLUX = 0.6
PARTNERS = ("AA", "AP", "JC", "SM")


def put_in(obs, seed=1, size=0.15, phases=False):
    """Return the observation with gains, and the gains (times, s) by time of the rows."""
    rng = np.random.default_rng(seed)
    times, at = np.unique(obs.time, return_inverse=True)
    gain = np.exp(size * rng.normal(size=(len(times), len(obs.stations))))
    gain = gain * np.exp(1j * phases * rng.uniform(-3, 3, gain.shape))
    factor = gain[at, obs.ant1] * gain[at, obs.ant2].conj()
    sigma = {k: s * np.abs(factor) for k, s in obs.sigma.items()}
    return obs.replace(vis={k: v * factor for k, v in obs.vis.items()}, sigma=sigma), gain


@pytest.fixture(scope="module")
def clean():
    """Without noise, and with small errors: debiasing then changes nothing."""
    obs = vlbi.observe(vlbi.known_image("crescent", 32), gains=0.0, random_phase=False, noise=False, cadence_s=1800)
    return obs.replace(sigma={name: 1e-3 * sigma for name, sigma in obs.sigma.items()})


def test_sites_of_arrays(clean):
    names, site = clean.stations.names, sites(clean)
    for one in names:
        together = {other for other in names if site[names.index(other)] == site[names.index(one)]}
        assert together == next(({*pair} for pair in (("AA", "AP"), ("JC", "SM")) if one in pair), {one})


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("method", ["amp", "both"])
def test_gains_put_in_come_out(clean, method, shuffled):
    """All stations have errors; those of stations without a partner are left in, whatever the order of stations."""
    obs = clean.with_stations(np.random.default_rng(0).permutation(len(clean.stations))) if shuffled else clean
    spoilt, gain = put_in(obs, phases=method == "both")
    found = vlbi.network_calibrate(spoilt, FLUX, method=method, tolerance=100.0)
    assert found.gains.converged.all()
    times = np.unique(obs.time)
    seen = 0
    for k, name in enumerate(found.gains.stations):
        solved = found.gains.solved[:, k]
        assert solved.any() == (name in PARTNERS)
        answer = found.gains.gain[solved, k]
        true = gain[np.searchsorted(times, found.gains.start[solved]), obs.stations.index(name)]
        # stations of a site are up to 3 km apart: what they see of a source of 40 µas differs by so much
        np.testing.assert_allclose(np.abs(answer), np.abs(true), rtol=1e-3)
        seen += len(answer)
    assert seen > 60
    within = found.data.uv_distance < 1e7
    np.testing.assert_allclose(np.abs(found.data.vis["I"][within]), FLUX, rtol=1e-4)
    if method == "both":
        np.testing.assert_allclose(found.data.vis["I"][within], FLUX, rtol=1e-4)


@pytest.mark.parametrize("method, seed, scale", [("both", 3, 10), ("amp", 1, 0.1), ("amp", 2, 0.1), ("both", 1, 1e-3)])
def test_costs_that_only_rounding_changes_have_converged(clean, method, seed, scale):
    """Errors so small that what a step may still gain is lost among the digits of the cost."""
    obs = clean.replace(sigma={name: scale * sigma for name, sigma in clean.sigma.items()})
    spoilt, _ = put_in(obs, seed, phases=method == "both")
    assert vlbi.network_calibrate(spoilt, FLUX, method=method, tolerance=100.0).gains.converged.all()


def test_two_stations_and_a_third_in_closed_form(clean):
    """|g_A|² = |V_AB| |V_AX| / (F |V_BX|)."""
    wanted = [clean.stations.index(name) for name in ("AA", "AP", "LM")]
    three = clean.select(np.isin(clean.ant1, wanted) & np.isin(clean.ant2, wanted))
    spoilt, _ = put_in(three, seed=2)
    found = solve_network(spoilt, FLUX, tolerance=1e3)
    rows = {
        name: {t: v for t, v, b in zip(spoilt.time, spoilt.vis["I"], spoilt.baseline_names, strict=True) if b == name}
        for name in ("AA-AP", "AA-LM", "AP-LM")
    }
    checked = 0
    for t, gain in zip(found.start, found.gain[:, found.stations.index("AA")], strict=True):
        if all(t in rows[name] for name in rows):
            ab, ax, bx = (abs(rows[name][t]) for name in rows)
            assert abs(gain) ** 2 == pytest.approx(ab * ax / (FLUX * bx), rel=1e-3)
            checked += 1
    assert checked > 5


def test_what_stays(clean):
    noisy = vlbi.observe(vlbi.known_image("ring", 32), gains=0.1, cadence_s=1800, seed=3)
    found = vlbi.network_calibrate(noisy, FLUX)
    alone = ~np.isin(np.array(noisy.stations.names), PARTNERS)
    untouched = alone[noisy.ant1] & alone[noisy.ant2]
    assert untouched.any()
    for name in noisy.vis:
        np.testing.assert_array_equal(found.data.vis[name][untouched], noisy.vis[name][untouched])
    turn = np.deg2rad(triangles(found.data).value - triangles(noisy).value)
    np.testing.assert_allclose(np.exp(1j * turn), 1, atol=1e-9)
    np.testing.assert_allclose(quadrangles(found.data).value, quadrangles(noisy).value, atol=1e-9)
    within = noisy.uv_distance < 1e7
    before, after = (np.std(np.log(np.abs(obs.vis["I"][within]) / FLUX)) for obs in (noisy, found.data))
    assert after < 0.1 * before


def test_light_curve_and_stations(clean):
    spoilt, _ = put_in(clean)
    curve = ([0.0, 12.0], [FLUX, 2 * FLUX])
    found = vlbi.network_calibrate(spoilt, curve, tolerance=100.0).data
    within = found.uv_distance < 1e7
    np.testing.assert_allclose(np.abs(found.vis["I"][within]), np.interp(found.time[within], *curve), rtol=1e-3)
    table = solve_network(spoilt, FLUX, stations=("AA",))
    assert table.solved[:, table.stations.index("AA")].any()
    assert table.solved.sum() == table.solved[:, table.stations.index("AA")].sum()


@pytest.mark.parametrize(
    ("flux", "settings", "expected"),
    [
        (0.0, {}, "must be positive"),
        (([0.0, 0.0], [1.0, 1.0]), {}, "hours rising"),
        (FLUX, {"stations": ("LM",)}, "'LM' has no partner"),
        (FLUX, {"stations": ("XX",)}, "no station 'XX'"),
        (FLUX, {"method": "ampl"}, "Did you mean 'amp'"),
        (FLUX, {"tolerance": -1.0}, "must be positive"),
    ],
)
def test_refusals(clean, flux, settings, expected):
    with pytest.raises(ValueError, match=expected):
        vlbi.network_calibrate(clean, flux, **settings)


def test_array_without_sites(clean):
    single = clean.select(~np.isin(clean.ant1, [1, 6]) & ~np.isin(clean.ant2, [1, 6])).drop_unused_stations()
    with pytest.raises(ValueError, match="no two stations share a site"):
        vlbi.network_calibrate(single, FLUX)
