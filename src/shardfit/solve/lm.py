"""Levenberg–Marquardt on normal equations, as a state machine: one tick is one Gram, whatever becomes of it.

Residuals are never seen, so rows may be anywhere. What is done about the price of that, the squared condition number:
every linear solve is rescaled to unit columns, and close to the answer, where values differ by rounding only, steps are
judged by gradients. The accuracy of the answer is then that of the gradient. Where the matrix has lost digits even so,
derivatives are taken along other directions from then on, and steps come from the triangular factor of the Jacobian
(core/factor.py).

Steps are those of a trust region in Moré's scaled norm (1978), found exactly: the matrix is small, evaluations are not.
Where Gauss–Newton keeps mispredicting, the part of the Hessian it leaves out is added, from a symmetric rank-one
secant estimate as in NL2SOL (Dennis, Gay and Welsch 1981).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.factor import TURNS, Factored, factored_near, invertible
from shardfit.core.gram import Gram
from shardfit.core.status import Status
from shardfit.solve.covariance import standard_errors
from shardfit.solve.marquardt import ACCEPT, POOR, SETTLED, Marquardt, grown
from shardfit.solve.trust_region import (
    bounded_step,
    factored_step,
    free_parameters,
    model_decrease,
    norm,
    positive,
    trust_step,
)

BETTER = 2.0  # how many times better the secant model must predict, to count as a win
WINS = 3  # wins in a row that switch the secant model on
MAX_MISSES = 3  # rejected steps in a row, all below the value's resolution, that end a run
BLURRED = 8.0  # times the precision: what rounding makes of the Jacobian's columns, and of residuals
NEAR = 1e-10  # share of the value that the model's minimum may still gain where no step does: 1e-5 standard errors

ROOTED = "The Jacobian's columns are nearly dependent: steps came from its triangular factor R instead of JᵀJ."
LEFT = 1e3  # times the present values beyond which earlier ones no longer blur them


class State(NamedTuple):
    """Accepted point with its Gram, what was learnt about the models, and the trial being evaluated."""

    x: jax.Array
    value: jax.Array  # inf until the start has been evaluated
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    matrix: jax.Array
    root: jax.Array  # (p, p) triangular factor of the matrix
    along: jax.Array  # (p,) residuals along its orthonormal columns
    sharp: jax.Array  # the factor has lost no digits
    rooted: jax.Array  # derivatives are taken along the factor's directions, and steps come from it
    near: jax.Array  # (p, p) the factor whose directions the trial is evaluated in: the unit matrix unless rooted
    renewed: jax.Array  # how often in a row the accepted point was evaluated again, in better directions
    secant: jax.Array  # (p, p) estimate of Σ r ∇²r, which JᵀJ leaves out
    wins: jax.Array
    misses: jax.Array
    scale: jax.Array  # (p,) largest column norms so far
    radius: jax.Array
    trial: jax.Array
    predicted: jax.Array  # (2,) decrease at the trial by Gauss–Newton and by the secant model
    full: jax.Array  # the trust region does not shorten the trial step
    largest: jax.Array  # (p,) largest absolute values of late: what parameters' rounding is measured by
    lower: jax.Array
    upper: jax.Array


@dataclass(frozen=True)
class LM(Marquardt):
    """Levenberg–Marquardt for least squares, with bounds. Tolerances do not depend on the parameters' units.

    ftol: predicted relative decrease of the value; its square root is about the distance to the answer in standard
    errors. gtol: cosine of the angle between residuals and any column of the Jacobian that can still be used.
    xtol: relative change of every parameter. Below what the precision can show, tolerances are raised to it.
    absolute_sigma: True takes residuals as normalised, covariance (JᵀJ)⁻¹; False scales it by the reduced χ²; None
    takes them as normalised if every data term has an entry `sigma`.
    """

    maxiter: int = 1000
    ftol: float = 1e-20
    gtol: float = 1e-14
    xtol: float = 1e-13

    name: ClassVar[str] = "lm"
    needs: ClassVar[str] = "gram"
    bounded: ClassVar[bool] = True
    confirmed: ClassVar[bool] = False  # normal equations see more than a few gradients do
    short_runs: ClassVar[bool] = True

    def extras(self, task, params, finish):
        """Return covariance and standard errors."""
        scale = not self.is_absolute(task.problem.objective)
        bars = standard_errors(task.problem, task.objective, params, scale, known=finish.equations)
        return bars.fields, bars.note

    def init(self, z0, lower, upper):
        """Return the state before the first evaluation."""
        p, dtype = z0.shape[0], z0.dtype
        vector, matrix, count = jnp.zeros_like(z0), jnp.zeros((p, p), dtype), jnp.zeros((), jnp.int32)
        inf = jnp.full((), jnp.inf, dtype)
        lower = jnp.full_like(z0, -jnp.inf) if lower is None else lower
        upper = jnp.full_like(z0, jnp.inf) if upper is None else upper
        return State(
            x=jnp.clip(z0, lower, upper),
            value=inf,
            gradient=vector,
            status=count,
            steps=count,
            matrix=matrix,
            root=matrix,
            along=vector,
            sharp=jnp.zeros((), bool),
            rooted=jnp.zeros((), bool),
            near=jnp.eye(p, dtype=dtype),
            renewed=count,
            secant=matrix,
            wins=count,
            misses=count,
            scale=vector,
            radius=inf,
            trial=jnp.clip(z0, lower, upper),
            predicted=jnp.zeros(2, dtype),
            full=jnp.zeros((), bool),
            largest=vector,
            lower=lower,
            upper=upper,
        )

    def equations(self, state):
        """Return the normal equations at the accepted point, with their factor where steps came from it."""
        return _here(state) if bool(state.rooted) else Gram(state.value, state.gradient, state.matrix)

    def note(self, state):
        """Return that steps came from the triangular factor, where they did."""
        return ROOTED if bool(state.rooted) else ""

    def evaluate(self, space, objective, z, key):
        """Return the normal equations at a point, made in the directions of a factor: z is the pair of them."""
        return factored_near(objective, space, z[0], key, z[1])

    def step(self, evaluate, state):
        """Return the state after one evaluation."""
        return self.tell(state, evaluate((state.trial, state.near)))

    def ask(self, state):
        """Return the trial point."""
        return state.trial

    def tell(self, state, evaluation: Gram | Factored):
        """Accept the trial or not, resize the trust region, and choose the next trial."""
        first = jnp.isinf(state.value)
        evaluation = _with_factor(evaluation)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(part)) for part in evaluation]))
        trial = Factored(*(jnp.where(finite, part, jnp.zeros_like(part)) for part in evaluation))
        step = state.trial - state.x
        again = finite & ~first & (state.renewed > 0)
        decrease = _decrease(state, trial, step)
        augmented = state.wins >= WINS
        predicted = state.predicted[augmented.astype(int)]
        ratio = jnp.where(finite, decrease / jnp.where(predicted > 0, predicted, 1), -1)
        accepted = finite & (first | again | ((ratio > ACCEPT) & (predicted > 0)))
        moves = accepted & ~first & ~again

        here = Factored(*(jnp.where(accepted, a, b) for a, b in zip(trial, _here(state), strict=True)))
        x = jnp.where(accepted, state.trial, state.x)
        columns = jnp.sqrt(jnp.diag(here.matrix))
        scale = jnp.maximum(jnp.where(first, _relative(x, columns), state.scale), columns)
        resized = jnp.where(again, state.radius, _resized(state, trial, step, ratio, finite))
        radius = jnp.where(first, _first_radius(x, here, scale), resized)
        secant = jnp.where(moves, _secant(state, trial, step), state.secant)
        wins = jnp.where(finite & ~first & ~again, _wins(state, decrease), state.wins)
        # a sum is rounded as the larger of its parts; what a start was that lies orders away is forgotten
        ends = jnp.maximum(jnp.abs(x), jnp.abs(state.x))
        late = jnp.where(moves, jnp.minimum(state.largest, LEFT * ends), state.largest)
        largest = jnp.maximum(ends, late)
        noise = _noise(here.value, columns, largest)
        misses = jnp.where(first | again | moves | (predicted > noise), 0, state.misses + 1)
        rooted = state.rooted | (accepted & ~here.sharp)

        after = state._replace(
            x=x,
            value=jnp.where(accepted, here.value, state.value),
            gradient=here.gradient,
            steps=state.steps + moves,
            matrix=here.matrix,
            root=here.root,
            along=here.along,
            sharp=here.sharp,
            rooted=rooted,
            near=jnp.where(rooted, invertible(here.root), state.near),
            secant=secant,
            wins=wins,
            misses=misses,
            scale=scale,
            radius=radius,
            largest=largest,
        )
        free = free_parameters(x, here.gradient, state.lower, state.upper)
        after, gain = _with_trial(after, free)
        status = self._status(after, columns, free, still=~moves & ~again, gain=gain, noise=noise, ends=ends)
        after = _ended(after, status)
        return after._replace(status=jnp.where(first & ~finite, jnp.int32(Status.NONFINITE.code), after.status))

    def _status(self, state, columns, free, still, gain, noise, ends):
        """Return why to stop, judged at the accepted point with the step that would be tried next.

        ends: absolute values at both ends of the last step; still: the last trial was refused; gain: how much lower the
        model's minimum is; noise: what rounding hides of it. A run that cannot move has converged if nothing is left to
        gain, and is stuck if there is: rounding of the model's own terms, of which only residuals are seen, may be far
        larger than theirs.
        """
        settled = gain <= SETTLED * noise
        eps, scale = jnp.finfo(state.x.dtype).eps, positive(state.scale)
        cosines = jnp.where(free, jnp.abs(state.gradient) / positive(columns), 0)
        predicted = state.predicted[(state.wins >= WINS).astype(int)]
        step = jnp.abs(state.trial - state.x)
        # after a bad start scales are far too large: a short step says something only where a longer one was refused
        short = still & (norm(scale * step) <= 0.1 * eps * norm(scale * state.x))
        stuck = short | jnp.all(step == 0)
        missed = state.misses >= MAX_MISSES
        ftol, gtol, xtol = max(self.ftol, float(eps) ** 2), max(self.gtol, float(eps)), max(self.xtol, float(eps))
        code = jnp.int32(Status.RUNNING.code)
        for holds, status in (
            (stuck, Status.STALLED),
            ((stuck & (gain <= NEAR * state.value)) | (settled & (stuck | missed)), Status.CONVERGED_VALUE),
            (state.full & jnp.all(step <= xtol * jnp.abs(state.x)), Status.CONVERGED_STEP),
            (state.full & (predicted <= ftol * state.value), Status.CONVERGED_VALUE),
            (state.value <= _rounding(columns, ends), Status.CONVERGED_VALUE),
            # the angle with a column says little of one with a difference of nearly equal columns
            (~state.rooted & (jnp.max(cosines) <= gtol * jnp.sqrt(2 * state.value)), Status.CONVERGED_GRADIENT),
        ):
            code = jnp.where(holds, jnp.int32(status.code), code)
        return code


def _here(state):
    return Factored(state.value, state.gradient, state.matrix, state.root, state.along, state.sharp)


def _with_factor(evaluation):
    """Return normal equations of terms' own as if they were exact: there are no better ones."""
    if isinstance(evaluation, Factored):
        return evaluation
    nothing = jnp.zeros_like(evaluation.matrix), jnp.zeros_like(evaluation.gradient)
    value, gradient, matrix = evaluation
    return Factored(value, gradient, matrix, *nothing, jnp.ones((), bool))


