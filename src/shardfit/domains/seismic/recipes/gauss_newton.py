"""Truncated Gauss-Newton for velocity models, on all shots or on mini-batches, with held cells, bounds, preconditioner.

A step solves H s = -g with H of gauss_newton.py by a few iterations of conjugate gradients, preconditioned by P of
conditioned.py, among the cells that are free; few of them leave out what the data hardly feel. An evaluation is either
a look, value and gradient at the next point, or one product of H: a run stops, goes on and is watched between any two.
With all shots a step that does not lower the misfit is shortened; a mini-batch gives one step, which nobody checks, and
no cell may change by more than `limit`.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.domains.seismic.gauss_newton import product
from shardfit.domains.seismic.recipes.conditioned import SHORTEST, Conditioned, clipped

FORCING = 0.1  # share of the first residual, in the preconditioner's norm, that ends conjugate gradients


class Search(NamedTuple):
    """Conjugate gradients so far: the step, what is left of the gradient, the next direction."""

    step: jax.Array
    left: jax.Array
    direction: jax.Array
    size: jax.Array  # square of `left` in the preconditioner's norm
    first: jax.Array  # the same before the first iteration
    count: jax.Array  # iterations


class Asked(NamedTuple):
    """What to evaluate: value and gradient at a point, or H there times a direction."""

    look: jax.Array
    point: jax.Array
    direction: jax.Array


class State(NamedTuple):
    """The last point that was accepted, with value and gradient of the present rows, and the way to the next."""

    x: jax.Array
    value: jax.Array
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    looks: jax.Array  # whether the next evaluation is a look at `ahead`
    ahead: jax.Array
    length: jax.Array  # of the step to `ahead`, 1 before it was shortened
    unit: jax.Array  # largest component of the first gradient: squares of small ones vanish in float32
    search: Search
    scale: jax.Array
    lower: Any
    upper: Any


@dataclass(frozen=True)
class GaussNewton(Conditioned):
    """Truncated Gauss-Newton with bounds and a fixed preconditioner.

    Attributes
    ----------
    products
        iterations of conjugate gradients in a step, at most; with mini-batches as many.

    """

    products: int = field(default=6, kw_only=True)
    name: ClassVar[str] = "gauss-newton"

    @property
    def repeats(self) -> int:
        """Evaluations of a mini-batch."""
        return self.products + 1

    def init(self, z0, lower, upper):
        """Return the state before the first evaluation."""
        nothing, none, zero = jnp.zeros((), jnp.int32), jnp.zeros_like(z0), jnp.zeros((), z0.dtype)
        return State(
            x=z0,
            value=jnp.full((), jnp.inf, z0.dtype),
            gradient=none,
            status=nothing,
            steps=nothing,
            looks=jnp.ones((), bool),
            ahead=z0,
            length=jnp.ones((), z0.dtype),
            unit=zero,
            search=Search(none, none, none, zero, zero, nothing),
            scale=jnp.ones_like(z0),
            lower=lower,
            upper=upper,
        )

    def evaluate(self, space, objective, z: Any, key):
        """Return value and gradient, or zero and the product."""

        def look(asked: Asked):
            found = super(GaussNewton, self).evaluate(space, objective, asked.point, key)
            return found.value, found.gradient

        def multiply(asked: Asked):
            found = product(objective, space, asked.point, asked.direction)
            return jnp.zeros((), found.dtype), found

        return jax.lax.cond(z.look, look, multiply, z)

    def ask(self, state):
        """Return what to evaluate next."""
        point = jnp.where(state.looks, state.ahead, state.x)
        return Asked(state.looks, point, state.search.direction)

    def tell(self, state, evaluation):
        """Accept or shorten after a look, go on with conjugate gradients after a product."""
        value, vector = evaluation
        return jax.lax.cond(state.looks, self._looked, self._multiplied, state, value, vector)

    def _looked(self, state: State, value: Any, gradient: jax.Array) -> State:
        said = self.judge(state, value, gradient, ~jnp.isfinite(state.value) | bool(self.batch))
        begun = self._begun(state, said.slope, said.free)
        state = state._replace(
            looks=~said.moves,
            ahead=jnp.where(said.moves, said.x, state.x + (said.length / state.length) * said.taken),
            search=jax.tree.map(lambda a, b: jnp.where(said.moves, a, b), begun, state.search),
        )
        return self.accepted(state, value, gradient, said, ~said.moves & (said.length < SHORTEST))

    def _begun(self, state: State, gradient: jax.Array, free: jax.Array) -> Search:
        left = jnp.where(free, -gradient, 0)
        direction = self.precondition(state, left, free)
        size = jnp.vdot(left, direction)
        return Search(jnp.zeros_like(left), left, direction, size, size, jnp.zeros((), jnp.int32))

    def _multiplied(self, state: State, _: Any, found: jax.Array) -> State:
        was = state.search
        free = self.free(state, state.x, state.gradient)
        found = jnp.where(free, found, 0) / jnp.where(state.unit > 0, state.unit, 1)
        curvature = jnp.vdot(was.direction, found)
        felt = curvature > 0  # what is not felt at all tells no length
        share = jnp.where(felt, was.size / jnp.where(felt, curvature, 1), 0)
        step, left = was.step + share * was.direction, was.left - share * found
        steepest = self.precondition(state, left, free)
        size = jnp.vdot(left, steepest)
        onward = steepest + jnp.where(was.size > 0, size / jnp.where(was.size > 0, was.size, 1), 0) * was.direction
        search = Search(step, left, onward, size, was.first, was.count + 1)
        done = search.count >= self.products
        if not self.batch:  # a batch has as many evaluations as the next
            done |= ~felt | (size <= FORCING**2 * was.first)
        aimed = clipped(state, state.x + jnp.clip(step, -self.limit, self.limit))
        return state._replace(search=search, looks=done, ahead=jnp.where(done, aimed, state.ahead))
