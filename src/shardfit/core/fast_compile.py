"""Programs that run a few times: what counts is how soon they are compiled."""

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax

from shardfit.core.precision import tracing
from shardfit.core.recent import Recent, structure
from shardfit.core.work import count_elements

LEVEL = "xla_backend_optimization_level"
FEW = 1 << 20  # numbers that a program computes: without optimization it takes milliseconds longer


def fast_compile_jit(fn: Callable, **options: Any) -> Callable:
    """Return fn compiled by jax.jit, on a CPU with less optimization: in about half the time.

    Whatever is large inside, loops over rows too, runs nearly as fast as with all of it. Inside another program it is a
    part of that one.
    """
    return _outside(fn, lambda part, args, keywords: 1, options)


def unoptimised_jit(fn: Callable, **options: Any) -> Callable:
    """Return fn compiled as by `fast_compile_jit`, and where it computes few numbers without optimization: in a fifth.

    For what a fit runs once or twice, beside its search: such a program runs several times longer than an optimized
    one, which is little of what compiling that takes. How much is computed decides, so that numbers do not depend on
    the machine or on what ran before.
    """

    def level(part, args, keywords):
        return 0 if elements_in_call(part, *args, **keywords) <= FEW else 1

    return _outside(fn, level, options)


_sizes = Recent(1024)


def elements_in_call(jitted: Any, *args: Any, **keywords: Any) -> float:
    """Return how many numbers a compiled function computes when it is called so."""
    kind = jitted, structure(args, keywords)
    known = _sizes.get(kind)
    if known is None:
        known = _sizes.put(kind, count_elements(jitted.trace(*args, **keywords).jaxpr.jaxpr))
    return known


def _outside(fn: Callable, level: Callable, options: dict) -> Callable:
    """Return fn compiled with the optimization that level(jitted fn, args, keywords) says, unless inside a trace."""
    part = jax.jit(fn, **options)

    @cache
    def compiled(level):
        return jax.jit(fn, compiler_options=_less_optimization(level), **options)

    @wraps(fn)
    def call(*args, **keywords):
        return (part if tracing() else compiled(level(part, args, keywords)))(*args, **keywords)

    def lower(*args, **keywords):
        return compiled(level(part, args, keywords)).lower(*args, **keywords)

    setattr(call, "lower", lower)  # noqa: B010 (wrapped functions have no such attribute by their type)
    return call


def _less_optimization(level: int) -> dict[str, Any]:
    """Return options of a CPU's compiler; {} elsewhere. What the environment's XLA_FLAGS choose stands."""
    options = _options()
    return {**options, LEVEL: level} if LEVEL in options else options


@cache
def _options() -> dict[str, Any]:
    if jax.default_backend() != "cpu":
        return {}
    chosen = os.environ.get("XLA_FLAGS", "")
    options = {LEVEL: 1, "xla_cpu_use_fusion_emitters": False}
    options = {name: value for name, value in options.items() if name not in chosen}
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}  # another version does not know them
    return options
