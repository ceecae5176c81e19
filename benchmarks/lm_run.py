"""Our side of the suite `lm`, and what it shares with the peers', where nothing of shardfit is there.

{"model", "peer"} come in. A model is its residuals, written once for NumPy and JAX, its start and its loss.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.duel import serve

SMOOTH = 0.1  # weight of differences between neighbours of a field
LOSSES = {
    "linear": lambda s: s,
    "soft_l1": lambda s: 2 * (np.sqrt(1 + s) - 1),
    "cauchy": np.log1p,
}


class Model(NamedTuple):
    """residuals(xp, parameters (p,), rows) -> (n,); slopes(parameters) is its Jacobian (n, p) in NumPy or scipy.sparse.

    penalty: residuals of the parameters alone, after those of the rows.
    """

    residuals: Callable[[Any, Any, dict], Any]
    rows: dict[str, np.ndarray]
    start: np.ndarray
    slopes: Callable[[np.ndarray], Any]
    penalty: Callable[[Any, Any], Any] | None = None
    loss: str = "linear"

    def all_residuals(self, x: np.ndarray) -> np.ndarray:
        """Return residuals of rows and penalty."""
        found = self.residuals(np, x, self.rows)
        return found if self.penalty is None else np.concatenate([found, self.penalty(np, x)])

    def value(self, x: np.ndarray) -> float:
        """Return the value of parameters."""
        return 0.5 * float(np.sum(LOSSES[self.loss](self.all_residuals(np.asarray(x)) ** 2)))


def model(name: str) -> Model:
    """Make a model by its name."""
    kind, _, size = name.partition("-")
    if kind == "polynomial":
        return _polynomial(int(size))
    return _field(int(size)) if kind == "field" else _decay(kind)


def _polynomial(degree: int) -> Model:
    x = np.linspace(0.0, 1.0, 200)
    powers = x[:, None] ** np.arange(degree + 1)
    y = np.sin(6 * x) + 0.1 * np.random.default_rng(0).standard_normal(x.size)
    rows = {"powers": powers, "y": y}
    return Model(lambda xp, p, r: r["powers"] @ p - r["y"], rows, np.zeros(degree + 1), lambda p: powers)


def _decay(loss: str) -> Model:
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 4.0, 2_000)
    y = 3.0 * np.exp(-x / 1.5) + 0.5 + 0.05 * rng.standard_normal(x.size)
    y[rng.random(x.size) < 0.1] += 2.0

    def residuals(xp, p, r):
        return (p[0] * xp.exp(-r["x"] / p[1]) + p[2] - r["y"]) / 0.05

    def slopes(p):
        fall = np.exp(-x / p[1])
        return np.stack([fall, p[0] * fall * x / p[1] ** 2, np.ones_like(x)], axis=1) / 0.05

    return Model(residuals, {"x": x, "y": y}, np.array([2.0, 1.0, 0.0]), slopes, loss=loss)


def _field(n: int) -> Model:
    """A field of n numbers, seen through tanh at half as many places, and smooth."""
    from scipy import sparse

    rng = np.random.default_rng(2)
    at = rng.integers(0, n, n // 2)
    y = np.tanh(np.sin(np.arange(n) * (20 / n)))[at] + 0.05 * rng.standard_normal(n // 2)
    seen = sparse.csr_matrix((np.ones(at.size), (np.arange(at.size), at)), (at.size, n))
    rough = sparse.diags([-SMOOTH, SMOOTH], [0, 1], (n - 1, n))  # pyright: ignore[reportArgumentType]

    def residuals(xp, p, r):
        return xp.tanh(p[r["at"]]) - r["y"]

    def slopes(p):
        return sparse.vstack([sparse.diags(1 / np.cosh(p[at]) ** 2) @ seen, rough]).tocsr()

    return Model(residuals, {"at": at, "y": y}, np.zeros(n), slopes, lambda xp, p: SMOOTH * xp.diff(p))


def prepare(side: int, asked: dict) -> tuple[Callable, Callable]:
    """Return a call that fits, and what it found. side: 0 ours, 1 the peer's."""
    made, last = model(asked["model"]), {}
    fit = (SIDES[asked["peer"]] if side else ours)(made)

    def call():
        last["x"], last["evaluations"] = fit()

    call()
    return call, lambda: {"value": made.value(last["x"]), "evaluations": int(last["evaluations"])}


def ours(made: Model) -> Callable:
    """`lm`, and `lm-cg` where parameters are very many."""
    import jax.numpy as jnp

    import shardfit as sf

    def residuals(p, rows):
        return made.residuals(jnp, p, rows)

    robust = {} if made.loss == "linear" else {"loss": made.loss}
    terms = {"data": sf.residual_term(residuals, made.rows, **robust)}
    if made.penalty is not None:
        terms["smooth"] = sf.residual_penalty(partial(made.penalty, jnp))
    problem = sf.Problem(sf.Objective(terms), made.start)
    solver = "lm-cg" if made.start.size > 1_000 else "lm"

    def call():
        result = sf.fit(problem, solver, progress=False)
        return result.params, result.evaluations

    return call


def scipy(made: Model) -> Callable:
    """least_squares with exact derivatives: MINPACK's where it can, else trust regions, with LSMR where J is sparse."""
    from scipy.optimize import least_squares

    robust = {} if made.loss == "linear" else {"method": "trf", "loss": made.loss}
    many = {} if made.penalty is None else {"method": "trf", "tr_solver": "lsmr"}
    options: Any = {"method": "lm"} | robust | many

    def call():
        found = least_squares(made.all_residuals, made.start, made.slopes, **options)
        return found.x, found.nfev

    return call


def optimistix(made: Model) -> Callable:
    """One compiled call; where parameters are very many its linear solver is conjugate gradients."""
    import jax
    import jax.numpy as jnp
    import lineax as lx
    import optimistix as optx

    jax.config.update("jax_enable_x64", True)
    few = made.penalty is None
    linear = {} if few else {"linear_solver": lx.NormalCG(rtol=1e-6, atol=1e-12)}
    solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8, **linear)

    def residuals(x, rows):
        found = made.residuals(jnp, x, rows)
        return found if made.penalty is None else jnp.concatenate([found, made.penalty(jnp, x)])

    @jax.jit
    def solve(x, rows):
        found = optx.least_squares(residuals, solver, x, args=rows, throw=False, max_steps=2_000)
        return found.value, found.stats["num_steps"]

    start, rows = jnp.asarray(made.start), jax.tree.map(jnp.asarray, made.rows)
    return lambda: jax.tree.map(np.asarray, solve(start, rows))


def lmfit(made: Model) -> Callable:
    """`minimize`, with derivatives by differences, as its documentation has it."""
    from lmfit import Parameters, minimize  # pyright: ignore[reportMissingImports] (in the peer's environment)

    names = [f"p{i}" for i in range(made.start.size)]
    robust = {} if made.loss == "linear" else {"method": "least_squares", "loss": made.loss}

    def residuals(given):
        return made.all_residuals(np.array([given[name].value for name in names]))

    def call():
        given = Parameters()
        for name, value in zip(names, made.start, strict=True):
            given.add(name, value=value)
        found = minimize(residuals, given, **robust)
        return np.array([found.params[name].value for name in names]), found.nfev

    return call


SIDES = {one.__name__: one for one in (scipy, optimistix, lmfit)}

if __name__ == "__main__":
    serve(partial(prepare, 0))
