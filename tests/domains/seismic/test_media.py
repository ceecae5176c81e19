"""What VTI and viscoacoustic waves share: derivatives, memory, shots apart, devices, inversion, images."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.seismic import (
    Binomial,
    Checkpointed,
    Conditioning,
    Recording,
    Simulation,
    SourceOptions,
    ViscoacousticSimulation,
    VTISimulation,
    WaveOptions,
    acquisition,
    choose_engine,
    estimate_source,
    illumination,
    migration_problem,
    model_error,
    plain_loops,
    propagate,
    ricker,
    select,
)
from shardfit.domains.seismic.models import lens
from shardfit.domains.seismic.recipes import InversionOptions, MigrationOptions, invert, rtm
from tests.domains.seismic import test_anisotropy, test_attenuation
from tests.domains.seismic.cases import fast_compile_jit, relative
from tests.domains.seismic.lens import problem_of
from tests.domains.seismic.test_anisotropy import like, run

SOURCES, RECEIVERS = [(3, 4), (6.5, 9)], [(2, 12), (10, 3.4)]


def vti():
    """A simulation and a rough medium that is elliptical around sources."""
    sim, medium = test_anisotropy.SIM, test_anisotropy.rough(test_anisotropy.SIM)
    for z, x in ((3, 4), (6, 9), (7, 9)):
        medium["epsilon"][z, x] = medium["delta"][z, x] + 1e-3
    return sim, medium


def viscoacoustic():
    return test_attenuation.SIM, test_attenuation.rough(test_attenuation.SIM)


MEDIA = {"vti": vti, "viscoacoustic": viscoacoustic}
both = pytest.mark.parametrize("waves", MEDIA)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waves", "changes", "memory"),
    [
        ("vti", {"widths": (0, 4, 5, 0)}, Checkpointed((5,))),
        ("viscoacoustic", {"widths": (4, 0, 0, 5)}, "full"),
        pytest.param("vti", {"widths": (0, 5, 3, 6), "free_surface": True}, "full", marks=pytest.mark.slow),
        pytest.param("vti", {"scaling": "raw"}, Checkpointed((3, 4)), marks=pytest.mark.slow),
        pytest.param(
            "viscoacoustic", {"widths": (0, 5, 3, 6), "free_surface": True}, Checkpointed((5,)), marks=pytest.mark.slow
        ),
        pytest.param("viscoacoustic", {"scaling": "raw"}, Checkpointed((3, 4)), marks=pytest.mark.slow),
    ],
)
def test_derivatives(waves, changes, memory):
    """Forward against reverse mode, both against finite differences, for each parameter; a remainder of order 2."""
    sim, medium = MEDIA[waves]()
    sim, medium, rng = replace(sim, **changes), jax.tree.map(jnp.asarray, medium), np.random.default_rng(2)
    scale = {"vp": 1.0, "epsilon": 1e-3, "delta": 1e-3, "q": 0.1}
    change = {name: jnp.asarray(scale[name] * rng.normal(size=sim.shape)) for name in medium}
    shots = acquisition(sim, [(3, 4), (6, 9)], [(2, 12), (10, 3)])
    wavelet, d = rng.normal(size=sim.nt), jnp.asarray(rng.normal(size=(2, 2, sim.nt)))

    def traces(medium):
        return propagate(sim, medium, wavelet, shots, memory=memory)

    push = fast_compile_jit(lambda m, c: jnp.vdot(jax.jvp(traces, (m,), (c,))[1], d))
    pulled = fast_compile_jit(lambda m: jax.vjp(traces, m)[1](d)[0])(medium)
    value = fast_compile_jit(lambda m: jnp.vdot(traces(m), d))

    def at(h, direction):
        return float(value(jax.tree.map(lambda m, c: m + h * c, medium, direction)))

    for name in change:
        direction = {k: v * (k == name) for k, v in change.items()}
        slope = float(jnp.vdot(pulled[name], change[name]))
        assert float(push(medium, direction)) == pytest.approx(slope, rel=1e-10)
        assert (at(1e-2, direction) - at(-1e-2, direction)) / 2e-2 == pytest.approx(slope, rel=1e-5)
    slope = sum(float(jnp.vdot(pulled[name], change[name])) for name in change)
    remainders = [abs(at(h, change) - at(0.0, change) - h * slope) for h in (4.0, 2.0, 1.0)]
    np.testing.assert_allclose(np.diff(np.log2(remainders)), -2, atol=0.15)


@pytest.mark.slow
@both
def test_memory_strategies_agree(waves):
    sim, medium = MEDIA[waves]()
    shots = acquisition(sim, SOURCES, RECEIVERS)

    def gradient(memory):
        def loss(medium):
            return jnp.sum(propagate(sim, medium, ricker(20.0, 1e-3, 50, 0.06), shots, memory=memory) ** 2)

        return fast_compile_jit(jax.grad(loss))(medium)

    full = gradient("full")
    for memory in (Checkpointed((7,)), Checkpointed((3, 4))):
        for a, b in zip(*map(jax.tree.leaves, (gradient(memory), full)), strict=True):
            assert relative(a, b) < 1e-12
    with pytest.raises(ValueError, match=rf"Binomial\(slots=3\) is not for {waves} waves. Use memory='full'"):
        gradient(Binomial(3))


@pytest.mark.parametrize("waves", ["vti", pytest.param("viscoacoustic", marks=pytest.mark.slow)])
def test_shots_stand_alone(monkeypatch, waves):
    """In any order, alone or together, and with receivers that only pad a shot."""
    sim, medium = MEDIA[waves]()
    monkeypatch.setattr(plain_loops, "CACHE", 1)
    shots = acquisition(sim, SOURCES, [RECEIVERS, RECEIVERS[:1]])
    wavelet = ricker(20.0, 1e-3, 50, 0.06) * np.array([[1.0], [-2.0]])
    traces = fast_compile_jit(lambda m, w, s: propagate(sim, m, w, s))
    together = np.asarray(traces(medium, wavelet, shots))
    assert together.shape == (2, 2, 50) and not together[1, 1].any()
    assert relative(traces(medium, wavelet[::-1], select(shots, [1, 0]))[::-1], together) < 1e-13
    monkeypatch.setattr(plain_loops, "CACHE", 1 << 30)
    at_once = fast_compile_jit(lambda m, w, s: propagate(sim, m, w, s))
    assert relative(at_once(medium, wavelet, shots), together) < 1e-13


@both
def test_engines(waves):
    sim, _ = MEDIA[waves]()
    assert choose_engine("auto", sim) == ("jax", f"jax: {waves} waves, for which there is no compiled kernel")
    with pytest.raises(ValueError, match=f"the native engine has no {waves} waves"):
        choose_engine("native", sim)


def inversion(waves, data=None, fitted=None, **options):
    """Fit what is usual, slightly off, with the rest known."""
    sim, truth = MEDIA[waves]()
    wavelet, shots = ricker(25.0, 1e-3, 50, 0.05), acquisition(sim, SOURCES, RECEIVERS)
    if data is None:
        data = run(sim, truth, SOURCES, RECEIVERS, wavelet)
    factor = {"vp": 0.98, "epsilon": 1.0, "delta": 1.0, "q": 1.3}
    start = {name: factor[name] * truth[name] for name in fitted or sim.usual}
    options = {"start": start, "known": {n: x for n, x in truth.items() if n not in start}} | options
    return problem_of(sim, options.pop("start"), wavelet, shots, data, precision="float64", **options), data


@pytest.mark.slow
@both
def test_inversion_and_devices(waves):
    """The value is the misfit, and neither it nor the gradient depends on devices, one of which has padding only."""
    sim, truth = MEDIA[waves]()
    problem, data = inversion(waves)
    assert set(problem.x0) == set(sim.usual)
    modelled = run(sim, {**truth, **problem.x0}, SOURCES, RECEIVERS, ricker(25.0, 1e-3, 50, 0.05))
    value, gradient = problem.objective.value_and_grad(problem.x0)
    assert float(value) == pytest.approx(np.sum((modelled - data) ** 2) / np.sum(data**2), rel=1e-10)
    placed_value, placed = problem.objective.place(sf.mesh(rows=3)).value_and_grad(problem.x0)
    assert float(placed_value) == pytest.approx(float(value), rel=1e-12)
    for name in problem.x0:
        assert relative(placed[name], np.asarray(gradient[name])) < 1e-11


@pytest.mark.parametrize(
    ("waves", "options", "message"),
    [
        ("vti", {"known": {}}, "a mapping of vp, epsilon and delta; got"),
        ("vti", {"start": np.ones((14, 16))}, "give a mapping of what is fitted of vp, epsilon and delta"),
        ("vti", {"bounds": (1000.0, 2000.0)}, "bounds=.*give a mapping by what is fitted"),
        ("vti", {"bounds": {"vp": (1000.0, 2500.0), "epsilon": (0.2, 0.5)}}, "epsilon is .* outside the bounds"),
        ("vti", {"bounds": {"epsilon": (-0.2, 0.3)}}, "epsilon may become less than delta"),
        ("vti", {"bounds": {"vp": (1000.0, 2690.0), "epsilon": (None, 0.4)}}, "may reach 36.*above v_max=2700"),
        ("vti", {"parameter": "slowness"}, "is for acoustic waves"),
        ("viscoacoustic", {"bounds": {"q": (1.0, 2e9)}}, "q = 1 at cell .* too small"),
        ("viscoacoustic", {"bounds": {"vp": (1e3, 2600.0), "q": (5.0, 2e9)}}, "with the highest vp and the lowest q"),
        ("viscoacoustic", {"bounds": {"q": (5.0, 100.0)}}, "q is 1.3e.09 at cell .* outside the bounds"),
        ("viscoacoustic", {"unit": {"vs": 2.0}}, "unit=.*by what is fitted, \\['q', 'vp'\\]"),
    ],
)
def test_inversion_is_checked(waves, options, message):
    _, truth = MEDIA[waves]()
    ends = options.get("bounds")
    if isinstance(ends, dict) and None in ends.get("epsilon", ()):
        options = {"bounds": {**ends, "epsilon": (truth["delta"], 0.4)}}
    with pytest.raises(ValueError, match=message):
        inversion(waves, np.ones((2, 2, 50)), **options)


class Free(sf.LBFGS):
    """A solver that could leave what can be simulated."""

    name, bounded = "free", False


@both
@pytest.mark.parametrize("share", [None, 0.9])
def test_what_has_no_bounds_gets_those_that_keep_waves_stable(waves, share):
    sim, medium = MEDIA[waves]()
    given = None if share is None else {"vp": (share * medium["vp"], medium["vp"])}
    fitted = tuple(sim.parameters)
    problem, _ = inversion(waves, np.ones((2, 2, 50)), fitted, start=medium, bounds=given)
    assert problem.box is not None
    sim.refuse_ranges(*(problem.space.host_params(end) for end in problem.box))
    with pytest.raises(ValueError, match="'free' does not support bounds"):
        sf.fit(problem, Free())


@both
@pytest.mark.parametrize("names", [None, ("vp",), "other", "all"])
def test_bounds_that_nobody_gave(waves, names):
    """Whatever is fitted, corners of the box can be simulated, the start is inside, and an infinite q is refused."""
    sim, medium = MEDIA[waves]()
    last = list(sim.parameters)[1:]
    fitted = sim.usual if names is None else tuple(last) if names == "other" else tuple(sim.parameters)
    fitted = names if isinstance(names, tuple) else fitted
    found = sim.ranges(medium, fitted, None)
    assert set(found) == set(fitted)
    inversion(waves, np.ones((2, 2, 50)), fitted, start={n: medium[n] for n in fitted}, bounds=found)
    for name in fitted:
        low, high = (np.broadcast_to(end, sim.shape) for end in found[name])
        assert np.all(low <= medium[name]) and np.all(medium[name] <= high)
    if waves == "viscoacoustic" and "q" in fitted:
        assert np.any(found["q"][0] < 0.8 * medium["q"])
        start = {n: medium[n] if n == "vp" else np.full(sim.shape, np.inf) for n in fitted}
        with pytest.raises(ValueError, match="q is infinite somewhere. What is fitted must be finite"):
            inversion(waves, np.ones((2, 2, 50)), fitted, start=start)


def around_a_lens(waves):
    """Return a survey around a lens in two parameters: simulation, truth, start and recording."""
    numbers = (30, 40), 10.0, 1e-3, 230, 2700.0, 25.0, 4, 10
    sim = (VTISimulation if waves == "vti" else ViscoacousticSimulation)(*numbers)

    def blob(background, change):
        return lens(sim.shape, 10.0, background, change, 40.0)

    truth = {"vp": blob(2000.0, 120.0)}
    if waves == "vti":
        truth |= {"epsilon": blob(0.05, 0.12), "delta": np.full(sim.shape, 0.05)}
    else:
        truth["q"] = 1 / blob(1 / 60, 1 / 20 - 1 / 60)
    start = {name: np.full(sim.shape, x[0, 0].round(3)) for name, x in truth.items()}
    sources = [(row, x) for x in (3, 20, 36) for row in (2, 27)] + [(z, x) for z in (9, 21) for x in (2, 37)]
    receivers = [(row, x) for row in (2, 27) for x in range(2, 38, 3)]
    receivers += [(z, x) for z in range(4, 27, 3) for x in (2, 37)]
    shots, wavelet = acquisition(sim, sources, receivers), ricker(25.0, sim.dt, sim.nt)
    data = propagate(sim, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), truth), wavelet, shots)
    return sim, truth, start, Recording(shots, wavelet, np.asarray(data))


@pytest.mark.slow
@both
def test_a_lens_is_recovered(waves):
    """Both parameters at once, in two bands; the second starts from what bounds and float32 made of the first."""
    sim, truth, start, recording = around_a_lens(waves)
    options = {"epochs": (8, 12), "bands": (25.0, None), "conditioning": Conditioning(near=3.0, smoothing=1.5)}
    found = invert(sim, start, recording, InversionOptions(solver="plbfgs", batchsize=None, **options), truth=truth)
    assert found.engine.startswith(f"jax: {waves} waves") and set(found.results[-1].params) == set(sim.usual)
    assert all(np.array_equal(found.medium[name], start[name]) for name in start if name not in sim.usual)
    for name in sim.usual:
        assert found.metrics[f"model_error_{name}"][-1] < 0.35 * model_error(start[name], truth[name])
        assert found.metrics[f"model_error_{name}"][-1] == pytest.approx(model_error(found.medium[name], truth[name]))


@pytest.mark.slow
@pytest.mark.parametrize(("waves", "solver"), [("vti", "adam"), ("viscoacoustic", "lbfgsb")])
def test_other_solvers(waves, solver):
    sim, truth, start, recording = around_a_lens(waves)
    batch = 5 if solver == "adam" else None
    options = InversionOptions(solver=solver, epochs=15, batchsize=batch, learning_rate=10.0, certify=False)
    found = invert(sim, start, recording, options, truth=truth)
    assert found.metrics["loss"][-1] < 0.1 * found.metrics["loss"][0]
    check = {name: found.medium[name] for name in sim.parameters}
    sim.refuse({name: np.asarray(x, float) for name, x in check.items()})


def test_every_solver_of_inversions_keeps_to_bounds():
    """Beyond them is what cannot be simulated: epsilon below delta, waves above v_max."""
    assert all(InversionOptions(solver=name, batchsize=None).bounded for name in ("lbfgs", "lbfgs-bt", "lbfgsb"))


@pytest.mark.slow
@both
def test_images_energy_and_sources(waves):
    """The image shows the lens, and in the acoustic limit is the acoustic one; energy falls away from a source."""
    sim, truth, start, recording = around_a_lens(waves)
    only_vp = {**start, "vp": truth["vp"]}
    data = propagate(
        sim, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), only_vp), recording.wavelet, recording.shots
    )
    recording = replace(recording, observed=np.asarray(data))
    image = rtm(sim, start, recording, MigrationOptions(high_pass=False))
    inside = (slice(5, 25), slice(8, 32))
    assert np.corrcoef(image[inside].ravel(), (truth["vp"] - start["vp"])[inside].ravel())[0, 1] > 0.6
    limit = {"epsilon": 0.0, "delta": 0.0, "q": np.inf}
    simple = {name: np.full(sim.shape, limit[name]) if name in limit else x for name, x in start.items()}
    options, waves = MigrationOptions(high_pass=False), WaveOptions("jax")
    acoustic = rtm(like(Simulation, sim), start["vp"], recording, options, waves=waves)
    assert relative(rtm(sim, simple, recording, options), acoustic) < 1e-4
    energy = illumination(sim, start, recording.wavelet, select(recording.shots, [0]))
    assert energy[2, 3] > 10 * energy[20, 30] > 0
    twice = replace(recording, observed=2 * recording.observed)
    estimate = estimate_source(sim, only_vp, twice, SourceOptions("scalar"), waves=WaveOptions())
    assert relative(estimate, 2 * recording.wavelet) < 1e-4


@both
def test_migration_is_acoustic(waves):
    sim, medium = MEDIA[waves]()
    recording = Recording(acquisition(sim, SOURCES, RECEIVERS), np.ones(50), np.ones((2, 2, 50)))
    with pytest.raises(ValueError, match=f"not one of {waves} waves"):
        migration_problem(sim, medium, recording)
    with pytest.raises(ValueError, match=f"Use iterations=0 with {waves} waves"):
        rtm(sim, medium, recording, MigrationOptions(iterations=2))
    with pytest.raises(ValueError, match=f"unknown fitted parameter of {waves} waves: 'vs'"):
        invert(sim, medium, recording, InversionOptions(fitted=("vp", "vs")))
    with pytest.raises(ValueError, match=r"bounds of \['q', 'vs'\], but what is fitted is \['vp'\]"):
        invert(
            sim, medium, recording, InversionOptions(fitted=("vp",), batchsize=None, bounds={"q": (1, 2), "vs": (1, 2)})
        )
