"""Rows of the data term: sets of visibilities with all the closures made of them, by channel.

Visibilities joined by closures form a set, so a closure's legs never leave their shard and every visibility is
computed once for all products. Sets are filled up to one size (that of the largest time stamp of any channel). What is
empty holds a copy of a real visibility, and a measurement that is not there has weight zero.

Where all channels see one image, a row is a set. Where each channel has an image of its own, a row is a channel, or one
of `blocks` equal parts of it: a mesh then splits the frequencies, or the scans of each. What lies between two frames of
a movie is such a channel: a part of one data set, whose measurements count alike wherever they are.

Sizes are multiples of STEP, so that days of one array share their programs: what is empty has no weight.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.forward import Nufft, rows_for
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES, DataSet, Product

STEP = 8
GAIN_STEP = 4  # of gains, whose matrices cost more
HALF = ("vis", "calvis", "bs", "pvis", "m", "vvis", "v")  # χ² = 1/(2N) Σ of complex residuals; the others 1/N


def pack(
    data: DataSet | Sequence[DataSet],
    grid: Grid,
    operator: str | Nufft,
    *,
    blocks: int | None = None,
    pooled: bool = False,
) -> dict:
    """Rows of one or several channels: {'channel': (n_rows,), 'operator': {...}, product: {...}}.

    Arrays are (n_rows, capacity, ...), one set in a row. With blocks they are (n_channels * blocks, sets, capacity,
    ...), and 'log_ratio' (n_rows,) is the channel's ln(ν/ν_ref). ½ Σ |r|² is the sum of the channels' χ² per
    measurement; pooled: χ² per measurement of all together, and a channel may lack a product, or everything.
    """
    channels = [data] if isinstance(data, DataSet) else list(data)
    starts = np.cumsum([0, *(len(one.u) for one in channels)])
    u, v = (np.concatenate([np.asarray(getattr(one, k), float) for one in channels]) for k in "uv")
    products = _merged(channels, starts, pooled)
    slots, channel = _slots(groups(len(u), products), starts, blocks)
    place = np.full((len(u), 2), -1)
    row, column = np.nonzero(slots >= 0)
    place[slots[row, column]] = np.stack([row, column], 1)
    first = np.minimum(starts[channel], len(u) - 1)  # a channel without data repeats what another has
    filled = np.where(slots >= 0, slots, first[:, None]).ravel()
    operator_rows = rows_for(grid, u[filled], v[filled], operator)
    rows: dict = {"operator": {k: a.reshape(*slots.shape, *a.shape[1:]) for k, a in operator_rows.items()}}
    if all(one.late is not None for one in channels):
        late = np.concatenate([np.asarray(one.late, float) for one in channels])
        rows["late"] = {"share": late[filled].reshape(slots.shape)}
    for name, product in products.items():
        make = _calibrated if name == "calvis" else _aligned if name in ALIGNED else _closures
        rows[name] = make(name, product, place, slots.shape)
    if blocks is None:
        return {**rows, "channel": channel}
    n_rows = len(channels) * blocks
    rows = {name: {k: a.reshape(n_rows, -1, *a.shape[1:]) for k, a in one.items()} for name, one in rows.items()}
    channel = channel.reshape(n_rows, -1)[:, 0]
    return {**rows, "channel": channel, "log_ratio": np.array([float(one.log_ratio) for one in channels])[channel]}


def _merged(channels: Sequence[DataSet], starts: np.ndarray, pooled: bool) -> dict[str, Product]:
    """Products of all channels as if of one observation, errors scaled such that ½ Σ |r|² is what `pack` says."""
    merged = {}
    for name in dict.fromkeys(name for one in channels for name in one.products):
        held = [(one, s) for one, s in zip(channels, starts, strict=False) if not pooled or name in one.products]
        total = sum(one.products[name].n for one, _ in held) if pooled else None
        merged[name] = _joined([_scaled(name, one, s, total) for one, s in held])
    return merged


def _scaled(name: str, data: DataSet, start: int, total: int | None) -> Product:
    if name not in ALIGNED + CLOSURES:
        raise ValueError(f"unknown data product {name!r}.{suggestion(name, ALIGNED + CLOSURES)}")
    if name not in data.products:
        raise ValueError(f"a channel has no product {name!r}. Make the same products of every channel.")
    product, n_vis = data.products[name], len(data.u)
    if np.min(product.index) < 0 or np.max(product.index) >= n_vis:
        raise ValueError(f"product {name!r} refers to visibilities that are not among the {n_vis} given.")
    scale = np.sqrt((total or product.n) / (1.0 if name in HALF else 2.0))
    share = None if product.share is None else np.asarray(product.share) * scale
    gains = {}
    if product.gain is not None and product.tolerance is not None:
        gains = {"gain": product.gain + 2 * start, "tolerance": product.tolerance * scale}  # fewer than two a row
    return Product(product.index + start, product.value, product.sigma * scale, product.sign, share, **gains)


def _joined(products: Sequence[Product]) -> Product:
    def joined(name):
        return np.concatenate([getattr(p, name) for p in products])

    names = ("sign", "share", "gain", "tolerance")
    optional = {name: joined(name) for name in names if getattr(products[0], name) is not None}
    return Product(joined("index"), joined("value"), joined("sigma"), **optional)


def _slots(sets: list[np.ndarray], starts: np.ndarray, blocks: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Visibility in every place, (n_sets, capacity), -1 where empty, and the channel of every set, (n_sets,).

    With blocks every channel has equally many sets, a multiple of blocks.
    """
    largest = max(len(s) for s in sets)
    capacity = largest if largest == 1 else _stepped(largest)  # alone, each stays a row of its own
    owner = np.searchsorted(starts, [s[0] for s in sets], side="right") - 1
    slots = [fill([s for s, o in zip(sets, owner, strict=True) if o == c], capacity) for c in range(len(starts) - 1)]
    if blocks is not None:
        length = -(-max(map(len, slots)) // blocks) * blocks
        slots = [np.pad(s, ((0, length - len(s)), (0, 0)), constant_values=-1) for s in slots]
    else:
        empty = np.full((-sum(map(len, slots)) % STEP, capacity), -1)
        slots[-1] = np.concatenate([slots[-1], empty])
    return np.concatenate(slots), np.repeat(np.arange(len(slots), dtype=np.int32), [len(s) for s in slots])


def _stepped(n: int) -> int:
    return -(-n // STEP) * STEP


def measured_rows(rows: Mapping[str, Mapping[str, np.ndarray]]) -> np.ndarray:
    """Return the numbers of the rows that hold a measurement; rows: by product."""
    held = [one.get("whiten", one.get("weight")) for one in rows.values()]
    return np.flatnonzero(sum(np.any(a != 0, axis=tuple(range(1, a.ndim))).astype(int) for a in held if a is not None))


def groups(n_vis: int, products: Mapping[str, Product]) -> list[np.ndarray]:
    """Sets of visibilities that closures join; visibilities no product uses are left out."""
    used = np.zeros(n_vis, bool)
    edges = []
    for product in products.values():
        index = np.asarray(product.index).reshape(len(product.index), -1)
        used[index] = True
        edges += [np.stack([index[:, 0], leg], 1) for leg in index.T[1:]]
        if product.gain is not None:  # who shares a gain belongs together
            _, member, gain = np.unique(product.gain, return_index=True, return_inverse=True)
            edges += [np.stack([index[member[one] // 2, 0], index[:, 0]], 1) for one in gain.reshape(-1, 2).T]
    labels = _least_members(n_vis, np.concatenate([np.zeros((0, 2), int), *edges]))[used]
    members = np.flatnonzero(used)
    order = np.argsort(labels, kind="stable")
    return np.split(members[order], np.flatnonzero(np.diff(labels[order])) + 1)


def _least_members(n: int, edges: np.ndarray) -> np.ndarray:
    """Smallest member, (n,), of the set that each of n nodes is in; edges (m, 2) join nodes to sets."""
    least = np.arange(n)
    while True:
        known = least[edges]
        lower = np.repeat(known.min(1), 2)
        np.minimum.at(least, edges.ravel(), lower)
        np.minimum.at(least, known.ravel(), lower)  # members that the ends knew so far: sets grow by sets, not by nodes
        closer = least[least]
        if np.array_equal(closer, least) and np.array_equal(least[edges[:, 0]], least[edges[:, 1]]):
            return least
        least = closer


def fill(sets: list[np.ndarray], capacity: int) -> np.ndarray:
    """Put sets into rows of one capacity, largest first → (n_rows, capacity) positions, -1 where empty."""
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
    return {"value": value, "weight": weight}


def _calibrated(name, product, place, shape):
    """Values and weights of visibilities, which gains of their row each has, and how these are held to 1."""
    row, column = place[product.index].T
    gains, which = np.unique(product.gain, return_inverse=True)
    which = which.reshape(-1, 2)
    home, held = np.zeros(len(gains), int), np.ones(len(gains))
    for end in range(2):
        home[which[:, end]], held[which[:, end]] = row, 1 / product.tolerance[:, end]
    order = np.argsort(home, kind="stable")
    number = np.empty(len(gains), int)
    number[order] = np.arange(len(gains)) - np.searchsorted(home[order], home[order])
    most = int(number.max()) + 1
    ends = np.zeros((2, *shape, most + -most % GAIN_STEP))
    for end in range(2):
        ends[end, row, column, number[which[:, end]]] = 1.0
    limits = np.full((shape[0], ends.shape[-1]), held.max())  # a place without a gain stays at 1
    limits[home, number] = held
    return {**_aligned(name, product, place, shape), "first": ends[0], "second": ends[1], "held": limits}


def _closures(name, product, place, shape):
    """Design matrix from the row's phases (or log amplitudes) to its closures, their values and weights."""
    row = place[product.index[:, 0], 0]
    order = np.argsort(row, kind="stable")
    number = np.empty(len(row), int)
    number[order] = np.arange(len(row)) - np.searchsorted(row[order], row[order])
    size = _stepped(int(number.max()) + 1)
    design = np.zeros((shape[0], size, shape[1]))
    signs = np.array([1, 1, -1, -1]) if "camp" in name else product.sign.T
    for leg, sign in zip(product.index.T, signs, strict=True):
        design[row, number, place[leg, 1]] = sign
    value = np.zeros((shape[0], size), product.value.dtype)
    value[row, number] = product.value
    if not name.endswith("_cov"):
        weight = np.zeros((shape[0], size))
        weight[row, number] = 1 / product.sigma
        return {"design": design, "value": value, "weight": weight}
    share = np.zeros(shape)
    share[tuple(place[np.unique(product.index)].T)] = np.asarray(product.share)[np.unique(product.index)]
    counts = np.bincount(row, minlength=shape[0])
    whiten = np.stack([_whitener(name, d, s, n) for d, s, n in zip(design, share, counts, strict=True)])
    return {"design": design, "value": value, "whiten": whiten}


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
