"""float32 against float64 of the same engine: rounding must not add up from step to step."""

import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import ElasticSimulation, Simulation, acquisition, propagate, ricker
from shardfit.domains.seismic.stencil import ORDERS, SECOND, second_coefficients
from tests.domains.seismic.cases import fast_compile_jit, needs_compiler, relative

SPACINGS = [(10.0, 10.0), (8.0, 11.3), (5.0, 20.0), (7.0, 9.0, 13.0)]
SQUARE, OBLONG = 10.0, (8.0, 11.3)
# every order once; each native one is a kernel to compile
QUICK = {("jax", 4, SQUARE), ("jax", 6, OBLONG), ("jax", 8, SQUARE), ("native", 4, SQUARE), ("native", 4, OBLONG)}
CASES = [(engine, order, dh) for engine in ("jax", "native") for order in (4, 6, 8) for dh in (SQUARE, OBLONG)]


def _marks(case):
    return [needs_compiler] * (case[0] == "native") + [pytest.mark.slow] * (case not in QUICK)


@pytest.mark.parametrize("dh", SPACINGS)
@pytest.mark.parametrize("order", ORDERS)
def test_rounded_coefficients_sum_to_zero(order, dh):
    axes = [np.array(c) for c in second_coefficients(order, dh, np.dtype("float32"))]
    for c, h in zip(axes, dh, strict=True):
        assert np.array_equal(c.astype(np.float32), c)
        assert c[0] + 2 * c[1:].sum() == 0
        moment = np.sum(np.arange(len(c)) ** 2 * c) * h**2
        # what a spacing twice as large loses, the shortest decides
        assert abs(moment - 1) < 1e-7 * (max(dh) / min(dh)) ** 2
        assert np.abs(c * h**2 - SECOND[order]).max() < 1e-6 * (max(dh) / min(dh)) ** 2
    centre = sum(c[0] for c in axes)
    assert float(np.float32(centre)) == centre


def in_both(sim, medium, wavelet, shots, **how):
    def run(dtype):
        given = {name: jnp.asarray(x, dtype) for name, x in medium.items()}
        whole = given if isinstance(sim, ElasticSimulation) else given["vp"]
        return np.asarray(
            fast_compile_jit(lambda m: propagate(sim, m, jnp.asarray(wavelet, dtype), shots, **how))(whole)
        )

    return run(np.float32).astype(float), run(np.float64)


def scene(shape=(60, 80)):
    rng = np.random.default_rng(3)
    # as float32 has them: both sides are given the same model
    vp = np.float32(1600 + 20 * np.arange(shape[0])[:, None] + rng.uniform(0, 100, shape))
    wavelet = np.float32(ricker(12.0, 1e-3, 500))
    receivers = [(z, x) for z in (3, 40) for x in range(2, shape[1], 7)]
    return {"vp": vp}, wavelet, [(3, 20), (30, 44)], receivers


@pytest.mark.parametrize(("engine", "order", "dh"), [pytest.param(*case, marks=_marks(case)) for case in CASES])
def test_float32_keeps_its_digits(engine, order, dh):
    medium, wavelet, sources, receivers = scene()
    sim = Simulation((60, 80), dh, 1e-3, len(wavelet), 3200.0, 12.0, order)
    found, expected = in_both(sim, medium, wavelet, acquisition(sim, sources, receivers), engine=engine)
    assert relative(found, expected) < 3e-6


@pytest.mark.slow
def test_float32_keeps_its_digits_in_elastic_waves():
    """Their differences are antisymmetric: a constant has none however coefficients are rounded."""
    medium, wavelet, sources, receivers = scene()
    sim = ElasticSimulation((60, 80), 10.0, 1e-3, len(wavelet), 3200.0, 12.0, 8)
    medium = medium | {"vs": np.float32(0.6 * medium["vp"]), "rho": np.full((60, 80), 2000.0, np.float32)}
    found, expected = in_both(sim, medium, wavelet, acquisition(sim, sources, receivers))
    assert relative(found, expected) < 3e-6
