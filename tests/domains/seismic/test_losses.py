"""Losses against independent formulas, finite differences, and what they should not notice."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import hilbert

from shardfit.domains.seismic import L1, L2, NIM, W2, Correlation, Envelope, Huber, StudentT, as_loss
from tests.domains.seismic.cases import fast_compile_jit

LOSSES = [
    L2(),
    L1(),
    Huber(0.7),
    StudentT(2.0, 0.5),
    Correlation(),
    Envelope(1),
    Envelope(2),
    NIM("square"),
    NIM("abs"),
    NIM("shift"),
    W2("square"),
    W2("abs"),
]
OF_SHAPE = [loss for loss in LOSSES if isinstance(loss, Correlation) or getattr(loss, "density", "shift") != "shift"]
OF_TRACES = LOSSES[4:]
SHAPE = (2, 3, 24)


def traces(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=SHAPE), rng.normal(size=SHAPE)


def mean(loss, modelled, observed, weights):
    sums, counts = loss(modelled, observed, weights)
    return jnp.sum(sums) / jnp.sum(counts), (sums, counts)


@cache
def compiled(loss):
    return fast_compile_jit(jax.value_and_grad(partial(mean, loss), has_aux=True))


def value_of(loss, modelled, observed, weights=1.0):
    return float(compiled(loss)(modelled, observed, np.broadcast_to(weights, SHAPE))[0][0])


def finite(loss, modelled, observed):
    (value, _), slope = compiled(loss)(modelled, observed, np.ones(SHAPE, modelled.dtype))
    return np.isfinite(value) and np.isfinite(slope).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradient_agrees_with_finite_differences(loss, weighted):
    modelled, observed = traces()
    rng = np.random.default_rng(1)
    weights = rng.uniform(0, 2, SHAPE) * (np.arange(24) > 4) if weighted else np.ones(SHAPE)
    slope = compiled(loss)(modelled, observed, weights)[1]
    step = 1e-6 * rng.normal(size=SHAPE)
    found = value_of(loss, modelled + step, observed, weights) - value_of(loss, modelled - step, observed, weights)
    assert found / 2 == pytest.approx(float(np.vdot(slope, step)), rel=1e-5)


def cumulative_oracle(density, modelled, observed):
    make = {"square": np.square, "abs": np.abs}
    if density == "shift":
        lift = -np.minimum(modelled.min(-1), observed.min(-1))[..., None]
        first, second = modelled + lift, observed + lift
    else:
        first, second = make[density](modelled), make[density](observed)
    curves = [np.cumsum(p, -1) / p.sum(-1, keepdims=True) for p in (first, second)]
    return np.mean((curves[0] - curves[1]) ** 2, -1).mean()


def test_values_agree_with_plain_formulas():
    d, o = traces()
    r = d - o
    size = np.abs(r)
    cosine = (d * o).sum(-1) / np.linalg.norm(d, axis=-1) / np.linalg.norm(o, axis=-1)
    expected = {
        L2(): np.mean(r**2),
        L1(): np.mean(size),
        Huber(0.7): np.mean(np.where(size < 0.7, r**2, 1.4 * size - 0.49)),
        StudentT(2.0, 0.5): np.mean(1.5 * np.log(1 + (r / 0.5) ** 2 / 2)),
        Correlation(): np.mean(1 - cosine),
        Envelope(2): np.mean((np.abs(hilbert(d)) ** 2 - np.abs(hilbert(o)) ** 2) ** 2),
        **{NIM(density): cumulative_oracle(density, d, o) for density in ("square", "abs", "shift")},
    }
    for loss, value in expected.items():
        assert value_of(loss, d, o) == pytest.approx(value, rel=1e-12), loss
    # the root is rounded off
    smooth = np.mean((np.abs(hilbert(d)) - np.abs(hilbert(o))) ** 2)
    assert value_of(Envelope(1), d, o) == pytest.approx(smooth, rel=1e-5)


def test_transport_measures_a_shift():
    pulse = np.exp(-(((np.arange(200) - 70) / 8) ** 2))[None, None]
    distance = fast_compile_jit(lambda d, o: W2("square", 1e-9)(d, o)[0][0])
    for shift in (5, 20, 60):
        assert np.sqrt(distance(pulse, np.roll(pulse, shift, -1))) == pytest.approx(shift / 200, rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_equal_traces_cost_nothing_and_have_no_slope(loss):
    _, observed = traces()
    (value, _), slope = compiled(loss)(observed, observed, np.ones(SHAPE))
    assert abs(value) < 1e-12
    assert np.abs(slope).max() < 1e-9


@pytest.mark.parametrize("loss", OF_SHAPE, ids=str)
def test_losses_of_shape_do_not_notice_amplitude(loss):
    modelled, observed = traces()
    once = value_of(loss, modelled, observed)
    assert value_of(loss, 3 * modelled, observed) == pytest.approx(once, rel=1e-9)
    assert value_of(loss, modelled, 1e-3 * observed) == pytest.approx(once, rel=1e-9)
    assert value_of(L2(), 3 * modelled, observed) > 2 * value_of(L2(), modelled, observed)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_silent_and_weak_traces_leave_everything_finite(loss):
    modelled, observed = traces()
    modelled[0, 0], observed[1, 1], modelled[1, 2], observed[1, 2] = 0, 0, 0, 0
    assert finite(loss, modelled, observed)
    scale = np.array([1, 1e-10, 1e-22, 1e-38, 0, 1e-5]).reshape(2, 3, 1)
    with jax.enable_x64(False):
        weak = [np.float32(t * s) for t, s in zip(traces(), (scale, scale[::-1]), strict=True)]
        assert finite(loss, *weak)


@pytest.mark.parametrize("loss", OF_TRACES, ids=str)
def test_a_dead_trace_is_left_out(loss):
    modelled, observed = traces()
    weights, dead = np.ones(SHAPE), observed.copy()
    weights[:, 1] = dead[:, 1] = 0
    assert value_of(loss, modelled, dead) == pytest.approx(value_of(loss, modelled, observed, weights), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_what_has_no_weight_does_not_count(loss):
    modelled, observed = traces()
    weights = np.ones(SHAPE)
    weights[0, 1] = weights[1, :2] = 0
    (_, (sums, counts)), slope = compiled(loss)(modelled, observed, weights)
    each = 1 if loss in OF_TRACES else SHAPE[-1]
    assert counts.tolist() == [2 * each, each]
    assert not slope[0, 1].any()
    assert not slope[1, :2].any()
    changed = np.where(weights == 0, 9.0, modelled)
    assert compiled(loss)(changed, observed, weights)[0][1][0].tolist() == pytest.approx(sums.tolist(), rel=1e-12)


def test_time_mask_equals_shorter_traces():
    modelled, observed = traces()
    for loss in (L2(), Huber(0.7), Correlation()):
        sums, counts = fast_compile_jit(loss)(modelled[..., :15], observed[..., :15])
        cut = float(sums.sum() / counts.sum())
        assert value_of(loss, modelled, observed, np.arange(24) < 15) == pytest.approx(cut, rel=1e-12)


def test_names():
    assert as_loss("huber") == Huber()
    assert as_loss(Envelope(1)) == Envelope(1)
    with pytest.raises(ValueError, match="Did you mean 'correlation'"):
        as_loss("corelation")
    with pytest.raises(ValueError, match="delta=0"):
        Huber(0)
    with pytest.raises(ValueError, match="power=3"):
        Envelope(3)
    with pytest.raises(ValueError, match="Did you mean 'square'"):
        NIM("squared")


@pytest.mark.parametrize("density", ["square", "abs"])
def test_gradient_of_w2_is_exact_between_its_kinks(density):
    """Pulses, as waves are: a step that moves samples through zero misses the slope, a short one does not."""
    t = np.arange(200)

    def pulse(at, frequency):
        q = (np.pi * frequency * (t - at)) ** 2
        return (1 - 2 * q) * np.exp(-q)

    modelled, observed = pulse(80, 0.02) + 0.4 * pulse(130, 0.015), pulse(90, 0.02) + 0.5 * pulse(125, 0.017)
    along = pulse(85, 0.021) - 0.3 * pulse(128, 0.02)

    def loss(d):
        return jnp.sum(W2(density)(d[None, None], observed[None, None])[0])

    value, slope = fast_compile_jit(loss), float(jnp.vdot(fast_compile_jit(jax.grad(loss))(modelled), along))

    def missed(h):
        return abs(float(value(modelled + h * along) - value(modelled - h * along)) / (2 * h * slope) - 1)

    assert missed(1e-3) > 1e-3
    assert missed(1e-5) < 1e-7
