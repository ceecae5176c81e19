"""Fields of many unit Gaussians seen through few data: modes, evidence and perturbed refits, solved in data space.

A model is r = residual(signal), signal = visible field(y, θ): y (n,) are unit Gaussians, n large; the signal (m,), m
small, is all that data see of the field they make; residuals have unit errors. With K = ∂signal/∂y and G = RᵀR, R =
∂residual/∂signal, the curvature of ½|r|² + ½|y|² is 1 + KᵀGK. Its steps and determinant need matrices of m by m only:
P = KKᵀ, (1 + KᵀGK)⁻¹Kᵀ = Kᵀ(1 + GP)⁻¹, det(1 + KᵀGK) = det(1 + GP).
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

# Levenberg–Marquardt steps: where that of Gauss and Newton (1) gains less than a share of what a quadratic would,
# shorter and steeper ones are tried too
STIFF = (2.0, 8.0, 40.0, 200.0, 1e3, 1e4)
SHARE = 0.5
NEAR = 1e-3  # squared distance to the minimum, in standard deviations, at which a mode is reached
SLOW = 0.005  # gain of a step, in units of the log density, below which the rest of the way does not matter
MAXITER = 100
TOGETHER, STRIDE = 8, 4  # problems in a batch, and steps until those that have ended are replaced


@register_dataclass
@dataclass(frozen=True, eq=False)
class LatentModel:
    """Data of a signal made of unit Gaussians, whose hyper-parameters are unit Gaussians too.

    field: (y (n,), h (d,), args) → (p,); visible: (m, p), what data see of it, the signal; residual: (signal (m,),
    args) → (k,) with unit errors; n, d: how many unit Gaussians and hyper-parameters there are; args: arrays that both
    get.
    """

    visible: Any
    args: Any
    field: Callable[..., jax.Array] = dataclass_field(metadata={"static": True})
    residual: Callable[..., jax.Array] = dataclass_field(metadata={"static": True})
    n: int = dataclass_field(metadata={"static": True})
    d: int = dataclass_field(metadata={"static": True})

    @property
    def n_residuals(self) -> int:
        """Number of residuals."""
        return jax.eval_shape(self.residuals, jnp.zeros(self.n), jnp.zeros(self.d)).shape[0]

    def residuals(self, y: jax.Array, h: jax.Array) -> jax.Array:
        """Return the residuals (k,) of one y and h."""
        return self.residual(self.visible @ self.field(y, h, self.args), self.args)


class Mode(NamedTuple):
    """Minimum of a perturbed problem: y (n,), the value and log det(1 + KᵀGK) there; reached: whether it was found."""

    y: Any
    value: Any
    log_det: Any
    steps: Any
    reached: Any

    @property
    def log_evidence(self) -> np.ndarray:
        """Laplace's approximation of the probability of the data, errors' constant left out; -inf without a mode."""
        return np.where(self.reached, -self.value - 0.5 * self.log_det, -np.inf)


def modes(
    model: LatentModel,
    h: np.ndarray,
    y0: np.ndarray,
    shift: np.ndarray,
    centre: np.ndarray,
    least: float = -np.inf,
    keep: Any = None,
) -> Mode:
    """Minimise ½|r(y, h) + shift|² + ½|y - centre|² for many h (k, d) at once.

    y0, centre: (k, n); shift: (k, residuals). Unit Gaussians as shift and centre make a draw of the posterior, zeros
    its mode. A few problems share a batch; one that has ended makes room for the next. No problem sees the others, so
    that the answers do not depend on which of them share one. least: a problem whose log evidence will be smaller is
    given up. keep: a `KeptRound`, from which the problems go on and to which they are written.
    """
    k = len(h)
    found = Mode(np.array(y0, float), np.zeros(k), np.zeros(k), np.zeros(k, np.int32), np.zeros(k, bool))
    if keep is not None:
        found = keep.read(found)
    waiting = _unfinished(found, range(k))
    if not waiting:
        return found
    active: list[int] = []
    while waiting or active:
        active, waiting = active + waiting[: TOGETHER - len(active)], waiting[TOGETHER - len(active) :]
        at = np.resize(active, TOGETHER)  # copies fill the batch: its shape is part of the program
        states = Mode(*(leaf[at] for leaf in found))
        states.reached[len(active) :] = True  # nothing is computed for copies
        state = jax.device_get(_advance(model, h[at], shift[at], centre[at], states, least))
        for leaf, new in zip(found, state, strict=True):
            leaf[active] = new[: len(active)]
        active = _unfinished(found, active)
        if keep is not None:
            keep.write(found, ended=not (waiting or active))
    return found


def _unfinished(found: Mode, numbers: Iterable[int]) -> list[int]:
    return [i for i in numbers if not found.reached[i] and found.steps[i] < MAXITER]


@jax.jit
def _advance(
    model: LatentModel, h: jax.Array, shift: jax.Array, centre: jax.Array, states: Mode, least: jax.Array
) -> Mode:
    """Take a few steps in each of several problems."""

    def one(h, shift, centre, state):
        step = _stepper(model, h, shift, centre, least)
        return jax.lax.fori_loop(0, STRIDE, lambda _, s: jax.lax.cond(_ended(s), lambda s: s, step, s), state)

    return jax.lax.map(lambda given: one(*given), (h, shift, centre, states))


def _ended(state: Mode) -> jax.Array:
    return state.reached | (state.steps >= MAXITER)


def _stepper(
    model: LatentModel, h: jax.Array, shift: jax.Array, centre: jax.Array, least: jax.Array
) -> Callable[[Mode], Mode]:
    def residual(seen):
        return model.residual(seen, model.args)

    def energy(y):
        return 0.5 * jnp.sum((model.residuals(y, h) + shift) ** 2) + 0.5 * jnp.sum((y - centre) ** 2)

    def step(state: Mode) -> Mode:
        away = state.y - centre
        field, back = jax.vjp(lambda y: model.field(y, h, model.args), state.y)
        seen, slope = model.visible @ field, jax.vmap(lambda row: back(row)[0])(jnp.asarray(model.visible))
        bent = jax.jacfwd(residual)(seen)
        pull, curvature = bent.T @ (residual(seen) + shift), bent.T @ bent
        gradient, matrix = away + slope.T @ pull, curvature @ (slope @ slope.T)
        turned = curvature @ (slope @ gradient)

        def factors(stiff):
            return jax.scipy.linalg.lu_factor(stiff * jnp.eye(len(seen)) + matrix)

        def tried(stiff, lu):  # y - (stiff + KᵀGK)⁻¹ gradient
            y = state.y + (slope.T @ jax.scipy.linalg.lu_solve(lu, turned) - gradient) / stiff
            value = energy(y)
            return y, jnp.where(jnp.isfinite(value), value, jnp.inf)

        def damped():
            more = jax.vmap(lambda stiff: tried(stiff, factors(stiff)))(jnp.array(STIFF))
            y, values = (jnp.concatenate([one[None], several]) for one, several in zip(newton, more, strict=True))
            return y[jnp.argmin(values)], jnp.min(values)

        value, lu = energy(state.y), factors(1.0)
        newton = tried(1.0, lu)
        left = jnp.dot(gradient, state.y - newton[0])  # of a quadratic: twice what the step gains
        y, lower = jax.lax.cond(value - newton[1] >= 0.5 * SHARE * left, lambda: newton, damped)
        helps = lower < value
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diag(lu[0]))))
        hopeless = left - value - 0.5 * log_det < least  # with twice the gain that a quadratic has left
        # no step helps: the minimum is reached to rounding, or never will be
        steps = jnp.where(helps & ~hopeless, state.steps + 1, MAXITER).astype(jnp.int32)
        # where data leave a direction nearly free (the position, for closure phases) steps go on without a gain
        slow = helps & (value - lower <= SLOW)
        y, lower = jnp.where(helps, y, state.y), jnp.where(helps, lower, value)
        return Mode(y, lower, log_det, steps, (left <= NEAR) | slow)

    return step


def one_thread() -> AbstractContextManager:
    """Hold the linear algebra library to one thread: its matrices are small here, and waiting threads burn a core."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def draw_refits(model: LatentModel, h: np.ndarray, y0: np.ndarray, seed: int, keep: Any = None) -> Mode:
    """Return one draw of the posterior for every row of h (k, d): a refit of perturbed data and prior, from y0.

    keep: see `modes`.
    """
    rng = np.random.default_rng(seed)
    shift = rng.standard_normal((len(h), model.n_residuals))
    centre = rng.standard_normal((len(h), model.n))
    return modes(model, h, y0, shift, centre, keep=keep)
