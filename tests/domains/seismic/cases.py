"""Golden files and small simulations that several tests use."""

import json
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import Simulation, acquisition, ricker
from shardfit.domains.seismic.build import compiler
from tests.reference import REFERENCE

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
# compiling takes longer than running cases as small as these
fast_compile_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
ENGINES = ["jax", pytest.param("native", marks=needs_compiler)]


@cache
def golden(name):
    meta = json.loads((REFERENCE / "seismic" / f"{name}.json").read_text())
    with np.load(REFERENCE / "seismic" / f"{name}.npz") as stored:
        return meta, {k: stored[k] for k in stored.files}


def relative(found, expected):
    return float(np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected))


def small(order=4, free_surface=False, scaling="physical", nt=90):
    """A rough model that no symmetry helps: another width on each edge, waves that reach all of them."""
    n = 2 * order + 5
    widths = (0 if free_surface else 6, 7, 5, 4)
    sim = Simulation((n, n + 4), (10.0, 9.0), 1e-3, nt, 2600.0, 25.0, order, widths, free_surface, scaling)
    velocity = np.random.default_rng(order).uniform(1800, 2500, sim.shape)
    sources = [[(3, 4)], [(5.3, 6.6), (1, 9)]]
    shots = acquisition(sim, sources, [(2, 2), (n - 1, 5), (0.7, n + 1.4)])
    wavelet = np.stack([ricker(25.0, sim.dt, nt), -0.5 * ricker(30.0, sim.dt, nt)])
    return sim, jnp.asarray(velocity), jnp.asarray(np.broadcast_to(wavelet, (2, 2, nt))), shots
