"""evidence: the probability of the data under a problem's priors, by Laplace's approximation.

log Z = -E + log C + ½ n log 2π - ½ log det H at the mode, with E the objective, H its curvature, and C the constant
that makes the priors densities. Priors made of residuals are Gaussians; the constant of what is linear in the
parameters follows from the priors' own normal equations, so that standard deviations of priors can be compared.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.check.certificate import certify_equations
from shardfit.core.gram import Gram, gram
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.precision import in_its_precision
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.rows import leading
from shardfit.core.terms import Penalty, ResidualPenalty, ResidualTerm, numbers_in
from shardfit.curvature import hessian
from shardfit.fitting import fit
from shardfit.solve.covariance import at_bound, of_residuals

LARGEST = 3000  # coordinates for which a dense determinant is affordable
LOG_2PI = float(np.log(2 * np.pi))
SINGULAR = 1e-12  # curvature relative to the largest, in units of each parameter's own


@dataclass(frozen=True)
class Evidence:
    """log_z: log probability of the data, up to the constant of their errors (-½ Σ log 2πσ² for residuals).

    value: the objective at the mode; occam: what the width of the posterior within the prior adds, negative where data
    are informative. log_z = occam - value.
    """

    log_z: float
    value: float
    occam: float
    note: str = ""


@in_its_precision
def evidence(problem: Problem, result: Result | None = None, *, mesh: Any = None) -> Evidence:
    """Return the log evidence of a problem. result: its fit; None: it is fitted here.

    Every penalty must be a density: `priors` of the problem, `prior(...)` terms that are normalised, or residual
    penalties that are linear in the parameters. Compare problems with the same data only.

    Example: `evidence(wide).log_z - evidence(narrow).log_z`.
    """
    require_densities(problem)
    if result is None:
        result = fit(problem, "lm" if of_residuals(problem.objective) else None, mesh=mesh, progress=False)
        if not result.status.converged:
            raise ValueError(f"evidence: the fit did not converge. {result.message}")
    z = problem.space.host_z(result.params)
    if at_bound(problem, z).any():
        raise ValueError("evidence: a parameter is at its bound, where the posterior is not a Gaussian.")
    if of_residuals(problem.objective):
        certify_equations(problem, result.params, mesh=mesh)
    return log_evidence(problem, z, mesh)


def require_densities(problem: Problem) -> None:
    """Raise where the constant of a penalty is not known, or a determinant is too large."""
    if problem.space.size > LARGEST:
        raise ValueError(f"evidence: {problem.space.size} coordinates; a determinant is formed up to {LARGEST}.")
    if problem.space.shapes != problem.space.inner_shapes:
        raise ValueError("evidence: a transform mixes parameters (Simplex), whose density has another dimension.")
    for name, term in problem.objective.items():
        if isinstance(term, Penalty) and not (term.prior or isinstance(term, ResidualPenalty)):
            raise TypeError(
                f"evidence: the penalty {name!r} is no density, so its constant is unknown. Use priors=..., "
                "prior(...) with a normalised log density, or residual_penalty (a Gaussian)."
            )


def log_evidence(problem: Problem, z: np.ndarray, mesh: Any = None) -> Evidence:
    """Return the evidence from the curvature at coordinates z of the mode."""
    objective, space = problem.objective, problem.space
    placed = objective.place(mesh)
    around = jax.device_get(_curvature(gram if of_residuals(objective) else hessian, placed, space, z))
    occam = (
        0.5 * z.size * LOG_2PI
        - 0.5 * _log_det(around.matrix, "the posterior", space)
        + float(space.log_jacobian(jnp.asarray(z)))
    )
    touched = np.zeros(z.size, bool)
    gaussian = [name for name, term in objective.items() if isinstance(term, ResidualPenalty)]
    if gaussian:
        priors = jax.device_get(_curvature(gram, placed.only(*gaussian), space, z))
        touched = np.diag(priors.matrix) > 0
        block = priors.matrix[np.ix_(touched, touched)]
        slopes = jax.jvp(space.unpack, (z,), (np.ones_like(z),))[1]
        stretch = np.log(np.abs(space.free(slopes)[touched])).sum()
        occam += 0.5 * _log_det(block, "the prior", space) - stretch - 0.5 * touched.sum() * LOG_2PI
    occam += _data_constant(objective, space.host_params(z))
    flat = [] if _all_declared(problem) else np.array(space.coordinate_labels())[~touched].tolist()
    note = f"Without prior, so of density 1: {', '.join(flat[:6])}." if flat else ""
    value = float(around.value)
    return Evidence(occam - value, value, float(occam), note)


@partial(jax.jit, static_argnums=0)
def _curvature(curvature: Any, objective: Objective, space: Space, z: jax.Array) -> Gram:
    return curvature(objective, space, jnp.asarray(z), None)


def _log_det(matrix: np.ndarray, what: str, space: Space) -> float:
    unit = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(matrix.dtype).tiny ** 0.5))
    size = np.linalg.eigvalsh(matrix / np.outer(unit, unit))
    if not size[0] > SINGULAR * size[-1]:
        raise ValueError(
            f"evidence: {what} does not constrain one direction (curvature {size[0]:.2g}), so it has no integral. Give "
            "every parameter a prior."
        )
    return float(np.log(size).sum() + 2 * np.log(unit).sum())


def _data_constant(objective: Objective, params: Any) -> float:
    """Return what weights of data terms, which are inverse variances, add to the constants of the errors."""
    total = 0.0
    for term in objective.terms:
        if isinstance(term, ResidualTerm):
            shapes = jax.eval_shape(lambda p, t: t.contributions(p, t.rows, None), params, term)
            weights = term.weight if isinstance(term.weight, dict) else {"": term.weight}
            for name, weight in weights.items():
                count = numbers_in(shapes[name] if name else shapes) * term.n_rows / leading(term.rows)
                total += 0.5 * count * np.log(float(weight)) if float(weight) > 0 else 0.0
    return total


def _all_declared(problem: Problem) -> bool:
    """Return whether a term that is not made of residuals speaks for the parameters that no Gaussian does."""
    return any(
        isinstance(t, Penalty) and t.prior and not isinstance(t, ResidualPenalty) for t in problem.objective.terms
    )
