"""Levenberg–Marquardt on normal equations, as a state machine: one tick is one Gram, whatever becomes of it.

Residuals are never seen, so rows may be anywhere. What is done about the price of that, the squared condition number:
every linear solve is rescaled to unit columns, and close to the answer, where values differ by rounding only, steps are
judged by gradients. The accuracy of the answer is then that of the gradient.

Steps are those of a trust region in Moré's scaled norm (1978), found exactly: the matrix is small, evaluations are not.
Where Gauss–Newton keeps mispredicting, the part of the Hessian it leaves out is added, from a symmetric rank-one
secant estimate as in NL2SOL (Dennis, Gay and Welsch 1981).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from shardfit.core.gram import Gram
from shardfit.core.status import Status
from shardfit.solve.covariance import normalised, standard_errors
from shardfit.solve.step import StepSolver

ACCEPT, POOR, GOOD = 1e-4, 0.25, 0.75  # actual over predicted decrease
RADIUS_SLACK = 0.1  # how closely a step must reach the trust region's edge
MAX_DAMPINGS = 40
BETTER = 2.0  # how many times better the secant model must predict, to count as a win
WINS = 3  # wins in a row that switch the secant model on
MAX_MISSES = 3  # rejected steps in a row, all below the value's resolution, that end a run


class State(NamedTuple):
    """Accepted point with its Gram, what was learnt about the models, and the trial being evaluated."""

    x: jax.Array
    value: jax.Array  # inf until the start has been evaluated
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    matrix: jax.Array
    secant: jax.Array  # (p, p) estimate of Σ r ∇²r, which JᵀJ leaves out
    wins: jax.Array
    misses: jax.Array
    scale: jax.Array  # (p,) largest column norms so far
    radius: jax.Array
    trial: jax.Array
    predicted: jax.Array  # (2,) decrease at the trial by Gauss–Newton and by the secant model
    full: jax.Array  # the trust region does not shorten the trial step
    largest: jax.Array  # (p,) largest absolute values so far: what parameters' rounding is measured by
    lower: jax.Array
    upper: jax.Array


class Step(NamedTuple):
    """A step (p,) and whether it is the model's minimum, not shortened by the trust region."""

    step: jax.Array
    full: jax.Array


@dataclass(frozen=True)
class LM(StepSolver):
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
    absolute_sigma: bool | None = None

    name: ClassVar[str] = "lm"
    needs: ClassVar[str] = "gram"
    bounded: ClassVar[bool] = True
    error_bars: ClassVar[bool] = True

    def extras(self, task, params, z):
        """Return covariance and standard errors."""
        absolute = normalised(task.problem.objective) if self.absolute_sigma is None else self.absolute_sigma
        bars = standard_errors(task.problem, task.objective, params, not absolute)
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

    def ask(self, state):
        """Return the trial point."""
        return state.trial

    def tell(self, state, evaluation: Gram):
        """Accept the trial or not, resize the trust region, and choose the next trial."""
        first = jnp.isinf(state.value)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(part)) for part in evaluation]))
        trial = Gram(*(jnp.where(finite, part, 0) for part in evaluation))
        step = state.trial - state.x
        decrease = _decrease(state, trial, step)
        augmented = state.wins >= WINS
        predicted = state.predicted[augmented.astype(int)]
        ratio = jnp.where(finite, decrease / jnp.where(predicted > 0, predicted, 1), -1)
        accepted = finite & (first | ((ratio > ACCEPT) & (predicted > 0)))
        moves = accepted & ~first

        here = Gram(*(jnp.where(accepted, a, b) for a, b in zip(trial, _gram(state), strict=True)))
        x = jnp.where(accepted, state.trial, state.x)
        columns = jnp.sqrt(jnp.diag(here.matrix))
        scale = jnp.maximum(jnp.where(first, _relative(x, columns), state.scale), columns)
        radius = jnp.where(first, _first_radius(x, here, scale), _resized(state, trial, step, ratio, finite))
        secant = jnp.where(moves, _secant(state, trial, step), state.secant)
        wins = jnp.where(finite & ~first, _wins(state, decrease), state.wins)
        largest = jnp.maximum(state.largest, jnp.abs(x))
        resolved = predicted > jnp.finfo(x.dtype).eps * here.value + _rounding(columns, largest)
        misses = jnp.where(first | moves | resolved, 0, state.misses + 1)

        hessian = here.matrix + jnp.where(wins >= WINS, secant, 0)
        free = _free(x, here.gradient, state.lower, state.upper)
        onward = _bounded_step(x, here.gradient, hessian, _positive(scale), radius, free, state.lower, state.upper)
        step = onward.step
        plain, extra = _model_decrease(here.gradient, here.matrix, step), -0.5 * step @ secant @ step
        after = State(
            x=x,
            value=jnp.where(accepted, here.value, state.value),
            gradient=here.gradient,
            status=state.status,
            steps=state.steps + moves,
            matrix=here.matrix,
            secant=secant,
            wins=wins,
            misses=misses,
            scale=scale,
            radius=radius,
            trial=x + step,
            predicted=jnp.stack([plain, plain + extra]),
            full=onward.full,
            largest=largest,
            lower=state.lower,
            upper=state.upper,
        )
        return after._replace(status=self._status(after, columns, free, ~moves, broken=first & ~finite))

    def _status(self, state, columns, free, still, broken):
        """Return why to stop, judged at the accepted point with the step that would be tried next."""
        eps, scale = jnp.finfo(state.x.dtype).eps, _positive(state.scale)
        cosines = jnp.where(free, jnp.abs(state.gradient) / _positive(columns), 0)
        predicted = state.predicted[(state.wins >= WINS).astype(int)]
        step = jnp.abs(state.trial - state.x)
        # after a bad start scales are far too large: a short step says something only where a longer one was refused
        short = still & (_norm(scale * step) <= 0.1 * eps * _norm(scale * state.x))
        ftol, gtol, xtol = max(self.ftol, float(eps) ** 2), max(self.gtol, float(eps)), max(self.xtol, float(eps))
        code = jnp.int32(Status.RUNNING.code)
        for holds, status in (
            (short | jnp.all(step == 0), Status.STALLED),
            (state.full & jnp.all(step <= xtol * jnp.abs(state.x)), Status.CONVERGED_STEP),
            (state.full & (predicted <= ftol * state.value), Status.CONVERGED_VALUE),
            ((state.misses >= MAX_MISSES) | (state.value <= _rounding(columns, state.largest)), Status.CONVERGED_VALUE),
            (jnp.max(cosines) <= gtol * jnp.sqrt(2 * state.value), Status.CONVERGED_GRADIENT),
            (broken, Status.NONFINITE),
        ):
            code = jnp.where(holds, jnp.int32(status.code), code)
        return code


