"""Particle swarm: a global search in a box that needs no gradient.

All particles move in the device loop; one tick evaluates all of them once. The state is the same on every device and
random numbers depend on seed, step and particle alone, so a trajectory does not depend on the mesh.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.solve.base import Finish, Solver, Task
from shardfit.solve.box_search import BoxSearch, times
from shardfit.solve.capabilities import require_objective
from shardfit.solve.draws import uniform_pairs
from shardfit.solve.polish import polish
from shardfit.solve.swarm_start import carried, population, restored


class State(NamedTuple):
    """Best point ever seen, and the particles."""

    x: jax.Array
    value: jax.Array
    gradient: None
    status: jax.Array
    steps: jax.Array
    position: jax.Array  # (particles, n)
    velocity: jax.Array
    loss: jax.Array  # (particles,)
    best_x: jax.Array  # each particle's own
    best_loss: jax.Array  # (particles,)
    guide_x: jax.Array  # the swarm's best since it was last drawn
    guide_loss: jax.Array
    drawn: jax.Array  # steps that random numbers were drawn for
    stale: jax.Array  # steps since the guide improved
    restart: jax.Array  # how often the swarm was restarted
    nonfinite: jax.Array  # evaluations that counted as infinite
    fresh: jax.Array  # whether the particles were just drawn, so that they are evaluated where they are
    counting: jax.Array  # 0 until the start is evaluated: that is not a step
    lower: jax.Array
    upper: jax.Array
    key: jax.Array  # raw, so that a checkpoint can hold it
    reserve: jax.Array  # (restarts, 2, particles, n) positions and velocities to start again from


@dataclass(frozen=True, kw_only=True)
class Swarm(BoxSearch):
    """Particles that remember their own best place and hear of the swarm's best.

    Every parameter needs finite bounds; x0 only says what the parameters are. The start is a Latin hypercube, with
    speeds up to velocity_cap box widths per step, in both directions if symmetric. Each step adds
    (inertia - 1)·v + u1·cognitive·(own best - x) + u2·social·(swarm's best - x) - drag·u1·v to the velocity; u1 and u2
    are uniform in [0, 1), drawn per axis or, with per_axis=False, per particle.

    stagnation: steps without an improvement (of more than ftol, relative) after which the swarm is restarted, at most
    `restarts` times, and then stops as STALLED. xtol: the same, as CONVERGED_STEP, once all own bests lie within xtol
    box widths of each other. constraint: function from parameters to bool that start points must satisfy.
    start: Result of an earlier swarm to continue. keep: k keeps x, v and loss of all particles every k-th step.
    polish: solver (name or object) that improves the best `polish_best` particles by gradients at the end.
    at_once: particles evaluated together; None bounds the rows' contributions in memory.

    Example: `fit(problem, "swarm", particles=200, polish="lbfgsb", mesh=mesh(rows=2, runs=4))`.
    """

    particles: int = 100
    maxiter: int = 100
    inertia: float = 0.9
    cognitive: float = 0.5
    social: float = 0.3
    drag: float = 0.0
    velocity_cap: float = 0.4
    per_axis: bool = True
    symmetric: bool = True
    stagnation: int | None = None
    restarts: int = 0
    constraint: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)
    start: Any = field(default=None, repr=False, compare=False)
    keep: int = 0
    polish: Any = None
    polish_best: int = 1
    at_once: int | None = None
    ftol: float = 0.0
    gtol: float = 0.0
    name: ClassVar[str] = "swarm"

    def __post_init__(self):
        super().__post_init__()
        self.require_least({"particles": 2, "restarts": 0, "keep": 0, "polish_best": 1, "stagnation": 1, "at_once": 1})
        if not self.velocity_cap > 0:
            raise ValueError(f"swarm: velocity_cap={self.velocity_cap} must be positive: it is in box widths per step.")
        if self.gtol:
            raise ValueError("swarm: gtol needs a gradient, which a swarm has not. Set it on polish, or use xtol.")
        if self.restarts and self.stagnation is None and not self.xtol:
            raise ValueError("swarm: restarts need to know when. Set stagnation (steps), or xtol (box widths).")
        if self.polish_best > self.particles:
            raise ValueError(f"swarm: polish_best={self.polish_best} exceeds the {self.particles} particles.")

    def describe(self):
        """Return name and options; a start is identified by its digest."""
        text = super().describe()
        if self.constraint is not None:
            text += f", constraint={getattr(self.constraint, '__qualname__', 'callable')}"
        if self.start is not None:
            parts = [np.asarray(leaf).tobytes() for leaf in carried(self.start).values()]
            text += f", start={hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
        return text

    @property
    def points(self) -> int:
        """Evaluations per tick."""
        return self.particles

    @property
    def differentiates(self) -> bool:
        """Whether the best particles are polished by gradients."""
        return self.polish is not None

    def check(self, problem: Problem) -> None:
        """Raise unless there is a finite box, and for a polish that cannot descend on this problem."""
        super().check(problem)
        if self.polish is None:
            return
        second = _as_solver(self.polish)
        if second.batch or not second.differentiates:
            raise ValueError(f"swarm: polish={second.name!r} must descend on all rows: no mini-batches, no swarm.")
        require_objective(problem, second)

    def solve(self, task: Task) -> Finish:
        """Run the swarm, then the descent from its best particles."""
        finish = super().solve(task)
        if self.polish is None or finish.status is Status.INTERRUPTED:
            return finish
        return polish(_as_solver(self.polish), self.polish_best, task, finish)

    def init(self, z0, lower, upper):
        """Return the state with all particles at z0; `populate` spreads them."""
        dtype, shape = z0.dtype, (self.particles, z0.shape[0])
        count, far = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype)
        places = jnp.broadcast_to(z0, shape)
        return State(
            x=z0,
            value=far,
            gradient=None,
            status=count,
            steps=count,
            position=places,
            velocity=jnp.zeros(shape, dtype),
            loss=jnp.full(self.particles, jnp.inf, dtype),
            best_x=places,
            best_loss=jnp.full(self.particles, jnp.inf, dtype),
            guide_x=z0,
            guide_loss=far,
            drawn=count,
            stale=count,
            restart=count,
            nonfinite=count,
            fresh=jnp.ones((), bool),
            counting=count,
            lower=z0 if lower is None else lower,
            upper=z0 if upper is None else upper,
            key=jnp.zeros(2, jnp.uint32),
            reserve=jnp.zeros((self.restarts, 2, *shape), dtype),
        )

    def populate(self, state, space, seed):
        """Draw the start and those of the restarts, or take over the particles of `start`."""
        drawn = self._drawn(space, np.asarray(state.lower), np.asarray(state.upper), seed)
        state = self.begin(state, jax.random.key(seed), drawn)
        return state if self.start is None else restored(state, self.start)

    def shared(self, space, box, seed):
        """Return positions and velocities, those of the restarts included: all runs begin with the same particles."""
        lower, upper = box
        return self._drawn(space, lower, upper, seed)

    def check_slots(self):
        """Raise for options of a single run."""
        given = [name for name in ("polish", "start", "keep") if getattr(self, name)]
        if given:
            raise ValueError(
                f"survey: swarm with {' and '.join(given)} is a run of its own. Leave it out; points that a swarm has "
                "found can be refined by fits that start there."
            )

    def begin(self, state, key, given):
        """Return the initial state with its random key and the particles drawn for it, if they are."""
        if given is None:
            return state
        position, velocity = given[0]
        return state._replace(
            position=position,
            velocity=velocity,
            best_x=position,
            key=jax.random.key_data(key),
            reserve=given[1:] if self.restarts else state.reserve,
        )

    def _drawn(self, space, lower, upper, seed):
        """Return positions and velocities (1 + restarts, 2, particles, n)."""
        draw = partial(population, self, space, lower, upper)
        return np.stack([draw(np.random.default_rng([seed, number])) for number in range(self.restarts + 1)])

    def step(self, evaluate, state):
        """Move, evaluate, remember."""
        shape = (self.particles, state.x.shape[0] if self.per_axis else 1)
        moved = move(self, state, *uniform_pairs(state.key, state.drawn, shape, state.x.dtype))
        position, velocity = (
            jnp.where(state.fresh, old, new) for old, new in zip((state.position, state.velocity), moved, strict=True)
        )
        state = state._replace(position=position, velocity=velocity, drawn=state.drawn + jnp.where(state.fresh, 0, 1))
        return self._next(self._remember(state, evaluate(position)))

    def _remember(self, state, losses):
        """Return the state with all bests brought up to date; a tie goes to the new point."""
        finite = jnp.isfinite(losses)
        losses = jnp.where(finite, losses, jnp.inf)
        own = losses <= state.best_loss
        first = jnp.argmin(losses)
        x, loss = state.position[first], losses[first]
        size = jnp.where(jnp.isfinite(state.guide_loss), jnp.abs(state.guide_loss), 0)  # ftol·inf would be NaN
        improved = loss < state.guide_loss - self.ftol * size
        guides, best = loss <= state.guide_loss, loss <= state.value
        return state._replace(
            loss=losses,
            best_x=jnp.where(own[:, None], state.position, state.best_x),
            best_loss=jnp.where(own, losses, state.best_loss),
            guide_x=jnp.where(guides, x, state.guide_x),
            guide_loss=jnp.where(guides, loss, state.guide_loss),
            x=jnp.where(best & finite[first], x, state.x),
            value=jnp.where(best, loss, state.value),
            stale=jnp.where(improved | state.fresh, 0, state.stale + 1),
            nonfinite=state.nonfinite + jnp.sum(~finite, dtype=jnp.int32),
            steps=state.steps + state.counting,
            counting=jnp.ones((), jnp.int32),
            fresh=jnp.zeros((), bool),
        )

    def _next(self, state):
        """Return the state with the decision to go on, to start again, or to stop."""
        code = jnp.where(jnp.isfinite(state.value), Status.RUNNING.code, Status.NONFINITE.code)
        if self.stagnation is not None:
            code = jnp.where(state.stale >= self.stagnation, Status.STALLED.code, code)
        if self.xtol:
            width = jnp.where(state.upper > state.lower, state.upper - state.lower, 1)
            extent = jnp.max((jnp.max(state.best_x, 0) - jnp.min(state.best_x, 0)) / width)
            code = jnp.where(extent <= self.xtol, Status.CONVERGED_STEP.code, code)
        state = state._replace(status=code.astype(jnp.int32))
        if not self.restarts:
            return state
        again = (code != Status.RUNNING.code) & (state.restart < self.restarts)
        position, velocity = state.reserve[jnp.minimum(state.restart, self.restarts - 1)]
        far = jnp.full((), jnp.inf, state.x.dtype)
        anew = state._replace(
            position=position,
            velocity=velocity,
            best_x=position,
            best_loss=jnp.full_like(state.best_loss, jnp.inf),
            guide_loss=far,
            stale=jnp.zeros((), jnp.int32),
            restart=state.restart + 1,
            fresh=jnp.ones((), bool),
            status=jnp.zeros((), jnp.int32),
        )
        return jax.tree.map(partial(jnp.where, again), anew, state)

    def record(self, state):
        """Return what the history keeps of every step besides the best value."""
        if not self.keep:
            return {}
        return {"x": state.position, "v": state.velocity, "loss": state.loss}

    def kept(self, steps):
        """Return every keep-th step; evaluating the first draw is not one."""
        return (steps > 0) & super().kept(steps)

    def leave(self, state):
        """Return what another swarm can start from."""
        return carried(state)

    def again(self, state):
        """Say how often the swarm was restarted."""
        return f"The swarm was restarted {times(state.restart)}."


def _as_solver(solver: Any) -> Solver:
    from shardfit.solve.registry import as_solver  # which knows this class

    return as_solver(solver)


def move(swarm: Swarm, state: State, u1: jax.Array, u2: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return positions and velocities after one step; u1, u2: uniform numbers (particles, n) or (particles, 1)."""
    x, v = state.position + state.velocity, state.velocity
    outside = (x < state.lower) | (x > state.upper)
    x, v = jnp.clip(x, state.lower, state.upper), jnp.where(outside, -v, v)
    own, social = state.best_x - x, state.guide_x - x
    v = swarm.inertia * v + swarm.cognitive * u1 * own + swarm.social * u2 * social - swarm.drag * u1 * v
    cap = swarm.velocity_cap * (state.upper - state.lower)
    return x, jnp.clip(v, -cap, cap)
