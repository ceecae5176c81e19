"""Station gains that suit a model best, found anew at every evaluation: a fit has no unknowns for them.

The cost of a set of visibilities is Σ |d - g₁ g₂* m|²/σ² + Σ (ln|g|/tolerance)². At its minimum over the gains its
derivative with respect to the model is that with gains held, so residuals made with them, through which no derivative
passes, have the right gradient. Sets are independent, and one that has converged stays as it is: what a set's gains are
does not depend on its neighbours.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from shardfit.domains.vlbi.arrays import Array, Complex, Float

AVERAGED = 8  # steps of the alternating solution, each averaged with the one before, that find the phases
MAX_STEPS = 40
CONVERGED = 1e-12  # share of the cost that a full step may still gain
POLISH, SMALL = 1e-9, 1e-6  # damping of the last step, and the share of the cost that it may promise at most
DAMPING = 1e-3, 1e-12, 1e12  # first, least and most, relative to the largest curvature


class Sets(NamedTuple):
    """Visibilities of independent sets of gains; leading axes are theirs.

    data, model: (..., b) complex; weight: (..., b) 1/σ, or 0; first, second: (..., b, g) 1 for the gains of a baseline;
    held: (..., g) 1/tolerance of ln|g|, positive.
    """

    data: Complex[Array, "*sets b"]
    model: Complex[Array, "*sets b"]
    weight: Float[Array, "*sets b"]
    first: Float[Array, "*sets b g"]
    second: Float[Array, "*sets b g"]
    held: Float[Array, "*sets g"]


Logs = Float[Array, "*sets 2 g"]  # ln|g| and phase


def best_gains(sets: Sets) -> Logs:
    """Return ln|g| and phase of every gain, without derivative."""
    sets = Sets(*map(jax.lax.stop_gradient, sets))
    gains = _alternating(sets)
    x = jnp.stack([jnp.log(jnp.abs(gains)), jnp.angle(gains)], -2)
    return jax.lax.stop_gradient(_newton(x, sets))


def turned(x: Logs, sets: Sets) -> Complex[Array, "*sets b"]:
    """Return the model with gains."""
    size = _of_baselines(sets.first + sets.second, x[..., 0, :])
    turn = _of_baselines(sets.first - sets.second, x[..., 1, :])
    return jnp.exp(size) * jax.lax.complex(jnp.cos(turn), jnp.sin(turn)) * sets.model


def cost(x: Logs, sets: Sets) -> Float[Array, "*sets"]:
    """Return the cost of every set."""
    missed = sets.weight * (sets.data - turned(x, sets))
    return jnp.sum(missed.real**2 + missed.imag**2, -1) + jnp.sum((sets.held * x[..., 0, :]) ** 2, -1)


def _of_baselines(ends: Array, values: Array) -> Array:
    return jnp.einsum("...bg,...g->...b", ends, values)


def _of_stations(ends: Array, values: Array) -> Array:
    return jnp.einsum("...bg,...b->...g", ends, values)


def _alternating(sets: Sets) -> Complex[Array, "*sets g"]:
    """Solve for every gain in turn, the others held, from 1 on.

    Errors are those that amplitudes have before calibration: by thermal errors the strongest baselines alone decide,
    and phases stick where these do.
    """
    loose = _of_baselines(sets.first + sets.second, sets.held**-2) * jnp.abs(sets.data) ** 2
    square = jnp.where(sets.weight > 0, 1 / (1 / jnp.where(sets.weight > 0, sets.weight, 1) ** 2 + loose), 0)
    overlap, size = square * sets.data * sets.model.conj(), square * jnp.abs(sets.model) ** 2

    def one(gains, _):
        here, there = _of_baselines(sets.first, gains), _of_baselines(sets.second, gains)
        wanted = _of_stations(sets.first, overlap * there) + _of_stations(sets.second, overlap.conj() * here)
        curved = _of_stations(sets.first, size * jnp.abs(there) ** 2)
        curved += _of_stations(sets.second, size * jnp.abs(here) ** 2)
        # the prior as if of g itself around 1: it only keeps amplitudes near
        least = sets.held**2
        long = (jnp.abs(wanted) + least) / (curved + least)
        phase = jnp.where(wanted == 0, 1.0, wanted / jnp.where(wanted == 0, 1.0, jnp.abs(wanted)))
        return 0.5 * (gains + long * phase), None

    start = jnp.ones(sets.held.shape, sets.data.dtype)
    return jax.lax.scan(one, start, None, length=AVERAGED)[0]


def _newton(x: Logs, sets: Sets) -> Logs:
    """Follow damped Newton steps until a full one gains nothing."""
    eps = jnp.finfo(sets.held.dtype).eps
    first, least, most = DAMPING

    def going(state):
        _, _, _, active, k = state
        return jnp.any(active) & (k < MAX_STEPS)

    def moved(x, damping):
        gradient, hessian = _derivatives(x, sets)
        largest = jnp.max(jnp.abs(jnp.diagonal(hessian, axis1=-2, axis2=-1)), -1)
        damped = hessian + (damping * largest)[..., None, None] * jnp.eye(hessian.shape[-1])
        move = cho_solve(cho_factor(damped), gradient[..., None])[..., 0]
        return x - move.reshape(x.shape), jnp.sum(gradient * move, -1)  # twice what the step promises

    def step(state):
        x, now, damping, active, k = state
        trial, gain = moved(x, damping)
        there = cost(trial, sets)
        lower = there < now  # not so where the matrix has no factor
        settled = (gain <= max(CONVERGED, 8 * eps) * now) & (damping < first)
        moves = active & lower
        x = jnp.where(moves[..., None, None], trial, x)
        now = jnp.where(moves, there, now)
        damping = jnp.where(active, jnp.where(lower, 0.1 * damping, 10 * damping), damping)
        active = active & ~settled & (damping < most)
        return x, now, jnp.clip(damping, least, most), active, k + 1

    now = cost(x, sets)
    state = x, now, jnp.full_like(now, first), jnp.isfinite(now), 0
    x, now, _, active, _ = jax.lax.while_loop(going, step, state)
    # where a cost's digits end, gains have half of theirs: one more step, or the gradient shows when each set has ended
    last, gain = moved(x, jnp.full_like(now, POLISH))
    return jnp.where((~active & (jnp.abs(gain) <= SMALL * now))[..., None, None], last, x)


def _derivatives(x: Logs, sets: Sets) -> tuple[Array, Array]:
    """Return gradient (..., 2 g) and second derivatives (..., 2 g, 2 g) of the cost.

    With the sum p of ln|g| and the difference q of phases, the cost of a baseline is |d - m exp(p + iq)|²: all its
    derivatives are real or imaginary parts of d* m exp(p + iq).
    """
    model = sets.weight * turned(x, sets)
    overlap, size = (sets.weight * sets.data).conj() * model, jnp.abs(model) ** 2
    by_p, by_q = sets.first + sets.second, sets.first - sets.second
    prior = 2 * sets.held**2
    down_p = _of_stations(by_p, 2 * (size - overlap.real)) + prior * x[..., 0, :]
    down_q = _of_stations(by_q, 2 * overlap.imag)

    def curved(one, values, other):
        return jnp.einsum("...bi,...b,...bj->...ij", one, values, other)

    pp = curved(by_p, 4 * size - 2 * overlap.real, by_p) + prior[..., None] * jnp.eye(prior.shape[-1])
    pq, qq = curved(by_p, 2 * overlap.imag, by_q), curved(by_q, 2 * overlap.real, by_q)
    upper, lower = jnp.concatenate([pp, pq], -1), jnp.concatenate([pq.swapaxes(-1, -2), qq], -1)
    return jnp.concatenate([down_p, down_q], -1), jnp.concatenate([upper, lower], -2)
