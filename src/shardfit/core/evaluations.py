"""What an objective computes, compiled. The objective is an argument: its data are no constants of the program.

Shapes are checked here, while a program is traced: an objective that belongs to no problem is used as it is, and a
function that adds up its own rows would give a sum of sums.
"""

from functools import partial
from typing import Any

import jax

from shardfit.core import gram as normal_equations
from shardfit.core import reduce
from shardfit.core.fast_compile import unoptimised_jit
from shardfit.core.gram import Gram
from shardfit.core.params import make_space
from shardfit.core.term_checks import check_contributions, check_terms
from shardfit.core.terms import RowTerm


def named_parts(names: tuple[str, ...], losses: tuple) -> dict[str, Any]:
    """Flatten losses to one dict: 'term', or 'term.product' where a loss is a dict."""
    parts = {}
    for name, loss in zip(names, losses, strict=True):
        parts.update({f"{name}.{k}": v for k, v in loss.items()} if isinstance(loss, dict) else {name: loss})
    return parts


@jax.jit
def value(objective: Any, params: Any, key: Any) -> jax.Array:
    """Return the value."""
    check_terms(objective, params)
    return reduce.value(objective, params, key)


@jax.jit
def value_grad_parts(objective: Any, params: Any, key: Any) -> tuple[jax.Array, Any, dict]:
    """Return value, gradient and unweighted parts at one forward and one backward pass."""
    check_terms(objective, params)
    value, gradient, losses = reduce.value_grad_losses(objective.mesh, objective.terms, params, key)
    return value, gradient, named_parts(objective.names, losses)


@unoptimised_jit
def parts(objective: Any, params: Any, key: Any) -> dict[str, Any]:
    """Return each term's loss before its weight."""
    check_terms(objective, params)
    losses = reduce.losses(objective.mesh, objective.terms, params, key)
    return named_parts(objective.names, losses)


@jax.jit
def totals(objective: Any, params: Any, key: Any) -> dict[str, Any]:
    """Return the summed statistics of each row term, as users read them."""
    terms = dict(objective.items())
    return {name: terms[name].shown(found) for name, found in sums(objective, params, key).items()}


@jax.jit
def sums(objective: Any, params: Any, key: Any) -> dict[str, Any]:
    """Return what totals are made of."""
    check_contributions(objective, params)
    found = reduce.totals(objective.mesh, objective.terms, params, key)
    return {n: s for (n, t), s in zip(objective.items(), found, strict=True) if isinstance(t, RowTerm)}


@jax.jit
def residuals(objective: Any, params: Any, key: Any) -> jax.Array:
    """Return all residuals as one real vector."""
    check_contributions(objective, params)
    return normal_equations.residuals(objective.mesh, objective.terms, params, key)


@jax.jit
def gram(objective: Any, params: Any, key: Any) -> Gram:
    """Return the normal equations over the flattened parameters."""
    check_contributions(objective, params)
    space = make_space(params)
    return normal_equations.gram(objective, space, space.pack(params), key)


@jax.jit
def hvp(objective: Any, params: Any, tangent: Any, key: Any) -> Any:
    """Return the Hessian times tangent."""
    check_terms(objective, params)
    gradient = partial(_gradient, objective, key)
    return jax.jvp(gradient, (params,), (tangent,))[1]


def _gradient(objective, key, params):
    return reduce.value_grad_losses(objective.mesh, objective.terms, params, key)[1]
