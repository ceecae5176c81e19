"""The value a solver ends with must be the objective's own at the answer."""

from collections.abc import Callable, Iterable

from shardfit.core.errors import ParityError

LIMITS = {"float64": 1e-8, "float32": 1e-3}  # relative to the sizes of the terms: sums may be taken in another order
SPREADS = 10  # how many times what rounding of the parameters does to the value counts as rounding


def require_same_value(
    own: float, shares: dict[str, float], precision: str, nearby: Callable[[], Iterable[float]]
) -> None:
    """Raise if the value a solver saw at its answer is not the sum of the terms' weighted shares there.

    nearby: gives values at parameters that differ by rounding. It is called only where the two differ: a perfect fit
    leaves nothing but rounding, of which no two programs make the same.
    """
    value, size = sum(shares.values()), sum(map(abs, shares.values()))
    difference = abs(own - value)
    if difference <= LIMITS[precision] * max(size, abs(own)):
        return
    values = [value, *nearby()]
    if difference <= SPREADS * (max(values) - min(values)):
        return
    raise ParityError(
        f"the solver ended with the value {own:.8g}, but the objective is {value:.8g} there. A term's function gives "
        "something else when rows are evaluated in other blocks (a mean, rank or cumulative sum over the rows it is "
        "given), or from call to call. Let each row's contribution depend on that row alone."
    )
