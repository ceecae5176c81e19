"""Central difference coefficients of even order p = 2M.

The second derivative is symmetric, c0 u[i] + Σ_m c_m (u[i+m] + u[i-m]); the first is antisymmetric, Σ_m d_m (u[i+m] -
u[i-m]). Both are for unit spacing.

In short formats the rounded coefficients of the second are chosen together: a set that does not sum to zero adds a
multiple of the wave itself to its curvature at every step, which soon is the largest error there is.
"""

from functools import lru_cache
from typing import Any

import numpy as np

SECOND = {
    2: (-2.0, 1.0),
    4: (-5 / 2, 4 / 3, -1 / 12),
    6: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    8: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}
FIRST = {
    2: (1 / 2,),
    4: (2 / 3, -1 / 12),
    6: (3 / 4, -3 / 20, 1 / 60),
    8: (4 / 5, -1 / 5, 4 / 105, -1 / 280),
}
ORDERS = tuple(SECOND)


def spectral_bound(order: int) -> float:
    """Return S = |c0| + 2 Σ|c_m|: the second derivative's largest eigenvalue, in units of 1/dh²."""
    first, *rest = SECOND[order]
    return abs(first) + 2 * sum(map(abs, rest))


@lru_cache
def second_coefficients(order: int, dh: tuple[float, ...], dtype: Any) -> tuple[tuple[float, ...], ...]:
    """Return c of the second derivative along every axis, as numbers of a type that sum to exactly zero.

    The centres of all axes may be added without rounding. Σ m² c_m is as near to 1 / dh² as the type allows: it is what
    the speed of long waves depends on.
    """
    dtype = np.dtype(dtype)
    exact = [np.array(SECOND[order]) / h**2 for h in dh]
    if dtype.itemsize > 4:
        return tuple(tuple(map(float, c)) for c in exact)
    step = float(np.spacing(dtype.type(max(abs(c[0]) for c in exact)))) / 2
    while True:
        found = [_on_lattice(c, 1 / h**2, step) for c, h in zip(exact, dh, strict=True)]
        together = np.array([*np.concatenate(found), sum(c[0] for c in found)])
        if np.array_equal(together.astype(dtype).astype(float), together):
            return tuple(tuple(map(float, c)) for c in found)
        step *= 2


def _on_lattice(exact: np.ndarray, moment: float, step: float) -> np.ndarray:
    """Return numbers near c whose sum is zero and whose second moment is nearest to the given one.

    The innermost two carry what is left: an outer coefficient's error counts by the fourth power of its distance.
    """
    outer = exact[2:].copy()
    if len(outer):
        fine = float(np.spacing(np.float32(abs(outer[0]))))
        outer[1:] = np.rint(outer[1:] / fine) * fine
        outer[0] = np.rint(outer.sum() / step) * step - outer[1:].sum()
    m = np.arange(2, len(exact))
    next_to_centre = np.rint((moment - np.sum(m**2 * outer)) / step) * step
    return np.array([-2 * (next_to_centre + outer.sum()), next_to_centre, *outer])
