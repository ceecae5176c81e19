"""A small observation with every data product, made of random numbers."""

from dataclasses import replace

import numpy as np

from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.tables import (
    ALIGNED,
    CLOSURES,
    DataSet,
    closure_product,
    polarised_product,
    visibility_product,
)

GRID = Grid(6, 4, 1.0)
EVERY = (*ALIGNED, *CLOSURES)


def small_data(n_times=5, seed=0, log_ratio=0.0):
    """Four stations, some times with one visibility only, every product."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    full = 6 * n_times
    u, v = rng.uniform(-0.3, 0.3, (2, full + 3))
    stokes = {k: rng.normal(size=full + 3) + 1j * rng.normal(size=full + 3) for k in "IQUV"}
    sigma = {k: rng.uniform(0.1, 0.3, full + 3) for k in "IQUV"}
    at = {pair: k for k, pair in enumerate(pairs)}
    start = 6 * np.arange(n_times)[:, None]
    triangle = np.concatenate([start + [at[0, 1], at[1, 2], at[0, 2]], start + [at[0, 1], at[1, 3], at[0, 3]]])
    quadrangle = np.concatenate([start + [at[0, 3], at[1, 2], at[0, 2], at[1, 3]]])
    products = {k: visibility_product(k, stokes["I"], sigma["I"]) for k in ("vis", "amp", "logamp")}
    products |= {k: polarised_product(k, stokes, sigma) for k in ("pvis", "m", "vvis", "v")}
    products["calvis"] = replace(
        products["vis"],
        sigma=3 * products["vis"].sigma,
        gain=np.array(
            [(4 * (k // 6) + a, 4 * (k // 6) + b) for k, (a, b) in enumerate((pairs * (n_times + 1))[: full + 3])]
        ),
        tolerance=np.full((full + 3, 2), 0.2),
    )
    share = sigma["I"] / np.abs(stokes["I"])
    for name in CLOSURES:
        index = quadrangle if "camp" in name else triangle
        value = rng.uniform(0.5, 2, len(index)) * (1j if name == "bs" else 40 if "cphase" in name else 1)
        sign = np.tile([1, 1, 1, 1] if "camp" in name else [1, 1, -1], (len(index), 1))
        products[name] = closure_product(name, index, sign, value, np.full(len(index), 0.3), share=share)
    return DataSet(u, v, products, log_ratio)


def small_maps():
    rng = np.random.default_rng(1)
    return {k: rng.uniform(0.1, 0.3, GRID.n_pixels) for k in ("I", "m", "phi", "v")}
