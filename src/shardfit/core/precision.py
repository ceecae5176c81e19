"""The one owner of 32 and 64 bit.

Precision is decided where work begins (a fit, a survey, an evaluation of an objective) and holds until it ends:
`arithmetic` is that decision, and nothing else in the package touches JAX's switch. A caller's own functions run in the
caller's setting (`in_caller_precision`). Inside a caller's trace the setting cannot change; what would need it raises.
"""

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jax.interpreters import mlir, xla

from shardfit.core.rules import callers_rules, our_rules

PRECISIONS = {"float64": np.float64, "float32": np.float32}
WIDE = (np.float64, np.complex128)


@contextmanager
def arithmetic(precision: str | None) -> Iterator[None]:
    """Compute in 'float64' or 'float32' while this lasts, by JAX's usual rules; None leaves the precision alone.

    Also a decorator. Example: `with arithmetic(problem.precision): ...`, or `@arithmetic("float64")` above a function.
    """
    with our_rules(), _precise(precision):
        yield


@contextmanager
def _precise(precision: str | None) -> Iterator[None]:
    wide = precision == "float64"
    if precision is None or wide == _is_wide():
        yield
        return
    if tracing():
        if wide:
            raise TypeError(
                "a float64 objective is used inside a transformation (jit, grad, vmap, a sampler) of a program in "
                "which 64-bit numbers are off, where JAX would compute it in float32. Call "
                'jax.config.update("jax_enable_x64", True) at the start of the program, or make it in float32: '
                'Problem(..., precision="float32").'
            )
        yield  # 32-bit arrays stay what they are in a 64-bit program
        return
    type_constants_anew()
    _callbacks_keep_precision()
    with jax.enable_x64(wide):
        yield


def in_caller_precision(fn: Callable) -> Callable:
    """Return a caller's function such that it runs in the setting that holds now, wherever it is called."""
    return arithmetic("float64" if _is_wide() else "float32")(callers_rules()(fn))


def precision_of(tree: Any) -> str | None:
    """Return the precision that a tree's arrays need: 'float64' if any has 64 bits; None if none is floating."""
    types = {leaf.dtype for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")}
    if any(dtype in WIDE for dtype in types):
        return "float64"
    return "float32" if any(jnp.issubdtype(dtype, np.inexact) for dtype in types) else None


def evaluation_precision(own: str | None, *trees: Any) -> str | None:
    """Return the precision to evaluate something of a precision of its own at some arguments.

    64-bit arguments are not rounded, except in a caller's trace, where JAX's own rule holds.
    """
    if own == "float64" or tracing():
        return own
    return "float64" if precision_of(trees) == "float64" else own


def cast(tree: Any, precision: str, where: str = "") -> Any:
    """Cast real and complex floating leaves; integers, booleans and random keys are left alone.

    A memory map of another type is refused: casting would read all of it into memory.
    """
    real = PRECISIONS[precision]
    paired = np.result_type(real, np.complex64)

    def one(path, leaf):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            return np.asarray(leaf, real) if isinstance(leaf, float) else leaf
        if not jnp.issubdtype(dtype, np.inexact):
            return leaf
        wanted = paired if jnp.issubdtype(dtype, np.complexfloating) else real
        if dtype == wanted:
            return leaf
        refuse_memory_map(where + jax.tree_util.keystr(path), leaf, precision)
        return leaf.astype(wanted)

    return jax.tree_util.tree_map_with_path(one, tree)


def refuse_memory_map(where: str, array: Any, precision: str) -> None:
    """Raise if an array of another precision is, or looks into, a file: casting would read all of it into memory."""
    if is_mapped(array) and precision_of(array) != precision:
        raise ValueError(
            f"{where} is a memory map of {array.dtype} ({array.nbytes / 1e9:.3g} GB) and the problem is {precision}: "
            f"all of it would be read into memory to be cast. Use precision={_other(precision)!r}, or write the file "
            f"as {precision} once."
        )


def is_mapped(array: Any) -> bool:
    """Return whether an array is, or looks into, a memory map."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def require_precision(where: str, found: Any, precision: str) -> None:
    """Raise if floating shapes or arrays that a user's function returned are of another precision."""
    for leaf in jax.tree.leaves(found):
        if jnp.issubdtype(leaf.dtype, np.inexact) and precision_of(leaf) != precision:
            raise TypeError(
                f"{where} is {leaf.dtype}, but the problem is {precision}. A dtype written into the function, or a JAX "
                f"array of the other precision in it, is the usual cause: take it out, use "
                f"precision={_other(precision)!r}, or end the function with .astype({precision!r}) if it is meant."
            )


def _is_wide() -> bool:
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def _other(precision: str) -> str:
    return next(name for name in PRECISIONS if name != precision)


@cache
def _no_trace() -> Any:
    # a new thread traces nothing; the first call here may come from within a trace
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(get_opaque_trace_state).result()


def tracing() -> bool:
    """Return whether a transformation (jit, grad, vmap) is at work."""
    return get_opaque_trace_state() != _no_trace()


@cache
def type_constants_anew() -> None:
    """Let JAX give a NumPy array that functions close over the type that fits each precision.

    JAX (0.10 to 0.12) remembers which typed constant stands for an array by the array alone. While a program of one
    precision lives, programs of the other get its constants: they fail to compile, or compute with rounded numbers.
    Here array and type together are remembered, while the array's numbers are the same; within one precision nothing
    changes.
    """
    handlers = xla.canonicalize_dtype_handlers
    typed = type(handlers[np.ndarray](np.zeros(1)))
    known: dict = {}

    def constant(array):
        key = id(array), jax.dtypes.canonicalize_dtype(array.dtype)
        held, value = (ref() for ref in known.get(key, (lambda: None, lambda: None)))
        now = np.asarray(array, key[1])
        if held is array and value is not None:
            kept = np.asarray(value)
            if np.may_share_memory(kept, now) or kept.tobytes() == now.tobytes():
                return value
        value = typed(now)
        known[key] = tuple(weakref.ref(each, lambda ref: forget(key, ref)) for each in (array, value))
        return value

    def forget(key, ref):
        if any(ref is kept for kept in known.get(key, ())):  # not if another array has taken the place of a dead one
            known.pop(key, None)

    handlers[np.ndarray] = constant


@cache
def _callbacks_keep_precision() -> None:
    """Let functions that a program calls on the host run in the precision that the program was compiled in.

    XLA calls them (jax.pure_callback, io_callback, debug.print) in threads of its own, where JAX (0.10 to 0.12) finds
    the process's setting: a float64 program would hand them, and take from them, float32. A program that is compiled
    in the process's own setting is as before.
    """
    add = mlir.ModuleContext.add_host_callback

    def add_in_precision(self, host_callback):
        add(self, _at(_is_wide(), host_callback) if callable(host_callback) else host_callback)

    mlir.ModuleContext.add_host_callback = add_in_precision


def _at(wide: bool, fn: Callable) -> Callable:
    @wraps(fn)
    def run(*args):
        with jax.enable_x64(wide):
            return fn(*args)

    return run
