"""Stellar mass function: how many galaxies per volume and mass, from halos of known mass.

log10 of a galaxy's mass is normal around log10 of its halo's mass plus an efficiency, with a scatter. The statistic is
the number of galaxies above each edge; the loss compares logarithms of the counts per bin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.current import working_on_it
from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.precision import PRECISIONS, arithmetic
from shardfit.core.problem import Problem
from shardfit.core.rows import my_rows
from shardfit.core.term_makers import statistic_term
from shardfit.domains.population.halos import blocks, log_masses
from shardfit.stats.histogram import above, bin_counts

if TYPE_CHECKING:  # fits run without jaxtyping
    from jaxtyping import Array, Float

CHUNK = 8192  # (chunk, edges) in float64 stays in a core's own cache
EDGES = tuple(np.linspace(9.0, 10.0, 11).tolist())
# published with single precision, so the loss at the truth is small but not zero
TARGET_B = (
    2.30178721e-02,
    1.69728529e-02,
    1.16054425e-02,
    7.10532581e-03,
    3.77187086e-03,
    1.69136131e-03,
    6.28149020e-04,
    1.90466686e-04,
    4.66692982e-05,
    9.17260695e-06,
)


@dataclass(frozen=True)
class Variant:
    """One of the published set-ups. volume: per halo where `per_halo`; floor: added inside both logarithms."""

    name: str
    top: float  # highest rank of a halo, see log_masses
    scatter: str  # name of the second parameter
    volume: float
    per_halo: bool
    floor: float
    truth: tuple[float, float]
    start: tuple[float, float]

    def params(self, values: Any) -> dict[str, Any]:
        """Return named parameters from (efficiency, scatter)."""
        return dict(zip(("efficiency", self.scatter), values, strict=True))


VARIANTS = {
    "A": Variant("A", 0.9, "log_scatter", 1.0, False, 1e-10, (-2.0, -0.5), (-3.5, 0.2)),
    "B": Variant("B", 0.95, "scatter", 10.0, True, 1e-5, (-2.0, 0.2), (-1.0, 0.5)),
}


def as_variant(name: str) -> Variant:
    """Return a variant by name."""
    if name not in VARIANTS:
        raise ValueError(f"unknown stellar mass function {name!r}.{suggestion(name, VARIANTS)}")
    return VARIANTS[name]


def scatter_of(params: dict) -> Any:
    """Return the scatter in dex."""
    return 10.0 ** params["log_scatter"] if "log_scatter" in params else jnp.abs(params["scatter"])


def galaxies_above(params: dict, rows: dict, survey: dict) -> Float[Array, "n edges"]:
    """Return each halo's probability of a galaxy above every edge: rows logm (n,) → (n, edges)."""
    return above(rows["logm"] + params["efficiency"], scatter_of(params), survey["edges"])


def mass_function(totals: Float[Array | np.ndarray, " edges"], survey: dict) -> Float[Array, " bins"]:
    """Return counts per volume and dex from the totals above the edges."""
    return bin_counts(jnp.asarray(totals)) / (survey["volume"] * jnp.diff(survey["edges"]))


def log_misfit(totals: Float[Array, " edges"], survey: dict) -> Float[Array, ""]:
    """Return the mean squared difference of log10 counts."""
    found, floor = mass_function(totals, survey), survey["floor"]
    return jnp.mean((jnp.log10(found + floor) - jnp.log10(survey["target"] + floor)) ** 2)


@arithmetic("float64")
def survey_of(variant: Variant, n: int) -> dict[str, Any]:
    """Return edges, volume and floor of a survey of n halos, and its target: the mass function at the truth.

    Variant B has a published target, made with 10 000 halos; with other numbers the answer moves a little (4e-4 in the
    efficiency with 3000), for ranks are spaced otherwise.
    """
    volume = variant.volume * (n if variant.per_halo else 1)
    survey = {"edges": np.array(EDGES), "volume": float(volume), "floor": variant.floor}
    if variant.name == "B":
        return {**survey, "target": np.array(TARGET_B)}
    truth = variant.params(variant.truth)
    # in blocks made on the fly: 1e8 halos never exist at once
    totals = np.zeros(len(EDGES))
    for part in blocks(n):
        totals += _block_totals(truth, log_masses(n, part, variant.top), survey)
    return {**survey, "target": np.asarray(mass_function(totals, survey))}


def _block_totals(params, logm, survey):
    term = statistic_term(galaxies_above, {"logm": logm}, survey, loss=log_misfit, chunk=CHUNK)
    return np.asarray(Objective({"smf": term}).totals(params)["smf"])


def problem(
    variant: str = "A", n: int = 10_000, *, chunk: int = CHUNK, precision: str = "float64", mesh: Any = None
) -> Problem:
    """Return the fit of a stellar mass function with n halos, from the published start.

    mesh: each process makes its own halos and puts them there; without it, all are made here and `fit` places them.

    Example: `fit(smf.problem("A", 10**6), "lbfgsb")`.
    """
    chosen = as_variant(variant)
    logm = log_masses(n, slice(None) if mesh is None else my_rows(n, mesh), chosen.top)
    rows = {"logm": logm.astype(PRECISIONS[precision], copy=False)}
    term = statistic_term(galaxies_above, rows, survey_of(chosen, n), loss=log_misfit, chunk=chunk)
    objective = Objective({"smf": term})
    return Problem(
        objective if mesh is None else objective.place_local(mesh),
        chosen.params(chosen.start),
        units={"efficiency": "dex", chosen.scatter: "log dex" if chosen.scatter == "log_scatter" else "dex"},
        name=f"stellar mass function {variant}",
        decode=quantities,
        precision=precision,
    )


def quantities(params: dict) -> dict[str, float]:
    """Return what the parameters mean: the ratio of galaxy to halo mass, and the scatter in dex and as a factor."""
    scatter = float(scatter_of({name: np.asarray(value, float) for name, value in params.items()}))
    ratio = math.pow(10.0, float(params["efficiency"]))
    return {"galaxy to halo mass": ratio, "scatter (dex)": scatter, "scatter (factor)": math.pow(10.0, scatter)}


@working_on_it
def model_function(found: Problem, params: Any) -> np.ndarray:
    """Return the mass function (bins,) of a problem made here at params."""
    (survey,) = found.objective.terms[0].args
    totals = found.objective.totals(params)["smf"]
    return np.asarray(mass_function(totals, survey))
