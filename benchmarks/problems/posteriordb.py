"""The six posteriors of posteriordb that come with the package, as problems with priors; its README has the models.

Their means, standard deviations and Monte Carlo errors are the reference to which draws are compared.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from shardfit import data

LOG_2PI = float(np.log(2 * np.pi))
STEPS_A_YEAR = 12  # of the integrator: the log density is then right to 1e-4 far from the mode, nearer to 1e-5


@dataclass(frozen=True)
class Posterior:
    """A problem and the reference draws' moments.

    problem: makes the problem from the data set. quantities: from parameters, each (chains, draws, ...), to what the
    reference calls by the same names. moments: for every number, "theta[1]" or "mu", its mean, sd and mcse_mean.
    """

    name: str
    make: Callable[[dict], sf.Problem]
    quantities: Callable[[dict], dict]
    data: Mapping[str, Any]
    moments: Mapping[str, Mapping[str, float]]

    @property
    def problem(self) -> sf.Problem:
        """The problem, made anew."""
        return self.make(dict(self.data))

    def numbers(self, params: dict) -> dict[str, np.ndarray]:
        """Return draws (chains, draws) by the reference's names. params: leaves (chains, draws, ...)."""
        named = {}
        for name, values in self.quantities(params).items():
            if values.ndim == 2:
                named[name] = values
            else:
                named |= {f"{name}[{i + 1}]": values[..., i] for i in range(values.shape[-1])}
        return named


def normal_loss(residual: Any, sd: Any) -> Any:
    """Return -log of the normal density, element by element."""
    return 0.5 * (residual / sd) ** 2 + jnp.log(sd) + 0.5 * LOG_2PI


# ---- eight schools: effects of coaching, not centred ----------------------------------------------------------------


def school_loss(params: dict, rows: dict) -> jax.Array:
    """Return -log density of each school's effect. params: mu, tau, z (8,); rows: y, sigma, school, each (n,)."""
    theta = params["mu"] + params["tau"] * params["z"][rows["school"]]
    return normal_loss(rows["y"] - theta, rows["sigma"])


def eight_schools(given: dict) -> sf.Problem:
    rows = {name: np.array(given[name], float) for name in ("y", "sigma")} | {"school": np.arange(8)}
    priors = {"mu": sf.Normal(0.0, 5.0), "tau": sf.HalfCauchy(5.0), "z": sf.Normal(0.0, 1.0)}
    objective = sf.Objective({"schools": sf.statistic_term(school_loss, rows)})
    return sf.Problem(objective, {"mu": 0.0, "tau": 1.0, "z": np.zeros(8)}, priors=priors, name="eight schools")


def _school_effects(params: dict) -> dict:
    theta = params["mu"][..., None] + params["tau"][..., None] * params["z"]
    return {"theta": theta, "mu": params["mu"], "tau": params["tau"]}


# ---- straight lines with unknown scatter ----------------------------------------------------------------------------


def line_loss(params: dict, rows: dict) -> jax.Array:
    """Return -log density of each point around a line. params: alpha, beta, sigma; rows: x, y, each (n,)."""
    return normal_loss(rows["y"] - params["alpha"] - params["beta"] * rows["x"], params["sigma"])


def kidiq(given: dict) -> sf.Problem:
    rows = {"x": np.array(given["mom_iq"], float), "y": np.array(given["kid_score"], float)}
    priors = {"alpha": sf.Flat(), "beta": sf.Flat(), "sigma": sf.HalfCauchy(2.5)}
    objective = sf.Objective({"scores": sf.statistic_term(line_loss, rows)})
    return sf.Problem(objective, {"alpha": 0.0, "beta": 1.0, "sigma": 10.0}, priors=priors, name="kidiq")


def _kidiq_names(params: dict) -> dict:
    return {"beta": np.stack([params["alpha"], params["beta"]], -1), "sigma": params["sigma"]}


def kilpisjarvi(given: dict) -> sf.Problem:
    rows = {"x": np.array(given["x"], float), "y": np.array(given["y"], float)}
    priors = {
        "alpha": sf.Normal(given["pmualpha"], given["psalpha"]),
        "beta": sf.Normal(given["pmubeta"], given["psbeta"]),
        "sigma": sf.Flat(),
    }
    x0 = {"alpha": float(np.mean(rows["y"])), "beta": 0.0, "sigma": 1.0}
    objective = sf.Objective({"summers": sf.statistic_term(line_loss, rows)})
    return sf.Problem(objective, x0, priors=priors, transforms={"sigma": "log"}, name="kilpisjarvi")


# ---- GARCH(1, 1): a variance that remembers -------------------------------------------------------------------------


def series_loss(params: dict, rows: dict, first_sd: Any) -> jax.Array:
    """Return -log density of each series. params: mu, alpha0, alpha1, share of 1 - alpha1; rows: y (n, times)."""
    mu, alpha1 = params["mu"], params["alpha1"]
    beta1 = params["share"] * (1 - alpha1)

    def step(variance, y):
        following = params["alpha0"] + alpha1 * (y - mu) ** 2 + beta1 * variance
        return following, 0.5 * ((y - mu) ** 2 / variance + jnp.log(variance) + LOG_2PI)

    def one(y):
        return jnp.sum(jax.lax.scan(step, jnp.asarray(first_sd, y.dtype) ** 2, y)[1])

    return jax.vmap(one)(rows["y"])


def stationary(params: dict) -> jax.Array:
    """Return the log density of a share that makes beta1 = share (1 - alpha1) flat below 1 - alpha1."""
    return jnp.log1p(-params["alpha1"])


