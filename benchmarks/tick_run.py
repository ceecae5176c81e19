"""One side of the `tick` suite: the M87 objective in slots, all of a tick or a part of it; see tick.py."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.duel import serve
from benchmarks.survey_objective import Study
from benchmarks.vlbi import M87
from shardfit.core.precision import arithmetic
from shardfit.core.reduce import value_grad_losses
from shardfit.solve.lbfgs import LBFGS
from shardfit.surveys.engine import Engine, _Work
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.slots import advance
from shardfit.surveys.variants import bind, variants

ENDLESS = {"ftol": 0.0, "gtol": 0.0, "maxiter": 1 << 30}  # no slot ends while it is timed
NOTHING = 1e-30  # what one round leaves for the next, which therefore cannot be left out
TERMS = {"data": ("data",), "regularisers": ("reg",), "objective": ("data", "offset", "reg")}


def prepare(arguments: dict) -> tuple[Callable, Callable]:
    """Return what `serve` needs. arguments: slots, ticks, transform, and part: 'tick' for all of it."""
    slots, ticks, part = arguments["slots"], arguments["ticks"], arguments["part"]
    study = Study(M87, transform=arguments["transform"])
    made = variants(*_quadratic(study)) if part == "lbfgs" else study.variants
    work = _Work(Engine(made, LBFGS(**ENDLESS), slots))
    points = [{"scale": 1.0}] * slots if part == "lbfgs" else study.points(slots)
    with arithmetic(study.precision):
        start = work.fill(iter(SurveyPoint(i, point) for i, point in enumerate(points)))
        other = None if part in ("tick", "lbfgs") else _part(part, work, start, ticks)
    last: Any = None

    def call() -> None:
        nonlocal last
        with arithmetic(study.precision):
            if other is not None:
                last = jax.block_until_ready(other())
                return
            copy = jax.tree.map(jnp.copy, start)  # which ticks overwrite; it costs about one of them
            last, _ = jax.block_until_ready(advance(work.kind, work.shared, copy, ticks, slots))

    call()  # compiled
    return call, lambda: {"value": float(np.median(last.run.state.value))} if other is None else {}


def _quadratic(study: Study) -> tuple:
    """Return a problem of as many numbers that costs next to nothing, so that L-BFGS is what is timed."""
    n = len(np.ravel(study.made.problem.x0["I"]))
    curvature = np.geomspace(1e-4, 1.0, n)  # does not converge within the ticks that are timed
    terms = {"q": sf.penalty(lambda z, h: 0.5 * jnp.sum(h * z * z), curvature)}
    problem = sf.Problem(sf.Objective(terms), np.ones(n), precision=study.precision)
    return problem, {"scale": sf.weight_axis("q", (1.0, 2.0))}


def _part(part: str, work: Any, state: Any, ticks: int) -> Callable:
    """Return a call that repeats one part of a tick for all slots."""
    objective, z = work.shared.objective, state.run.state.x
    round_of = _products if part == "gemm" else _terms(work.kind, TERMS[part])

    @jax.jit
    def repeated(objective, leaves, z):
        return jax.lax.fori_loop(0, ticks, lambda _, z: round_of(objective, leaves, z), z)

    return lambda: repeated(objective, state.leaves, z)


def _terms(kind: Any, names: tuple[str, ...]) -> Callable:
    """Return value and gradient of some terms in all slots, as a tick evaluates them."""

    def one(objective, leaves, z):
        chosen = dict(zip(objective.names, bind(objective, kind.places, leaves).terms, strict=True))
        params, back = jax.vjp(kind.space.unpack, z)
        value, gradient, _ = value_grad_losses(None, tuple(chosen[name] for name in names), params, None)
        return z + NOTHING * (back(gradient)[0] + value)

    return lambda objective, leaves, z: jax.vmap(lambda a, b: one(objective, a, b))(leaves, z)


def _products(objective: Any, leaves: Any, z: jax.Array) -> jax.Array:
    """Return images after the products with the operator, there and back, that a tick needs at least."""
    rows = dict(zip(objective.names, objective.terms, strict=True))["data"].rows["operator"]
    half = z.shape[1] // 2
    halves = []
    for part, image in (("real", z[:, :half]), ("imag", z[:, half:])):
        matrix = rows[part].reshape(-1, half)
        halves.append(image + NOTHING * ((image @ matrix.T) @ matrix))
    return jnp.concatenate(halves, axis=1)


if __name__ == "__main__":
    serve(prepare)
