"""Correlations averaged over bins of pairs of frames: multi-tau data, g2 per delay and age, lists of points.

The model is averaged over `nodes` × `nodes` pairs spread evenly through a bin; nodes=1 evaluates it at the centre.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.forward import Bins


@dataclass(frozen=True, eq=False)
class Binned(Correlation):
    """Correlations c2 (n, m) of n q-bins in m bins of pairs of frames.

    first, second: (m,) or (m, s), the frames, from 0, of the s pairs that stand for a bin; fractions are allowed.
    frame_count: frames of the measurement. sigma: one number, (n,) or (n, m). The rest is that of `Correlation`.

    Example: a list of points, `Binned(c2, phi, q, dt, sigma, first=i, second=j, frame_count=500)`.
    """

    first: Any = field(kw_only=True)
    second: Any = field(kw_only=True)
    frame_count: int = field(kw_only=True)

    def __post_init__(self):
        c2 = np.atleast_2d(np.asarray(self.c2, np.float64))
        first, second = (np.asarray(frames, np.float64) for frames in (self.first, self.second))
        first, second = (frames[:, None] if frames.ndim == 1 else frames for frames in (first, second))
        if c2.ndim != 2 or first.shape != second.shape or first.ndim != 2 or len(first) != c2.shape[1]:
            raise ValueError(
                f"c2 has shape {c2.shape}, first {first.shape} and second {second.shape}: they must be (n, m), (m, s) "
                "and (m, s), a bin of s pairs of frames for every column of c2."
            )
        if self.frame_count < 4:
            raise ValueError(f"frame_count={self.frame_count}: too few for a fit, at least 4 are needed.")
        for name, frames in (("first", first), ("second", second)):
            if not np.all((frames >= 0) & (frames <= self.frame_count - 1)):
                raise ValueError(f"{name} must be frames from 0 to {self.frame_count - 1}, and numbers.")
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "second", second)
        self._keep(c2, {(), (len(c2),), c2.shape})

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.frame_count

    @property
    def n_pairs(self) -> int:
        """Number of bins of pairs."""
        return self.c2.shape[1]

    @property
    def lag(self) -> np.ndarray:
        """Seconds between the frames of a bin's pairs (m,), on average."""
        return self.dt * np.mean(np.abs(self.second - self.first), axis=1)

    @property
    def pairs(self) -> Bins:
        """The bins as the forward model takes them."""
        return Bins(self.first, self.second)

    def frames(self, first: int = 1, last: int = -1) -> "Binned":
        """Refuse: averages over bins cannot be cut by frame."""
        raise ValueError("bins of frames cannot be cut by frame: select frames before averaging.")


def delay_bins(c2: Any, delay: Any, age: Any, dt: float, *, widths: tuple = (0, 0), nodes: int = 4, **rest) -> Binned:
    """Return g2 per delay and age as data: c2 (n, n_age, n_delay), delay (n_delay,) s, age (n_age,) s.

    age: mean of both times; None: c2 (n, n_delay) are means over the whole run, whose n_frames is then needed.
    widths: seconds that delays and ages are averaged over, each one number or one per bin. rest: phi, q, sigma, gap,
    source, notes of the data.
    """
    delay, n_frames = np.asarray(delay, float) / dt, rest.pop("n_frames", None)
    c2, sigma = np.asarray(c2, float), rest.pop("sigma", None)
    if age is None:
        if n_frames is None:
            raise ValueError("delay_bins: means over a whole run need n_frames, the number of its frames.")
        lag, middle = delay, np.full_like(delay, 0.5 * (n_frames - 1))
        spans = widths[0], dt * _width_of(n_frames - delay, nodes)
    else:
        ages = np.asarray(age, float) / dt
        if c2.shape[1:] != (len(ages), len(delay)):
            raise ValueError(f"delay_bins: c2 {c2.shape} must be (n, {len(ages)}, {len(delay)}), bins × ages × delays.")
        middle, lag = (each.ravel() for each in np.meshgrid(ages, delay, indexing="ij"))
        spans = tuple(np.broadcast_to(w, c2.shape[1:]).ravel() for w in (widths[0], np.reshape(widths[1], (-1, 1))))
        c2 = c2.reshape(len(c2), -1)
        sigma = sigma.reshape(len(c2), -1) if np.ndim(sigma) == 3 else sigma
        n_frames = n_frames or int(np.ceil(np.max(middle + 0.5 * lag))) + 1
    apart = lag[:, None, None] + _midpoints(spans[0], nodes)[:, :, None] / dt
    centre = middle[:, None, None] + _midpoints(spans[1], nodes)[:, None, :] / dt
    centre = np.clip(centre, 0.5 * apart, n_frames - 1 - 0.5 * apart)  # within the run, at the same lag
    first, second = (np.clip(centre + side * apart, 0, n_frames - 1).reshape(len(lag), -1) for side in (-0.5, 0.5))
    inside = (lag > 0) & (middle - 0.5 * lag > -0.5) & (middle + 0.5 * lag < n_frames - 0.5)  # the diagonal is no datum
    sigma = sigma[:, inside] if np.ndim(sigma) == 2 else sigma
    return Binned(
        c2[:, inside], dt=dt, sigma=sigma, first=first[inside], second=second[inside], frame_count=n_frames, **rest
    )


