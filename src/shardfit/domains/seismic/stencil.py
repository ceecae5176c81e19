"""Central difference coefficients of even order p = 2M.

The second derivative is symmetric, c0 u[i] + Σ_m c_m (u[i+m] + u[i-m]); the first is antisymmetric, Σ_m d_m (u[i+m] -
u[i-m]). Both are for unit spacing.
"""

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
