"""Attenuating waves: the limit without loss, Q over the band, decay and dispersion, the analytic wave, stability."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import hankel2

from shardfit.domains.seismic import ViscoacousticSimulation, acquisition, check_medium, largest_dt, propagate, ricker
from tests.domains.seismic.cases import fast_compile_jit, relative, small
from tests.domains.seismic.test_anisotropy import like, run


def uniform(sim, vp, q):
    return {"vp": np.full(sim.shape, vp), "q": np.full(sim.shape, q)}


def rough(sim):
    """A medium that no symmetry helps, with a cell that loses nothing."""
    rng = np.random.default_rng(1)
    medium = {"vp": rng.uniform(1900, 2300, sim.shape), "q": rng.uniform(15, 60, sim.shape)}
    medium["q"][5, 6] = 1e9
    return medium


def modulus(sim, frequency, vp, q):
    """The complex stiffness over density, m²/s², written out anew: Q and phase velocity at the reference are known."""
    times, weights = (np.array(x)[:, None] for x in sim.relaxation)

    def shape(f):
        turn = 2j * np.pi * np.atleast_1d(f) * times
        return np.sum(weights * turn / (1 + turn), 0)

    h = shape(sim.reference)[0]
    strength = 1 / (q * h.imag - h.real)
    slow = vp * np.real((1 + strength * h) ** -0.5)
    return slow**2 * (1 + strength * shape(frequency))


@pytest.mark.parametrize(
    ("free_surface", "scaling"), [(False, "physical"), pytest.param(True, "raw", marks=pytest.mark.slow)]
)
def test_without_loss_waves_are_acoustic(free_surface, scaling):
    """To rounding where q is infinite, else as 1 / q."""
    sim, velocity, wavelet, shots = small(4, free_surface, scaling)
    expected = np.asarray(fast_compile_jit(lambda v: propagate(sim, v, wavelet, shots, "jax"))(velocity))
    lossy = like(ViscoacousticSimulation, sim)
    traces = fast_compile_jit(lambda m: propagate(lossy, m, wavelet, shots))
    for q, limit in ((np.inf, 1e-13), (1e12, 1e-10), (1e6, 1e-5)):
        assert relative(traces({"vp": velocity, "q": jnp.full(sim.shape, q)}), expected) < limit


def test_q_is_even_over_the_band():
    """And exact at the reference frequency, as is the phase velocity; one mechanism has its Q at one frequency."""
    sim = ViscoacousticSimulation((20, 20), 10.0, 1e-3, 10, 3000.0, 20.0, f_ref=15.0)
    for q, spread in ((200.0, 0.05), (20.0, 0.12)):
        found = modulus(sim, np.geomspace(*sim.frequencies, 60), 2000.0, q)
        assert np.abs(found.real / found.imag / q - 1).max() < spread
        at = modulus(sim, 15.0, 2000.0, q)[0]
        assert at.real / at.imag == pytest.approx(q) and 1 / np.real(at**-0.5) == pytest.approx(2000.0)
        fast = sim.speeds({"vp": 2000.0, "q": q})[1]
        assert fast == pytest.approx(np.sqrt(modulus(sim, 1e9, 2000.0, q)[0].real))
    one = replace(sim, mechanisms=1, band=(10.0, 22.5))
    assert one.relaxation.times == (pytest.approx(1 / (2 * np.pi * 15)),)


def pulse(sim, vp, q, distances):
    """The wave of a line source at distances in metres, by its spectrum: a Hankel function of a complex wave number."""
    n = 8 * sim.nt
    frequency = np.fft.rfftfreq(n, sim.dt)[1:]
    wave_number = 2 * np.pi * frequency / np.sqrt(modulus(sim, frequency, vp, q))
    spectrum = np.fft.rfft(sim.dh[0] * sim.dh[1] * ricker(sim.f_peak, sim.dt, sim.nt), n)[1:]
    waves = [-0.25j * hankel2(0, wave_number * r) * spectrum for r in distances]
    return np.array([np.fft.irfft(np.concatenate([[0], wave]), n)[: sim.nt] for wave in waves])


@pytest.mark.parametrize(("q", "matters"), [(20.0, 0.5), pytest.param(60.0, 0.2, marks=pytest.mark.slow)])
def test_decay_and_dispersion(q, matters):
    """Traces against the analytic wave; their spectra between two receivers tell Q and velocity at each frequency."""
    sim = ViscoacousticSimulation((40, 95), 8.0, 5e-4, 1100, 2500.0, 20.0, 8, 15)
    vp, places = 2000.0, np.array([(20, 8), (20, 45), (20, 88)])
    found, distances = run(sim, uniform(sim, vp, q), places[:1], places[1:])[0], 8.0 * np.array([37, 80])
    expected = pulse(sim, vp, q, distances)
    assert relative(found, expected) < 0.015
    assert relative(pulse(sim, vp, 1e9, distances), expected) > matters  # so loss is what is seen
    frequency = np.fft.rfftfreq(4 * sim.nt, sim.dt)
    some = (frequency > 10) & (frequency < 40)
    near, far = np.fft.rfft(found, 4 * sim.nt)[:, some]
    k = 2 * np.pi * frequency[some] / np.sqrt(modulus(sim, frequency[some], vp, q))
    ratio = hankel2(0, k * distances[1]) / hankel2(0, k * distances[0])
    measured = k + 1j * np.log(far / near / ratio) / np.diff(distances)
    np.testing.assert_allclose(measured.real, k.real, rtol=0.003)
    np.testing.assert_allclose(-measured.real / (2 * measured.imag), q, rtol=0.12)  # Q, to first order in 1 / Q
    np.testing.assert_allclose(measured.imag, k.imag, rtol=0.04)
    speed = 2 * np.pi * frequency[some] / measured.real  # rises by ln(4) / πQ over the two octaves
    assert speed[-1] / speed[0] - 1 == pytest.approx(np.log(4) / np.pi / q, rel=0.2)


@pytest.mark.slow
def test_edges_absorb():
    """Against a domain too large for echoes."""
    near = ViscoacousticSimulation((30, 30), 10.0, 1.2e-3, 180, 2400.0, 18.0)
    far = 40
    large = replace(near, shape=(30 + 2 * far,) * 2, widths=0)
    source, receivers = np.array((20, 10)), np.array([(5, 25), (28, 24)])
    found = run(near, uniform(near, 2000.0, 30.0), [source], receivers)
    expected = run(large, uniform(large, 2000.0, 30.0), [source + far], receivers + far)
    assert relative(found, expected) < 0.005


@pytest.mark.parametrize("mechanisms", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_reciprocity(mechanisms):
    """To rounding without absorbing layers, which are not symmetric, in acoustic waves neither."""
    options = {"free_surface": True, "mechanisms": mechanisms}
    sim = ViscoacousticSimulation((14, 16), (10.0, 9.0), 1.2e-3, 200, 2700.0, 20.0, 4, 0, **options)
    there, back = run(sim, rough(sim), [(5, 4)], [(9, 12)]), run(sim, rough(sim), [(9, 12)], [(5, 4)])
    assert relative(there, back) < 1e-12


def test_waves_die():
    """In a closed box with nearly the largest time step for the speed of the highest frequencies, and the lowest q."""
    sim = ViscoacousticSimulation((20, 24), (10.0, 9.0), 1e-4, 4000, 2700.0, 12.0, 8, 0, True)
    sim = replace(sim, dt=0.99 * largest_dt(sim))
    medium = rough(sim)
    medium["q"][3:9] = 4.0
    medium["vp"] *= sim.v_max / sim.speeds(medium)[1].max()
    traces = np.abs(run(sim, medium, [(3, 4)], [(1, 8), (10, 10)]))
    assert traces[..., -1000:].max() < 1e-4 * traces.max()
    # a step that is stable for vp, but not for the speed of the highest frequencies, is refused by its v_max
    with pytest.raises(ValueError, match="the velocity of the highest frequencies reaches 27.*above v_max=2700"):
        check_medium(sim, {**medium, "vp": 1.02 * medium["vp"]})


@pytest.mark.slow
def test_three_dimensions():
    sim = ViscoacousticSimulation((18, 19, 19), 10.0, 1.2e-3, 80, 2600.0, 25.0, 4, 6)
    medium = uniform(sim, 2000.0, 20.0)
    along_x, along_y = run(sim, medium, [(9, 9, 9)], [(13, 9, 15), (13, 15, 9)])[0]
    assert relative(along_x, along_y) < 1e-12
    lossless = run(sim, uniform(sim, 2000.0, np.inf), [(9, 9, 9)], [(13, 9, 15)])[0, 0]
    assert np.linalg.norm(along_x) < 0.9 * np.linalg.norm(lossless)


SIM = ViscoacousticSimulation((14, 16), (10.0, 9.0), 1e-3, 50, 2700.0, 12.0, widths=(4, 5, 3, 6))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("vp", -1.0, r"vp = -1 at cell \(3, 4\) is not positive"),
        ("q", np.nan, r"q = nan at cell \(3, 4\) is not a number"),
        ("q", 0.0, r"q = 0 at cell \(3, 4\) is not positive. Use a large q"),
        ("q", -30.0, r"q = -30 at cell \(3, 4\) is not positive"),
        ("q", 1.5, r"q = 1.5 at cell \(3, 4\) is too small: these 3 mechanisms reach down to 1\.\d+"),
        ("vp", 2690.0, "the velocity of the highest frequencies reaches .* above v_max=2700"),
    ],
)
def test_media_are_checked(name, value, message):
    medium = rough(SIM)
    medium[name][3, 4] = value
    with pytest.raises(ValueError, match=message):
        check_medium(SIM, medium)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"band": (20.0, 10.0)}, "must be two frequencies in Hz that rise"),
        ({"f_ref": 100.0}, "the reference frequency 100 Hz is outside the band 3 to 48 Hz"),
        ({"f_ref": float("nan")}, "is outside the band"),
        ({"mechanisms": 0}, "mechanisms=0 must be 1 to 8"),
    ],
)
def test_simulations_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        replace(SIM, **options)


def test_what_is_refused():
    shots = acquisition(SIM, [(3, 4)], [(2, 12)])
    with pytest.raises(ValueError, match="viscoacoustic waves is a mapping of vp and q; got"):
        propagate(SIM, {"vp": np.ones(SIM.shape)}, np.zeros(50), shots)
    with pytest.raises(ValueError, match="the native engine has no viscoacoustic waves. Use engine='jax'"):
        propagate(SIM, rough(SIM), np.zeros(50), shots, engine="native")
    with pytest.raises(ValueError, match="wavelet has shape"):
        propagate(SIM, rough(SIM), np.zeros(49), shots)
