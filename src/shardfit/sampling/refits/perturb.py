"""Two ways to perturb a least-squares problem so that its refits are draws of the posterior.

`Refits` adds a unit Gaussian to every residual, data and priors alike, and minimises again: exact for linear models,
approximate otherwise, for any number of parameters. `Projection` asks the residuals' projection onto the tangent space
at the mode to equal n unit Gaussians (Bardsley, Solonen, Haario and Laine 2014): the same for linear models, and for
others with a density that is known, so that draws have importance weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.gram import residuals
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.rules import called
from shardfit.core.term_makers import residual_penalty, residual_term
from shardfit.core.terms import ResidualTerm, Term
from shardfit.sampling.refits.frame import Frame, at_draws
from shardfit.surveys.axes import Axis, Span, Start

DRAW = "draw"  # the axis of which perturbations are points
MOST = 100_000  # draws of one run
SOLVED = 1e-6  # half the squared distance, in standard deviations, at which a projection counts as reached


class Perturbed(NamedTuple):
    """A problem in coordinates u (n,), and the axis whose points, numbered, are its perturbations."""

    problem: Problem
    axis: Axis


# ---- every residual perturbed ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """A row term's function of u, less a shift of each residual."""

    fn: Callable

    def __call__(self, u, rows, frame, *args):
        return jax.tree.map(jnp.subtract, called(self.fn, frame.params(u), rows["rows"], *args), rows["shift"])


@dataclass(frozen=True)
class _Prior:
    """A residual penalty's function of u, less a shift of each residual."""

    fn: Callable

    def __call__(self, u, frame, shift, *args):
        return jax.tree.map(jnp.subtract, called(self.fn, frame.params(u), *args), shift)


def refits(problem: Problem, frame: Frame, seed: tuple[int, ...]) -> Perturbed:
    """Return the problem whose points have a unit Gaussian added to every residual."""
    objective = problem.objective
    shapes = [_shapes(term, problem.x0) for term in objective.terms]
    terms = [_shifted(t, frame, jax.tree.map(_zeros, s)) for t, s in zip(objective.terms, shapes, strict=True)]
    names = tuple(objective.names)
    whole = Problem(
        Objective(tuple(terms), names, None, objective.precision),
        np.zeros(problem.space.size, frame.center.dtype),
        name=problem.name,
        precision=problem.precision,
    )

    def change(start: Start, number: float) -> Start:
        rng = np.random.default_rng([*seed, int(number)])
        noisy = [_with_noise(t, s, rng) for t, s in zip(start.objective.terms, shapes, strict=True)]
        return start._replace(objective=Objective(tuple(noisy), names, None, start.objective.precision))

    return Perturbed(whole, Axis(Span(0, MOST), change))


def _shapes(term: Term, params: Any) -> Any:
    if isinstance(term, ResidualTerm):
        return jax.eval_shape(lambda p, t: t.contributions(p, t.rows, None), params, term)
    return jax.eval_shape(lambda p, t: called(t.fn, p, *t.args), params, term)


def _zeros(shape: Any) -> np.ndarray:
    return np.zeros(shape.shape, shape.dtype)


def _shifted(term: Any, frame: Frame, shift: Any) -> Term:
    if isinstance(term, ResidualTerm):
        rows = {"rows": term.rows, "shift": shift}
        made = residual_term(_Rows(term.fn), rows, frame, *term.args, weight=term.weight, chunk=term.chunk)
        return replace(made, scale=term.scale)
    return residual_penalty(_Prior(term.fn), frame, shift, *term.args, weight=term.weight)


def _with_noise(term: Any, shapes: Any, rng: np.random.Generator) -> Term:
    """Return a term with new shifts; a residual that counts with weight w has the standard deviation 1/√w."""
    named = isinstance(term.weight, dict)
    parts = shapes if named else {"": shapes}
    noise = {}
    for name, part in parts.items():
        weight = float(term.weight[name] if named else term.weight) * float(getattr(term, "scale", 1.0))
        sd = 1 / np.sqrt(weight) if weight > 0 else 0.0
        noise[name] = jax.tree.map(lambda s, sd=sd: sd * _normal(s, rng), part)
    shift = noise if named else noise[""]
    if isinstance(term, ResidualTerm):
        return replace(term, rows={"rows": term.rows["rows"], "shift": shift})
    return replace(term, args=(term.args[0], shift, *term.args[2:]))


def _normal(shape: Any, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.standard_normal(shape.shape)
    if np.issubdtype(shape.dtype, np.complexfloating):
        drawn = drawn + 1j * rng.standard_normal(shape.shape)
    return drawn.astype(shape.dtype)


# ---- the projection perturbed ---------------------------------------------------------------------------------------


def projection(problem: Problem, frame: Frame, seed: tuple[int, ...]) -> tuple[Perturbed, np.ndarray]:
    """Return the problem whose points ask the projected residuals for n unit Gaussians, and the basis (m, n)."""
    basis = np.asarray(_basis(frame, problem.objective))
    n = problem.space.size
    term = residual_penalty(_missing, problem.objective, frame, basis, np.zeros(n, basis.dtype))
    whole = Problem(
        Objective({"projection": term}), np.zeros(n, basis.dtype), name=problem.name, precision=problem.precision
    )

    def change(start: Start, number: float) -> Start:
        target = np.random.default_rng([*seed, int(number)]).standard_normal(n).astype(basis.dtype)
        own = start.objective.terms[0]
        # for a linear model the target is the answer
        moved = start.objective.with_args(projection=(*own.args[:-1], target))
        return start._replace(objective=moved, params=target)

    return Perturbed(whole, Axis(Span(0, MOST), change)), basis


def _missing(u, objective, frame, basis, target):
    return _projected(frame, u, objective, basis) - target


def _projected(frame, u, objective, basis):
    return basis.T @ residuals(None, objective.terms, frame.params(u), None)


@jax.jit
def _basis(frame: Frame, objective: Objective) -> jax.Array:
    def all_residuals(u):
        return residuals(None, objective.terms, frame.params(u), None)

    return jax.jacfwd(all_residuals)(jnp.zeros_like(frame.center))


def log_weights(frame: Frame, u: np.ndarray, objective: Objective, basis: np.ndarray) -> np.ndarray:
    """Return log(posterior / density of a projected refit) at answers u (draws, n), up to a constant."""
    return np.asarray(at_draws(frame, u, _log_weight, objective, basis))


def _log_weight(frame, u, objective, basis):
    reached = _projected(frame, u, objective, basis)
    slope = jax.jacfwd(lambda v: _projected(frame, v, objective, basis))(u)
    everything = residuals(None, objective.terms, frame.params(u), None)
    volume = frame.space.log_jacobian(frame.z(u)) - jnp.linalg.slogdet(slope)[1]
    return 0.5 * (reached @ reached - everything @ everything) + volume
