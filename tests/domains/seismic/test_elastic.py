"""Elastic waves: the acoustic limit, Green's functions, quiet edges, reciprocity, the free surface, derivatives."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import hankel1

import shardfit as sf
from shardfit.domains.seismic import (
    Binomial,
    Checkpointed,
    Simulation,
    acquisition,
    plain_loops,
    propagate,
    ricker,
    select,
)
from shardfit.domains.seismic.elastic import ElasticSimulation
from shardfit.domains.seismic.elastic_wave import staggered
from tests.domains.seismic.cases import fast_compile_jit, relative
from tests.domains.seismic.lens import problem_of

SIM = ElasticSimulation((14, 16), (10.0, 9.0), 1e-3, 50, 2600.0, 12.0, widths=(4, 5, 3, 6))
SOURCES, RECEIVERS = [(3, 4), (6.5, 9)], [(2, 12), (10, 3.4)]


def run(sim, medium, sources, receivers, wavelet=None, **options):
    shots = acquisition(sim, sources, receivers)
    wavelet = ricker(sim.f_peak, sim.dt, sim.nt) if wavelet is None else wavelet
    return np.asarray(fast_compile_jit(lambda medium: propagate(sim, medium, wavelet, shots, **options))(medium))


def uniform(sim, vp, vs, rho=1000.0):
    return {"vp": np.full(sim.shape, vp), "vs": np.full(sim.shape, vs), "rho": np.full(sim.shape, rho)}


def rough(sim):
    """A medium that no symmetry helps, with a pond."""
    rng = np.random.default_rng(1)
    medium = {"vp": rng.uniform(1900, 2500, sim.shape), "vs": rng.uniform(900, 1300, sim.shape)}
    medium["vs"][:3, 5:9] = 0.0
    return {**medium, "rho": rng.uniform(1000, 2500, sim.shape)}


@pytest.mark.parametrize("free_surface", [False, True])
def test_without_shear_waves_are_acoustic(free_surface):
    """Of order 2, where both schemes are one: to rounding, for any vp and until an echo comes back from an edge."""
    sim = ElasticSimulation((40, 44), (10.0, 9.0), 1e-3, 100, 2500.0, 25.0, 2, 0, free_surface)
    vp = np.random.default_rng(0).uniform(1800, 2500, sim.shape)
    row = 8 if free_surface else 20
    places = [(row, 22)], [(row + 5, 27), (row - 6, 15.5 if not free_surface else 15)]
    medium = {**uniform(sim, 1.0, 0.0), "vp": vp}
    found = run(sim, medium, *places)
    assert relative(found, acoustic(sim, vp, *places)) < 1e-12


def acoustic(sim, vp, sources, receivers):
    """Return what an explosion w is to acoustic waves: the source (dw/dt) / vp², with w between samples."""
    w = ricker(sim.f_peak, sim.dt, sim.nt)
    wavelet = sim.dt * np.diff((w + np.append(w[1:], 0)) / 2, prepend=0)  # raw: (vp dt)² (dw/dt) / vp²
    names = ("shape", "dh", "dt", "nt", "v_max", "f_peak", "order", "widths", "free_surface")
    plain = Simulation(**{name: getattr(sim, name) for name in names}, scaling="raw")
    return run(plain, vp, sources, receivers, wavelet, engine="jax")


@pytest.mark.parametrize(("order", "limit"), [(2, 1e-12), (4, 0.02)])
def test_explosion_in_a_solid(order, limit):
    """In a uniform solid (λ + μ) / (λ + 2μ) of the stress is pressure, the rest of the wave is acoustic."""
    sim = ElasticSimulation((40, 44), (10.0, 9.0), 1e-3, 100, 2500.0, 25.0, order, 0)
    places = [(20, 22)], [(25, 27), (14, 15)]
    expected = (1 - (1200 / 2400) ** 2) * acoustic(sim, np.full(sim.shape, 2400.0), *places)
    assert relative(run(sim, uniform(sim, 2400.0, 1200.0, 2000.0), *places), expected) < limit


def green(offset, component, direction, vp, vs, rho, w, dt):
    """Velocity at an offset (z, x) from a line force w(t), from its spectrum: P and S waves, near field included."""
    n = 4 * len(w)
    omega = 2 * np.pi * np.fft.rfftfreq(n, dt)[1:]
    r = np.hypot(*offset)
    cosines = offset[component] * offset[direction] / r**2
    same = float(component == direction)

    def part(c):  # second derivatives of H0(k r)
        k = omega / c
        h0, h1 = hankel1(0, k * r), hankel1(1, k * r)
        return cosines * (-(k**2) * h0 + 2 * k * h1 / r) - same * k * h1 / r

    displacement = (
        0.25j / (rho * omega**2) * (same * (omega / vs) ** 2 * hankel1(0, omega * r / vs) + part(vs) - part(vp))
    )
    spectrum = np.conj(np.fft.rfft(w, n)[1:])  # exp(-iωt) here, exp(iωt) in rfft
    return np.fft.irfft(np.conj(np.concatenate([[0], -1j * omega * displacement * spectrum])), n)[: len(w)]


@pytest.mark.parametrize("receiver", ["velocity_x", "velocity_z"])
def test_force_against_the_analytic_solution(receiver):
    vp, vs, rho, f, nt = 2100.0, 1200.0, 1800.0, 12.0, 420
    sim = ElasticSimulation((46, 46), 10.0, 1e-3, nt, vp, f, 8, 15, source="force_z", receiver=receiver)
    source, receivers = np.array((12, 12)), np.array([(35, 30), (30, 12), (20, 40)])
    w = ricker(f, sim.dt, nt)
    found = run(sim, uniform(sim, vp, vs, rho), [source], receivers)[0]
    component = 0 if receiver == "velocity_z" else 1
    for trace, place in zip(found, receivers, strict=True):
        if component == 1 and place[1] == source[1]:
            assert np.abs(trace).max() < 0.003 * np.abs(found).max()  # straight below, but for echoes of the edges
        else:
            expected = green(10.0 * (place - source), component, 0, vp, vs, rho, 100.0 * w, sim.dt)
            assert relative(trace, expected) < 0.03


def test_edges_absorb():
    """Against a domain too large for echoes."""
    near = ElasticSimulation((30, 30), 10.0, 1.5e-3, 180, 2000.0, 15.0, source="force_x", receiver="velocity_z")
    far = 40
    large = replace(near, shape=(30 + 2 * far,) * 2, widths=0)
    source, receivers = np.array((20, 10)), np.array([(5, 25), (28, 24)])
    found = run(near, uniform(near, 2000.0, 1000.0), [source], receivers)
    expected = run(large, uniform(large, 2000.0, 1000.0), [source + far], receivers + far)
    assert relative(found, expected) < 0.003


@pytest.mark.parametrize("free_surface", [False, True])
def test_reciprocity(free_surface):
    """A force along x at A moves B along z as a force along z at B moves A along x."""
    widths = (0 if free_surface else 4, 5, 3, 6)
    sim = ElasticSimulation((14, 16), (10.0, 9.0), 1.5e-3, 200, 2600.0, 12.0, 4, widths, free_surface)
    there = run(replace(sim, source="force_x", receiver="velocity_z"), rough(sim), [(5, 4)], [(9, 12)])
    back = run(replace(sim, source="force_z", receiver="velocity_x"), rough(sim), [(9, 12)], [(5, 4)])
    assert relative(there, back) < 1e-12  # absorbing layers included


def test_waves_do_not_grow():
    """Of order 8 under a free surface, with 99 % of the largest time step, in a rough medium with a pond."""
    dt = 0.99 / (2500 * sum(map(abs, staggered(8))) * np.hypot(1 / 10, 1 / 9))
    sim = ElasticSimulation((20, 24), (10.0, 9.0), dt, 2000, 2500.0, 12.0, 8, (0, 6, 5, 4), True, source="force_z")
    traces = np.abs(run(sim, rough(sim), [(3, 4)], [(1, 8), (10, 10)]))
    assert traces[..., -200:].max() < 0.5 * traces[..., :400].max()
    with pytest.raises(ValueError, match="unstable at v_max=2500 m/s with order 8"):
        replace(sim, dt=1.02 * dt)


@pytest.mark.slow
def test_rayleigh_wave():
    vp, vs, f, dh, dt, nt = 1732.0, 1000.0, 15.0, 5.0, 1.5e-3, 560
    speed = brentq(
        lambda c: (2 - (c / vs) ** 2) ** 2 - 4 * np.sqrt((1 - (c / vp) ** 2) * (1 - (c / vs) ** 2)), 800, 999
    )
    sim = ElasticSimulation((30, 160), dh, dt, nt, vp, f, free_surface=True, source="force_z", receiver="velocity_z")
    near, far = run(sim, uniform(sim, vp, vs, 2000.0), [(0, 20)], [(0, 80), (0, 140)])[0]
    product = np.conj(np.fft.rfft(near, 2 * nt)) * np.fft.rfft(far, 2 * nt)
    delay = np.argmax(np.fft.irfft(product, 32 * nt)[: 16 * nt]) * dt / 16
    assert 60 * dh / delay == pytest.approx(speed, rel=0.015)
    assert np.abs(far).max() == pytest.approx(np.abs(near).max(), rel=0.1)  # along a surface a wave does not spread


CASES = [
    (SIM, Checkpointed((5,))),
    (replace(SIM, widths=(0, 5, 3, 6), free_surface=True, source="force_z", receiver="velocity_x"), "full"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sim", "memory"), [CASES[0], pytest.param(*CASES[1], marks=pytest.mark.slow)])
def test_derivatives(sim, memory):
    """Forward against reverse mode, both against finite differences, for each parameter; a remainder of order 2."""
    medium, rng = jax.tree.map(jnp.asarray, rough(sim)), np.random.default_rng(2)
    change = {name: jnp.asarray(rng.normal(size=sim.shape)) for name in medium}
    change["vs"] = jnp.where(medium["vs"] > 0, change["vs"], 0.0)
    shots = acquisition(sim, [(3, 4), (6, 9)], [(2, 12), (10, 3)])
    wavelet, d = rng.normal(size=sim.nt), jnp.asarray(rng.normal(size=(2, 2, sim.nt)))

    def traces(medium):
        return propagate(sim, medium, wavelet, shots, engine="jax", memory=memory)

    along = {name: {k: v * (k == name) for k, v in change.items()} for name in change}
    push = fast_compile_jit(lambda m, c: jnp.vdot(jax.jvp(traces, (m,), (c,))[1], d))
    pulled = fast_compile_jit(lambda m: jax.vjp(traces, m)[1](d)[0])(medium)
    value = fast_compile_jit(lambda m: jnp.vdot(traces(m), d))

    def at(h, direction):
        return float(value(jax.tree.map(lambda m, c: m + h * c, medium, direction)))

    for name, direction in along.items():
        slope = float(jnp.vdot(pulled[name], change[name]))
        assert float(push(medium, direction)) == pytest.approx(slope, rel=1e-10)
        assert (at(1e-2, direction) - at(-1e-2, direction)) / 2e-2 == pytest.approx(slope, rel=1e-5)
    slope = sum(float(jnp.vdot(pulled[name], change[name])) for name in change)
    remainders = [abs(at(h, change) - at(0.0, change) - h * slope) for h in (4.0, 2.0, 1.0)]
    np.testing.assert_allclose(np.diff(np.log2(remainders)), -2, atol=0.15)


@pytest.mark.slow
def test_memory_strategies_agree():
    shots = acquisition(SIM, SOURCES, RECEIVERS)

    def gradient(memory):
        def loss(medium):
            return jnp.sum(propagate(SIM, medium, ricker(20.0, 1e-3, 50, 0.06), shots, "jax", memory) ** 2)

        return fast_compile_jit(jax.grad(loss))(rough(SIM))

    full = gradient("full")
    for a, b in zip(*map(jax.tree.leaves, (gradient(Checkpointed((3, 4))), full)), strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("memory_of_a_core", [1, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_shots_stand_alone(monkeypatch, memory_of_a_core):
    monkeypatch.setattr(plain_loops, "CACHE", memory_of_a_core)
    shots = acquisition(SIM, SOURCES, RECEIVERS)
    wavelet = ricker(20.0, 1e-3, 50, 0.06) * np.array([[1.0], [-2.0]])
    apart = fast_compile_jit(lambda m, w, s: propagate(SIM, m, w, s, engine="jax"))
    together = apart(rough(SIM), wavelet, shots)
    assert together.shape == (2, 2, 50)
    for k in range(2):
        alone = apart(rough(SIM), wavelet[k : k + 1], select(shots, [k]))[0]
        assert relative(together[k], np.asarray(alone)) < 1e-13


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("vp", np.nan, r"vp = nan at cell \(3, 4\) is not finite"),
        ("vp", 2700.0, "vp reaches 2700 m/s, above v_max=2600"),
        ("vs", -1.0, r"vs = -1 at cell \(3, 4\) is negative"),
        ("vs", 2550.0, "not below vp, so that λ"),
        ("rho", 0.0, "rho = 0 at cell .* not positive"),
    ],
)
def test_media_are_checked(name, value, message):
    medium = rough(SIM)
    medium[name][3, 4] = value
    with pytest.raises(ValueError, match=message):
        propagate(SIM, medium, np.zeros(50), acquisition(SIM, SOURCES, RECEIVERS))


def test_what_is_refused():
    shots = acquisition(SIM, SOURCES, RECEIVERS)
    for medium in (np.ones(SIM.shape), {"vp": np.ones(SIM.shape)}):
        with pytest.raises(ValueError, match="a mapping of vp, vs and rho"):
            propagate(SIM, medium, np.zeros(50), shots)
    with pytest.raises(ValueError, match=r"rho has shape \(3,\)"):
        propagate(SIM, {**rough(SIM), "rho": np.ones(3)}, np.zeros(50), shots)
    with pytest.raises(ValueError, match="wavelet has shape"):
        propagate(SIM, rough(SIM), np.zeros(49), shots)
    with pytest.raises(ValueError, match=r"Binomial\(slots=3\) is not for elastic waves. Use memory='full'"):
        propagate(SIM, rough(SIM), np.zeros(50), shots, engine="jax", memory=Binomial(3))
    with pytest.raises(ValueError, match="unknown source 'force_y'"):
        replace(SIM, source="force_y")
    with pytest.raises(ValueError, match=r"shape .* must be \(nz, nx\)"):
        ElasticSimulation((10, 11, 12), 10.0, 1e-3, 20, 2500.0, 60.0)
    surface = replace(SIM, widths=(0, 5, 3, 6), free_surface=True)
    with pytest.raises(ValueError, match="receivers: shot 0, index 1 lies between rows, less than 3 below a free"):
        propagate(surface, rough(SIM), np.zeros(50), acquisition(surface, [(2, 3)], [(1, 3.5), (1.5, 3)]))
    with pytest.warns(UserWarning, match=r"5 cells per wavelength at 12 Hz and 600 m/s"):
        propagate(SIM, {**rough(SIM), "vs": np.full(SIM.shape, 600.0)}, np.zeros(50), shots)


def inversion(data, **options):
    """Fit vp and vs, both too slow by 3 %, with a known density."""
    truth = rough(SIM)
    start = {name: 0.97 * truth[name] for name in ("vp", "vs")}
    options = {"start": start, "known": {"rho": truth["rho"]}, "precision": "float64", **options}
    wavelet, shots = ricker(25.0, 1e-3, 50, 0.05), acquisition(SIM, SOURCES, RECEIVERS)
    return problem_of(SIM, options.pop("start"), wavelet, shots, data, **options)


def test_inversion_of_two_parameters():
    wavelet = ricker(25.0, 1e-3, 50, 0.05)
    data = run(SIM, rough(SIM), SOURCES, RECEIVERS, wavelet)
    problem = inversion(data, unit={"vp": 10.0, "vs": 5.0}, bounds={"vs": (0.0, 1500.0)})
    assert set(problem.x0) == {"vp", "vs"}
    modelled = run(SIM, {**rough(SIM), **problem.x0}, SOURCES, RECEIVERS, wavelet)
    expected = np.sum((modelled - data) ** 2) / np.sum(data**2)
    assert float(problem.objective.value(problem.x0)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("fitted", [("vp", "vs"), ("vp",), ("vs",)])
def test_bounds_that_nobody_gave_keep_the_solid_stable(fitted):
    """The bulk modulus, λ + 2μ/3, is positive in every corner of the box, and water is not held."""
    medium = rough(SIM)
    medium["vs"][:3] = 0.0
    known = {name: x for name, x in medium.items() if name not in fitted}
    problem = inversion(np.ones((2, 2, 50)), start={name: medium[name] for name in fitted}, known=known)
    low, high = ({**medium, **problem.space.host_params(end)} for end in problem.box)
    assert np.all(low["vp"] ** 2 >= 4 / 3 * high["vs"] ** 2 * (1 - 1e-12))
    assert problem.space.size == len(fitted) * medium["vp"].size


@pytest.mark.slow
def test_inversion_on_devices_lowers_the_misfit():
    problem = inversion(run(SIM, rough(SIM), SOURCES, RECEIVERS, ricker(25.0, 1e-3, 50, 0.05)), unit={"vp": 10.0})
    value, gradient = problem.objective.value_and_grad(problem.x0)
    placed = problem.objective.place(sf.mesh(rows=3)).value_and_grad(problem.x0)[1]  # one device has padding only
    for name in ("vp", "vs"):
        assert relative(placed[name], np.asarray(gradient[name])) < 1e-11
    assert sf.fit(problem, "lbfgsb", maxiter=4).value < 0.5 * float(value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"known": {}}, "mapping of vp, vs and rho; got"),
        ({"start": np.ones(SIM.shape)}, "give a mapping of what is fitted"),
        ({"bounds": (1000.0, 2000.0)}, "bounds=.*give a mapping by what is fitted"),
        ({"bounds": {"vp": (1000.0, 3000.0)}}, "above v_max=2600"),
        ({"unit": {"rho": 2.0}}, "unit=.*by what is fitted, \\['vp', 'vs'\\]"),
        ({"parameter": "slowness"}, "is for acoustic waves"),
    ],
)
def test_inversion_is_checked(options, message):
    with pytest.raises(ValueError, match=message):
        inversion(np.ones((2, 2, 50)), **options)
