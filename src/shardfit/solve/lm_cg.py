"""Levenberg–Marquardt without matrices, for 10⁵ to 10⁷ parameters: one tick is one walk over the rows.

A step minimises the Gauss–Newton model inside a trust region by conjugate gradients (Steihaug 1983), which need
products JᵀJ·v only. They are preconditioned by the diagonal of JᵀJ, estimated from Jᵀ·u for random signs u of the
residuals: its error does not depend on what else is in the matrix. So the parameters' units do not matter, and the
trust region is one in that norm. Conjugate gradients stop early far from the answer and go on to the end near it
(Dembo, Eisenstat and Steihaug 1982).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.products import normal_product, of_signs
from shardfit.core.status import Status
from shardfit.solve.base import value_and_grad_parts
from shardfit.solve.marquardt import ACCEPT, POOR, SETTLED, Marquardt, grown
from shardfit.solve.sampled_errors import preconditioner, sampled_errors
from shardfit.solve.trust_region import norm, positive

EVALUATE, SIGNS, PRODUCT = 0, 1, 2  # what a tick asks for
SETS = 4  # of random signs at the start; one more at every accepted point
KEPT = 0.75  # of the diagonal known before
FORCED = 0.1  # largest share of the gradient that conjugate gradients leave
EXACT = 1e-6  # least share, where the model was exact


class State(NamedTuple):
    """Accepted point, what is known of JᵀJ there, and conjugate gradients under way."""

    x: jax.Array
    value: jax.Array  # inf until the start has been evaluated
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    asks: jax.Array  # what the next tick evaluates
    key: jax.Array
    drawn: jax.Array  # sets of signs drawn at this point
    metric: jax.Array  # (n,) mean square of Jᵀu, about the diagonal of JᵀJ: what preconditions
    radius: jax.Array
    missed: jax.Array  # share of the decrease that the model got wrong at the last step taken
    first: jax.Array  # preconditioned gradient norm at the start
    products: jax.Array  # conjugate gradients made for this step
    step: jax.Array
    left: jax.Array  # (n,) what the step leaves of the gradient, with opposite sign
    along: jax.Array  # (n,) direction of the next product
    size: jax.Array  # of what is left, preconditioned and squared
    predicted: jax.Array
    inside: jax.Array  # the step was shortened neither by the trust region nor by the limit of products


@dataclass(frozen=True)
class LMCG(Marquardt):
    """Levenberg–Marquardt with conjugate gradients: least squares of very many parameters, without any matrix.

    ftol: predicted relative decrease of the value. gtol: cosine between residuals and any column of the Jacobian, whose
    lengths are estimated. products: most conjugate gradients of a step. draws: how many sampled solves give standard
    errors, each as long as a step; they are uncertain by 1/√(2·draws) themselves. 0: no errors. absolute_sigma: as in
    `LM`.

    Evaluations count walks over the rows: of value and gradient, of random signs, of products.
    """

    maxiter: int = 200
    ftol: float = 1e-10
    gtol: float = 1e-12
    xtol: float = 0.0
    products: int = 1000
    draws: int = 0

    name: ClassVar[str] = "lm-cg"
    slots: ClassVar[bool] = False  # runs that share a batch would each pay for all that others ask for

    def __post_init__(self):
        super().__post_init__()
        if self.products < 1 or self.draws < 0 or self.draws == 1:
            raise ValueError(f"lm-cg: products={self.products} must be at least 1, draws={self.draws} 0 or at least 2.")

    def check(self, problem):
        """Raise for terms without residuals."""
        problem.objective.require_residuals(f"solver {self.name!r}")

    def extras(self, task, params, finish):
        """Return standard errors from sampled solves, if draws are asked for."""
        if not self.draws:
            return {}, "No standard errors: draws=50 gives them, uncertain by a tenth."
        return sampled_errors(task, finish.z, self.draws, self.products, self.is_absolute(task.problem.objective))

    def init(self, z0, lower, upper):
        """Return the state before the first evaluation."""
        vector, count, zero = jnp.zeros_like(z0), jnp.zeros((), jnp.int32), jnp.zeros((), z0.dtype)
        inf = jnp.full((), jnp.inf, z0.dtype)
        key = jnp.zeros(2, jnp.uint32)
        return State(
            z0, inf, vector, count, count, count, key, count, vector, inf, inf, zero, count, vector, vector, vector,
            zero, zero, jnp.zeros((), bool),
        )  # fmt: skip

    def begin(self, state, key, given):
        """Return the state with its random key."""
        return state._replace(key=jax.random.key_data(key))

    def evaluate(self, space, objective, z, key):
        """Return what a tick asks for: value and gradient, Jᵀ of random signs, or a product."""
        asks, point, v, signs = z

        def value_and_gradient():
            here = value_and_grad_parts(space, objective, point, key)[0]
            return here.value, here.gradient

        def of_random_signs():
            return jnp.zeros((), point.dtype), of_signs(objective, space, point, jax.random.wrap_key_data(signs))

        def product():
            return jnp.zeros((), point.dtype), normal_product(objective, space, point, v)

        return jax.lax.switch(asks, [value_and_gradient, of_random_signs, product])

    def step(self, evaluate, state):
        """Return the state after one walk over the rows."""
        evaluating = state.asks == EVALUATE
        signs = jax.random.key_data(_key_of(state))
        point = jnp.where(evaluating, state.x + state.step, state.x)
        value, vector = evaluate((state.asks, point, state.along, signs))
        return jax.lax.switch(
            state.asks, [self._judge, self._learn, self._descend], state, value.astype(state.x.dtype), vector
        )

    def _judge(self, state, value, gradient):
        """Take the trial or not; the diagonal of the new point comes next, or a shorter step."""
        first = jnp.isinf(state.value)
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        gradient = jnp.where(finite, gradient, 0)
        difference = state.value - value
        close = jnp.abs(difference) <= jnp.finfo(value.dtype).eps ** (2 / 3) * state.value
        by_slopes = -0.5 * state.step @ (state.gradient + gradient)  # values have no digits left there
        ratio = jnp.where(close, by_slopes, difference) / positive(state.predicted)
        ratio = jnp.where(finite, ratio, -1)
        accepted = finite & (first | ((ratio > ACCEPT) & (state.predicted > 0)))
        length = norm(jnp.sqrt(state.metric) * state.step)
        resized = jnp.where(ratio < POOR, 0.25 * length, grown(state.radius, ratio, length))
        radius = jnp.where(first, state.radius, resized)
        taken = state._replace(
            x=state.x + state.step,
            value=value,
            gradient=gradient,
            steps=state.steps + jnp.where(first, 0, 1),
            asks=jnp.int32(SIGNS),
            drawn=jnp.zeros_like(state.drawn),
            radius=radius,
            missed=jnp.where(first, state.missed, jnp.abs(1 - ratio)),
        )
        taken = taken._replace(status=self._status(state, taken))
        refused = _begun(state._replace(radius=radius))
        stuck = (length <= jnp.finfo(value.dtype).eps * norm(jnp.sqrt(state.metric) * state.x)) | (length == 0)
        hidden = state.predicted <= SETTLED * jnp.finfo(value.dtype).eps * state.value
        code = jnp.where(hidden, Status.CONVERGED_VALUE.code, jnp.where(stuck, Status.STALLED.code, 0))
        refused = refused._replace(status=jnp.where(first, Status.NONFINITE.code, code).astype(jnp.int32))
        return jax.tree.map(partial(jnp.where, accepted), taken, refused)

    def _status(self, state, taken):
        """Return whether the step just taken was the last: what it was to gain, not shortened, is too little."""
        ftol = max(self.ftol, float(jnp.finfo(state.x.dtype).eps))
        moved = norm(jnp.sqrt(state.metric) * state.step)
        short = (self.xtol > 0) & (moved <= self.xtol * norm(jnp.sqrt(state.metric) * taken.x))
        little = state.predicted <= ftol * taken.value
        first = jnp.isinf(state.value)
        code = jnp.where(state.inside & short & ~first, Status.CONVERGED_STEP.code, 0)
        code = jnp.where(state.inside & little & ~first, Status.CONVERGED_VALUE.code, code)
        return jnp.where(taken.value == 0, Status.CONVERGED_VALUE.code, code).astype(jnp.int32)

    def _learn(self, state, _, vector):
        """Add a set of signs to the diagonal; after the last, conjugate gradients begin."""
        drawn, later = state.drawn + 1, state.steps > 0
        known = jnp.where(later, KEPT * state.metric + (1 - KEPT) * vector**2, state.metric + vector**2 / SETS)
        enough = later | (drawn == SETS)
        after = state._replace(drawn=drawn, metric=known)
        size = norm(jnp.sqrt(known) * state.x)
        start = jnp.where(size > 0, size, jnp.sqrt(2 * state.value))
        after = after._replace(radius=jnp.where(enough & jnp.isinf(state.radius), start, state.radius))
        begun = _begun(after)
        # columns are as long as their diagonal says, which is uncertain: tolerances are orders of magnitude
        cosine = jnp.max(jnp.abs(state.gradient) / jnp.sqrt(preconditioner(known)), initial=0)
        flat = cosine <= max(self.gtol, float(jnp.finfo(state.x.dtype).eps)) * jnp.sqrt(2 * state.value)
        begun = begun._replace(status=jnp.where(flat, Status.CONVERGED_GRADIENT.code, 0).astype(jnp.int32))
        return jax.tree.map(partial(jnp.where, enough), begun, after)

    def _descend(self, state, _, product):
        """Make one conjugate gradient: on to the next, or to the trial where it is enough."""
        metric = preconditioner(state.metric)
        curvature = state.along @ product
        best = state.size / jnp.where(curvature > 0, curvature, 1)
        edge = _to_edge(state, metric)
        bounded = ~(curvature > 0) | (best >= edge)
        length = jnp.where(bounded, edge, best)
        gained = length * state.size - 0.5 * length**2 * curvature
        left = state.left - length * product
        turned = left / metric
        size = left @ turned
        whole = state.gradient @ (state.gradient / metric)
        forced = jnp.minimum(FORCED, (whole / positive(state.first)) ** 0.25)
        # a model that was exact is worth an exact minimum: one long run of products takes fewer than many short ones
        forced = jnp.minimum(forced, jnp.maximum(state.missed, EXACT))
        count = state.products + 1
        enough = size <= forced**2 * whole
        spent = count >= self.products
        done = bounded | enough | spent | (size == 0)
        return state._replace(
            asks=jnp.where(done, EVALUATE, PRODUCT).astype(jnp.int32),
            products=count,
            step=state.step + length * state.along,
            left=left,
            along=turned + size / positive(state.size) * state.along,
            size=size,
            predicted=state.predicted + gained,
            inside=done & ~bounded & ~(spent & ~enough),
        )

    def note(self, state):
        """Return what the diagonal says of parameters that nothing depends on."""
        idle = int(np.sum(np.asarray(state.metric) == 0))
        return f"Nothing depends on {idle} parameters here: they stay as they were." if idle else ""


def _key_of(state: State) -> Any:
    key = jax.random.wrap_key_data(state.key)
    return jax.random.fold_in(jax.random.fold_in(key, state.steps), state.drawn)


def _begun(state: State) -> State:
    """Return the state at the beginning of a step."""
    left = -state.gradient
    turned = left / preconditioner(state.metric)
    size = left @ turned
    return state._replace(
        asks=jnp.int32(PRODUCT),
        first=jnp.where(state.first > 0, state.first, size),
        products=jnp.zeros_like(state.products),
        step=jnp.zeros_like(left),
        left=left,
        along=turned,
        size=size,
        predicted=jnp.zeros_like(state.predicted),
        inside=jnp.zeros_like(state.inside),
    )


def _to_edge(state: State, metric: jax.Array) -> jax.Array:
    """Return how far along the direction the trust region's edge is."""
    a = state.along @ (metric * state.along)
    b = state.step @ (metric * state.along)
    c = jnp.maximum(state.radius**2 - state.step @ (metric * state.step), 0)
    return c / positive(b + jnp.sqrt(b**2 + a * c))
