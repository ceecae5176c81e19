"""Programs that run a few times: what counts is how soon they are compiled."""

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax

from shardfit.core.precision import tracing


def quick_jit(fn: Callable, **options: Any) -> Callable:
    """Return fn compiled by jax.jit, on a CPU with less optimization: in about half the time.

    Whatever is large inside, loops over rows too, runs nearly as fast as with all of it. Inside another program it is a
    part of that one.
    """
    part = jax.jit(fn, **options)

    @cache
    def compiled():
        return jax.jit(fn, compiler_options=_less_optimization(), **options)

    @wraps(fn)
    def call(*args, **keywords):
        return (part if tracing() else compiled())(*args, **keywords)

    return call


@cache
def _less_optimization() -> dict[str, Any]:
    """Return options of a CPU's compiler; {} elsewhere. What the environment's XLA_FLAGS choose stands."""
    if jax.default_backend() != "cpu":
        return {}
    chosen = os.environ.get("XLA_FLAGS", "")
    options = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
    options = {name: value for name, value in options.items() if name not in chosen}
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}  # another version does not know them
    return options
