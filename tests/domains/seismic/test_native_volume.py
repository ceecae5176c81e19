"""The compiled engine in three dimensions: JAX's numbers forward and in reverse, and what must not matter."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.seismic import Native, Simulation, acquisition, choose_engine, propagate, ricker, select
from shardfit.domains.seismic.native import ACOUSTIC, kept_bytes
from shardfit.domains.seismic.recipes import InversionOptions
from shardfit.domains.seismic.recipes.invert import engine_used
from tests.domains.seismic.cases import fast_compile_jit, needs_compiler, relative
from tests.domains.seismic.lens import problem_of

pytestmark = needs_compiler


def case(order=4, free_surface=False, scaling="physical", nt=40):
    """A rough model of odd sizes, another width on each edge, some none, points on and between cells."""
    n = 2 * order + 1
    widths = (0 if free_surface else 3, 4, 0 if free_surface else 2, 3, 5, 2)
    shape, dh = (n, n + 1, n + 4), (10.0, 11.0, 9.0)
    sim = Simulation(shape, dh, 1e-3, nt, 2600.0, 25.0, order, widths, free_surface, scaling)
    velocity = jnp.asarray(np.random.default_rng(order).uniform(1800, 2500, sim.shape))
    sources = [[(3, 4, 5)], [(3.3, 2.2, 4.6), (1, 3, 2)]]
    shots = acquisition(sim, sources, [(2, 2, 2), (n - 1, 3, 1), (0.7, n - 0.6, n + 1.4)])
    wavelet = np.stack([ricker(40.0, sim.dt, nt), -0.5 * ricker(50.0, sim.dt, nt)])[:, None]
    return sim, velocity, jnp.asarray(np.broadcast_to(wavelet, (2, 2, nt))), shots


def derivatives(given, engine):
    """Return traces, their change for a change of model and wavelet, and the derivatives of a sum of them."""
    sim, velocity, wavelet, shots = given
    rng = np.random.default_rng(0)
    draw = lambda x: jnp.asarray(rng.normal(size=x.shape))  # noqa: E731
    change = draw(velocity), draw(wavelet)

    def traces(v, w):
        return propagate(sim, v, w, shots, engine=engine, memory="full")

    def all_of(v, w):
        found, changed = jax.jvp(traces, (v, w), change)
        return found, changed, jax.vjp(traces, v, w)[1](draw(found))

    return jax.tree.leaves(fast_compile_jit(all_of)(velocity, wavelet))


EDGES = [(False, "physical"), (True, "raw")]
ORDERS = [2, *(pytest.param(order, marks=pytest.mark.slow) for order in (4, 6, 8))]


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("order", ORDERS)
def test_numbers_are_those_of_jax(order, edges):
    """Traces, forward and reverse mode with respect to model and wavelet, in float64 to its digits."""
    given = case(order, *edges)
    for ours, theirs in zip(derivatives(given, Native(1, 4)), derivatives(given, "jax"), strict=True):
        assert relative(ours, np.asarray(theirs)) < 1e-12


def energy_and_gradient(given, settings, dtype=np.float32):
    sim, velocity, wavelet, shots = given

    def energy(v):
        return jnp.sum(propagate(sim, v, wavelet.astype(dtype), shots, engine=settings) ** 2)

    return fast_compile_jit(jax.value_and_grad(energy))(velocity.astype(dtype))


@pytest.mark.parametrize("free_surface", [False, True])
def test_threads_and_segments_do_not_change_a_bit(free_surface):
    """Of three threads and more several share the planes of a shot."""
    given = case(2, free_surface)
    value, gradient = energy_and_gradient(given, Native(1, 4))
    for settings in (Native(2, 4), Native(4, 4), Native(9, 4), Native(1, 1), Native(1, 7), Native(1, 40)):
        found = energy_and_gradient(given, settings)
        assert float(found[0]) == float(value)
        assert np.array_equal(found[1], gradient)


def test_order_of_shots_does_not_matter():
    sim, velocity, wavelet, shots = case(2)
    traces = propagate(sim, velocity, wavelet, shots, engine="native")
    turned = propagate(sim, velocity, wavelet[::-1], select(shots, [1, 0]), engine="native")
    assert np.array_equal(turned[::-1], traces)


def test_gradient_against_finite_differences():
    """Along a random change, for a model too small for layers to stay apart."""
    sim = Simulation((5, 6, 5), (10.0, 9.0, 11.0), 1e-3, 40, 2600.0, 40.0, 2, (0, 2, 1, 3, 2, 0), True)
    rng = np.random.default_rng(3)
    velocity, change = jnp.asarray(rng.uniform(1900, 2500, sim.shape)), jnp.asarray(rng.normal(size=sim.shape))
    shots, wavelet = acquisition(sim, [(2, 2, 3)], [(1, 4, 1), (3.4, 1, 2)]), rng.normal(size=sim.nt)
    energy = lambda v: jnp.sum(propagate(sim, v, wavelet, shots, engine="native") ** 2)  # noqa: E731
    value, slope = fast_compile_jit(energy), jnp.vdot(fast_compile_jit(jax.grad(energy))(velocity), change)
    up, down = (float(value(velocity + h * change)) for h in (1e-2, -1e-2))
    assert (up - down) / 2e-2 == pytest.approx(float(slope), rel=1e-6)


def test_shots_on_devices():
    """One device against three, of which one has padding only."""
    sim, velocity, wavelet, shots = case(2)
    data = np.asarray(propagate(sim, velocity, wavelet, shots, engine="native"))
    start = 0.97 * np.asarray(velocity)
    problem = problem_of(sim, start, wavelet[:, :1], shots, data, precision="float64", engine="native")
    alone = problem.objective.value_and_grad(problem.x0)
    placed = problem.objective.place(sf.mesh(rows=3)).value_and_grad(problem.x0)
    for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(alone), strict=True):
        assert relative(a, np.asarray(b)) < 1e-11


@pytest.mark.parametrize("order", [2, *(pytest.param(order, marks=pytest.mark.slow) for order in (4, 8))])
def test_float32_keeps_its_digits(order):
    shape, nt = (24, 28, 30), 200
    sim = Simulation(shape, (10.0, 11.0, 9.0), 1e-3, nt, 2600.0, 25.0, order, widths=8)
    velocity = np.float32(1700 + 20 * np.arange(24)[:, None, None] + np.random.default_rng(3).uniform(0, 100, shape))
    wavelet = np.float32(ricker(25.0, sim.dt, nt))
    shots = acquisition(sim, [(3, 9, 10), (12, 20, 15)], [(z, y, x) for z in (3, 20) for y in (4, 22) for x in (5, 14)])

    def run(dtype):
        return propagate(sim, jnp.asarray(velocity, dtype), jnp.asarray(wavelet, dtype), shots, engine="native")

    assert relative(np.asarray(run(np.float32), float), np.asarray(run(np.float64))) < 3e-6


def test_what_is_said():
    sim = Simulation((20, 20, 20), 10.0, 1e-3, 400, 2500.0, 60.0, 2)
    chosen, why = choose_engine("auto", sim)
    assert isinstance(chosen, Native) and "compiled kernel" in why
    settings = Native(threads=2, segments=8)
    size = kept_bytes(ACOUSTIC[3], sim, settings, 3) / 1e6
    options = InversionOptions(batchsize=3, engine=settings)
    assert engine_used(sim, options, 3, 1).endswith(
        f"memory: about {size:,.0f} MB for waves of 3 shots, 1 MB for the solver"
    )


MEASURED = """
import sys
import numpy as np, jax, jax.numpy as jnp
from shardfit.domains.seismic import Native, Simulation, acquisition, propagate
from shardfit.domains.seismic.native import ACOUSTIC, kept_bytes