def _with_trial(state, free):
    """Return the state with its next trial, and the decrease at the model's minimum, however far away."""
    augmented = state.wins >= WINS
    hessian = state.matrix + jnp.where(augmented, state.secant, 0)
    scale = positive(state.scale)
    columns = jnp.sqrt(jnp.diag(state.matrix))
    eps = BLURRED * jnp.finfo(state.x.dtype).eps
    noise = eps * norm(columns * state.largest), eps * jnp.sqrt(2 * state.value)

    def by_factor(fixed, free):
        return factored_step(state.along + state.root @ fixed, state.root, scale, state.radius, free, noise)

    def by_matrix(fixed, free):
        return trust_step(state.gradient + hessian @ fixed, hessian, scale, state.radius, free)

    def solved(fixed, free):
        return jax.lax.cond(state.rooted & ~augmented, by_factor, by_matrix, fixed, free)

    onward = bounded_step(state.x, state.gradient, hessian, scale, state.radius, free, state.lower, state.upper, solved)
    step = onward.step
    moved = state.root @ step
    of_factor = -(state.along @ moved + 0.5 * moved @ moved)
    plain = jnp.where(state.rooted, of_factor, model_decrease(state.gradient, state.matrix, step))
    predicted = jnp.stack([plain, plain - 0.5 * step @ state.secant @ step])
    return state._replace(trial=state.x + step, predicted=predicted, full=onward.full), onward.gain