def _gram(state):
    return Gram(state.value, state.gradient, state.matrix)


def _norm(vector):
    return jnp.sqrt(jnp.sum(vector**2))


def _positive(scale):
    """Return scales with 1 for columns that are zero: any will do, as they cannot matter yet."""
    return jnp.where(scale > 0, scale, 1)


def _decrease(state, trial, step):
    """Return by how much the trial lowers the value.

    Differences near rounding are replaced by the trapezoidal rule on the two gradients, which have digits left.
    """
    difference = state.value - trial.value
    resolution = jnp.finfo(step.dtype).eps ** (2 / 3) * state.value
    return jnp.where(jnp.abs(difference) <= resolution, -0.5 * step @ (state.gradient + trial.gradient), difference)


def _rounding(columns, largest):
    """Return the value that rounding of the parameters alone would make of vanishing residuals."""
    return 0.5 * (jnp.finfo(columns.dtype).eps * _norm(columns * largest)) ** 2


def _model_decrease(gradient, hessian, step):
    return -(gradient @ step + 0.5 * step @ hessian @ step)


def _relative(x, columns):
    """Return least scales (p,): doubling any parameter counts as much as doubling the one with the largest effect.

    A parameter the start is insensitive to could otherwise run off to where it is never felt again.
    """
    effect = jnp.max(columns * jnp.abs(x))
    return jnp.where(x == 0, 0, effect / _positive(jnp.abs(x)))


def _first_radius(x, gram, scale):
    """Return the length of the start itself; at the origin, what changes the residuals by their own length."""
    size = _norm(_positive(scale) * x)
    return jnp.where(size > 0, size, jnp.sqrt(2 * gram.value))


def _resized(state, trial, step, ratio, finite):
    length = _norm(_positive(state.scale) * step)
    slope = state.gradient @ step
    # where the parabola through both values with the first slope has its minimum
    shrink = 0.5 * slope / (slope + state.value - trial.value)
    shrink = jnp.where(finite & jnp.isfinite(shrink), jnp.clip(shrink, 0.1, 0.5), 0.1)
    grown = jnp.where(ratio > GOOD, jnp.maximum(state.radius, 2 * length), state.radius)
    return jnp.where(ratio < POOR, shrink * length, grown)


def _wins(state, decrease):
    """Return for how many trials running the secant model has predicted better; a clear loss starts anew."""
    plain, augmented = jnp.abs(decrease - state.predicted)
    kept = jnp.where(augmented <= plain, state.wins, 0)
    return jnp.where(BETTER * augmented < plain, jnp.minimum(state.wins + 1, WINS), kept)


def _secant(state, trial, step):
    """Return the symmetric rank-one update of the second-order part, sized down first where residuals have shrunk."""
    change = trial.gradient - state.gradient - 0.5 * (state.matrix + trial.matrix) @ step
    curvature = jnp.abs(step @ state.secant @ step)
    sized = state.secant * jnp.where(curvature > 0, jnp.minimum(1, jnp.abs(step @ change) / _positive(curvature)), 1)
    missing = change - sized @ step
    divisor, scale = missing @ step, _positive(state.scale)
    # almost perpendicular: the update would be large for no reason
    usable = jnp.abs(divisor) > 1e-8 * _norm(missing / scale) * _norm(step * scale)
    updated = sized + jnp.where(usable, jnp.outer(missing, missing) / jnp.where(usable, divisor, 1), 0)
    return jnp.where(jnp.all(jnp.isfinite(updated)), updated, 0)


