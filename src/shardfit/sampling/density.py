"""What is sampled: the density of a problem's coordinates z, and what must hold before it is.

-log density(z) = objective(parameters of z) - log |d parameters / d z|, up to a constant. All penalties count, priors
and regularisers alike; what that means for a problem is said in words, which every posterior carries.
"""

from typing import Any

import jax
import numpy as np

from shardfit.core.current import working_on_it
from shardfit.core.errors import NonFiniteError
from shardfit.core.objective import Objective
from shardfit.core.params import Space, broadcast_prefix
from shardfit.core.problem import Problem, require_untraced
from shardfit.core.term_makers import penalty
from shardfit.core.terms import Penalty, RowTerm
from shardfit.core.transforms import HEAVY_TAILED, Chain
from shardfit.sampling.proper import require_read
from shardfit.sampling.scaled import require_fixed_scales
from shardfit.solve.points import values_at
from shardfit.stats.eliminated import require_integrated

JACOBIAN = "coordinates"  # name of the term that makes a density of parameters one of coordinates


@working_on_it
def sampled(problem: Problem, use: str = "sample") -> Problem:
    """Return the problem in unconstrained coordinates; raise, before anything is compiled, if it has no posterior."""
    if not isinstance(problem, Problem):
        raise TypeError(f"{use} needs a Problem, not {type(problem).__name__}: Problem(objective, x0, priors=...).")
    require_untraced(f"{use} is called", problem.objective)
    if problem.objective.stochastic:
        names = ", ".join(map(repr, problem.objective.stochastic))
        raise ValueError(f"{use}: {names} is random. A posterior needs one density: objective.freeze(key).")
    if not problem.space.size:
        raise ValueError(f"{use}: all parameters are held, so there is nothing to sample.")
    _require_priors(problem, use)
    unconstrained = problem.unconstrained()
    require_read(unconstrained, use)
    _require_start(problem, use)
    require_integrated(problem, use)
    require_fixed_scales(unconstrained, use)
    return unconstrained


def _require_priors(problem: Problem, use: str) -> None:
    """Raise for a free parameter without a prior where others have one; a term `prior(fn)` may speak for any."""
    if problem.priors is None or any(n != "prior" for n in prior_names(problem.objective)):
        return
    entries = broadcast_prefix("priors", problem.priors, problem.x0)
    space = problem.space
    missing = [space.labels[i] for i, entry in enumerate(entries) if entry is None and not space.held_at(i).all()]
    if missing:
        raise ValueError(
            f"{use}: {', '.join(missing)} has no prior, though others have. Give it one, or say that there is none: "
            f'priors={{"{missing[0]}": shardfit.Flat()}}.'
        )


def _require_start(problem: Problem, use: str) -> None:
    parts = {name: float(part) for name, part in problem.objective.parts(problem.x0).items()}
    for name, part in parts.items():
        if not np.isfinite(part):
            raise NonFiniteError(
                f"{use}: the density is zero at x0, where term {name!r} is {part}. Start where the model is defined."
            )


def prior_names(objective: Objective) -> list[str]:
    """Return the names of the terms that are priors."""
    return [name for name, term in objective.items() if isinstance(term, Penalty) and term.prior]


def caveats(problem: Problem) -> str:
    """Return what a posterior of this problem assumes that its author may not have meant to say."""
    objective, told = problem.objective, []
    others = [n for n, t in objective.items() if isinstance(t, Penalty) and not t.prior]
    if not prior_names(objective) and problem.priors is None:
        told.append("No priors are declared: the density is exp(-value), flat in the parameters.")
    if others:
        told.append(f"Regularisers act as priors: {', '.join(others)}.")
    scaled = [n for n, t in objective.items() if isinstance(t, RowTerm) and _scaled(t)]
    if scaled:
        told.append(f"The likelihood of {', '.join(scaled)} is raised to the power of its weight, which is not 1.")
    heavy = [label for label, t in zip(problem.space.labels, problem.space.transforms, strict=True) if _heavy(t)]
    if heavy:
        told.append(
            f"Coordinates of {', '.join(heavy)} have heavy tails, in which chains get lost: use bounds or Interval."
        )
    return " ".join(told)


def _scaled(term: RowTerm) -> bool:
    return any(float(weight) != 1.0 for weight in jax.tree.leaves(term.weight)) or float(term.scale) != 1.0


def _heavy(transform: Any) -> bool:
    return isinstance(transform, HEAVY_TAILED) or (isinstance(transform, Chain) and _heavy(transform.outer))


@jax.jit
def values_on_z(objective: Objective, space: Space, z: jax.Array) -> jax.Array:
    """Return -log density (points,) at coordinates z (points, n), some at a time; objective: placed."""
    return values_at(space, objective, z, None) - jax.vmap(space.log_jacobian)(z)


@jax.jit
def parameters_of(space: Space, z: jax.Array) -> Any:
    """Return the parameters, leaves (points, *shape), at coordinates z (points, n)."""
    return jax.vmap(space.unpack)(z)


def as_objective(problem: Problem, temper: float = 1.0) -> Problem:
    """Return a problem whose minimum is the mode of the density of z, for fits and curvatures.

    temper: power of the Jacobian, 1/K for one of K shards.
    """
    terms = dict(problem.objective.items())
    terms[JACOBIAN] = penalty(_stretch, problem.space, weight=temper)
    objective = Objective(tuple(terms.values()), tuple(terms), problem.objective.mesh, problem.objective.precision)
    return problem.with_checked(objective)


def _stretch(params: Any, space: Space) -> jax.Array:
    return -space.log_jacobian(space.pack(params))
