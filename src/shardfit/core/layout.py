"""Sums over a block of rows, evaluated with the rows as the quickest axis.

Whoever writes a soft histogram writes `(rows, bins)`. A processor adds many rows at once, not eleven bins, and so wants
`(bins, rows)`. A traced function that does nothing but arithmetic on such arrays is read operation by operation and
evaluated with the first axis of each moved to the end; only the order in which rows are added changes. A function with
any other operation on them (products of matrices, indexing, loops, derivative rules of its own) is left as written.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
# fmt: off
ARITHMETIC = frozenset({
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
    "clamp", "complex", "conj", "convert_element_type", "copy", "cos", "cosh", "digamma", "div", "eq", "erf",
    "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma", "igammac", "imag", "integer_pow",
    "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter",
    "not", "or", "polygamma", "pow", "real", "regularized_incomplete_beta", "rem", "round", "rsqrt", "select_n",
    "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
})
# fmt: on
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")


class _Other(Exception):
    """The program has an operation that cannot be moved."""


class _Value(NamedTuple):
    """An array of the traced program; moved: its first axis is stored as its last."""

    array: Any
    moved: bool = False


def rows_quickest(fn: Callable, n: int) -> Callable:
    """Return fn(*pytrees) that holds its arrays (n, k, ...) as (k, ..., n) where it can, and is as written else."""

    def evaluated(*args):
        traced, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        if not _wide(traced.jaxpr, n):
            return fn(*args)
        try:
            leaves = _program(traced, [_Value(leaf) for leaf in jax.tree.leaves(args)], n)
        except _Other:
            return fn(*args)
        return jax.tree.unflatten(jax.tree.structure(shape), [_plain(leaf) for leaf in leaves])

    return evaluated


def _wide(jaxpr: Jaxpr, n: int) -> bool:
    """Return whether anything computed has the rows and one axis more."""
    results = [v for step in jaxpr.eqns for v in step.outvars]
    return any(_has_rows(v, n) for v in results) or any(_wide(_inner(s).jaxpr, n) for s in jaxpr.eqns if _calls(s))


def _has_rows(atom: Any, n: int) -> bool:
    return len(atom.aval.shape) > 1 and atom.aval.shape[0] == n


def _calls(step: Any) -> bool:
    return step.primitive.name in CALLS


def _inner(step: Any) -> ClosedJaxpr:
    return step.params[CALLS[step.primitive.name]]


def _program(traced: ClosedJaxpr, inputs: list[_Value], n: int) -> list[_Value]:
    jaxpr = traced.jaxpr
    known = dict(zip(jaxpr.constvars, map(_Value, traced.consts), strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def value(atom):
        return _Value(atom.val) if isinstance(atom, Literal) else known[atom]

    for step in jaxpr.eqns:
        results = _step(jaxpr, step, [value(atom) for atom in step.invars], n)
        known |= dict(zip(step.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _step(jaxpr: Jaxpr, step: Any, inputs: list[_Value], n: int) -> list[_Value]:
    name = step.primitive.name
    if _calls(step):
        return _program(_inner(step), inputs, n)
    if not any(v.moved for v in inputs) and not any(_has_rows(a, n) for a in (*step.invars, *step.outvars)):
        return _as_written(jaxpr, step, inputs)
    if name in ARITHMETIC:
        rank = len(step.outvars[0].aval.shape)
        # numbers without axes stand beside arrays: bounds of a clamp, the condition of a select
        arrays = [_moved(v) if jnp.ndim(v.array) == rank else v.array for v in inputs]
        return [_Value(step.primitive.bind(*arrays, **step.params), moved=True)]
    if name not in RULES:
        raise _Other(name)
    return [RULES[name](step, inputs, n)]


def _as_written(jaxpr: Jaxpr, step: Any, inputs: list[_Value]) -> list[_Value]:
    given = {atom: v.array for atom, v in zip(step.invars, inputs, strict=True) if not isinstance(atom, Literal)}
    alone = jaxpr.replace(constvars=[], invars=[*given], outvars=step.outvars, eqns=[step], effects=step.effects)
    return [_Value(leaf) for leaf in jaxpr_as_fun(ClosedJaxpr(alone, ()))(*given.values())]


def _moved(value: _Value) -> Any:
    return value.array if value.moved or jnp.ndim(value.array) < 2 else jnp.moveaxis(value.array, 0, -1)


def _plain(value: _Value) -> Any:
    return jnp.moveaxis(value.array, -1, 0) if value.moved else value.array


def _turned(sizes: tuple) -> tuple:
    return (*sizes[1:], sizes[0])


def _turned_axes(axes: tuple, rank: int) -> tuple:
    return tuple(sorted((axis - 1) % rank for axis in axes))


def _reduction(step, inputs, n):
    axes, rank = step.params["axes"], len(step.invars[0].aval.shape)
    array = step.primitive.bind(_moved(inputs[0]), **{**step.params, "axes": _turned_axes(axes, rank)})
    return _Value(array, moved=0 not in axes and array.ndim > 1)


def _broadcast(step, inputs, n):
    shape, axes = step.params["shape"], step.params["broadcast_dimensions"]
    if len(inputs) > 1 or (inputs[0].moved and 0 not in axes):
        raise _Other("broadcast_in_dim")
    # without the first axis, as (k,) into (n, k), nothing of the operand moves
    array = _moved(inputs[0]) if 0 in axes else inputs[0].array
    return _Value(lax.broadcast_in_dim(array, _turned(shape), _turned_axes(axes, len(shape))), moved=True)


def _reshape(step, inputs, n):
    old, new = step.invars[0].aval.shape, step.params["new_sizes"]
    if old[0] != n or new[0] != n or step.params["dimensions"] is not None:
        raise _Other("reshape")
    return _Value(lax.reshape(_moved(inputs[0]), _turned(new)), moved=len(new) > 1)


def _slice(step, inputs, n):
    start, limit, strides = (step.params[name] for name in ("start_indices", "limit_indices", "strides"))
    strides = None if strides is None else _turned(strides)
    return _Value(lax.slice(_held(_moved(inputs[0])), _turned(start), _turned(limit), strides), moved=True)


def _held(array: Any) -> Any:
    """Return the array, written to memory: on CPUs XLA computes it anew for every slice of it, number by number."""

    def hold(x):
        # a condition is the only thing that XLA for CPUs does not fuse across; it cannot know that this one is met
        return lax.cond(lax.optimization_barrier(jnp.array(True)), lambda y: y, jnp.zeros_like, x)

    return lax.platform_dependent(array, cpu=hold, default=lambda x: x)


def _squeeze(step, inputs, n):
    axes = step.params["dimensions"]
    if 0 in axes:
        raise _Other("squeeze")
    array = lax.squeeze(_moved(inputs[0]), tuple(axis - 1 for axis in axes))
    return _Value(array, moved=array.ndim > 1)


def _concatenate(step, inputs, n):
    axis = step.params["dimension"]
    if axis == 0:
        raise _Other("concatenate")
    return _Value(lax.concatenate([_moved(v) for v in inputs], axis - 1), moved=True)


def _stack(step, inputs, n):
    axis = step.params["axis"]
    if axis == 0:
        raise _Other("stack")
    return _Value(jnp.stack([_moved(v) for v in inputs], axis - 1), moved=True)


def _transpose(step, inputs, n):
    order = step.params["permutation"]
    if inputs[0].moved or order != (len(order) - 1, *range(len(order) - 1)):
        raise _Other("transpose")
    return _Value(inputs[0].array, moved=True)


RULES = dict.fromkeys(REDUCTIONS, _reduction) | {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "slice": _slice,
    "squeeze": _squeeze,
    "concatenate": _concatenate,
    "stack": _stack,
    "transpose": _transpose,
}
