"""The inversion problem: the right number on any layout, data left where they are, and mistakes told early."""

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic
from shardfit.domains.seismic import (
    Huber,
    acquisition,
    deviation,
    propagate,
    ricker,
    tikhonov,
    total_variation,
)
from shardfit.domains.seismic.parametrisation import PARAMETERS, transform_of
from tests.domains.seismic.cases import relative
from tests.domains.seismic.lens import problem_of, survey


def problem(n_shots=6, **options):
    sim, start, _, wavelet, shots, data = survey(n_shots)
    return problem_of(sim, start, wavelet, shots, data, **{"precision": "float64", **options})


@pytest.fixture(scope="module")
def traces():
    sim, start, _, wavelet, shots, _ = survey(6)
    with arithmetic("float64"):
        return np.asarray(propagate(sim, jax.numpy.asarray(start), wavelet, shots))


def test_value_is_the_mean_over_all_data(traces):
    data = survey(6)[-1].astype(float)
    rms = np.sqrt(np.mean(data**2))
    found = problem()
    assert float(found.objective.value(found.x0)) == pytest.approx(np.mean((traces - data) ** 2) / rms**2, rel=1e-10)
    plain = problem(normalise="none", reduction="sum")
    assert float(plain.objective.value(plain.x0)) == pytest.approx(np.sum((traces - data) ** 2), rel=1e-10)


def test_every_trace_by_its_own_size(traces):
    data = survey(6)[-1].astype(float)
    found = problem(normalise="trace")
    both = (t / np.sqrt(np.mean(t**2, -1, keepdims=True)) for t in (traces, data))
    expected = np.mean(np.subtract(*both) ** 2)
    assert float(found.objective.value(found.x0)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("rows", "runs"), [(4, 1), (2, 2)])
def test_padding_and_replicas_do_not_change_value_and_gradient(rows, runs):
    weights = np.random.default_rng(0).uniform(0, 2, (6, 20))
    weights[1] = 0  # uneven counts: a mean of the devices' means would differ
    penalties = {"tv": total_variation(1e-2), "prior": deviation(0.3, 1900.0, 100.0)}  # once, not once per device
    found = problem(weights=weights, loss=Huber(0.3), penalties=penalties)
    value, gradient = found.objective.value_and_grad(found.x0)
    assert float(value) > 0.3
    placed = found.objective.place(sf.mesh(rows=rows, runs=runs)).value_and_grad(found.x0)
    assert float(placed[0]) == pytest.approx(float(value), rel=1e-12)
    assert relative(placed[1]["velocity"], gradient["velocity"]) < 1e-11


def test_a_batch_is_the_mean_of_its_shots():
    found, some = problem(), np.array([0, 2, 5])
    sim, start, _, wavelet, shots, data = survey(6)
    part = acquisition(sim, [(2, 2), (2, 19), (27, 37)], [(row, x) for row in (2, 27) for x in range(0, 40, 4)])
    assert np.array_equal(part.sources.cells, np.asarray(shots.sources.cells)[some])
    alone = problem_of(sim, start, wavelet, part, data[some], precision="float64")
    scale = np.mean(data[some].astype(float) ** 2) / np.mean(data.astype(float) ** 2)
    value = float(alone.objective.value(alone.x0)) * scale
    assert float(found.objective.take(lambda *_: some).value(found.x0)) == pytest.approx(value, rel=1e-10)


def test_receivers_that_pad_a_shot_do_not_count(traces):
    sim, start, _, wavelet, _, data = survey(6)
    receivers = [[(row, x) for row in (2, 27) for x in range(0, 40, 4)][: 20 if i else 13] for i in range(6)]
    places = np.linspace(2, 37, 3).astype(int)
    shots = acquisition(sim, [(row, x) for x in places for row in (2, 27)], receivers)
    given = data.copy()
    given[0, 13:] = 7.0
    for weights in (None, np.ones(6), np.ones((6, 20)), np.ones(data.shape)):
        found = problem_of(
            sim, start, wavelet, shots, given, weights=weights, normalise="none", reduction="sum", precision="float64"
        )
        kept = np.ones(data.shape, bool)
        kept[0, 13:] = False
        expected = np.sum(np.where(kept, traces - data, 0) ** 2)
        assert float(found.objective.value(found.x0)) == pytest.approx(expected, rel=1e-10)


