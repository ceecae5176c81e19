"""Shots as rows of a term: chunks, devices and padding do not change the objective."""

import numpy as np
import pytest

import shardfit as sf
from shardfit.core.term_makers import residual_term
from shardfit.domains.seismic import Simulation, acquisition, propagate, ricker
from tests.domains.seismic.cases import ENGINES, relative


def survey(engine, chunk=None):
    sim = Simulation((18, 22), 10.0, 1e-3, 50, 2500.0, 30.0, 2, widths=4)
    shots = acquisition(sim, [(2, x) for x in (3, 8, 13, 17, 20)], [(1, x) for x in range(0, 22, 4)])
    wavelet = ricker(30.0, sim.dt, sim.nt)
    rng = np.random.default_rng(0)
    rows = {"shots": shots, "traces": rng.normal(size=(5, 6, 50)) * 0.01, "weight": rng.uniform(0.5, 2, 5)}

    def residual(params, rows):
        found = propagate(sim, params["v"], wavelet, rows["shots"], engine=engine)
        return (found - rows["traces"]) * rows["weight"][:, None, None]

    objective = sf.Objective({"shots": residual_term(residual, rows, chunk=chunk)})
    return objective, {"v": rng.uniform(1800, 2400, sim.shape)}


@pytest.mark.parametrize("engine", ENGINES)
def test_chunks_and_devices_do_not_matter(engine):
    objective, params = survey(engine)
    value, gradient = objective.value_and_grad(params)
    native = engine == "native"
    for chunk, devices in ((2, 1), (2, 2), (None, 4), (1, 4)) if native else ((2, 4),):
        found = survey(engine, chunk)[0].place(sf.mesh(rows=devices)).value_and_grad(params)
        assert float(found[0]) == pytest.approx(float(value), rel=1e-12)
        assert relative(found[1]["v"], gradient["v"]) < 1e-12
