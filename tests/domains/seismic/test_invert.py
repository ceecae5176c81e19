"""The whole way: same losses on any number of devices, resumed runs equal unbroken ones, and models get better."""

from functools import cache

import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.seismic import Conditioning, Recording
from shardfit.domains.seismic.recipes import Display, InversionOptions, invert
from tests.domains.seismic.lens import survey

QUICK = {"learning_rate": 10.0, "epochs": 4, "batchsize": 5}


def run(n_shots=10, mesh=None, **options):
    sim, start, truth, wavelet, shots, data = survey(n_shots)
    how = {n: options.pop(n) for n in ("run_dir", "resume", "seed") if n in options}
    how = sf.RunOptions(mesh=mesh, progress=False, **how)
    every, show = options.pop("show_every", 10), options.pop("on_show", None)
    truth = truth if options.pop("known", True) else None
    chosen = InversionOptions(**{**QUICK, **options})
    display = None if show is None else Display(show, every)
    return invert(sim, start, Recording(shots, wavelet, data), chosen, how, truth=truth, display=display)


LIMITS = {"float32": 1e-5, "float64": 1e-11}  # of the first loss; later ones see the steps' rounding as well


@cache
def alone(precision):
    return run(precision=precision).metrics["loss"]


@pytest.mark.parametrize(
    ("precision", "rows", "runs"),
    [
        pytest.param("float32", 4, 1, marks=pytest.mark.slow),
        ("float64", 8, 1),
        pytest.param("float32", 2, 1, marks=pytest.mark.slow),
        pytest.param("float32", 8, 1, marks=pytest.mark.slow),
        pytest.param("float64", 2, 1, marks=pytest.mark.slow),
        pytest.param("float64", 4, 1, marks=pytest.mark.slow),
        pytest.param("float64", 2, 2, marks=pytest.mark.slow),
    ],
)
def test_losses_do_not_depend_on_devices(precision, rows, runs):
    """A batch of five needs padding on 2, 4 and 8 devices."""
    found = run(precision=precision, mesh=sf.mesh(rows=rows, runs=runs)).metrics["loss"]
    assert found[0] == pytest.approx(alone(precision)[0], rel=LIMITS[precision])
    assert found == pytest.approx(alone(precision), rel=100 * LIMITS[precision])
    assert len(set(found.tolist())) == 5  # the start and four steps


def test_batches_are_a_function_of_seed_and_step():
    first, again, other = (run(seed=seed, known=False).metrics["loss"] for seed in (3, 3, 4))
    assert first.tolist() == again.tolist()
    assert first[0] != other[0]
    longer = run(seed=3, known=False, epochs=6).metrics["loss"]
    assert longer[:5].tolist() == first.tolist()


def test_twenty_steps_bring_the_lens_closer():
    found = run(epochs=20, conditioning=Conditioning(near=4.0, illumination=0.5, smoothing=2.0))
    error, similarity = found.metrics["model_error"], found.metrics["similarity"]
    assert error[-1] < 0.7 * error[0]
    assert error[0] == pytest.approx(np.sqrt(np.mean((survey()[2] - 2000) ** 2)), rel=1e-6)
    assert np.isfinite(similarity).all()
    assert found.metrics["loss"][-5:].mean() < 0.2 * found.metrics["loss"][:2].mean()
    assert found.velocity[15, 20] > 2040
    assert found.velocity[2, 0] == 2000  # at a receiver the gradient is masked
    assert "native" in found.engine or "jax" in found.engine


@pytest.mark.parametrize("solver", ["lbfgsb", pytest.param("lbfgs", marks=pytest.mark.slow)])
def test_second_order_on_all_shots(solver):
    found = run(solver=solver, batchsize=None, epochs=6, parameter="slowness")
    assert found.metrics["loss"][-1] < 0.1 * found.metrics["loss"][0]
    assert np.isfinite(found.metrics["model_error"]).all()
    assert found.metrics["model_error"][-1] < found.metrics["model_error"][0]


def test_bounds_hold():
    found = run(epochs=6, learning_rate=40.0, bounds=(1990.0, 2025.0))
    assert found.velocity.min() == 1990
    assert found.velocity.max() == 2025


def test_bands_are_fits_of_their_own():
    """Each with its own number of steps and of shots per step."""
    found = run(bands=(15.0, None), decay=0.5, epochs=(3, 2), batchsize=(5, None))
    assert found.metrics["band"].tolist() == [0] * 4 + [1] * 3
    assert found.metrics["epoch"].tolist() == list(range(7))
    assert [f"learning_rate={rate}" in r.solver for rate, r in zip((10, 5), found.results, strict=True)] == [True] * 2
    assert [r.certificate.get("earlier", False) for r in found.results] == [False, True]
    first = run(bands=(15.0,), epochs=3)
    assert first.metrics["loss"].tolist() == found.metrics["loss"][:4].tolist()
    sim, _, truth, wavelet, shots, data = survey()
    chosen, recording = (
        InversionOptions(**{**QUICK, "epochs": 2, "batchsize": None, "learning_rate": 5.0}),
        Recording(shots, wavelet, data),
    )
    how = sf.RunOptions(seed=1, progress=False)
    second = invert(sim, first.velocity, recording, chosen, how, truth=truth)
    assert second.metrics["loss"] == pytest.approx(found.metrics["loss"][4:], rel=1e-6)  # moments began anew