def peak():
    return next(int(line.split()[1]) / 1e3 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def gradient(shape, nt, shots):
    sim = Simulation(shape, 10.0, 1e-3, nt, 2600.0, 60.0, 2, 10)
    shots = acquisition(sim, [(2, 3 + i, 4) for i in range(shots)], [(2, 4, x) for x in range(9)])
    energy = lambda v: jnp.sum(propagate(sim, v, np.ones(nt, np.float32), shots, engine=Native(threads=2)) ** 2)
    jax.jit(jax.grad(energy))(jnp.full(shape, 2000.0, jnp.float32)).block_until_ready()
    return sim

gradient((9, 10, 11), 8, 2)
before = peak()
nz, ny, nx, nt, shots = map(int, sys.argv[1:])
sim = gradient((nz, ny, nx), nt, shots)
print((peak() - before) / (kept_bytes(ACOUSTIC[3], sim, Native(threads=2), shots) / 1e6))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
@pytest.mark.parametrize("case", [(70, 80, 90, 12, 2), (90, 60, 80, 120, 4)])
def test_memory_is_what_is_said(case):
    """Peak memory of a gradient, in a process of its own, over what `invert` says before."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, case)], capture_output=True, text=True, check=True)
    assert 0.75 < float(done.stdout) < 1.3
