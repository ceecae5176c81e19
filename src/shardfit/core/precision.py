"""float64 by scope: 64-bit arithmetic is on while 64-bit data are worked on, and nowhere else."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

log = logging.getLogger(__name__)

PRECISIONS = {"float64": np.float64, "float32": np.float32}


def scope(*trees: Any):
    """Context in which arrays of these trees keep their precision.

    Under a trace (a caller's own jit, grad or vmap) the caller's setting decides what host arrays become; arrays that
    JAX holds already have their type.
    """
    leaves = jax.tree.leaves(trees)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        leaves = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    if any(getattr(leaf, "dtype", None) in (np.float64, np.complex128) for leaf in leaves):
        return jax.enable_x64(True)
    return contextlib.nullcontext()


def problem_scope(precision: str):
    """Context of one problem: 64-bit arithmetic on for 'float64', off for 'float32'."""
    return jax.enable_x64(precision == "float64")


def cast(tree: Any, precision: str) -> Any:
    """Cast real and complex floating leaves; integers, booleans and random keys are left alone."""
    real = PRECISIONS[precision]
    paired = np.result_type(real, np.complex64)

    def one(leaf):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            return np.asarray(leaf, real) if isinstance(leaf, float) else leaf
        if jnp.issubdtype(dtype, np.floating):
            return leaf if dtype == real else leaf.astype(real)
        if jnp.issubdtype(dtype, np.complexfloating):
            return leaf if dtype == paired else leaf.astype(paired)
        return leaf

    return jax.tree.map(one, tree)


class jit:  # noqa: N801 (reads like the decorator it stands for)
    """jax.jit that survives a change of precision.

    jax (0.10 to 0.12) cannot compile a loop whose body closes over a NumPy array that a loop compiled in the other
    precision also closes over, as a model's fixed grid may be. Forgetting what was compiled cures it; handing such
    arrays to the model through args avoids it.
    """

    def __init__(self, fn: Callable, **options: Any):
        self.compiled = jax.jit(fn, **options)

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function."""
        try:
            return self.compiled(*args)
        except ValueError as error:
            if "verifier errors" not in str(error):
                raise
        log.info("the model closes over a NumPy array used in both precisions: compiling everything anew")
        jax.clear_caches()
        return self.compiled(*args)