def garch(given: dict) -> sf.Problem:
    rows = {"y": np.array(given["y"], float)[None]}
    terms = {
        "series": sf.statistic_term(series_loss, rows, float(given["sigma1"])),
        "stationary": sf.prior(stationary),
    }
    share = sf.Uniform(0.0, 1.0)
    return sf.Problem(
        sf.Objective(terms),
        {"mu": float(rows["y"].mean()), "alpha0": 1.0, "alpha1": 0.3, "share": 0.5},
        priors={"mu": sf.Flat(), "alpha0": sf.Flat(), "alpha1": share, "share": share},
        transforms={"alpha0": "log"},
        name="garch",
    )


def _garch_names(params: dict) -> dict:
    beta1 = params["share"] * (1 - params["alpha1"])
    return {name: params[name] for name in ("mu", "alpha0", "alpha1")} | {"beta1": beta1}


# ---- Lotka and Volterra: hares and lynxes ---------------------------------------------------------------------------


def populations(theta: jax.Array, start: jax.Array, years: int, steps: int = STEPS_A_YEAR) -> jax.Array:
    """Return the logarithms of prey and predators (years, 2) after each year, by Runge and Kutta's fourth order.

    theta: (4,) birth, predation, death, growth rates; start: (2,). Logarithms cannot become negative populations.
    """
    h = 1.0 / steps

    def slope(logs):
        return jnp.stack([theta[0] - theta[1] * jnp.exp(logs[1]), theta[3] * jnp.exp(logs[0]) - theta[2]])

    def step(logs, _):
        a = slope(logs)
        b = slope(logs + 0.5 * h * a)
        c = slope(logs + 0.5 * h * b)
        d = slope(logs + h * c)
        return logs + h / 6 * (a + 2 * b + 2 * c + d), None

    def year(logs, _):
        logs = jax.lax.scan(step, logs, None, length=steps, unroll=4)[0]
        return logs, logs

    return jax.lax.scan(year, jnp.log(start), None, length=years)[1]


def pelts_loss(params: dict, rows: dict, steps: int = STEPS_A_YEAR) -> jax.Array:
    """Return -log density of each history of pelts. rows: y (n, years, 2), y_init (n, 2)."""
    start, sigma = params["z_init"], params["sigma"]
    logs = populations(params["theta"], start, rows["y"].shape[1], steps)
    losses = normal_loss(jnp.log(rows["y"]) - logs, sigma) + jnp.log(rows["y"])
    first = normal_loss(jnp.log(rows["y_init"]) - jnp.log(start), sigma) + jnp.log(rows["y_init"])
    return jnp.sum(losses, (1, 2)) + jnp.sum(first, 1)


def lotka_volterra(given: dict, steps: int = STEPS_A_YEAR) -> sf.Problem:
    rows = {"y": np.array(given["y"], float)[None], "y_init": np.array(given["y_init"], float)[None]}
    rates = np.array([1.0, 0.05, 1.0, 0.05])
    priors = {
        "theta": sf.TruncatedNormal(rates, np.array([0.5, 0.05, 0.5, 0.05]), lower=0.0),
        "z_init": sf.LogNormal(float(np.log(10.0)), 1.0),
        "sigma": sf.LogNormal(-1.0, 1.0),
    }
    x0 = {"theta": np.array([0.6, 0.03, 0.8, 0.03]), "z_init": rows["y_init"][0], "sigma": np.array([0.5, 0.5])}
    objective = sf.Objective({"pelts": sf.statistic_term(partial(pelts_loss, steps=steps), rows)})
    return sf.Problem(objective, x0, priors=priors, name="lotka volterra")


# ---- Gaussian process -----------------------------------------------------------------------------------------------


def process_loss(params: dict, rows: dict, x: jax.Array) -> jax.Array:
    """Return -log density of each function's values. params: rho, alpha, sigma; rows: y (n, points); x: (points,)."""
    distance = (x[:, None] - x[None, :]) / params["rho"]
    kernel = params["alpha"] ** 2 * jnp.exp(-0.5 * distance**2) + params["sigma"] * jnp.eye(len(x))
    root = jnp.linalg.cholesky(kernel)
    white = jax.scipy.linalg.solve_triangular(root, rows["y"].T, lower=True)
    return 0.5 * jnp.sum(white**2, 0) + jnp.sum(jnp.log(jnp.diag(root))) + 0.5 * len(x) * LOG_2PI


def gaussian_process(given: dict) -> sf.Problem:
    rows, x = {"y": np.array(given["y"], float)[None]}, np.array(given["x"], float)
    priors = {"rho": sf.Gamma(25.0, 4.0), "alpha": sf.HalfNormal(2.0), "sigma": sf.HalfNormal(1.0)}
    objective = sf.Objective({"values": sf.statistic_term(process_loss, rows, x)})
    return sf.Problem(objective, {"rho": 6.0, "alpha": 2.0, "sigma": 1.0}, priors=priors, name="gaussian process")


MODELS = {
    "eight_schools-eight_schools_noncentered": (eight_schools, _school_effects),
    "kidiq-kidscore_momiq": (kidiq, _kidiq_names),
    "garch-garch11": (garch, _garch_names),
    "hudson_lynx_hare-lotka_volterra": (lotka_volterra, dict),
    "kilpisjarvi_mod-kilpisjarvi": (kilpisjarvi, dict),
    "gp_pois_regr-gp_regr": (gaussian_process, dict),
}


@cache
def load() -> dict[str, Posterior]:
    """All posteriors by name."""
    folder = data.folder("posteriordb")
    facts = json.loads((folder / "summaries.json").read_text())
    return {
        name: Posterior(
            name,
            make,
            quantities,
            json.loads((folder / facts[name]["data_file"]).read_text()),
            facts[name]["parameters"],
        )
        for name, (make, quantities) in MODELS.items()
    }
