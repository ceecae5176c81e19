"""Elastic waves against deepwave's, at the places and times of both: see tests/data/seismic/README.md."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import ElasticSimulation, acquisition, propagate
from tests.domains.seismic.cases import ENGINES, fast_compile_jit, relative
from tests.reference import REFERENCE

with np.load(REFERENCE / "seismic" / "elastic_rough.npz") as _stored:
    STORED = {name: _stored[name] for name in _stored.files}
MEDIUM = {name: STORED[name].astype(float) for name in ("vp", "vs", "rho")}
KINDS = [("explosive", "pressure"), *((f"force_{a}", f"velocity_{b}") for a in "zx" for b in "zx")]
ROUNDING = 1e-7  # of what is stored


def modelling(source, receiver, order, engine):
    sim = ElasticSimulation((24, 28), 10.0, 1e-3, 220, 3500.0, 12.0, order, 10, source=source, receiver=receiver)
    shots = acquisition(sim, [(12, 9)], [(5, 20), (18, 22), (6, 5)])
    return lambda medium: propagate(sim, medium, STORED["wavelet"], shots, engine=engine)[0]


@pytest.mark.parametrize("order", [4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", [pytest.param("jax", marks=pytest.mark.slow), ENGINES[1]])
@pytest.mark.parametrize(("source", "receiver"), KINDS)
def test_traces(source, receiver, engine, order):
    expected = STORED[f"{source}_{receiver}_o{order}"]
    found = fast_compile_jit(modelling(source, receiver, order, engine))(MEDIUM)[:, : expected.shape[1]]
    assert relative(found, expected) < ROUNDING


@pytest.mark.parametrize("engine", [pytest.param("jax", marks=pytest.mark.slow), ENGINES[1]])
def test_gradient(engine):
    traces = modelling("explosive", "pressure", 4, engine)
    found = fast_compile_jit(jax.grad(lambda medium: jnp.sum(traces(medium) ** 2)))(MEDIUM)
    for name, expected in zip(("vp", "vs", "rho"), STORED["gradient_o4"], strict=True):
        assert relative(found[name], expected) < ROUNDING
