"""What a certificate makes of its comparisons: which rows and terms are wrong, and in which words to say so."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardfit.check.comparisons import WRONG, Comparison
from shardfit.core.errors import ParityError

BLOCKS = 1e-5  # relative difference of the same row in another block; honest models show rounding only
GRAM = 1e-4
SHARDED = {"float64": 1e-9, "float32": 2e-3}
PRECISION = 3e-2
ROUNDINGS, SUMMED = 16, 1000  # of the coarsest numbers in a program, that a row may be off, and a sum of rows
MOST = 0.25  # relative difference that no rounding excuses
Grain = Callable[[str], float]  # name of a term → rounding of the coarsest numbers in its program
EQUATIONS = "the normal equations differ"


def _within(error: float, tolerance: float, grain: Callable[[], float], roundings: int = ROUNDINGS) -> bool:
    """Return whether an error is within a tolerance, or within the rounding of a program, asked for only if it counts.

    A model of 16 bits in a fit of 32 or 64 differs from itself by its own rounding.
    """
    return bool(error <= tolerance or error <= min(MOST, roundings * grain()))


def judge(
    terms: dict[str, Comparison],
    index: dict[str, np.ndarray],
    where: str,
    mixes: Callable[[str, str], str],
    grain: Grain,
) -> None:
    """Raise for the first term that is wrong.

    index: rows that lines of a term's tables stand for; where: 'x0' or 'answer'; mixes(name, how): what to say of a
    term that depends on its blocks.
    """
    for name, comparison in terms.items():
        if not _within(comparison.block_rows, BLOCKS, partial(grain, name)):
            what = "row" if name in index else "sum"
            raise ParityError(mixes(name, f"the same {what} differs by {comparison.block_rows:.1e}"))
    for name, comparison in terms.items():
        if comparison.suspicion.any():
            raise ParityError(_wrong_derivative(name, comparison, index.get(name), where))
        if not _within(comparison.block_gradient, BLOCKS, partial(grain, name)):
            how = f"its gradient differs by {comparison.block_gradient:.1e} although its values agree"
            raise ParityError(mixes(name, how))
        if not _within(comparison.gram, GRAM, partial(grain, name)):
            raise ParityError(
                f"term {name!r}: the normal equations differ from value and gradient by {comparison.gram:.1e} "
                "(relative). Check custom_jvp and custom_vjp rules in the model, or use a solver that needs the "
                "gradient only."
            )


def _wrong_derivative(name: str, comparison: Comparison, index: np.ndarray | None, where: str) -> str:
    what, error = f"term {name!r}: the gradient", max(comparison.backward, comparison.loss)
    wrong = comparison.suspicion[:-1]
    if wrong.any():
        error = float(np.max(comparison.wrong))
        if index is not None and not wrong.all():
            first = index[np.flatnonzero(wrong)[0]]
            what += f" of {wrong.sum()} of {len(wrong)} rows probed (row {first} is one)"
    elif comparison.loss > WRONG:
        what = f"term {name!r}: the gradient of the loss of its totals"
    return (
        f"{what} differs from a finite difference by {error:.1e} (relative) near "
        f"{'x0' if where == 'x0' else 'the answer of the fit, which therefore cannot be trusted'}. Check any "
        "custom_vjp or custom_jvp in the model, stop_gradient, and operations with a hard edge (round, argmax, "
        "comparisons). certify=False skips this check."
    )


def judge_layouts(certificate: Any, precision: str, grain: Grain) -> None:
    """Raise for a term that is another on a mesh or in the fit's blocks, or loses its digits in float32."""
    for name, error in (certificate.sharded or {}).items():
        if not _within(error, SHARDED[precision], partial(grain, name), SUMMED):
            raise ParityError(
                f"term {name!r}: split over {certificate.shards} devices, value or gradient differs from one device by "
                f"{error:.1e}, although it does not on one device in blocks. A foreign function inside the model is "
                "probably not safe to split (its derivative rule under shard_map): give it its own custom_vjp, or run "
                "without a mesh."
            )
    judge_walk(certificate.walk, "value or gradient differs", precision, grain)
    judge_walk(certificate.gram_walk, EQUATIONS, precision, grain)
    for name, error in (certificate.precision or {}).items():
        if not _within(error, PRECISION, partial(grain, name)):
            raise ParityError(
                f"term {name!r}: in float32 value or gradient is off by {error:.1e} (relative to float64): digits are "
                "lost to cancellation. Use precision='float64', or subtract the large common part first."
            )


def judge_walk(walk: dict[str, float] | None, what: str, precision: str, grain: Grain) -> None:
    """Raise for a term that is another in blocks as long as those of a fit. what: was compared, and differs."""
    for name, error in (walk or {}).items():
        if not _within(error, SHARDED[precision], partial(grain, name), SUMMED):
            raise ParityError(
                f"term {name!r}: summed in blocks as long as those of the fit, {what} by {error:.1e} "
                "(relative) from the same rows in shorter blocks, although short blocks agree with each other. Either "
                "the function looks at the number of its rows, or it is compiled wrongly: JAX on CPUs does so with "
                "products by a constant matrix of equal numbers, such as x @ jnp.ones((3, 4)). Write that as a sum, or "
                "pass the matrix in args; chunk=1000 avoids it too."
            )
