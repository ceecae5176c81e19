"""The value a solver ends with must be the objective's own at the answer."""

import numpy as np

from shardfit.core.errors import ParityError

LIMITS = {"float64": 1e-8, "float32": 1e-3}  # relative to the sizes of the terms: sums may be taken in another order


def require_same_value(own: float, shares: dict[str, float], precision: str, largest: float) -> None:
    """Raise if the value a solver saw at its answer is not the sum of the terms' weighted shares there.

    largest: value on the way. A perfect fit leaves differences of numbers as large as those that gave it, so that their
    rounding, not the small value, bounds what can be told.
    """
    value, size = sum(shares.values()), sum(map(abs, shares.values()))
    size, rounding = max(size, abs(own)), 100 * np.finfo(precision).eps * largest**0.5
    if abs(own - value) <= LIMITS[precision] * size + rounding * (size**0.5 + rounding):
        return
    raise ParityError(
        f"the solver ended with the value {own:.8g}, but the objective is {value:.8g} there. A term's function gives "
        "something else when rows are evaluated in other blocks (a mean, rank or cumulative sum over the rows it is "
        "given), or from call to call. Let each row's contribution depend on that row alone."
    )