def test_a_memory_map_stays_one(tmp_path):
    sim, start, _, wavelet, shots, data = survey(6)
    np.save(tmp_path / "data.npy", data)
    mapped = np.load(tmp_path / "data.npy", mmap_mode="r")
    found = problem_of(sim, start, wavelet, shots, mapped)
    assert found.objective.terms[0].rows["observed"] is mapped
    batch = found.objective.take(lambda *_: np.array([1, 4]))
    assert batch.terms[0].rows["observed"].shape == (2, *data.shape[1:])
    with pytest.raises(ValueError, match="observed is a memory map of float32 .* problem is float64"):
        problem_of(sim, start, wavelet, shots, mapped, precision="float64")


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_coordinates(parameter):
    transform = transform_of(parameter, np.full(3, 2000.0), unit=10.0)
    v = np.array([1500.0, 2000.0, 4000.0])
    z = transform.inverse(v)
    assert transform.forward(z) == pytest.approx(v, rel=1e-12)
    assert np.all(np.diff(z) > 0)
    assert z[1] == pytest.approx(200.0)
    slope = jax.vmap(jax.grad(transform.forward))(z)
    assert slope[1] == pytest.approx(10.0, rel=1e-12)
    power = {"velocity": 0, "slowness": 2, "slowness_squared": 3}[parameter]
    assert slope == pytest.approx(10.0 * (v / 2000.0) ** power, rel=1e-12)


def test_bounds_carry_over_to_slowness():
    found = problem(parameter="slowness", bounds=(1600.0, 2700.0))
    lower, upper = (found.space.host_params(end)["velocity"] for end in found.box)
    assert lower == pytest.approx(1600.0)
    assert upper == pytest.approx(2700.0)


@pytest.mark.slow
def test_certificate_vouches_for_the_gradient():
    found = problem(precision="float32", penalties={"tv": total_variation(1e-3), "rough": tikhonov(1e-6, 2)})
    result = sf.fit(found, "lbfgs", maxiter=1, progress=False)
    assert max(result.certificate["finite_difference"].values()) < 1e-4
    assert "native" in result.derived["engine"] or "jax" in result.derived["engine"]


def test_penalties_by_hand():
    v = np.random.default_rng(0).uniform(1500, 3000, (5, 7))
    dz, dx = np.diff(v, axis=0), np.diff(v, axis=1)
    values = {
        tikhonov(1.0): np.mean(dz**2) + np.mean(dx**2),
        tikhonov(1.0, 1, (0.0, 2.0)): 2 * np.mean(dx**2),
        tikhonov(1.0, 2): np.mean(np.diff(dz, axis=0) ** 2) + np.mean(np.diff(dx, axis=1) ** 2),
        total_variation(1.0, 2.0): np.mean(np.sqrt(dz[:, :-1] ** 2 + dx[:-1] ** 2 + 4) - 2),
        deviation(1.0, 2000.0, 50.0): np.mean(((v - 2000) / 50) ** 2),
    }
    for term, expected in values.items():
        assert float(term.losses({"velocity": jax.numpy.asarray(v)})) == pytest.approx(expected, rel=1e-12)


def test_mistakes_are_told_before_work():
    sim, start, _, wavelet, shots, data = survey(6)
    bad = data.copy()
    bad[3, 1, 7] = np.nan
    slow = start.copy()
    slow[4, 5] = -1
    cases = [
        ({"observed": data[:, :, :-1]}, r"observed has shape \(6, 20, 189\), expected \(6, 20, 190\)"),
        ({"observed": data.transpose(0, 2, 1)}, r"\(shots, receivers, nt\)"),
        ({"observed": bad}, "NaN or infinity in shot 3"),
        ({"observed": 0 * data}, "zero everywhere"),
        ({"start": slow}, r"not positive at cell \(4, 5\)"),
        ({"start": start[:-1]}, "velocity has shape"),
        ({"bounds": (1500.0, 2900.0)}, "above v_max=2800"),
        ({"bounds": (0.0, 2500.0)}, "must be positive"),
        ({"bounds": (2100.0, 2500.0)}, r"start is 2000 m/s at cell \(0, 0\), outside the bounds"),
        ({"wavelet": wavelet[:-1]}, "wavelet has shape"),
        ({"wavelet": np.ones((4, sim.nt))}, "6 shots"),
        ({"wavelet": np.full(sim.nt, np.nan)}, "wavelet holds NaN"),
        ({"unit": {"vp": 2.0}}, "one parameter"),
        ({"weights": np.ones(5)}, "weights have shape"),
        ({"weights": -np.ones(6)}, "must not be negative"),
        ({"loss": "l3"}, "must be one of l2"),
        ({"normalise": "rmse"}, "Did you mean 'rms'"),
        ({"parameter": "slownes"}, "Did you mean 'slowness'"),
    ]
    for change, message in cases:
        given = {"start": start, "wavelet": wavelet, "observed": data, **change}
        args = (sim, given.pop("start"), given.pop("wavelet"), shots, given.pop("observed"))
        with pytest.raises(ValueError, match=message):
            problem_of(*args, **given)
    with pytest.raises(ValueError, match="between 1 and the 6 rows"):
        sf.fit(problem(), "adam", batch=7)


def test_wavelets_may_differ_by_shot(traces):
    sim, start, _, wavelet, shots, data = survey(6)
    factors = np.arange(1.0, 7.0)
    found = problem_of(
        sim, start, factors[:, None] * ricker(25.0, sim.dt, sim.nt), shots, data, normalise="none", precision="float64"
    )
    expected = np.mean((traces * factors[:, None, None] - data) ** 2)
    assert float(found.objective.value(found.x0)) == pytest.approx(expected, rel=1e-10)
