"""Any optax GradientTransformation in the device loop, on all rows or on mini-batches drawn anew each step."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.core.extras import require_extra
from shardfit.core.status import Status
from shardfit.solve.lbfgs import flat_to_rounding
from shardfit.solve.sameness import Key
from shardfit.solve.step import StepSolver


class State(NamedTuple):
    """Evaluated point, the point to evaluate next, and optax's own state."""

    x: jax.Array
    value: jax.Array
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    ahead: jax.Array
    inner: Any
    lower: Any  # (n,), or None without bounds
    upper: Any
    unit: jax.Array  # largest gradient component at the start


@dataclass(frozen=True)
class OptaxLoop(StepSolver):
    """Steps of an optax transformation.

    transform: for example `optax.adam(1e-2)`. batch: rows drawn per row term and step (None: all); only these go to the
    devices. ftol is off by default, for a noisy value says nothing about convergence. keep: k keeps the coordinates of
    every k-th step in the history as "x". Bounds are kept by projection: what a step moves outside is put on the bound.
    gtol: largest gradient component, relative to that at the start. scaled: steps are in units of the parameters'
    scale, and gradients in units of that at the start.
    """

    transform: Any = field(default=None, kw_only=True, repr=False, compare=False)
    batch: int | None = field(default=None, kw_only=True)
    keep: int = field(default=0, kw_only=True)
    ftol: float = 0.0
    scaled: bool = field(default=False, kw_only=True)  # type: ignore[misc]
    label: str = field(default="optax", kw_only=True, compare=False)
    key: Key = field(init=False, repr=False)  # stands for the transformation: equal ones share a compiled loop
    name: ClassVar[str] = "optax"
    stochastic: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    any_length: ClassVar[bool] = True
    slow: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "key", Key(self.transform))

    def describe(self):
        """Return the transformation's name and the options."""
        batch = "" if self.batch is None else f", batch={self.batch}"
        return (
            f"{self.label}, maxiter={self.maxiter!r}, gtol={self.gtol!r}, ftol={self.ftol!r}, xtol={self.xtol!r}{batch}"
        )

    def init(self, z0, lower, upper):
        """Return the state before the first evaluation."""
        nothing = jnp.zeros((), jnp.int32)
        far = jnp.full((), jnp.inf, z0.dtype)
        return State(
            z0, far, jnp.zeros_like(z0), nothing, nothing, z0, self.transform.init(z0), lower, upper, far * 0 + 1
        )

    def record(self, state):
        """Return the evaluated point if it is to be kept."""
        return {"x": state.x} if self.keep else {}

    def step(self, evaluate, state):
        """Evaluate, and let optax move the point; evaluating the start is not a step."""
        with require_extra("OptaxLoop", "solvers"):
            from optax import apply_updates, with_extra_args_support

        x = state.ahead
        value, gradient = evaluate(x)
        known = jnp.isfinite(state.value)  # not at the first step
        unit = jnp.where(known, state.unit, _unit(state, x, value, gradient))
        push = gradient / unit if self.scaled else gradient
        update = with_extra_args_support(self.transform).update
        changes: Any
        changes, inner = update(push, state.inner, x, value=value, grad=push, value_fn=lambda z: evaluate(z).value)
        ahead: Any = apply_updates(x, changes)
        if state.lower is not None:
            ahead = jnp.clip(ahead, state.lower, state.upper)
            changes = ahead - x
        free = _free(state, x, gradient)
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        size = jnp.maximum(jnp.abs(value), jnp.abs(state.value))
        small_change = known & (jnp.abs(value - state.value) <= self.ftol * size)
        small_step = jnp.max(jnp.abs(changes)) <= self.xtol * jnp.max(jnp.abs(x))
        # a batch's gradient says nothing about the whole, so only the step may end such a run
        whole = self.batch is None
        status = jnp.where(
            ~finite,
            Status.NONFINITE.code,
            jnp.where(
                whole & ((jnp.max(jnp.abs(free)) <= self.gtol * unit) | flat_to_rounding(x, value, free)),
                Status.CONVERGED_GRADIENT.code,
                jnp.where(
                    whole & (self.ftol > 0) & small_change,
                    Status.CONVERGED_VALUE.code,
                    jnp.where((self.xtol > 0) & small_step, Status.CONVERGED_STEP.code, Status.RUNNING.code),
                ),
            ),
        ).astype(jnp.int32)
        return State(x, value, gradient, status, state.steps + known, ahead, inner, state.lower, state.upper, unit)


def _free(state, x, gradient):
    """Return the gradient without what presses against a bound, which is no reason to go on."""
    if state.lower is None:
        return gradient
    return jnp.where(((x <= state.lower) & (gradient > 0)) | ((x >= state.upper) & (gradient < 0)), 0, gradient)


def _unit(state, x, value, gradient):
    """Return what gradients are measured by; of a start that is nearly a minimum they say little, the value more."""
    largest = jnp.max(jnp.abs(_free(state, x, gradient)))
    return jnp.where(jnp.isfinite(largest) & (largest > 0), largest, 1)


RATES = {"adam": 1e-2, "adamw": 1e-2, "sgd": 1e-2, "rmsprop": 1e-3}


def named_transform(name: str, learning_rate: float, extra: dict[str, Any]) -> Any:
    """Return optax's transformation of that name."""
    with require_extra(f"solver {name!r}", "solvers"):
        import optax

    return getattr(optax, name)(learning_rate, **extra)
