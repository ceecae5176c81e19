"""evidence: the probability of the data under a problem's priors.

Laplace's approximation is log Z = -E + log C + ½ n log 2π - ½ log det H at the mode, with E the objective, H its
curvature, and C the constant that makes the priors densities. Priors made of residuals are Gaussians; the constant of
what is linear in the parameters follows from the priors' own normal equations, so that standard deviations of priors
can be compared. Where the density is not its Gaussian, the integral is that of integral.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.check.certificate import certify_equations
from shardfit.core.current import working_on_it
from shardfit.core.gram import Gram, gram
from shardfit.core.objective import Objective
from shardfit.core.params import Space, broadcast_prefix
from shardfit.core.priors import Flat, support_of
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.rows import leading
from shardfit.core.terms import Penalty, ResidualPenalty, ResidualTerm, numbers_in
from shardfit.curvature import hessian
from shardfit.fitting import fit
from shardfit.io.compile_cache import programs_kept
from shardfit.sampling.refits.integral import integral
from shardfit.solve.covariance import at_bound, of_residuals

LARGEST = 3000  # coordinates for which a dense determinant is affordable
LOG_2PI = float(np.log(2 * np.pi))
FAR, CLOSE = 40.0, 0.5  # coordinates at which a transform is at its end, and the share of it that a free number reaches
SINGULAR = 1e-12  # curvature relative to the largest, in units of each parameter's own


@dataclass(frozen=True)
class Evidence:
    """log_z: log probability of the data, up to the constant of their errors (-½ Σ log 2πσ² for residuals).

    value: the objective at the mode; occam: what the width of the posterior within the prior adds, negative where data
    are informative. log_z = occam - value. error: Monte Carlo standard error of log_z, 0 where the posterior is a
    Gaussian, NaN where nothing tells (Laplace's approximation alone). method: how the integral was done.
    """

    log_z: float
    value: float
    occam: float
    note: str = ""
    error: float = float("nan")
    method: str = "laplace"


@programs_kept()
@working_on_it
def evidence(
    problem: Problem, result: Result | None = None, *, mesh: Any = None, correct: bool = True, seed: int = 0
) -> Evidence:
    """Return the log evidence of a problem. result: its fit; None: it is fitted here.

    Every penalty must be a density: `priors` of the problem, `prior(...)` terms that are normalised, or residual
    penalties that are linear in the parameters. Compare problems with the same data only. Where the posterior is not
    the Gaussian of linear residuals, its modes are looked for, and the integral is done by importance sampling around
    them, with up to 100,000 values; this is an error if it is not accurate to some hundredths. correct=False: Laplace's
    approximation, whatever the posterior is like.

    Example: `evidence(wide).log_z - evidence(narrow).log_z`.
    """
    require_densities(problem)
    if result is None:
        result = fit(problem, "lm" if of_residuals(problem.objective) else None, mesh=mesh, progress=False)
        if not (correct or result.status.converged):
            raise ValueError(f"evidence: the fit did not converge. {result.message}")
    z = problem.space.host_z(result.params)
    inside = not at_bound(problem, z).any() and bool(np.isfinite(z).all())
    if not (correct or inside):
        raise ValueError("evidence: a parameter is at its bound, where the posterior is not a Gaussian.")
    if of_residuals(problem.objective):
        certify_equations(problem, result.params, mesh=mesh)
    if not correct:
        return log_evidence(problem, z, mesh)
    note = " ".join(filter(None, (_without_prior(problem), _cut_off(problem))))
    gaussian = laplace(problem, z, mesh) if inside and result.status.converged else None
    found = integral(problem.replace(x0=result.params) if inside else problem, gaussian, mesh, seed)
    occam = found.log_mass + _constant(problem, z if inside else problem.z0(), mesh) + float(result.value)
    told = " ".join(filter(None, (note, found.note)))
    return Evidence(occam - float(result.value), float(result.value), occam, told, found.error, found.method)


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
    """Return the evidence from the curvature at coordinates z of the mode, by Laplace's approximation."""
    around = _around(problem, z, mesh)
    occam = (
        0.5 * z.size * LOG_2PI
        - 0.5 * _log_det(np.asarray(around.matrix), "the posterior", problem.space)
        + float(problem.space.log_jacobian(jnp.asarray(z)))
        + _constant(problem, z, mesh)
    )
    value = float(around.value)
    return Evidence(occam - value, value, float(occam), _without_prior(problem))


def laplace(problem: Problem, z: np.ndarray, mesh: Any = None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return mean (n,) and precision (n, n) of the Gaussian at coordinates z; None if it has no width somewhere."""
    matrix = np.asarray(_around(problem, z, mesh).matrix, float)
    try:
        _log_det(matrix, "the posterior", problem.space)
    except ValueError:
        return None
    return np.asarray(z, float), matrix


def _around(problem: Problem, z: np.ndarray, mesh: Any) -> Gram:
    placed = problem.objective.place(mesh)
    return jax.device_get(_curvature(gram if of_residuals(placed) else hessian, placed, problem.space, z))


def _constant(problem: Problem, z: np.ndarray, mesh: Any) -> float:
    """Return the constants of Gaussian priors, and of data whose weights are inverse variances."""
    objective, space, total = problem.objective, problem.space, 0.0
    gaussian = _gaussian_terms(objective)
    if gaussian:
        matrix = _prior_precision(problem, z, mesh)
        if not np.allclose(matrix, _prior_precision(problem, z + 0.1 * (1 + np.abs(z)), mesh), rtol=1e-3):
            raise ValueError(
                f"evidence: a residual penalty ({', '.join(gaussian)}) is not linear in the parameters, so its "
                "constant is not known. Use prior(...) with a normalised log density."
            )
        touched = np.diag(matrix) > 0
        total += 0.5 * _log_det(matrix[np.ix_(touched, touched)], "the prior", space) - 0.5 * touched.sum() * LOG_2PI
    return total + _data_constant(objective, space.host_params(z))


def _gaussian_terms(objective: Objective) -> list[str]:
    return [name for name, term in objective.items() if isinstance(term, ResidualPenalty)]


def _prior_precision(problem: Problem, z: np.ndarray, mesh: Any) -> np.ndarray:
    """Return the normal equations (p, p) of Gaussian priors in the free parameters, without transforms."""
    placed = problem.objective.place(mesh).only(*_gaussian_terms(problem.objective))
    matrix = jax.device_get(_curvature(gram, placed, problem.space, z)).matrix
    slopes = problem.space.free(jax.jvp(problem.space.unpack, (z,), (np.ones_like(z),))[1])
    return matrix / np.outer(slopes, slopes)


def _without_prior(problem: Problem) -> str:
    if _all_declared(problem):
        return ""
    names, gaussian = np.array(problem.space.coordinate_labels()), _gaussian_terms(problem.objective)
    touched = np.diag(_prior_precision(problem, problem.z0(), None)) > 0 if gaussian else np.zeros(len(names), bool)
    flat = names[~touched].tolist()
    return f"Without prior, so of density 1: {', '.join(flat[:6])}." if flat else ""


def _cut_off(problem: Problem) -> str:
    """Return which priors reach beyond what their parameters can be, and so are not normalised within it."""
    if problem.priors is None:
        return ""
    space, cut = problem.unconstrained().space, []
    ends = [jax.tree.leaves(space.unpack(jnp.full(space.size, side))) for side in (-FAR, FAR)]
    for i, entry in enumerate(broadcast_prefix("priors", problem.priors, problem.x0)):
        if entry is None or isinstance(entry, Flat) or space.held_at(i).all():
            continue
        low, high = support_of(entry)
        reached = [np.where(np.abs(end[i]) > CLOSE * FAR, np.sign(end[i]) * np.inf, end[i]) for end in ends]
        least, most = np.minimum(*reached), np.maximum(*reached)
        slack = 1e-6 * np.where(np.isfinite(most - least), most - least, 1.0)
        if np.any((least > low + slack) | (most < high - slack)):
            cut.append(space.labels[i])
    return f"Priors of {', '.join(cut[:6])} are cut off by bounds, and not normalised within them." if cut else ""


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
