"""Our side of the suite `small`, and what it shares with the peer's, where nothing of shardfit is there.

{"sides": (ours, peer), "fits"} come in.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.duel import serve

T = np.linspace(0.0, 4.0, 50)
SIGMA = 0.05
START = {"a": 1.0, "tau": 1.0, "c": 0.0}


def data(fits: int, seed: int) -> np.ndarray:
    """Return measured values, one line for each fit."""
    noise = SIGMA * np.random.default_rng(seed).standard_normal((fits, T.size))
    return 3.0 * np.exp(-T / 1.5) + 0.5 + noise


def prepare(side: int, asked: dict) -> tuple[Callable, Callable]:
    """Return a call that fits new data each time it is made, and what it found at first. side: 0 ours, 1 the peer's."""
    each, state = SIDES[asked["sides"][side]](), {"seed": 0, "mean": 0.0}

    def call():
        state["seed"] += 1
        found = each(data(asked["fits"], state["seed"]))
        if state["seed"] == 1:
            state["mean"] = float(np.mean(found))  # of data that all sides have

    call()
    return call, lambda: {"mean": state["mean"]}


def _decay(p, rows):
    import jax.numpy as jnp

    return (p["a"] * jnp.exp(-rows["t"] / p["tau"]) + p["c"] - rows["y"]) / rows["sigma"]


def _problem(y):
    import shardfit as sf

    rows = {"t": T, "y": y, "sigma": np.full(T.size, SIGMA)}
    return sf.Problem(sf.Objective({"data": sf.residual_term(_decay, rows)}), START)


def fit() -> Callable:
    """Ours, one by one."""
    import shardfit as sf

    return lambda many: [sf.fit(_problem(y), "lm", progress=False).params["tau"] for y in many]


def curve_fit() -> Callable:
    """Ours, by scipy's call."""
    import jax.numpy as jnp

    import shardfit as sf

    def model(t, a, tau, c):
        return a * jnp.exp(-t / tau) + c

    sigma = np.full(T.size, SIGMA)
    return lambda many: [sf.curve_fit(model, T, y, sigma=sigma, absolute_sigma=True).popt[1] for y in many]


def fit_many() -> Callable:
    """Ours, together."""
    import shardfit as sf

    return lambda many: sf.fit_many(_problem(many[0]), {"data": {"y": many}}).params["tau"]


def optimistix() -> Callable:
    """One compiled call; its certificate, errors and status are for the user to make."""
    import jax
    import optimistix as optx

    jax.config.update("jax_enable_x64", True)
    solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)

    @jax.jit
    def solve(y):
        rows = {"t": T, "y": y, "sigma": SIGMA}
        return optx.least_squares(_decay, solver, dict(START), args=rows, throw=False).value["tau"]

    return lambda many: [float(solve(y)) for y in many]


def scipy() -> Callable:
    """curve_fit with derivatives by differences."""
    from scipy.optimize import curve_fit

    def model(t, a, tau, c):
        return a * np.exp(-t / tau) + c

    options = {"p0": (1.0, 1.0, 0.0), "sigma": np.full(T.size, SIGMA), "absolute_sigma": True}
    return lambda many: [curve_fit(model, T, y, **options)[0][1] for y in many]


def lmfit() -> Callable:
    """A Model, as its documentation has it."""
    from lmfit import Model  # pyright: ignore[reportMissingImports] (in the peer's environment)

    def model(t, a, tau, c):
        return a * np.exp(-t / tau) + c

    made = Model(model)
    fitted = partial(made.fit, t=T, weights=1 / SIGMA, scale_covar=False, **START)
    return lambda many: [fitted(y).params["tau"].value for y in many]


SIDES = {one.__name__: one for one in (fit, curve_fit, fit_many, optimistix, scipy, lmfit)}

if __name__ == "__main__":
    serve(partial(prepare, 0))
