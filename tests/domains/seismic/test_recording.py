"""Observed data are read once and filtered once, before the first evaluation; nothing of that is in the evaluation."""

import jax
import numpy as np
import pytest

from shardfit.check.probe import choose_rows
from shardfit.core.precision import arithmetic
from shardfit.domains.seismic import (
    MisfitOptions,
    Recording,
    Simulation,
    acquisition,
    filtered,
    inversion_problem,
    low_pass,
    propagate,
    recording,
    ricker,
)
from shardfit.domains.seismic.recording import read_once
from tests.domains.seismic.cases import relative
from tests.domains.seismic.lens import problem_of, survey


class Counted(np.memmap):
    """A memory map that counts the samples which are read from it."""

    read = 0

    def __getitem__(self, key):
        part = np.asarray(super().__getitem__(key))
        Counted.read += part.size
        return part

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        Counted.read += sum(x.size for x in inputs if isinstance(x, Counted))
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, function, types, args, options):
        assert function.__name__ in ("may_share_memory", "shape"), f"{function.__name__} reads all traces"
        return super().__array_function__(function, types, args, options)


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    data = survey(6)[-1]
    data.tofile(tmp_path / "data.bin")
    monkeypatch.setattr(Counted, "read", 0)
    monkeypatch.setattr(recording, "BLOCK", 2 * data[0].size)  # several blocks
    return Counted(tmp_path / "data.bin", np.float32, "r", shape=data.shape)


def test_a_problem_reads_every_sample_once(mapped):
    sim, start, _, wavelet, shots, data = survey(6)
    problem = problem_of(sim, start, wavelet, shots, mapped)
    assert Counted.read == data.size
    problem.objective.take(lambda *_: np.array([1, 4]))
    assert Counted.read == data.size + 2 * data[0].size  # the shots of a step, and nothing else


def test_a_certificate_reads_some_shots_only(mapped):
    sim, start, _, wavelet, shots, data = survey(6)
    problem = problem_of(sim, start, wavelet, shots, mapped)
    choose_rows(problem.objective, 1, seed=0)
    assert Counted.read == data.size + 2 * data[0].size


def test_a_band_reads_and_filters_every_sample_once(mapped, monkeypatch):
    sim, start, _, wavelet, shots, data = survey(6)
    response, filtered_samples = low_pass(sim, 15.0), []

    def counting(traces, response):
        filtered_samples.append(traces.size)
        return filtered(traces, response)

    monkeypatch.setattr(recording, "filtered", counting)
    problem = problem_of(sim, start, wavelet, shots, mapped, response=response)
    assert Counted.read == sum(filtered_samples) == data.size
    observed = problem.objective.terms[0].rows["observed"]
    assert isinstance(observed, np.memmap) and not isinstance(observed, Counted)
    assert relative(observed, filtered(data, response)) < 1e-6
    problem.objective.take(lambda *_: np.array([0]))
    assert Counted.read == data.size  # steps read the filtered copy


def transforms(jaxpr) -> int:
    """Number of Fourier transforms in a program and all that it calls."""
    inner = [
        sub for eqn in jaxpr.eqns for value in eqn.params.values() for sub in jax.tree.leaves(value, is_leaf=program)
    ]
    own = sum(eqn.primitive.name == "fft" for eqn in jaxpr.eqns)
    return own + sum(transforms(getattr(sub, "jaxpr", sub)) for sub in inner if program(sub))


def program(value) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


@pytest.mark.parametrize("filtering", [False, True])
def test_an_evaluation_filters_only_what_it_models(filtering):
    sim, start, _, wavelet, shots, data = survey(6)
    response = low_pass(sim, 15.0) if filtering else None
    problem = problem_of(sim, start, wavelet, shots, data, response=response, engine="jax")
    with arithmetic("float32"):
        value = jax.make_jaxpr(lambda objective, p: objective.value(p))(problem.objective, problem.x0)
        both = jax.make_jaxpr(lambda objective, p: objective.value_and_grad(p))(problem.objective, problem.x0)
    # there and back for the modelled traces, and once more for their cotangents
    assert transforms(value.jaxpr) == 2 * filtering
    assert transforms(both.jaxpr) == 4 * filtering


@pytest.mark.parametrize("normalise", ["rms", "trace"])
@pytest.mark.parametrize("spike", [1e3, 1e25])
def test_what_weights_remove_does_not_set_the_scale(spike, normalise):
    """A spike of weight 0 would make all else small against it, in float32 zero."""
    sim = Simulation((20, 30), 10.0, 1e-3, 90, 2500.0, 25.0, widths=5)
    shots = acquisition(sim, [(2, 3), (2, 20)], [(2, 10), (2, 15), (3, 25)])
    start = np.full(sim.shape, 2000.0, np.float32)
    data = np.array(propagate(sim, 1.05 * start, ricker(25.0, sim.dt, sim.nt), shots, engine="jax"))
    weights, found = np.ones((2, 3)), []
    weights[0, 1] = 0
    for value in (0.0, spike):
        data[0, 1] = value
        given = Recording(shots, ricker(25.0, sim.dt, sim.nt), data, weights)
        problem = inversion_problem(sim, start, given, MisfitOptions(normalise=normalise))
        found.append(jax.tree.leaves(problem.objective.value_and_grad(problem.x0)))
    for ours, clean in zip(*found, strict=True):
        np.testing.assert_allclose(ours, clean, rtol=1e-5, atol=1e-6 * np.abs(clean).max())
    assert np.abs(found[0][1]).max() > 0


def test_what_read_once_returns(monkeypatch):
    data = survey(6)[-1].astype(float)
    monkeypatch.setattr(recording, "BLOCK", 4 * data[0].size)
    kept, rms = read_once(data, np.float64)
    assert kept is data
    assert rms == pytest.approx(np.sqrt(np.mean(data**2)), rel=1e-12)
    response = low_pass(survey(6)[0], 15.0)
    kept, rms = read_once(data, np.float64, response)
    assert relative(kept, filtered(data, response)) < 1e-14
    assert rms == pytest.approx(np.sqrt(np.mean(filtered(data, response) ** 2)), rel=1e-12)
    bad = data.copy()
    bad[5, 0, 3] = np.inf
    with pytest.raises(ValueError, match="infinity in shot 5"):
        read_once(bad, np.float64)
