"""Products of the Gauss-Newton Hessian: a change of the model forward through Born's waves, and back by the adjoint.

A misfit is a function of residuals, and residuals of the model. Its Gauss-Newton Hessian Jᵀ B J leaves out that the
second bends: J is the derivative of the traces, B what a parabola that touches the loss bends (2 of squares, less of
large residuals in robust losses). It is never negative.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from shardfit.core import reduce
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.terms import Penalty, RowTerm, weighted_sum
from shardfit.domains.seismic.losses import SampleLoss
from shardfit.domains.seismic.problem import ShotModel


@dataclass(frozen=True)
class Bent:
    """Function of the data term whose gradient is the product: (params, rows, ..., change) → sum and count of a shot.

    The sum is that of the traces times B J change, which is held: its derivative is Jᵀ B J change, and so it is
    blocked, padded and added over devices as the misfit's own gradient is.
    """

    model: ShotModel

    def __call__(self, params: Mapping, rows: Mapping, *given: Any) -> dict[str, Any]:
        """Propagate the change, then compare."""
        *args, change = given
        loss = self.model.loss
        assert isinstance(loss, SampleLoss)

        def compared(params):
            modelled, *others = self.model.traces(params, rows, *args)
            return modelled, others

        here = jax.lax.stop_gradient(params)
        traces, moved, (observed, weights) = jax.jvp(compared, (here,), (change,), has_aux=True)
        bent = loss.bend(traces - observed) * moved
        bent = jax.lax.stop_gradient(bent if weights is None else bent * weights)
        counts = loss(traces, observed, weights)[1]
        return {"sum": jnp.sum(bent * compared(params)[0], (1, 2)), "count": counts}


def product(objective: Objective, space: Space, z: jax.Array, vector: jax.Array) -> jax.Array:
    """Return the Gauss-Newton Hessian in coordinates z (n,) times a vector (n,); of penalties the whole Hessian."""
    params, change = jax.jvp(space.unpack, (z,), (vector,))
    data = tuple(_bent(term, change) for term in objective.terms if isinstance(term, RowTerm))
    penalties = [term for term in objective.terms if isinstance(term, Penalty)]
    found = jnp.zeros_like(z)
    if data:
        pull = jax.vjp(space.unpack, z)[1]
        found += pull(reduce.value_grad_losses(objective.mesh, data, params, None)[1])[0]

    def regularised(z):
        params = space.unpack(z)
        return sum(weighted_sum(term.weight, term.losses(params)) for term in penalties)

    return found + jax.jvp(jax.grad(regularised), (z,), (vector,))[1] if penalties else found


def _bent(term: RowTerm, change: Any) -> RowTerm:
    assert isinstance(term.fn, ShotModel)
    return replace(term, fn=Bent(term.fn), args=(*term.args, change))


def require_residuals(loss: Any) -> None:
    """Raise for a loss that is no function of residuals."""
    if not isinstance(loss, SampleLoss):
        raise ValueError(
            f"gauss-newton: {type(loss).__name__} compares whole traces and has no residuals. Use the loss 'l2', "
            "'l1', 'huber' or 'student-t', or the solver 'plbfgs'."
        )
