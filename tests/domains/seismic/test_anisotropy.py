"""VTI waves: the isotropic and the elliptical limit, speeds at every angle, moveout, quiet edges, reciprocity."""

from dataclasses import fields, replace

import numpy as np
import pytest

from shardfit.domains.seismic import Simulation, VTISimulation, acquisition, check_medium, largest_dt, propagate, ricker
from tests.domains.seismic.cases import fast_compile_jit, relative, small


def run(sim, medium, sources, receivers, wavelet=None, **options):
    shots = acquisition(sim, sources, receivers)
    wavelet = ricker(sim.f_peak, sim.dt, sim.nt) if wavelet is None else wavelet
    return np.asarray(fast_compile_jit(lambda medium: propagate(sim, medium, wavelet, shots, "jax", **options))(medium))


def like(kind, sim, **changes):
    """Return the simulation of another kind of wave."""
    return kind(**{f.name: getattr(sim, f.name) for f in fields(Simulation)} | changes)


def uniform(sim, vp, epsilon, delta):
    return {name: np.full(sim.shape, x) for name, x in (("vp", vp), ("epsilon", epsilon), ("delta", delta))}


def rough(sim):
    """A medium that no symmetry helps."""
    rng = np.random.default_rng(1)
    delta = rng.uniform(-0.1, 0.15, sim.shape)
    return {"vp": rng.uniform(1900, 2200, sim.shape), "epsilon": delta + rng.uniform(0, 0.1, sim.shape), "delta": delta}


@pytest.mark.parametrize(
    ("free_surface", "scaling"), [(False, "physical"), pytest.param(True, "raw", marks=pytest.mark.slow)]
)
def test_without_anisotropy_waves_are_acoustic(free_surface, scaling):
    """To rounding, layers, corners and points between cells included."""
    sim, velocity, wavelet, shots = small(4, free_surface, scaling)
    expected = fast_compile_jit(lambda v: propagate(sim, v, wavelet, shots, "jax"))(velocity)
    medium = {"vp": velocity, "epsilon": 0 * velocity, "delta": 0 * velocity}
    vti = like(VTISimulation, sim)
    assert relative(fast_compile_jit(lambda m: propagate(vti, m, wavelet, shots))(medium), np.asarray(expected)) < 1e-13


def test_elliptical_waves_are_stretched_acoustic_ones():
    """Where epsilon = delta everywhere a grid with dx / √(1 + 2 epsilon) has the same waves, in any vp, to rounding.

    Source and receiver each bring the mean of 1 and √(1 + 2 epsilon). Until an echo comes back from an edge.
    """
    epsilon, sim = 0.18, Simulation((40, 40), (10.0, 12.0), 1.2e-3, 90, 2600.0, 25.0, 4, 0)
    stretch = np.sqrt(1 + 2 * epsilon)
    vp = np.random.default_rng(0).uniform(1800, 2200, sim.shape)
    places = [(20, 20)], [(27, 26), (12, 15.5), (20, 33)]
    squeezed = replace(sim, dh=(10.0, 12.0 / stretch))
    expected = ((1 + stretch) / 2) ** 2 * run(squeezed, vp, *places)
    found = run(like(VTISimulation, sim), {**uniform(sim, 1.0, epsilon, epsilon), "vp": vp}, *places)
    assert relative(found, expected) < 1e-12


def phase_velocity(angle, vp, epsilon, delta):
    """From Christoffel's equation of the elastic solid with Thomsen's parameters and no shear stiffness."""
    c33, c11 = vp**2, vp**2 * (1 + 2 * epsilon)
    c13 = vp**2 * np.sqrt(1 + 2 * delta)  # (c13 + c55)² = c33 (c33 (1 + 2δ)) where c55 = 0
    s, c = np.sin(angle), np.cos(angle)
    matrix = np.array([[c11 * s * s, c13 * s * c], [c13 * s * c, c33 * c * c]])
    return np.sqrt(np.linalg.eigvalsh(matrix)[-1])


def group_velocity(direction, vp, epsilon, delta):
    """Speed of energy that travels at an angle from the vertical: the wave front is the envelope of plane waves."""
    angles = np.linspace(-np.pi / 2, np.pi, 6001)
    slowness = [np.cos(angle - direction) / phase_velocity(angle, vp, epsilon, delta) for angle in angles]
    return 1 / max(slowness)


