"""Problems and solvers whose product the solver tests run over."""

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

RNG = np.random.default_rng(5)
N = 211
X = RNG.uniform(0, 4, N)
Y = 2.0 * np.exp(-X / 1.3) + 0.5 + 0.05 * RNG.standard_normal(N)
DECAY = {"x": X, "y": Y, "sigma": np.full(N, 0.05)}
EDGES = np.linspace(-2, 2, 7)
SAMPLE = RNG.standard_normal(300)


def decay_residual(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-rows["x"] / p["tau"]) - p["c"]) / rows["sigma"]


def membership(p, rows, target):
    return jax.nn.sigmoid((EDGES - p["shift"] - rows["v"][:, None] * p["width"]) / 0.1)


def misfit(totals, target):
    return jnp.mean((totals / len(SAMPLE) - target) ** 2) * 1e3


def rosenbrock(p):
    return jnp.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


def noisy_square(p, rows, key):
    return (p - rows["v"]) ** 2 + 0.01 * jax.random.normal(key) * p


def least_squares_problem(**changes):
    fields = {"bounds": None, "transforms": {"tau": "log"}, "units": {"tau": "s"}, "name": "decay", **changes}
    objective = sf.Objective({"data": sf.residual_term(decay_residual, DECAY)})
    return sf.Problem(objective, {"a": 1.0, "tau": 1.0, "c": 0.2}, **fields)


def statistic_problem():
    target = np.asarray(jax.nn.sigmoid((EDGES - 0.3 - SAMPLE[:, None] * 1.4) / 0.1)).mean(0)
    term = sf.statistic_term(membership, {"v": SAMPLE}, target, loss=misfit, chunk=64)
    return sf.Problem(sf.Objective({"histogram": term}), {"shift": 0.0, "width": 1.0}, name="histogram")


def penalty_problem():
    return sf.Problem(sf.Objective({"valley": sf.penalty(rosenbrock)}), np.array([-1.2, 1.0, -0.5]), name="valley")


def stochastic_problem():
    term = sf.statistic_term(noisy_square, {"v": SAMPLE}, stochastic=True, weight=1 / len(SAMPLE))
    return sf.Problem(sf.Objective({"noisy": term}), np.array(2.0), name="noisy")


PROBLEMS = {"least squares": least_squares_problem, "statistic": statistic_problem, "penalty": penalty_problem}


def optax_adabelief():
    import optax

    return optax.adabelief(3e-2)


def optimistix_bfgs():
    import optimistix

    return optimistix.BFGS(rtol=1e-9, atol=1e-9)


def barzilai_borwein(value_and_grad, x0, *, maxiter, tol, callback):
    """Minimise with the simplest method that works, as a user might."""
    x, (_, g) = x0, value_and_grad(x0)
    step = 1e-3 / max(1.0, np.abs(g).max())
    for _ in range(maxiter):
        x_new = x - step * g
        _, g_new = value_and_grad(x_new)
        dx, dg = x_new - x, g_new - g
        step = abs(dx @ dg) / max(dg @ dg, 1e-300)
        x, g = x_new, g_new
        if np.abs(g).max() <= tol:
            return x
        callback(x)
    return x


SOLVERS = {
    "default": lambda: (None, {}),
    "lbfgsb": lambda: ("lbfgsb", {}),
    "lbfgs": lambda: ("lbfgs", {}),
    "lbfgs-bt": lambda: ("lbfgs-bt", {}),
    "lm": lambda: ("lm", {}),
    "adam": lambda: ("adam", {"learning_rate": 3e-2, "maxiter": 4000}),
    "adamw": lambda: ("adamw", {"learning_rate": 3e-2, "maxiter": 4000, "weight_decay": 0.0}),
    "sgd": lambda: ("sgd", {"learning_rate": 1e-3, "momentum": 0.9, "maxiter": 20000}),
    "rmsprop": lambda: ("rmsprop", {"learning_rate": 1e-3, "maxiter": 8000}),
    "optax object": lambda: (optax_adabelief(), {"maxiter": 4000}),
    "optimistix object": lambda: (optimistix_bfgs(), {}),
    "callable": lambda: (barzilai_borwein, {"maxiter": 3000}),
}
OPTIMA = {"least squares": None, "statistic": 0.0, "penalty": 0.0}
