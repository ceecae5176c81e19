"""L-BFGS as a state machine: one tick is one evaluation, whether it is a new iteration or a line-search trial.

The inverse Hessian is in the compact form of Byrd, Nocedal and Schnabel (1994): two products with the stored pairs and
some with small matrices, instead of a chain of dot products. It is fast on one device and under vmap.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.status import Status
from shardfit.solve.base import ValueAndGrad
from shardfit.solve.projected import Box, aim, free_gradient, kept_inside, make_box, projected_gradient
from shardfit.solve.step import StepSolver

ARMIJO, WOLFE = 1e-4, 0.9
MAX_TRIALS = 25
FLAT = 100.0  # roundings of the value below which a slope says nothing


class Trial(NamedTuple):
    """A place on the search line: step length, value, slope."""

    t: jax.Array
    value: jax.Array
    slope: jax.Array


class Pairs(NamedTuple):
    """Stored steps s and gradient changes y in a ring of m places, and their products, by place.

    To read the vectors is what an iteration costs beside its evaluation. It happens twice: for the products with a new
    gradient, and for the direction.
    """

    vectors: jax.Array  # (m, 2, n) s and y
    with_gradient: jax.Array  # (m, 2) products of each with the gradient
    inverse: jax.Array  # (m, m) of s_i · y_j without those of i younger than j; zero where there is no pair
    sy: jax.Array  # (m,) s_i · y_i
    yy: jax.Array  # (m, m) y_i · y_j
    head: jax.Array  # place of the next pair, that of the oldest if all are in use
    scale: jax.Array  # s · y / y · y of the youngest: what one number says of the inverse Hessian; 0 without pairs


class State(NamedTuple):
    """Accepted point, search direction, and where the line search stands."""

    x: jax.Array
    value: jax.Array
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    pairs: Pairs
    direction: jax.Array
    slope: jax.Array
    t: jax.Array  # step length of the trial being evaluated
    low: Trial  # best trial so far that satisfies sufficient decrease; t = 0 is the start
    high: Trial  # the other end of the bracket
    bracketed: jax.Array
    trials: jax.Array  # -1: the start itself has not been evaluated yet
    evaluations: jax.Array
    past: jax.Array  # (patience,) accepted value after each of the last evaluations, in a ring
    unit: jax.Array  # largest gradient component at the start, which tolerances and first steps are measured by
    box: Box | None = None  # where there are bounds


@dataclass(frozen=True)
class LBFGS(StepSolver):
    """L-BFGS on the device, strong Wolfe line search (bracket and zoom with cubic interpolation), with box bounds.

    memory: stored pairs. ftol: relative change of the value; gtol: largest gradient component (projected where there
    are bounds), relative to that at the start; gatol: the same, absolute, for coordinates and values that have a
    natural unit; xtol: relative step.
    patience: stop when this many evaluations together lowered the value by no more than ptol of it; 0: never. Unlike
    ftol, it is not misled by a single short step.
    """

    gtol: float = 1e-8
    gatol: float = 0.0  # type: ignore[misc]
    memory: int = 10
    patience: int = 0
    ptol: float = 1e-5
    name: ClassVar[str] = "lbfgs"
    bounded: ClassVar[bool] = True
    scaled: ClassVar[bool] = True
    any_length: ClassVar[bool] = True
    short_runs: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("memory", 1), ("patience", 0), ("ptol", 0), ("gatol", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{self.name}: {name}={getattr(self, name)} must be at least {least}.")

    def init(self, z0, lower, upper):
        """Return the state before the first evaluation."""
        m, n, dtype = self.memory, z0.shape[0], z0.dtype
        zero, none = jnp.zeros((), dtype), jnp.zeros_like(z0)
        vectors, square = jnp.zeros((m, 2, n), dtype), jnp.zeros((m, m), dtype)
        count = jnp.zeros((), jnp.int32)
        pairs = Pairs(vectors, vectors[..., 0], square, square[0], square, count, zero)
        start = Trial(zero, jnp.full((), jnp.inf, dtype), zero)
        return State(
            z0,
            start.value,
            none,
            count,
            count,
            pairs,
            none,
            zero,
            zero,
            start,
            start,
            jnp.zeros((), bool),
            count - 1,
            count,
            jnp.full(self.patience, jnp.inf, dtype),
            zero,
            make_box(lower, upper, dtype),
        )

    def ask(self, state):
        """Return the trial point."""
        there = state.x + state.t * state.direction
        return there if state.box is None else kept_inside(there, state.box)

    def tell(self, state, evaluation: ValueAndGrad):
        """Accept the trial and choose a new direction, or choose the next trial on the same line.

        Both are computed and one is selected, without branches: the state stays in place in a device loop, and many
        runs can share a batch.
        """
        value, gradient = evaluation
        slope = jnp.vdot(gradient, state.direction)
        # a gradient that is not finite somewhere has no finite slope, in whatever direction
        finite = jnp.isfinite(value) & jnp.isfinite(slope)
        first, returned = state.trials < 0, state.trials > MAX_TRIALS
        trial = Trial(state.t, jnp.where(finite, value, jnp.inf), jnp.where(finite, slope, 0))
        none = jnp.zeros((), bool), state.low, state.high, state.bracketed, state.t
        accepted, low, high, bracketed, t_next = jax.lax.cond(first, lambda: none, lambda: self.search(state, trial))

        # nothing left on this line: out of trials, or the bracket is below resolution
        span = jnp.max(jnp.abs(state.direction)) * jnp.abs(t_next - low.t)
        unresolved = bracketed & (span <= 0.5 * jnp.finfo(value.dtype).eps * jnp.max(jnp.abs(state.x)))
        spent = ~accepted & ~returned & ((state.trials >= MAX_TRIALS) | unresolved)
        returns = spent & (low.t > 0) & (low.value < state.value)  # evaluated again: its gradient is not kept
        moves = ~first & finite & (accepted | returned)
        fails = ~first & ~moves & (spent | returned) & ~returns
        aims = first | moves | fails

        here = jnp.where(finite & (first | moves), gradient, state.gradient)
        if state.box is None:
            step = jnp.where(moves, state.t, 0) * state.direction
            x = state.x + step
        else:
            x = jnp.where(moves, self.ask(state), state.x)
            step = x - state.x
        pairs = _store(state.pairs, step, here - state.gradient, here, moves)
        pairs = pairs._replace(inverse=jnp.where(fails, 0, pairs.inverse), scale=jnp.where(fails, 0, pairs.scale))
        free = here if state.box is None else free_gradient(x, here, state.box)
        unit = jnp.where(first, _largest(free), state.unit)
        if state.box is None:
            slopes, box, length = here, None, _norm(here)
            direction, slope = _direction(pairs, here, length)
            # without curvature the direction has unit length, which says nothing about the step's: the nearer to the
            # minimum, the shorter
            t = jnp.where(pairs.scale > 0, 1, jnp.minimum(1, length / unit))
        else:
            pairs = pairs._replace(sy=jnp.where(fails, 0, pairs.sy))
            slopes = projected_gradient(x, here, unit, state.box)
            direction, slope, reach, t = aim(pairs.vectors, pairs.sy, pairs.head, x, here, unit, state.box)
            box = state.box._replace(reach=jnp.where(aims, reach, state.box.reach))
        start = Trial(jnp.zeros_like(t_next), jnp.where(fails, state.value, trial.value), slope)
        value_now = jnp.where(first | moves, trial.value, state.value)
        past, idle = self._progress(state, value_now)
        return State(
            x=x,
            value=value_now,
            gradient=here,
            status=self._status(state._replace(unit=unit), trial, slopes, step, (first, moves, fails, idle)),
            steps=state.steps + moves,
            pairs=pairs,
            direction=jnp.where(aims, direction, state.direction),
            slope=jnp.where(aims, slope, state.slope),
            t=jnp.where(aims, t, jnp.where(returns, low.t, t_next)),
            low=_choose(aims, start, low),
            high=_choose(aims, start, high),
            bracketed=~aims & bracketed,
            trials=jnp.where(aims, 0, jnp.where(returns, MAX_TRIALS, state.trials) + 1),
            evaluations=state.evaluations + 1,
            past=past,
            unit=unit,
            box=box,
        )

    def _progress(self, state, value):
        """Return the past values with this one, and whether the last `patience` evaluations brought too little."""
        if not self.patience:
            return state.past, jnp.zeros((), bool)
        place = state.evaluations % self.patience
        gained = state.past[place] - value
        full = state.evaluations >= self.patience
        return state.past.at[place].set(value), full & (gained <= self.ptol * jnp.abs(value))

    def _status(self, state, taken, gradient, step, events):
        first, moves, fails, idle = events
        size = jnp.maximum(jnp.maximum(jnp.abs(state.value), jnp.abs(taken.value)), jnp.finfo(step.dtype).tiny)
        small_f = state.value - taken.value <= self.ftol * size
        small_x = jnp.max(jnp.abs(step)) <= self.xtol * jnp.max(jnp.abs(state.x))
        flat = jnp.max(jnp.abs(gradient)) <= jnp.maximum(self.gtol * state.unit, self.gatol)
        flat |= flat_to_rounding(state.x + step, taken.value, gradient)
        return _first(
            (first & ~jnp.isfinite(taken.value), Status.NONFINITE),
            ((first | moves) & flat, Status.CONVERGED_GRADIENT),
            (moves & small_f & (self.ftol > 0), Status.CONVERGED_VALUE),
            (moves & small_x & (self.xtol > 0), Status.CONVERGED_STEP),
            (idle, Status.CONVERGED_PROGRESS),
            # steepest descent failed too
            (fails & (state.pairs.scale == 0), Status.STALLED),
        )

    def search(self, state: State, trial: Trial):
        """Return (accepted, low, high, bracketed, next step length) by the strong Wolfe conditions."""
        enough = _enough_decrease(state, trial)
        too_long = ~enough | ((trial.value > state.low.value + _slack(state)) & (state.low.t > 0))
        flat = jnp.abs(trial.slope) <= -WOLFE * state.slope
        uphill = jnp.where(state.bracketed, trial.slope * (state.high.t - state.low.t) >= 0, trial.slope >= 0)
        high = _choose(too_long, trial, _choose(uphill, state.low, state.high))
        low = _choose(too_long, state.low, trial)
        bracketed = state.bracketed | too_long | uphill
        onward = jnp.clip(_secant(state.low, trial), 2 * trial.t, 10 * trial.t)
        if state.box is not None:  # where the line leaves the box it ends
            flat |= ~uphill & (trial.t >= state.box.reach)
            onward = jnp.minimum(onward, state.box.reach)
        return (
            (enough & ~too_long & flat),
            low,
            high,
            bracketed,
            jnp.where(bracketed, _inside(low, high, state.trials), onward),
        )


@dataclass(frozen=True)
class BacktrackingLBFGS(LBFGS):
    """L-BFGS whose line search only shortens: fewer evaluations per step, no curvature condition."""

    name: ClassVar[str] = "lbfgs-bt"

    def search(self, state: State, trial: Trial):
        """Return (accepted, low, high, bracketed, next step length) by sufficient decrease alone."""
        accepted = _enough_decrease(state, trial)
        shorter = _inside(state.low, trial, jnp.zeros_like(state.trials))
        return accepted, state.low, trial, jnp.ones((), bool), jnp.minimum(shorter, 0.6 * trial.t)


def _store(pairs, s, y, gradient, wanted):
    """Store a pair if it is wanted and its curvature large enough to trust. gradient: the new one."""
    m = len(pairs.sy)
    sy, yy = jnp.vdot(s, y), jnp.vdot(y, y)
    good = wanted & (sy > jnp.finfo(s.dtype).eps * _norm(s) * _norm(y))  # a cosine, in whatever units
    place = jnp.where(good, pairs.head, m)  # beyond the last nothing is written
    vectors = pairs.vectors.at[place, 0].set(s, mode="drop").at[place, 1].set(y, mode="drop")
    with_gradient = vectors @ gradient
    # y is a change of the gradient: products with it are changes of those with the gradient
    with_s, with_y = (with_gradient - pairs.with_gradient).T
    row = jnp.arange(m) == place
    column = row[:, None]
    # a triangle of pairs by age: its inverse loses the first row and column and gets a last column
    rest = jnp.where(row | column, 0, pairs.inverse)
    last = jnp.where(row, 1, -(rest @ with_s)) / jnp.where(good, sy, 1)
    with_y = jnp.where(row, yy, with_y)
    return Pairs(
        vectors,
        with_gradient,
        jnp.where(row, last[:, None], rest),
        jnp.where(row, sy, pairs.sy),
        jnp.where(row, with_y[:, None], jnp.where(column, with_y, pairs.yy)),
        jnp.where(good, (pairs.head + 1) % m, pairs.head),
        jnp.where(good, sy / jnp.where(good, yy, 1), pairs.scale),
    )


def _direction(pairs, gradient, length):
    """Return minus the inverse-Hessian estimate times the gradient, and the slope along it.

    Without pairs it is the unit vector downhill. length: of the gradient.
    """
    sg, yg = pairs.with_gradient.T
    p = pairs.inverse @ sg
    q = (pairs.sy * p + pairs.scale * (pairs.yy @ p - yg)) @ pairs.inverse
    shares = jnp.stack([-q, pairs.scale * p], axis=1)
    direction = jnp.tensordot(shares, pairs.vectors, 2) - pairs.scale * gradient
    slope = jnp.vdot(direction, gradient)
    # rounding can spoil the estimate; steepest descent is always downhill
    downhill = jnp.isfinite(slope) & (slope < 0)
    return jnp.where(downhill, direction, -gradient / length), jnp.where(downhill, slope, -length)


def _largest(gradient):
    """Return the largest component, 1 where all are zero: what gradients are measured by."""
    largest = jnp.max(jnp.abs(gradient))
    return jnp.where(largest > 0, largest, 1)


def flat_to_rounding(x, value, gradient):
    """Return whether coordinates must change by their own size for the value to change by more than its rounding."""
    eps = jnp.finfo(x.dtype).eps
    return jnp.max(jnp.abs(gradient) * jnp.maximum(jnp.abs(x), 1)) <= FLAT * eps * jnp.abs(value)


def _slack(state):
    """Return the change of the value that is only rounding."""
    return 4 * jnp.finfo(state.x.dtype).eps * jnp.abs(state.value)


def _enough_decrease(state, trial):
    return trial.value <= state.value + ARMIJO * trial.t * state.slope + _slack(state)


def _choose(condition, one, other):
    return Trial(*(jnp.where(condition, a, b) for a, b in zip(one, other, strict=True)))


def _secant(a, b):
    """Return where the slope would vanish, from two slopes."""
    change = b.slope - a.slope
    return jnp.where(change > 0, b.t - b.slope * (b.t - a.t) / jnp.where(change > 0, change, 1), jnp.inf)


def _inside(low, high, trials):
    """Return a step length inside the bracket: the cubic's minimum, kept off the ends; every third time the middle."""
    width = high.t - low.t
    safe = jnp.where(width == 0, 1, width)
    high_value = jnp.where(jnp.isfinite(high.value), high.value, low.value)
    theta = 3 * (low.value - high_value) / safe + low.slope + high.slope
    root = jnp.sqrt(jnp.maximum(theta * theta - low.slope * high.slope, 0)) * jnp.sign(safe)
    divisor = high.slope - low.slope + 2 * root
    share = 1 - (high.slope + root - theta) / jnp.where(divisor == 0, 1, divisor)
    share = jnp.where((divisor == 0) | ~jnp.isfinite(share) | (trials % 3 == 2), 0.5, share)
    share = jnp.where(jnp.isfinite(high.value), jnp.clip(share, 0.1, 0.9), 0.2)
    return low.t + share * width


def _first(*cases):
    """Return the code of the first case that holds, else running."""
    code = jnp.full((), Status.RUNNING.code, jnp.int32)
    for holds, status in reversed(cases):
        code = jnp.where(holds, jnp.int32(status.code), code)
    return code


def _norm(vector):
    largest = jnp.maximum(jnp.max(jnp.abs(vector)), jnp.finfo(vector.dtype).tiny)
    return largest * jnp.sqrt(jnp.sum((vector / largest) ** 2))  # squares of large float32 numbers overflow