def _ended(state, status):
    """Return the state with its status. What digits that were lost say of an end is none yet.

    The same point comes next then, in the directions now known.
    """
    unclear = state.rooted & ~state.sharp & (status != Status.RUNNING.code) & (state.renewed < TURNS)
    return state._replace(
        trial=jnp.where(unclear, state.x, state.trial),
        renewed=jnp.where(unclear, state.renewed + 1, 0),
        status=jnp.where(unclear, jnp.int32(Status.RUNNING.code), status),
    )


def _slope(state, here, step):
    """Return the derivative of the value along a step, of factors without the cancellation of Jᵀr."""
    return jnp.where(state.rooted, here.along @ (here.root @ step), here.gradient @ step)


def _decrease(state, trial, step):
    """Return by how much the trial lowers the value.

    Differences near rounding are replaced by the trapezoidal rule on the two gradients, which have digits left.
    """
    difference = state.value - trial.value
    resolution = jnp.finfo(step.dtype).eps ** (2 / 3) * state.value
    by_slopes = -0.5 * (_slope(state, state, step) + _slope(state, trial, step))
    return jnp.where(jnp.abs(difference) <= resolution, by_slopes, difference)


def _rounding(columns, largest):
    """Return the value that rounding of the parameters alone would make of vanishing residuals."""
    return 0.5 * (jnp.finfo(columns.dtype).eps * norm(columns * largest)) ** 2