def test_pictures_are_due_every_so_often():
    seen = []

    def show(epoch, velocity, gradient, losses):
        seen.append((epoch, velocity.shape, gradient.shape, len(losses), losses[-1]))

    found = run(epochs=7, on_show=show, show_every=3, known=False)
    assert [epoch for epoch, *_ in seen] == [3, 6]
    assert all(v == g == (30, 40) and n == epoch + 1 for epoch, v, g, n, _ in seen)
    assert [last for *_, last in seen] == pytest.approx(found.metrics["loss"][[3, 6]].tolist())
    ended = run(epochs=7, on_show=lambda epoch, *_: epoch == 4, show_every=2, known=False)
    assert ended.interrupted
    assert len(ended.metrics["loss"]) == 5


@pytest.mark.parametrize("bands", [pytest.param((), marks=pytest.mark.slow), (15.0, None)])
def test_a_killed_run_goes_on_as_if_unbroken(tmp_path, bands):
    options = {"epochs": 5, "bands": bands, "conditioning": Conditioning(illumination=0.5, smoothing=1.0)}
    unbroken = run(**options)
    fatal = 8 if bands else 3

    def die(epoch, *_):
        if epoch == fatal:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(**options, run_dir=sf.RunDir(tmp_path, seconds=0), on_show=die, show_every=1)
    lengths = []
    found = run(**options, run_dir=tmp_path, on_show=lambda epoch, v, g, losses: lengths.append(len(losses)))
    assert np.array_equal(found.velocity, unbroken.velocity)
    assert ["earlier" in result.certificate for result in found.results] == [False, *[True] * bool(bands)]
    for name, column in unbroken.metrics.items():
        assert found.metrics[name].tolist() == column.tolist(), name
    finished = run(**options, run_dir=tmp_path)
    assert np.array_equal(finished.velocity, unbroken.velocity)
    assert finished.metrics["model_error"].tolist() == unbroken.metrics["model_error"].tolist()


def test_source_estimates_are_used():
    sim, start, _, wavelet, shots, data = survey()
    chosen, recording = InversionOptions(**QUICK, estimate_source="scalar"), Recording(shots, 5 * wavelet, data)
    found = invert(sim, start, recording, chosen, sf.RunOptions(progress=False))
    plain = run(known=False)
    assert found.metrics["loss"][0] == pytest.approx(plain.metrics["loss"][0], rel=0.05)
    assert np.abs(found.wavelet).max() == pytest.approx(np.abs(wavelet).max(), rel=0.05)


def test_uneven_batches_are_refused_when_strict():
    with pytest.raises(ValueError, match="batchsize=5 does not divide by 4 devices. Use 4 or 8"):
        run(strict=True, mesh=sf.mesh(rows=4))
    with pytest.raises(ValueError, match="batchsize=11 is more than the 10 shots"):
        run(batchsize=11)
    with pytest.raises(ValueError, match="batchsize=5 does not divide by 4 devices"):
        run(strict=True, mesh=sf.mesh(rows=4), bands=(15.0, None), batchsize=(None, 5))


def test_options_are_checked():
    for change, message in [
        ({"solver": "adm"}, "Did you mean 'adam'"),
        ({"loss": "l3"}, "one of l2, l1"),
        ({"epochs": 0}, "epochs = 0"),
        ({"batchsize": 2.5}, "batchsize = 2.5"),
        ({"epochs": [3, 4]}, r"epochs=\(3, 4\) are numbers of 2 bands, and there is 1"),
        ({"batchsize": (3, 4), "bands": (5.0, 9.0, None)}, "are numbers of 2 bands, and there are 3"),
        ({"epochs": (3, 0), "bands": (5.0, None)}, r"epochs = \(3, 0\)"),
        ({"epochs": (3, None), "bands": (5.0, None)}, r"epochs = \(3, None\)"),
        ({"solver": "lbfgs", "batchsize": (None, 4), "bands": (5.0, None)}, "batchsize=None"),
        ({"learning_rate": -1.0}, "learning_rate = -1.0"),
        ({"tv": -1.0}, "tv = -1.0"),
        ({"match": "wiener"}, "match = 'wiener' must be one of scalar, filter"),
        ({"solver": "lbfgsb"}, "batchsize=None"),
        ({"solver": "lbfgs", "batchsize": None, "conditioning": Conditioning(smoothing=1.0)}, "support conditioning"),
        ({"solver": "lbfgsb", "batchsize": None, "conditioning": Conditioning(clip=0.9)}, "Drop conditioning.clip"),
    ]:
        with pytest.raises(ValueError, match=message):
            InversionOptions(**change)
    with pytest.raises(ValueError, match="half the sampling frequency"):
        run(bands=(900.0,))
    with pytest.raises(ValueError, match="every=0"):
        run(on_show=print, show_every=0)
    with pytest.raises(ValueError, match="Name it in InversionOptions"):
        invert(*survey()[:2], None, InversionOptions(), sf.RunOptions(solver="lbfgs"))
