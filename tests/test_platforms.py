"""What runs on GPU and TPU, found without either: every kind of program is lowered for them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shardfit as sf
from shardfit.core.precision import PRECISIONS, arithmetic, cast
from shardfit.core.terms import ResidualPenalty, ResidualTerm
from shardfit.domains.seismic import (
    ElasticSimulation,
    Simulation,
    ViscoacousticSimulation,
    VTISimulation,
    acquisition,
    propagate,
    ricker,
)
from shardfit.domains.seismic.engines import choose_engine
from shardfit.domains.seismic.native import Native
from shardfit.domains.vlbi import nufft
from shardfit.domains.vlbi.forward import choose, rows_for, visibilities
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.nufft import Nufft
from shardfit.domains.vlbi.problem import imaging_problem
from shardfit.solve.loop import advance, start
from shardfit.solve.registry import as_solver
from shardfit.surveys import slots
from shardfit.surveys.engine import Engine, _Work
from shardfit.surveys.variants import variants
from tests.domains.vlbi.small import GRID, small_data, small_maps

PLATFORMS = ("cuda", "tpu")
RNG = np.random.default_rng(0)
ROWS = {"x": RNG.uniform(0.1, 1, 20), "y": RNG.normal(size=20)}


def lowered(fn, *args):
    """Return the module of fn for both platforms at once, as text."""
    return export.export(jax.jit(fn), platforms=PLATFORMS)(*args).mlir_module()


def line(p, rows):
    return rows["y"] - p["a"] * jnp.exp(-p["b"] * rows["x"])


def noisy(p, rows, key):
    return line(p, rows) + jax.random.normal(key, rows["x"].shape)


def log_misfit(total, *_):
    return jnp.log1p(total**2)


TERMS = {
    "residual": lambda: sf.residual_term(line, ROWS),
    "residual, chunked": lambda: sf.residual_term(line, ROWS, chunk=6),
    "complex residual": lambda: sf.residual_term(lambda p, r: line(p, r) * jnp.exp(1j * p["b"]), ROWS),
    "statistic, linear": lambda: sf.statistic_term(lambda p, r: line(p, r) ** 2, ROWS, chunk=6),
    "statistic, nonlinear": lambda: sf.statistic_term(line, ROWS, loss=log_misfit, chunk=6),
    "statistic, stochastic": lambda: sf.statistic_term(noisy, ROWS, loss=log_misfit, stochastic=True),
    "penalty": lambda: sf.penalty(lambda p: p["a"] ** 2 + p["b"] ** 4),
    "residual penalty": lambda: sf.residual_penalty(lambda p: p["a"] - 1),
}


def problem_of(kind, precision, **options):
    return sf.Problem(sf.Objective({"d": TERMS[kind]()}), {"a": 1.0, "b": 0.5}, precision=precision, **options)


def everything(objective, p, key):
    """Return all that an objective computes, so that one program holds it."""
    found = [objective.value_grad_parts(p, key), objective.totals(p, key), objective.hvp(p, p, key)]
    found.append(jax.grad(objective.value)(p, key))
    least_squares = isinstance(objective.terms[0], ResidualTerm | ResidualPenalty)
    return found + ([objective.gram(p), objective.residuals(p)] if least_squares else [])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", TERMS)
def test_objectives(kind, precision):
    problem = problem_of(kind, precision)
    with arithmetic(precision):
        key = jax.random.key(0) if problem.objective.stochastic else None
        text = lowered(everything, problem.objective.place(), jax.tree.map(jnp.asarray, problem.x0), key)
    assert ("f64" in text) == (precision == "float64")


@pytest.mark.parametrize("solver", ["lbfgs", "lbfgs-bt", "lm", "adam", "swarm"])
def test_solver_loops(solver):
    bounds = {"a": (0, 2), "b": (0, 1)} if solver in ("swarm", "lm") else None
    problem, chosen = problem_of("residual", "float32", bounds=bounds), as_solver(solver)
    with arithmetic("float32"):
        lower, upper = (None, None) if bounds is None else problem.box
        run = start(chosen, jnp.asarray(problem.z0()), lower, upper, jax.random.key(0), None)
        text = lowered(partial(advance, chosen), problem.space, problem.objective.place(), run, jax.random.key(0), 9, 9)
    assert "f64" not in text


@pytest.mark.parametrize("solver", ["lbfgs", "lm"])
def test_survey_tick(solver):
    problem = problem_of("residual", "float32")
    engine = Engine(variants(problem, {"w": sf.weight_axis("d", (1.0, 2.0))}), as_solver(solver), 4)
    with arithmetic("float32"):
        work = _Work(engine)
        batch = slots.empty_slots(work.kind, work.shared, *work.blank, 4)
        assert "f64" not in lowered(partial(slots.advance, work.kind), work.shared, batch, 9, 1)
        lowered(partial(slots.take, work.kind), work.shared, batch, np.arange(2))


WAVES = {
    "acoustic": lambda: Simulation((12, 14), 10.0, 1e-3, 12, 2500.0, 30.0, 4, widths=4),
    "free surface": lambda: Simulation(
        (12, 14), 10.0, 1e-3, 12, 2500.0, 30.0, 4, widths=(0, 4, 4, 4), free_surface=True
    ),
    "three dimensions": lambda: Simulation((8, 9, 10), 10.0, 1e-3, 8, 2500.0, 30.0, 2, widths=3),
    "elastic": lambda: ElasticSimulation((12, 14), 10.0, 1e-3, 12, 2500.0, 30.0, 4, widths=4),
    "vti": lambda: VTISimulation((12, 14), 10.0, 1e-3, 12, 2500.0, 30.0, 4, widths=(4, 0, 0, 4)),
    "viscoacoustic": lambda: ViscoacousticSimulation((12, 14), 10.0, 1e-3, 12, 2500.0, 30.0, 4, widths=(4, 0, 0, 4)),
}


def wave_case(name):
    sim = WAVES[name]()
    middle = tuple(n // 2 for n in sim.shape)
    shots = acquisition(sim, [middle], [tuple(n // 2 - 1 for n in sim.shape)])
    speed = np.full(sim.shape, 2000.0)
    medium = {
        "elastic": {"vp": speed, "vs": speed / 2, "rho": speed},
        "vti": {"vp": speed, "epsilon": 5e-5 * speed, "delta": 5e-5 * speed},
        "viscoacoustic": {"vp": speed, "q": 0.02 * speed},
    }.get(name, speed)
    return sim, *cast((medium, ricker(30.0, sim.dt, sim.nt), shots), "float32")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n not in ("acoustic", "elastic") else []) for n in WAVES],
)
def test_wave_engines(name):
    sim, medium, wavelet, shots = wave_case(name)

    def misfit(medium, wavelet, shots):
        return jnp.sum(propagate(sim, medium, wavelet, shots, "jax") ** 2)

    with arithmetic("float32"):
        assert "f64" not in lowered(jax.value_and_grad(misfit), medium, wavelet, shots)


@pytest.mark.parametrize("kind", ["separable", "dense"])
def test_visibilities(kind):
    rows = cast(rows_for(GRID, *RNG.uniform(-0.4, 0.4, (2, 7)), kind), "float32")
    image = np.ones((GRID.ny, GRID.nx), np.float32)
    with arithmetic("float32"):
        assert "f64" not in lowered(partial(visibilities, kind), image, rows)


def test_imaging():
    data, maps = small_data(), small_maps()
    weights = {"data_weights": {"vis": 1.0, "cphase": 1.0, "logcamp": 1.0}, "reg_weights": {"simple": 1.0, "tv": 1.0}}
    made = imaging_problem(data, GRID, maps["I"].reshape(4, 6), **weights, flux=1.0, beam=1.0)
    with arithmetic("float64"):
        text = lowered(lambda o, p: o.value_and_grad(p), made.objective.place(), made.x0)
    assert "complex<f64>" in text, "which XLA refuses on TPU: the docs say so"


# ---- only on CPU, as docs/accelerators.md says ---------------------------------------------------------------------


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_native_kernel_is_for_cpu_only(platform):
    sim, medium, wavelet, shots = wave_case("acoustic")
    kernel = jax.jit(lambda *given: propagate(sim, *given, Native()))
    with arithmetic("float32"), pytest.raises(ValueError, match="shardfit_acoustic"):
        export.export(kernel, platforms=[platform])(medium, wavelet, shots)


@pytest.mark.skipif(not nufft.available(), reason="jax-finufft is not installed")
@pytest.mark.parametrize("platform", PLATFORMS)
def test_finufft_is_built_for_cpu_only(platform):
    kind, grid = Nufft(1e-5), Grid(8, 6, 1.0)
    rows = cast(rows_for(grid, *RNG.uniform(-0.4, 0.4, (2, 7)), kind), "float32")
    image = np.ones((6, 8), np.float32)
    with arithmetic("float32"), pytest.raises(NotImplementedError, match=f"nufft2.*{platform}"):
        export.export(jax.jit(partial(visibilities, kind)), platforms=[platform])(image, rows)


def test_what_is_for_cpu_is_not_chosen_elsewhere(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    sim = WAVES["acoustic"]()
    assert choose_engine("auto", sim)[0] == "jax"
    with pytest.raises(ValueError, match="for CPUs, and this is gpu. Use engine='jax'"):
        choose_engine("native", sim)
    operator, reason = choose("auto", Grid(1024, 1024, 1e-12), 10**6)
    assert operator == "separable" and "gpu" in reason
