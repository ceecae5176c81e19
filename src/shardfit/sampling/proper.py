"""Whether a density has an integral, as far as its program tells before anything is compiled.

A parameter that no term reads has the density of its transform's Jacobian, whatever its value: between two ends that is
a uniform one, without an end it has no integral. What a fit tells is in endless.py.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from shardfit.core import reduce
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.recent import present
from shardfit.core.shape_structs import shape_structs, types_of

FAR = 1e6  # standard deviations, or units, at which a density must have fallen
LEAST_FALL = 3.0  # by which -log density must have grown there


def improper(names: Iterable[str], use: str = "") -> ValueError:
    """Return the error that names parameters, or coordinates, of which nothing is known."""
    named = list(names)
    who = ", ".join(named[:6]) + (" (together)" if len(named) > 1 else "")
    return ValueError(
        f"{use and use + ': '}the posterior is improper: neither data nor priors say anything of {who}, so its density "
        f"has no integral. Give priors, or hold {'one of them' if len(named) > 1 else 'it'}: fixed=[...]."
    )


def require_read(problem: Problem, use: str) -> None:
    """Raise for free parameters that no term reads and that have no ends. problem: in unconstrained coordinates."""
    space, objective = problem.space, problem.objective
    counted = [term for term in objective.terms if np.any([np.any(w) for w in jax.tree.leaves(term.weight)])]
    read = _reads(present.key, objective.mesh, *types_of(counted, problem.x0))
    unread = [i for i, one in enumerate(read) if not one and not space.held_at(i).all()]
    endless = [i for i in unread if not _ends(space, i, problem.z0())]
    if endless:
        raise improper((space.labels[i] for i in endless), use)


@lru_cache(maxsize=256)
def _reads(content: tuple, mesh: Any, structure: Any, types: tuple) -> tuple[bool, ...]:
    """Return for every leaf of the parameters whether the losses of terms depend on it, by their traced programs.

    content: what their functions are at present.
    """
    terms, params = shape_structs(structure, types)
    if not terms:
        return (False,) * len(jax.tree.leaves(params))
    traced = jax.make_jaxpr(lambda terms, params: reduce.losses(mesh, tuple(terms), params, None))(terms, params)
    _, used = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    return tuple(used[-len(jax.tree.leaves(params)) :])


def _ends(space: Space, leaf: int, z: np.ndarray) -> bool:
    """Return whether the Jacobian of a leaf falls to both sides along each of its coordinates."""
    sizes = space.leaf_sizes()
    first = sum(sizes[:leaf])

    def falls(i: int, side: float) -> bool:
        there = z.copy()
        there[i] += side
        return bool(space.log_jacobian(jnp.asarray(z)) - space.log_jacobian(jnp.asarray(there)) >= LEAST_FALL)

    return all(falls(i, side) for i in range(first, first + sizes[leaf]) for side in (FAR, -FAR))