def delay(near, far, dt):
    """Time by which far is later, to a fraction of a sample, with the change of phase of 2-D spreading in both."""
    n = len(near)
    product = np.conj(np.fft.rfft(near, 2 * n)) * np.fft.rfft(far, 2 * n)
    correlation = np.fft.irfft(product, 64 * n)[: 32 * n]
    return np.argmax(correlation) * dt / 32


@pytest.mark.parametrize(("epsilon", "delta"), [(0.25, 0.1), pytest.param(0.1, -0.1, marks=pytest.mark.slow)])
def test_speeds_at_all_angles(epsilon, delta):
    """Between two receivers on a line from the source: vertical vp, horizontal vp √(1 + 2 epsilon), and in between."""
    vp, dh, f = 2000.0, 8.0, 25.0
    sim = VTISimulation((95, 95), dh, 1e-3, 430, 2500.0, f, 8, 12)
    angles = np.deg2rad([0, 20, 40, 60, 75, 90])
    lines = np.array([np.cos(angles), np.sin(angles)]).T
    source = np.array((8, 8))
    receivers = np.concatenate([source + 40 * lines, source + 80 * lines])
    found = run(sim, uniform(sim, vp, epsilon, delta), [source], receivers)[0]
    assert phase_velocity(0.0, vp, epsilon, delta) == pytest.approx(vp)
    assert phase_velocity(np.pi / 2, vp, epsilon, delta) == pytest.approx(vp * np.sqrt(1 + 2 * epsilon))
    for k, angle in enumerate(angles):
        expected = group_velocity(angle, vp, epsilon, delta)
        assert 40 * dh / delay(found[k], found[k + len(angles)], sim.dt) == pytest.approx(expected, rel=0.004)


@pytest.mark.slow
def test_moveout():
    """Near the vertical t² grows with x² as vp √(1 + 2 delta) says, whatever epsilon is."""
    vp, delta, dh = 2000.0, 0.12, 8.0
    sim = VTISimulation((100, 50), dh, 1e-3, 480, 2600.0, 25.0, 8, 15)
    offsets = np.arange(0, 26, 5)
    found = run(sim, uniform(sim, vp, 0.25, delta), [(88, 10)], [(8, 10), *((8, 10 + x) for x in offsets)])[0]
    first = 80 * dh / vp
    times = first + np.array([delay(found[0], trace, sim.dt) for trace in found[1:]])
    slope = np.polyfit((offsets * dh) ** 2, times**2, 2)[1]
    assert slope**-0.5 == pytest.approx(vp * np.sqrt(1 + 2 * delta), rel=0.01)


@pytest.mark.slow
def test_edges_absorb():
    """Against a domain too large for echoes."""
    near = VTISimulation((30, 30), 10.0, 1.2e-3, 180, 2500.0, 18.0)
    far, medium = 40, (2000.0, 0.2, 0.1)
    large = replace(near, shape=(30 + 2 * far,) * 2, widths=0)
    source, receivers = np.array((20, 10)), np.array([(5, 25), (28, 24)])
    found = run(near, uniform(near, *medium), [source], receivers)
    expected = run(large, uniform(large, *medium), [source + far], receivers + far)
    assert relative(found, expected) < 0.005


@pytest.mark.parametrize(("widths", "limit"), [(0, 1e-12), pytest.param((0, 5, 3, 6), 1e-4, marks=pytest.mark.slow)])
def test_reciprocity(widths, limit):
    """To rounding without absorbing layers, which are not symmetric, in acoustic waves neither."""
    sim = VTISimulation((14, 16), (10.0, 9.0), 1.2e-3, 200, 2700.0, 20.0, 4, widths, free_surface=True)
    there, back = run(sim, rough(sim), [(5, 4)], [(9, 12)]), run(sim, rough(sim), [(9, 12)], [(5, 4)])
    assert relative(there, back) < limit


