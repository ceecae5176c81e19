"""Acoustic waves in three dimensions against deepwave's: see tests/data/seismic/README.md."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import Simulation, acquisition, propagate
from tests.domains.seismic.cases import fast_compile_jit, needs_compiler, relative
from tests.reference import REFERENCE

with np.load(REFERENCE / "seismic" / "volume_rough.npz") as _stored:
    STORED = {name: _stored[name] for name in _stored.files}
VELOCITY = STORED["velocity"].astype(float)
ROUNDING = 1e-7  # of what is stored
# the fast suite has the compiled kernel at order 2 only: compiling takes half a minute an order
slow = pytest.mark.slow
CASES = [
    *(pytest.param("jax", order, marks=[slow] if order > 4 else []) for order in (2, 4, 6, 8)),
    *(pytest.param("native", order, marks=[needs_compiler, *([slow] if order > 2 else [])]) for order in (2, 4, 6, 8)),
]


def modelling(order, engine):
    widths = (5, 4, 3, 6, 4, 5)
    sim = Simulation(VELOCITY.shape, (10.0, 11.0, 9.0), 8e-4, len(STORED["wavelet"]), 2600.0, 18.0, order, widths)
    shots = acquisition(sim, STORED["sources"], STORED["receivers"])
    return lambda velocity: propagate(sim, velocity, STORED["wavelet"].astype(float), shots, engine=engine)


@pytest.mark.parametrize(("engine", "order"), CASES)
def test_traces(engine, order):
    assert relative(fast_compile_jit(modelling(order, engine))(VELOCITY), STORED[f"traces_o{order}"]) < ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "order"), [case for case in CASES if case.values[1] in (4, 8)])
def test_gradient(engine, order):
    traces = modelling(order, engine)
    found = fast_compile_jit(jax.grad(lambda velocity: jnp.sum(traces(velocity) ** 2)))(VELOCITY)
    assert relative(found, STORED[f"gradient_o{order}"]) < ROUNDING