def _noise(value, columns, largest):
    """Return the decrease that rounding of value and parameters hides."""
    return jnp.finfo(columns.dtype).eps * value + _rounding(columns, largest)


def _relative(x, columns):
    """Return least scales (p,): doubling any parameter counts as much as doubling the one with the largest effect.

    A parameter the start is insensitive to could otherwise run off to where it is never felt again.
    """
    effect = jnp.max(columns * jnp.abs(x))
    return jnp.where(x == 0, 0, effect / positive(jnp.abs(x)))


def _first_radius(x, gram, scale):
    """Return the length of the start itself; at the origin, what changes the residuals by their own length."""
    size = norm(positive(scale) * x)
    return jnp.where(size > 0, size, jnp.sqrt(2 * gram.value))


def _resized(state, trial, step, ratio, finite):
    length = norm(positive(state.scale) * step)
    slope = state.gradient @ step
    # where the parabola through both values with the first slope has its minimum
    shrink = 0.5 * slope / (slope + state.value - trial.value)
    shrink = jnp.where(finite & jnp.isfinite(shrink), jnp.clip(shrink, 0.1, 0.5), 0.1)
    return jnp.where(ratio < POOR, shrink * length, grown(state.radius, ratio, length))


def _wins(state, decrease):
    """Return for how many trials running the secant model has predicted better; a clear loss starts anew."""
    plain, augmented = jnp.abs(decrease - state.predicted)
    kept = jnp.where(augmented <= plain, state.wins, 0)
    return jnp.where(BETTER * augmented < plain, jnp.minimum(state.wins + 1, WINS), kept)


def _secant(state, trial, step):
    """Return the symmetric rank-one update of the second-order part, sized down first where residuals have shrunk."""
    change = trial.gradient - state.gradient - 0.5 * (state.matrix + trial.matrix) @ step
    curvature = jnp.abs(step @ state.secant @ step)
    sized = state.secant * jnp.where(curvature > 0, jnp.minimum(1, jnp.abs(step @ change) / positive(curvature)), 1)
    missing = change - sized @ step
    divisor, scale = missing @ step, positive(state.scale)
    # almost perpendicular: the update would be large for no reason
    least = jnp.sqrt(jnp.finfo(step.dtype).eps)
    usable = jnp.abs(divisor) > least * norm(missing / scale) * norm(step * scale)
    updated = sized + jnp.where(usable, jnp.outer(missing, missing) / jnp.where(usable, divisor, 1), 0)
    return jnp.where(jnp.all(jnp.isfinite(updated)), updated, 0)