@pytest.mark.parametrize(("widths", "left"), [((0, 6, 5, 4), 0.05), pytest.param(0, 1.0, marks=pytest.mark.slow)])
def test_waves_do_not_grow(widths, left):
    """Of order 8 with nearly the largest time step, in a rough medium that is elliptical in some cells, 4000 steps.

    Slow waves are late to leave such a medium. In a closed box they stay.
    """
    sim = VTISimulation((20, 24), (10.0, 9.0), 1e-4, 4000, 2700.0, 12.0, 8, widths, True)
    sim = replace(sim, dt=0.99 * largest_dt(sim))
    medium = rough(sim)
    medium["epsilon"][5:9, 8:] = medium["delta"][5:9, 8:]
    traces = np.abs(run(sim, medium, [(3, 4)], [(1, 8), (10, 10)]))
    assert traces[..., -1000:].max() < left * traces[..., :1000].max()


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.2, 0.05])
def test_float32_keeps_its_digits(delta):
    """Where epsilon = delta nothing brings the two stresses back to each other: they may not drift apart."""
    sim = VTISimulation((30, 30), 10.0, 1.2e-3, 2000, 2700.0, 20.0, 4, 10)
    medium = uniform(sim, 2000.0, 0.2, delta)
    short = {name: x.astype(np.float32) for name, x in medium.items()}
    found, expected = (run(sim, given, [(8, 8)], [(20, 22)]) for given in (short, medium))
    assert found.dtype == np.float32
    assert relative(found, expected) < 2e-5
    assert np.abs(found - expected)[..., -500:].max() < 1e-6 * np.abs(expected).max()


@pytest.mark.slow
def test_three_dimensions():
    """A plane of symmetry that no wave leaves: sections of a volume along x and y are alike; the vertical is slower."""
    sim = VTISimulation((20, 21, 21), 10.0, 1.2e-3, 90, 2600.0, 25.0, 4, 6)
    medium = uniform(sim, 2000.0, 0.2, 0.2)
    along_x, along_y = run(sim, medium, [(10, 10, 10)], [(14, 10, 16), (14, 16, 10)])[0]
    assert relative(along_x, along_y) < 1e-12
    flat = {name: np.zeros(sim.shape) for name in ("epsilon", "delta")}
    plain = like(Simulation, sim)
    velocity = np.random.default_rng(0).uniform(1900, 2300, sim.shape)
    places = [(10, 10, 10)], [(14, 10, 16)]
    assert relative(run(sim, {"vp": velocity, **flat}, *places), run(plain, velocity, *places)) < 1e-13


SIM = VTISimulation((14, 16), (10.0, 9.0), 1e-3, 50, 2700.0, 12.0, widths=(4, 5, 3, 6))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("vp", np.nan, r"vp = nan at cell \(3, 4\) is not finite"),
        ("epsilon", np.inf, r"epsilon = inf at cell \(3, 4\) is not finite"),
        ("delta", 0.5, r"epsilon = .* at cell \(3, 4\) is below delta, where waves grow without limit"),
        ("delta", -0.5, "delta = -0.5 at cell .* not above -1/2"),
        ("epsilon", 0.6, r"vp √\(1 \+ 2 epsilon\) reaches .* m/s, above v_max=2700"),
    ],
)
def test_media_are_checked(name, value, message):
    medium = rough(SIM)
    medium[name][3, 4] = value
    with pytest.raises(ValueError, match=message):
        check_medium(SIM, medium)


def test_what_is_refused():
    shots = acquisition(SIM, [(3, 4)], [(2, 12)])
    with pytest.raises(ValueError, match="vti waves is a mapping of vp, epsilon and delta; got an array of shape"):
        propagate(SIM, np.ones(SIM.shape), np.zeros(50), shots)
    with pytest.raises(ValueError, match="the native engine has no vti waves. Use engine='jax'"):
        propagate(SIM, rough(SIM) | {"epsilon": rough(SIM)["delta"]}, np.zeros(50), shots, engine="native")
    with pytest.raises(ValueError, match=r"delta has shape \(3,\)"):
        propagate(SIM, {**rough(SIM), "delta": np.ones(3)}, np.zeros(50), shots)
    with pytest.warns(UserWarning, match=r"epsilon - delta is 0.\d+ at a source"):
        SIM.check_shots(rough(SIM), shots)
