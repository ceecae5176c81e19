"""Rows of the data term: each row is a set of visibilities with all the closures made of them.

Visibilities joined by closures stay together, so a closure's legs never leave their shard and every visibility is
computed once for all products. Sets are filled up to one size (that of the largest time stamp), padded with copies of
a real visibility, and a measurement that is not there has weight zero.
"""

from collections.abc import Mapping

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.forward import Nufft, rows_for
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.tables import DataSet, Product

ALIGNED = ("vis", "amp", "logamp", "pvis", "m", "vvis")
CLOSURES = ("bs", "cphase", "camp", "logcamp", "cphase_cov", "logcamp_cov")
HALF = ("vis", "bs", "pvis", "m", "vvis")  # χ² = 1/(2N) Σ of complex residuals; the others 1/N


def pack(data: DataSet, grid: Grid, operator: str | Nufft) -> dict:
    """Rows of one observation: {'operator': {...}, product: {...}}, arrays (n_rows, capacity, ...)."""
    u, v = np.asarray(data.u, float), np.asarray(data.v, float)
    for name, product in data.products.items():
        if name not in ALIGNED + CLOSURES:
            raise ValueError(f"unknown data product {name!r}.{suggestion(name, ALIGNED + CLOSURES)}")
        if np.min(product.index) < 0 or np.max(product.index) >= len(u):
            raise ValueError(f"product {name!r} refers to visibilities that are not among the {len(u)} given.")
    slots = fill(groups(len(u), data.products))
    row, column = np.nonzero(slots >= 0)
    place = np.full((len(u), 2), -1)
    place[slots[row, column]] = np.stack([row, column], 1)
    filled = np.where(slots >= 0, slots, slots[:, :1])
    operator_rows = rows_for(grid, u[filled.ravel()], v[filled.ravel()], operator)
    rows = {"operator": {k: a.reshape(*slots.shape, *a.shape[1:]) for k, a in operator_rows.items()}}
    for name, product in data.products.items():
        make = _aligned if name in ALIGNED else _closures
        rows[name] = make(name, product, place, slots.shape)
    return rows


def groups(n_vis: int, products: Mapping[str, Product]) -> list[np.ndarray]:
    """Sets of visibilities that closures join; visibilities no product uses are left out."""
    used = np.zeros(n_vis, bool)
    edges = []
    for product in products.values():
        index = np.asarray(product.index).reshape(len(product.index), -1)
        used[index] = True
        edges += [np.stack([index[:, 0], leg], 1) for leg in index.T[1:]]
    edges = np.concatenate([np.zeros((0, 2), int), *edges])
    joined = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n_vis, n_vis))
    labels = connected_components(joined, directed=False)[1][used]
    members = np.flatnonzero(used)
    order = np.argsort(labels, kind="stable")
    return np.split(members[order], np.flatnonzero(np.diff(labels[order])) + 1)


def fill(sets: list[np.ndarray]) -> np.ndarray:
    """Put sets into rows as long as the longest one, largest first → (n_rows, capacity) positions, -1 where empty."""
    capacity = max(len(s) for s in sets)
    rows, space = [], {}
    for members in sorted(sets, key=len, reverse=True):
        fits = [free for free in range(len(members), capacity + 1) if space.get(free)]
        free = fits[0] if fits else capacity
        row = space[free].pop() if fits else len(rows)
        if not fits:
            rows.append([])
        rows[row].extend(members)
        space.setdefault(free - len(members), []).append(row)
    slots = np.full((len(rows), capacity), -1)
    for row, members in zip(slots, rows, strict=True):
        row[: len(members)] = members
    return slots


def _norm(name: str, n: int) -> float:
    """Factor c with ½ Σ (c r)² = χ²."""
    return np.sqrt((1.0 if name in HALF else 2.0) / n)


def _aligned(name, product, place, shape):
    if len(np.unique(product.index)) != len(product.index):
        raise ValueError(f"product {name!r} lists a visibility twice. Give each one measurement.")
    at = tuple(place[product.index].T)
    weight = np.zeros((*shape, *product.value.shape[1:]))
    value = np.ones(weight.shape, product.value.dtype)
    if name == "logamp":
        known = product.value > 0  # a debiased amplitude of zero has no logarithm, and no weight
        amplitude = np.where(known, product.value, 1.0)
        weight[at] = np.where(known, amplitude / product.sigma, 0.0)
        value[at] = np.log(amplitude)
    else:
        weight[at], value[at] = 1 / product.sigma, product.value
    return {"value": value, "weight": weight * _norm(name, product.n)}


def _closures(name, product, place, shape):
    """Design matrix from the row's phases (or log amplitudes) to its closures, their values and weights."""
    row = place[product.index[:, 0], 0]
    order = np.argsort(row, kind="stable")
    number = np.empty(len(row), int)
    number[order] = np.arange(len(row)) - np.searchsorted(row[order], row[order])
    size = int(number.max()) + 1
    design = np.zeros((shape[0], size, shape[1]))
    signs = np.array([1, 1, -1, -1]) if "camp" in name else product.sign.T
    for leg, sign in zip(product.index.T, signs, strict=True):
        design[row, number, place[leg, 1]] = sign
    value = np.zeros((shape[0], size), product.value.dtype)
    value[row, number] = product.value
    if not name.endswith("_cov"):
        weight = np.zeros((shape[0], size))
        weight[row, number] = _norm(name, product.n) / product.sigma
        return {"design": design, "value": value, "weight": weight}
    share = np.zeros(shape)
    share[tuple(place[np.unique(product.index)].T)] = np.asarray(product.share)[np.unique(product.index)]
    counts = np.bincount(row, minlength=shape[0])
    whiten = np.stack([_whitener(name, d, s, n) for d, s, n in zip(design, share, counts, strict=True)])
    return {"design": design, "value": value, "whiten": whiten * _norm(name, product.n)}


def _whitener(name, design, share, n):
    """Inverse Cholesky factor of D diag((σ/|V|)²) Dᵀ, zero for the closures that are not there."""
    out = np.zeros((len(design), len(design)))
    if n:
        root = design[:n] * share
        q, triangle = np.linalg.qr(root.T)
        diagonal = np.abs(np.diag(triangle))
        if triangle.shape[0] < n or diagonal.min() <= 1e-8 * diagonal.max():
            raise ValueError(
                f"{name}: these closures depend on each other. Use a minimal set of closures (count='min')."
            )
        out[:n, :n] = np.linalg.inv(triangle.T)
    return out
