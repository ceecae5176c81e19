"""Stokes parameters and circular correlations.

A product is a pair of arrays, vis and sigma. Where a sample is missing, vis is 0 and sigma is infinite, so its weight
is zero; a product that is missing in every row is left out of the dict.
"""

from collections.abc import Mapping

import numpy as np

Products = dict[str, np.ndarray]


def from_circular(vis: Mapping[str, np.ndarray], sigma: Mapping[str, np.ndarray]) -> tuple[Products, Products]:
    """Return Stokes products of circular correlations. vis, sigma: (n,) Jy by "RR", "LL", "RL", "LR".

    Where one parallel hand is missing, I is the other one and V is missing. Files whose polarisation was removed hold
    the same values in RR and LL and nothing in RL and LR: their V is no measurement and is left out.
    """
    n = len(next(iter(vis.values())))
    rr, ll, rl, lr = (_sample(vis, sigma, name, n) for name in ("RR", "LL", "RL", "LR"))
    both = np.isfinite(rr[1]) & np.isfinite(ll[1])
    only_r, only_l = np.isfinite(rr[1]) & ~both, np.isfinite(ll[1]) & ~both
    parallel = np.sqrt(rr[1] ** 2 + ll[1] ** 2) / 2
    out_vis = {
        "I": np.select([both, only_r, only_l], [(rr[0] + ll[0]) / 2, rr[0], ll[0]], 0),
        "Q": (rl[0] + lr[0]) / 2,
        "U": 1j * (lr[0] - rl[0]) / 2,
        "V": (rr[0] - ll[0]) / 2,
    }
    cross = np.sqrt(rl[1] ** 2 + lr[1] ** 2) / 2
    out_sigma = {
        "I": np.select([both, only_r, only_l], [parallel, rr[1], ll[1]], np.inf),
        "Q": cross,
        "U": cross.copy(),
        "V": parallel.copy(),
    }
    removed = not np.isfinite(cross).any() and np.array_equal(rr[0], ll[0]) and np.array_equal(rr[1], ll[1])
    if removed:
        del out_vis["V"], out_sigma["V"]
    return present(out_vis, out_sigma)


def to_circular(vis: Mapping[str, np.ndarray], sigma: Mapping[str, np.ndarray]) -> tuple[Products, Products]:
    """Return circular correlations of Stokes products. vis, sigma: (n,) Jy by "I", "Q", "U", "V".

    Without V, both parallel hands are I with √2 of its error, so that their mean is I again.
    """
    n = len(vis["I"])
    i, q, u = (_sample(vis, sigma, name, n) for name in "IQU")
    v = _sample(vis, sigma, "V", n)
    no_v = ~np.isfinite(v[1])
    parallel = np.sqrt(i[1] ** 2 + np.where(no_v, i[1], v[1]) ** 2)
    cross = np.sqrt(q[1] ** 2 + u[1] ** 2)
    out_vis = {"RR": i[0] + v[0], "LL": i[0] - v[0], "RL": q[0] + 1j * u[0], "LR": q[0] - 1j * u[0]}
    return present(out_vis, {"RR": parallel, "LL": parallel.copy(), "RL": cross, "LR": cross.copy()})


def present(vis: Mapping[str, np.ndarray], sigma: Mapping[str, np.ndarray]) -> tuple[Products, Products]:
    """Return the products that have at least one sample, with 0 ± inf wherever a sample is missing."""
    out_vis, out_sigma = {}, {}
    for name in vis:
        value, error = np.asarray(vis[name], complex), np.asarray(sigma[name], float)
        good = np.isfinite(value) & np.isfinite(error) & (error > 0)
        if good.any():
            out_vis[name], out_sigma[name] = np.where(good, value, 0), np.where(good, error, np.inf)
    return out_vis, out_sigma


def _sample(vis: Mapping, sigma: Mapping, name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    if name not in vis:
        return np.zeros(n, complex), np.full(n, np.inf)
    return np.asarray(vis[name], complex), np.asarray(sigma[name], float)