def _midpoints(width: Any, nodes: int) -> np.ndarray:
    """Return offsets (m, nodes) of points spread evenly over widths (m,) around zero; one where nothing is wide."""
    width = np.atleast_1d(np.asarray(width, float))
    return width[:, None] * ((np.arange(nodes) + 0.5) / nodes - 0.5) if np.any(width > 0) else np.zeros((len(width), 1))


def _width_of(count: Any, nodes: int) -> np.ndarray:
    """Return the width over which evenly spread nodes scatter as much as `count` neighbouring frames do."""
    return np.sqrt(np.maximum(np.asarray(count, float) ** 2 - 1, 0) / (1 - 1 / max(nodes, 2) ** 2))


def multi_tau(data: Correlation, per_level: int = 8, ages: int = 8, nodes: int = 3) -> Binned:
    """Return a two-time map averaged over bins of lag and of the first frame.

    Lags 1 … per_level stand alone, then bins of lags double in width every per_level / 2; first frames are in `ages`
    equal blocks. sigma, if known per bin of q, is that of a mean of independent points.
    """
    nt, sigma = data.n_frames, data.sigma
    if np.ndim(sigma) > 1:
        raise ValueError("multi_tau: sigma per frame or point is not averaged. Give one number per bin, or None.")
    c2, first, second, counts = [], [], [], []
    starts = np.linspace(0, nt, ages + 1).round().astype(int)
    for low, high in _lag_bins(nt, per_level):
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            stop = min(end, nt - high + 1)  # pairs that all lags of the bin have
            if stop <= begin:
                continue
            values = np.stack([np.diagonal(data.c2, lag, 1, 2)[:, begin:stop] for lag in range(low, high)], axis=1)
            c2.append(np.mean(values, axis=(1, 2)))
            counts.append(values[0].size)
            lags = 0.5 * (low + high - 1) + _midpoints(_width_of(high - low, nodes), nodes)[0]
            frames = 0.5 * (begin + stop - 1) + _midpoints(_width_of(stop - begin, nodes), nodes)[0]
            here = np.broadcast_arrays(np.maximum(frames[None, :], 0.0), np.minimum(frames + lags[:, None], nt - 1))
            first.append(np.resize(here[0].ravel(), nodes**2))
            second.append(np.resize(here[1].ravel(), nodes**2))
    sigma = None if sigma is None else np.reshape(sigma, (-1, 1)) / np.sqrt(counts) * np.ones((len(data.phi), 1))
    rest = {"gap": data.gap, "source": data.source, "notes": data.notes, "frame_count": nt}
    return Binned(np.stack(c2, 1), data.phi, data.q, data.dt, sigma, first=first, second=second, **rest)


def _lag_bins(nt: int, per_level: int) -> Iterator[tuple[int, int]]:
    low, width, left = 1, 1, per_level
    while low + width <= nt:
        yield low, low + width
        low, left = low + width, left - 1
        if left == 0:
            width, left = 2 * width, max(1, per_level // 2)


def grid_points(data: Correlation) -> Binned:
    """Return both triangles and the diagonal as points without noise of their own, as the package homodyne fits them.

    Its model has on the diagonal the mean of the neighbours, which is the mean over a bin of two pairs.
    """
    nt = data.n_frames
    i, j = (each.ravel() for each in np.indices((nt, nt)))
    low, high = np.maximum(i - 1, 0), np.minimum(i, nt - 2)
    first, second = (np.stack([np.where(i == j, d, o), np.where(i == j, e, o)], 1) for d, e, o in
                     ((low, high, i), (low + 1, high + 1, j)))  # fmt: skip
    note = "both triangles and the diagonal count: errors are too small by more than √2, σ is not used."
    rest = {"gap": data.gap, "source": data.source, "notes": (*data.notes, note), "frame_count": nt}
    flat = data.c2.reshape(len(data.c2), -1)
    return Binned(flat, data.phi, data.q, data.dt, 1.0, first=first, second=second, **rest)