def _free(x, gradient, lower, upper):
    """Return which parameters may move: not at a bound that the value pushes against."""
    return ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))


def _bounded_step(x, gradient, hessian, scale, radius, free, lower, upper) -> Step:
    """Return a step inside the box: whatever would leave it is put on its bound, and the rest is solved again."""

    def solve(carry):
        free, fixed, _, _ = carry
        trial = _trust_step(gradient + hessian @ fixed, hessian, scale, radius, free)
        reached = jnp.clip(x + trial.step + fixed, lower, upper) - x
        leaves = free & ((x + trial.step < lower) | (x + trial.step > upper))
        return free & ~leaves, jnp.where(leaves, reached, fixed), Step(reached, trial.full), jnp.any(leaves)

    nothing = jnp.zeros_like(x)
    start = (free, nothing, Step(nothing, jnp.zeros((), bool)), jnp.ones((), bool))
    left, _, inside, _ = jax.lax.while_loop(lambda carry: carry[3], solve, start)
    downhill = _downhill_step(x, gradient, hessian, scale, radius, free, lower, upper)
    # putting parameters on bounds one by one can spoil the model's decrease; straight downhill cannot
    better = _model_decrease(gradient, hessian, downhill) > _model_decrease(gradient, hessian, inside.step)
    better &= jnp.any(left != free)
    return Step(jnp.where(better, downhill, inside.step), inside.full & ~better)


def _downhill_step(x, gradient, hessian, scale, radius, free, lower, upper):
    """Return the scaled steepest-descent step to the model's minimum or the trust region's edge, clipped to the box."""
    direction = jnp.where(free, -gradient / scale**2, 0)
    curvature, length = direction @ hessian @ direction, _norm(scale * direction)
    edge = radius / _positive(length)
    best = jnp.where(curvature > 0, -(gradient @ direction) / _positive(curvature), edge)
    return jnp.clip(x + jnp.minimum(best, edge) * direction, lower, upper) - x


class _Search(NamedTuple):
    """Search for the damping whose step reaches the trust region's edge."""

    count: jax.Array
    damping: jax.Array
    low: jax.Array
    high: jax.Array
    step: jax.Array
    length: jax.Array
    full: jax.Array
    done: jax.Array


def _trust_step(gradient, hessian, scale, radius, free) -> Step:
    """Minimise the quadratic model over the free parameters with |scale · step| ≤ radius, to RADIUS_SLACK.

    Newton's iteration on the reciprocal length (Moré and Sorensen 1983), from zero damping up, in a shrinking bracket.
    """
    p, eps = gradient.shape[0], jnp.finfo(gradient.dtype).eps
    metric, gradient = scale**2, jnp.where(free, gradient, 0)
    hessian = jnp.where(free[:, None] & free[None, :], hessian, 0)

    def attempt(search):
        matrix = hessian + jnp.diag(jnp.where(free, search.damping * metric, 1))
        unit = jnp.sqrt(_positive(jnp.abs(jnp.diag(matrix))))
        # the small addition keeps a numerically singular matrix definite without being felt elsewhere
        matrix = matrix / jnp.outer(unit, unit) + p * eps * jnp.eye(p, dtype=gradient.dtype)
        factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        step = -cho_solve((factor, True), gradient / unit) / unit
        definite = jnp.all(jnp.isfinite(step))
        length = _norm(scale * step)
        full = definite & (search.damping == 0) & (length <= radius)
        done = full | (definite & (jnp.abs(length - radius) <= RADIUS_SLACK * radius))
        short = definite & (length <= radius)
        low, high = jnp.where(short, search.low, search.damping), jnp.where(short, search.damping, search.high)
        slope = _norm(solve_triangular(factor, metric * step / unit, lower=True))
        newton = search.damping + (length / radius - 1) * (length / slope) ** 2
        inside = definite & (newton > low) & (newton < high)
        damping = jnp.where(inside, newton, jnp.maximum(jnp.sqrt(low * high), 1e-3 * high))
        return _Search(search.count + 1, damping, low, high, jnp.where(definite, step, 0), length, full, done)

    # at this damping even a matrix as negative as its norm gives a step inside the region
    enough = _norm(gradient / scale) / radius + _norm(hessian / jnp.outer(scale, scale))
    zero, no = jnp.zeros_like(radius), jnp.zeros((), bool)
    start = _Search(jnp.zeros((), jnp.int32), zero, zero, enough, jnp.zeros_like(gradient), zero, no, no)
    end = jax.lax.while_loop(lambda s: ~s.done & (s.count < MAX_DAMPINGS), attempt, start)
    reach = (1 + RADIUS_SLACK) * radius / jnp.where(end.length > 0, end.length, 1)
    return Step(end.step * jnp.where(end.length > 0, jnp.minimum(1, reach), 1), end.full)
