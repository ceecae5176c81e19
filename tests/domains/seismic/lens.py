"""A small survey around a lens, and the data it would record."""

from dataclasses import fields
from functools import cache

import jax
import numpy as np

from shardfit.domains.seismic import (
    MisfitOptions,
    ModelOptions,
    Recording,
    Simulation,
    WaveOptions,
    acquisition,
    inversion_problem,
    propagate,
    ricker,
)


@cache
def survey(n_shots=10, nt=190):
    """Sources and receivers above and below a fast lens. Returns sim, start, truth, wavelet, shots and float32 data."""
    sim = Simulation((30, 40), 10.0, 1e-3, nt, 2800.0, 25.0, 2, widths=8)
    start = np.full(sim.shape, 2000.0)
    z, x = np.mgrid[: sim.shape[0], : sim.shape[1]]
    truth = start + 200 * np.exp(-((z - 15) ** 2 + (x - 20) ** 2) / 30)
    wavelet = ricker(25.0, sim.dt, sim.nt)
    places = np.linspace(2, 37, (n_shots + 1) // 2).astype(int)
    sources = [(row, x) for x in places for row in (2, 27)][:n_shots]
    receivers = [(row, x) for row in (2, 27) for x in range(0, 40, 4)]
    shots = acquisition(sim, sources, receivers)
    with jax.enable_x64(True):
        data = np.asarray(propagate(sim, jax.numpy.asarray(truth), wavelet, shots), np.float32)
    return sim, start, truth, wavelet, shots, data


def problem_of(sim, start, wavelet, shots, data, weights=None, penalties=None, **options):
    """Return an inversion problem; every option goes to the class that has it."""
    parts = []
    for kind in (MisfitOptions, ModelOptions, WaveOptions):
        parts.append(kind(**{f.name: options.pop(f.name) for f in fields(kind) if f.name in options}))
    assert not options, options
    return inversion_problem(sim, start, Recording(shots, wavelet, data, weights), *parts, penalties)
