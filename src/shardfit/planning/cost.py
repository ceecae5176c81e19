"""Work of one evaluation: XLA's own count, corrected for loops.

XLA's cost analysis counts the body of a loop once, however often it runs. The traced program knows the length of every
scan, so its counts with and without loop lengths give the factor that XLA's counts lack: for the loop over chunks as
for a time loop inside a user's model. A while loop of unknown length still counts once.
"""

import math
from dataclasses import astuple, dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

# how XLA treats special functions on a CPU: the quick ones are vectorised, the others are several times slower
QUICK = frozenset(("exp", "exp2", "logistic", "rsqrt", "sqrt", "tanh"))
SLOW = frozenset(
    (
        *(
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atan2",
            "atanh",
            "cbrt",
            "cos",
            "cosh",
            "digamma",
            "erf",
            "erf_inv",
        ),
        *("erfc", "expm1", "lgamma", "log", "log1p", "pow", "sin", "sinh", "tan"),
    )
)
THIN = 16  # rows or columns


@dataclass(frozen=True)
class Work:
    """Operations and bytes moved by one device.

    products: flops of matrix products, a part of flops; slow: calls of slow special functions, a part of
    transcendentals; sums: additions into few accumulators, which cannot be spread out; trips: passes through loops.
    """

    flops: float = 0.0
    products: float = 0.0
    transcendentals: float = 0.0
    slow: float = 0.0
    sums: float = 0.0
    bytes: float = 0.0
    trips: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, factor: float) -> "Work":
        return Work(*(factor * a for a in astuple(self)))


def work_of(traced: Any, compiled: Any) -> Work:
    """Return the work of a traced and compiled function on one device."""
    found = compiled.cost_analysis() or {}
    found = found[0] if isinstance(found, list) else found
    once, full = count(traced.jaxpr.jaxpr, unroll=False), count(traced.jaxpr.jaxpr, unroll=True)

    def corrected(reported, counted_once, counted_full):
        return float(reported) * (counted_full / counted_once if counted_once else 1.0)

    flops = corrected(found.get("flops", 0.0), once.flops, full.flops)
    return Work(
        flops=flops,
        products=min(full.products, flops),
        # as written: XLA replaces some special functions by polynomials and reports those as flops
        transcendentals=full.transcendentals,
        slow=full.slow,
        sums=full.sums,
        # fusion only saves traffic; XLA counts more where a loop fills a stack, taking the whole stack at every pass
        bytes=min(full.bytes, corrected(found.get("bytes accessed", 0.0), once.bytes, full.bytes)),
        trips=full.trips,
    )


def count(jaxpr: Jaxpr, unroll: bool) -> Work:
    """Count the work of a program as written, its scans as often as they run (unroll) or once."""
    total = Work()
    for equation in jaxpr.eqns:
        inner = [count(j, unroll) for j in _inner(equation.params)]
        name = equation.primitive.name
        if name == "scan":
            length = equation.params["length"] if unroll else 1
            total += sum(inner, Work(trips=1.0)) * length
        elif name == "cond":
            total += max(inner, key=lambda w: w.flops + w.bytes)
        elif inner and name != "reduce":
            total += sum(inner, Work())
        else:
            total += _leaf(name, equation)
    return total


def _inner(params: dict) -> list[Jaxpr]:
    found = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr))
    return [j.jaxpr if isinstance(j, ClosedJaxpr) else j for j in found if isinstance(j, Jaxpr | ClosedJaxpr)]


def _leaf(name: str, equation: Any) -> Work:
    sizes = [_size(v) for v in equation.outvars]
    read = [v.aval for v in equation.invars if hasattr(v.aval, "shape")]
    moved = sum(a.size * a.dtype.itemsize for a in read) + sum(
        v.aval.size * v.aval.dtype.itemsize for v in equation.outvars if hasattr(v.aval, "shape")
    )
    out = sum(sizes)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        depth = math.prod(read[0].shape[i] for i in contracted)
        flops = 2.0 * out * depth
        # thin on one side it is bound by reading the other; on both, it is a few long sums
        sides = [a.size // max(1, depth) for a in read]
        sums = out * depth if max(sides) < THIN else 0.0
        return Work(flops=flops, products=0.0 if min(sides) < THIN else flops, sums=sums, bytes=moved)
    if name == "conv_general_dilated":
        layout = equation.params["dimension_numbers"].rhs_spec
        flops = 2.0 * out * read[1].size / max(1, read[1].shape[layout[0]])
        return Work(flops=flops, products=flops, bytes=moved)
    if name == "fft":
        length = math.prod(equation.params["fft_lengths"])
        return Work(flops=5.0 * out * math.log2(max(2, length)), bytes=moved)
    if name in ("dynamic_slice", "gather"):  # reads what it returns, not the whole operand
        return Work(bytes=2.0 * sum(v.aval.size * v.aval.dtype.itemsize for v in equation.outvars))
    if name in QUICK or name in SLOW:
        # of a complex number: a sine and a cosine besides
        complex_out = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.complexfloating)
        slow = 2.0 * out if complex_out else out * float(name in SLOW)
        return Work(transcendentals=out + slow * complex_out, slow=slow, bytes=moved)
    if name == "reduce_sum":
        return Work(flops=float(read[0].size), sums=float(read[0].size), bytes=moved)
    return Work(flops=float(max([out, *(a.size for a in read)])), bytes=moved)


def _size(variable: Any) -> int:
    return getattr(variable.aval, "size", 0)
