"""Metropolis-adjusted microcanonical sampling as a step solver: chains that take the same steps at the same time.

Microcanonical dynamics (Robnik, De Luca, Silverstein & Seljak, JMLR 24, 2023) moves with a speed that is one, and turns
the direction by the slope; the adjusted form (Robnik, Cohn-Gordon & Seljak, 2025) takes a fresh direction, a number of
steps, and accepts by the error of the energy, so that it has no bias. The number of steps is quasi-random and the same
in all chains: nobody waits, and a tick is one gradient of each.

Warm-up has two parts: steps that are not adjusted, for where the density is, the metric and the length of trajectories;
then adjusted transitions, for the length of steps. Positions, directions and slopes are (n, chains), as in trees.py.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.status import Status
from shardfit.sampling.chains.chain_solver import MOST_TRIES, ChainSolver
from shardfit.sampling.chains.metric import MOST_NUMBERS, WHOLE
from shardfit.sampling.chains.trees import LARGEST_ERROR, draw_chance
from shardfit.sampling.quality.diagnostics import FEWEST_DRAWS, mcse_mean

RENEWALS = (0.1, 0.2, 0.35, 0.55, 0.8, 1.0)  # shares of the unadjusted steps after which the metric is renewed
THIN = 5  # steps between two that the metric is made from
AIM = 5e-4  # variance of the energy's error per coordinate, of a step that is not adjusted
ROUND = 10  # unadjusted steps after which their length follows
SLOWEST, FASTEST = math.log(0.3), math.log(1.6)  # by which it follows at once
REFUSED = 10.0  # error of the energy per coordinate, above which such a step is not taken
FIRST_STEP, LONGEST_STEP = 0.2, 1.0  # in units of √n, the radius of a whitened density
LENGTH_OF_TIMES = 0.45  # length of a trajectory, in steps of the autocorrelation time
SHORTEST, LONGEST = 0.5, 8.0  # trajectories, in units of √n
GAIN, LATER, FORGETTING = 2.0, 0.6, 0.75  # of Robbins and Monro's steps, their exponent, and of their mean
DIGITS = 16  # of quasi-random numbers


class State(NamedTuple):
    """x, value: the newest draw of the first chain. steps, made: unadjusted steps and transitions so far.

    here, origin: (4, n, chains) z, gradient, slope and direction, now and where the transition began; values: (2,
    chains) -log density there. error: (chains,) of the energy since. leaf, length: steps of this transition, done and
    in all. tuning: (4,) logarithms of the step's length and of its mean, sum and number of squared errors. recent: ring
    (size, 2, n, chains) of points and gradients. reach: length of trajectories. middle: (n, 1) about the mean.
    gradients: (n,) sum over all draws. renewals: of the metric so far. warm: (2, chains) gradients and divergences.
    """

    x: jax.Array
    value: jax.Array
    gradient: None
    status: jax.Array
    steps: jax.Array
    made: jax.Array
    here: jax.Array
    origin: jax.Array
    values: jax.Array
    error: jax.Array
    leaf: jax.Array
    length: jax.Array
    tuning: jax.Array
    metric: Any
    recent: jax.Array
    reach: jax.Array
    middle: jax.Array
    gradients: jax.Array
    renewals: jax.Array
    kept: jax.Array
    warm: jax.Array
    started: jax.Array
    centre: jax.Array
    tick: jax.Array
    key: jax.Array


class Leap(NamedTuple):
    """Where a step leads to: there (4, n, chains) like `State.here`, value, error of the energy and whether they are
    finite (chains,), and how long it was.
    """

    there: jax.Array
    value: jax.Array
    error: jax.Array
    finite: jax.Array
    step: jax.Array


@dataclass(frozen=True, kw_only=True)
class MAMS(ChainSolver):
    """Chains of Metropolis-adjusted microcanonical dynamics.

    warmup: steps that are not adjusted. settling: adjusted transitions after them that are not kept. target_accept:
    mean acceptance. max_steps: of a transition. More options: `ChainSolver`.
    """

    warmup: int = 500
    settling: int = 150
    target_accept: float = 0.9
    max_steps: int = 1024
    name: ClassVar[str] = "mams"
    stats: ClassVar[tuple[str, ...]] = ("value", "accept", "step_size", "diverging", "gradients", "virial")
    least_warmup: ClassVar[int] = 50
    looks_outside: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.settling < 20:
            raise ValueError(f"mams: settling={self.settling} must be at least 20.")
        if not 0 < self.target_accept < 1:
            raise ValueError(f"mams: target_accept={self.target_accept} must lie between 0 and 1; 0.9 suits most.")
        if self.max_steps < 1:
            raise ValueError(f"mams: max_steps={self.max_steps} must be at least 1.")

    @property
    def discarded(self) -> int:
        """Steps and transitions of a chain before the first draw."""
        return self.warmup + self.settling

    def thinned(self, n: int) -> tuple[int, int]:
        """Return how many points are kept to learn from, of each chain, and how many steps apart."""
        half = self.warmup // 2
        size = max(2, min(half // THIN, MOST_NUMBERS // (2 * n * self.chains)))
        return size, max(THIN, -(-half // size))

    def init(self, z0, lower, upper):
        """Return the state with all chains at z0; `begin` spreads them."""
        n, dtype, count = z0.shape[0], z0.dtype, jnp.zeros((), jnp.int32)
        if n < 2:
            raise ValueError("mams: one coordinate has no directions to turn to. Use 'nuts'.")
        none, inf = jnp.zeros((n, self.chains), dtype), jnp.full((2, self.chains), jnp.inf, dtype)
        centre = jnp.broadcast_to(z0[:, None], none.shape)
        log_step, zero = jnp.log(jnp.asarray(FIRST_STEP * math.sqrt(n), dtype)), jnp.zeros((), dtype)
        return State(
            x=z0,
            value=inf[0, 0],
            gradient=None,
            status=count,
            steps=count,
            made=count,
            here=jnp.stack([centre, none, none, none]),
            origin=jnp.stack([centre, none, none, none]),
            values=inf,
            error=jnp.zeros(self.chains, dtype),
            leaf=count,
            length=count + 1,
            tuning=jnp.stack([log_step, log_step, zero, zero]),
            metric=self.metric_of(n).of(jnp.ones(n, dtype)),
            recent=jnp.zeros((self.thinned(n)[0], 2, *none.shape), dtype),
            reach=jnp.asarray(math.sqrt(n), dtype),
            middle=z0[:, None],
            gradients=jnp.zeros(n, dtype),
            renewals=count,
            kept=self.empty(n, dtype),
            warm=jnp.zeros((2, self.chains), jnp.int32),
            started=jnp.zeros((), bool),
            centre=centre,
            tick=count,
            key=jnp.zeros(2, jnp.uint32),
        )

    def begin(self, state, key, given):
        """Draw the starts, around z0 by the given root of the covariance, or else uniformly."""
        given = given or {}
        if "earlier" in given:
            return self.continued(state, given["earlier"])
        state = state._replace(key=jax.random.key_data(key))
        z, metric, centre = self.starts(state.x, state.key, given)
        here = state.here.at[0].set(z)
        metric = state.metric if metric is None else metric
        return state._replace(here=here, origin=here, centre=centre, metric=metric)

    def step(self, evaluate, state):
        """Move every chain by one gradient; before all starts have a density, bring those that have none nearer."""
        leap, exploring = self._leap(evaluate, state), state.made < self.warmup
        total = jnp.where(exploring, 0, state.error) + leap.error
        closes = ~state.started | exploring | (state.leaf + 1 >= state.length)
        chance, normal = self._chance(state, closes, leap.there[0])
        accept = jnp.where(jnp.isnan(total), 0, jnp.exp(-jnp.maximum(total, 0)))
        usable = jnp.abs(leap.error) < REFUSED * len(normal)
        taken = ~state.started | jnp.where(exploring, usable, chance < accept)
        partly = exploring & state.started & usable
        noise = jnp.sqrt(jnp.expm1(2 * leap.step / state.reach) / len(normal))
        direction = jnp.where(partly, leap.there[3] + noise * normal, normal)
        ended = jnp.where(taken, leap.there, state.origin).at[3].set(_unit(direction))
        values = jnp.where(taken, leap.value, state.values[1])
        tuning = self._tuned(state, jnp.where(usable, leap.error**2, jnp.inf), jnp.mean(accept), closes)
        made = state.made + (state.started & closes)
        after = self._with_draw(state, ended, values, leap, accept, ~(total < LARGEST_ERROR), closes)
        failed = ~state.started & (state.tick >= MOST_TRIES)
        status = jnp.where(made >= self.maxiter, Status.COMPLETED.code, Status.RUNNING.code)
        return after._replace(
            x=jnp.where(closes, ended[0, :, 0], state.x),
            value=jnp.where(closes, values[0], state.value),
            status=jnp.where(failed, Status.NONFINITE.code, status).astype(jnp.int32),
            steps=made,
            made=made,
            here=jnp.where(closes, ended, leap.there),
            origin=jnp.where(closes, ended, state.origin),
            values=jnp.where(closes, values, jnp.stack([leap.value, state.values[1]])),
            error=jnp.where(closes, 0, total),
            leaf=jnp.where(closes, 0, state.leaf + 1),
            length=jnp.where(closes, self._length(made, tuning, state.reach), state.length),
            tuning=tuning,
            started=state.started | jnp.all(leap.finite),
            tick=state.tick + 1,
        )

    def _leap(self, evaluate, state):
        """Return where a step leads to: half a turn, a move, and half a turn."""
        step = jnp.exp(self._log_step(state.tuning, state.made))
        z, _, slope, direction = state.here
        half, first = turned(direction, slope, 0.5 * step)
        z = jnp.where(state.started, z + step * state.metric.along(half), z)
        value, gradient = self.look(evaluate, z)
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient), 0)
        value, gradient = jnp.where(finite, value, state.values[0]), jnp.where(finite, gradient, 0)
        slope = state.metric.against(gradient)
        direction, second = turned(half, slope, 0.5 * step)
        error = jnp.where(finite, value - state.values[0] + first + second, jnp.inf)
        z = jnp.where(state.started | finite, z, 0.5 * (z + state.centre))
        return Leap(jnp.stack([z, gradient, slope, direction]), value, error, finite, step)

    def _with_draw(self, state, ended, values, leap, accept, diverging, closes):
        """Return the state with what draws leave, and what the metric is learnt from."""
        warm, exploring = state.started & (state.made < self.discarded), state.made < self.warmup
        keeps = state.started & closes & ~warm
        z, gradient = ended[0], ended[1]
        virial = jnp.sum((z - state.middle) * gradient, 0) / len(z)
        same = jnp.ones_like(accept)
        row = [values, accept, leap.step * same, diverging, (state.leaf + 1) * same, virial]
        size, apart = self.thinned(len(z))
        seen = state.started & exploring & (state.made % apart == 0)
        counts = jnp.stack([warm & jnp.ones_like(diverging), warm & closes & ~exploring & diverging])
        return state._replace(
            recent=state.recent.at[jnp.where(seen, state.made // apart % size, size)].set(ended[:2], mode="drop"),
            gradients=state.gradients + jnp.where(keeps, jnp.sum(gradient, 1), 0),
            kept=self.with_row(state, z, row, keeps & jnp.ones_like(diverging)),
            warm=state.warm + counts,
        )

    def _log_step(self, tuning, made):
        return jnp.where(made < self.discarded, tuning[0], tuning[1])

    def _chance(self, state, wanted, z):
        """Return a uniform number of each chain, and normal ones (n, chains), where they are wanted."""
        chance = draw_chance(state.key, state.tick, self.chains, z.shape[0], z.dtype)
        return chance.leaf, jax.lax.cond(wanted, chance.momentum, lambda: jnp.zeros_like(z))

    def _tuned(self, state, squares, accept, closes):
        """Return the step's length after another step: by its error while exploring, then by what is accepted."""
        log_step, log_mean, total, count = state.tuning
        n, made = state.here.shape[1], state.made
        # a step that was not usable counts as one of thrice the largest error
        total, count = total + jnp.mean(jnp.minimum(squares, (3 * REFUSED * n) ** 2)) / n, count + 1
        follows = jnp.clip(jnp.log(AIM * count / jnp.maximum(total, 1e-14)) / 6, SLOWEST, FASTEST)
        followed = jnp.minimum(log_step + follows, math.log(LONGEST_STEP * math.sqrt(n)))
        full = count >= ROUND
        new = jnp.where(full, followed, log_step)
        exploring = jnp.stack([new, new, jnp.where(full, 0, total), jnp.where(full, 0, count)])

        t = jnp.maximum(made - self.warmup, 0).astype(log_step.dtype)
        moved = log_step + (accept - self.target_accept) * GAIN / (t + 3) ** LATER
        share = (t + 1) ** -FORGETTING
        settling = jnp.stack([moved, share * moved + (1 - share) * log_mean, 0 * total, 0 * count])
        settles = closes & (made < self.discarded)
        found = jnp.where(made < self.warmup, exploring, jnp.where(settles, settling, state.tuning))
        return jnp.where(state.started, found, state.tuning)

    def _length(self, made, tuning, reach):
        """Return how many steps the next transition takes: uniform quasi-random lengths, with the mean `reach`."""
        number = jnp.maximum(made - self.warmup, 0) + 1
        bits = (number >> jnp.arange(DIGITS)) & 1
        share = jnp.sum(bits * 0.5 ** (jnp.arange(DIGITS) + 1.0))
        steps = jnp.ceil(2 * share * reach / jnp.exp(self._log_step(tuning, made)))
        return jnp.clip(steps, 1, self.max_steps).astype(jnp.int32)

    def needs_maintenance(self, state):
        """Return whether the metric is to be renewed."""
        ends = jnp.array([*(math.ceil(share * self.warmup) for share in RENEWALS), np.iinfo(np.int32).max])
        return state.made >= ends[state.renewals]

    def maintain(self, state):
        """Renew the metric, and at the end of the unadjusted steps choose how long trajectories are."""
        (size, _, n, chains), apart = state.recent.shape, self.thinned(state.x.shape[0])[1]
        last = (state.made - 1) // apart
        number = last - (last - jnp.arange(size)) % size  # which point is in which place
        counts = (number >= (last + 1) // 2) & (number >= 0)
        z, gradients = (rows.transpose(0, 2, 1).reshape(-1, n) for rows in (state.recent[:, 0], state.recent[:, 1]))
        counts = jnp.repeat(counts, chains)
        metric = state.metric.renewed(z, gradients, counts)
        middle = jnp.sum(jnp.where(counts[:, None], z, 0), 0) / jnp.sum(counts)
        path = jnp.roll(state.recent[:, 0], -1 - last % size, axis=0)[-max(2, self.warmup // 5 // apart) :]
        times = apart * autocorrelation_times(path)
        root, step = math.sqrt(n), jnp.exp(state.tuning[0])
        reach = jnp.clip(LENGTH_OF_TIMES * step * jnp.mean(times), SHORTEST * root, LONGEST * root)

        def with_slope(points):
            return points.at[2].set(metric.against(points[1]))

        return state._replace(
            here=with_slope(state.here),
            origin=with_slope(state.origin),
            metric=metric,
            middle=middle[:, None],
            reach=jnp.where(state.made >= self.warmup, reach, state.reach),
            renewals=state.renewals + 1,
        )

    def payload(self, state):
        """Return draws and statistics, and the shift (n,) of means that the draws' mean gradient says."""
        mean = state.gradients / jnp.maximum(self.chains * (state.made - self.discarded), 1)
        shift = state.metric.along(state.metric.against(mean[:, None]))[:, 0]
        return super().payload(state) | {"shift": shift, "reach": state.reach}

    def told(self, results):
        """Return how far the draws are from two laws that hold for every density: virial, the mean of (z - c)·gradient
        per coordinate, which is one, with its error; and the largest shift of a mean, in standard deviations, that the
        mean gradient, which is zero, asks for.
        """
        virial, z = (np.concatenate([one[name] for one in results]) for name in ("virial", "z"))
        shift = np.mean([one["shift"] for one in results], axis=0) / np.maximum(z.std((0, 1)), np.finfo(float).tiny)
        error = float(mcse_mean(virial)) if virial.shape[1] >= FEWEST_DRAWS else np.inf
        return {
            "virial": float(virial.mean()),
            "virial_error": error,
            "shift": float(np.max(np.abs(shift))),
            "trajectory": float(np.mean([one["reach"] for one in results]) / np.sqrt(z.shape[2])),
        }


def usual_warmup(n: int) -> int:
    """Return the unadjusted steps that n coordinates take to be learnt."""
    return 500 + int(2.5 * min(n, WHOLE))


def _unit(direction: jax.Array) -> jax.Array:
    return direction / jnp.sqrt(jnp.sum(direction**2, 0) + jnp.finfo(direction.dtype).tiny)


def turned(direction: jax.Array, slope: jax.Array, time: Any) -> tuple[jax.Array, jax.Array]:
    """Return directions (n, chains) after a time in a constant slope, and by how much kinetic energy has grown."""
    n = direction.shape[0]
    size = jnp.sqrt(jnp.sum(slope**2, 0)) + jnp.finfo(slope.dtype).tiny ** 0.5
    down = -slope / size
    delta = time * size / (n - 1)
    along, shrink = jnp.sum(down * direction, 0), jnp.exp(-delta)
    turn = down * (1 - shrink) * (1 + shrink + along * (1 - shrink)) + 2 * shrink * direction
    gain = (n - 1) * (delta - math.log(2) + jnp.log1p(along + (1 - along) * shrink**2))
    return _unit(turn), gain


def autocorrelation_times(path: jax.Array) -> jax.Array:
    """Return integrated autocorrelation times (n,), in steps of a path (steps, n, chains): Geyer's positive pairs."""
    steps = path.shape[0]
    path = path - jnp.mean(path, (0, 2), keepdims=True)
    power = jnp.mean(jnp.abs(jnp.fft.rfft(path, 2 * steps, axis=0)) ** 2, 2)
    covariance = jnp.fft.irfft(power, 2 * steps, axis=0)[:steps]
    correlation = covariance / jnp.maximum(covariance[0], jnp.finfo(path.dtype).tiny)
    pairs = correlation[0 : steps - steps % 2 : 2] + correlation[1::2]
    positive = jnp.cumprod(pairs > 0, axis=0)
    return jnp.maximum(2 * jnp.sum(pairs * positive, 0) - 1, 0.5)
