"""Two-time maps as the likelihood of speckle takes them: frames averaged in blocks, the diagonal by itself.

Block averages of a sample covariance are one again, BSBᵀ, so many frames cost no more than `MOST` blocks of them. They
are short where the sample is fast.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardfit.domains.xpcs.bins import _midpoints, _width_of
from shardfit.domains.xpcs.data import Correlation, diagonal_of
from shardfit.domains.xpcs.forward import Bins

MOST = 128  # blocks: half of it loses up to 7 % of the precision of 500 frames
NODES = 2  # frames that stand for a block: they scatter as much as its frames do
VISIBLE = 0.01  # of the contrast: shot noise on the diagonal that can be told from its neighbours


class Pairs(NamedTuple):
    """Pairs of blocks: bins (m, s) of pairs of frames, and where (N, N) a pair of blocks is among them."""

    bins: Bins
    where: Any


@dataclass(frozen=True, eq=False)
class Maps:
    """Block averages y (n, N, N) of maps, without the diagonal, seen (n, N, N) where at least one pair was measured.

    shot: (n,) mean of the diagonal, offset and contrast included, NaN where the files do not show it. widths: (N,)
    frames of the blocks.
    """

    y: np.ndarray
    seen: np.ndarray
    shot: np.ndarray
    widths: np.ndarray
    pairs: Pairs

    @property
    def counts(self) -> np.ndarray:
        """Points of each angle (n,): pairs of blocks, each once."""
        return np.array([int(np.sum(np.triu(seen))) for seen in self.seen])


def shows_shot_noise(data: Correlation) -> bool:
    """Whether the diagonal of every bin stands out from its neighbours, as that of counted photons does."""
    diagonal, excess = diagonal_of(data), []
    for matrix, own in zip(data.c2, diagonal, strict=True):
        beside, far = np.diagonal(matrix, 1), np.diagonal(matrix, max(1, (3 * data.n_frames) // 4))
        with np.errstate(invalid="ignore"):
            level = max(_mean(beside) - _mean(far), VISIBLE)
            excess.append((_mean(own) - _mean(beside)) / level)
    return bool(np.all(np.array(excess) > VISIBLE))


def _mean(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else np.nan


def averaged_maps(data: Correlation, pace: np.ndarray | None = None) -> Maps:
    """Return the block averages of maps. pace (nt,): increasing; blocks are equal in time plus pace.

    Frames that no bin has take no part.
    """
    c2 = np.where(np.eye(data.n_frames, dtype=bool), np.nan, data.c2)
    finite = np.isfinite(c2)
    kept = np.flatnonzero(finite.any(axis=(0, 1)))
    edges = _edges(len(kept), pace if pace is None else pace[kept])
    widths = np.diff(edges)
    c2, finite = c2[:, kept][:, :, kept], finite[:, kept][:, :, kept]
    counts = _block_sums(finite.astype(float), edges)
    y = _block_sums(np.where(finite, c2, 0.0), edges) / np.maximum(counts, 1)
    # a pair of blocks of which little was measured would stand for more than it holds
    possible = np.outer(widths, widths) - np.diag(widths)
    seen = counts > 0.5 * possible if np.any(widths > 1) else counts > 0
    shot = np.full(len(c2), np.nan)
    if shows_shot_noise(data):
        shot = np.array([_mean(own) for own in diagonal_of(data)])
    return Maps(np.where(seen, y, 0.0), seen & (possible > 0), shot, widths.astype(float), _pairs(kept, edges))


def _edges(count: int, pace: np.ndarray | None) -> np.ndarray:
    if count <= MOST:
        return np.arange(count + 1)
    along = np.linspace(0.0, 1.0, count)
    if pace is not None and pace[-1] > pace[0]:
        along = along + (pace - pace[0]) / (pace[-1] - pace[0])
    edges, number = np.searchsorted(along, np.linspace(0, along[-1], MOST + 1)), np.arange(MOST + 1)
    edges = np.maximum.accumulate(edges - number) + number  # a frame at least, so that files of a size share programs
    edges = np.minimum(edges, count - MOST + number)
    edges[0], edges[-1] = 0, count
    return edges


def _block_sums(stack: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.add.reduceat(np.add.reduceat(stack, edges[:-1], axis=1), edges[:-1], axis=2)


def _pairs(kept: np.ndarray, edges: np.ndarray) -> Pairs:
    """Return frames that stand for each pair of blocks; within a block those that are as far apart as its pairs are."""
    n, widths = len(edges) - 1, np.diff(edges)
    rows, columns = np.triu_indices(n)
    where = np.zeros((n, n), np.int32)
    where[rows, columns] = where[columns, rows] = np.arange(len(rows))
    middles = 0.5 * (kept[edges[:-1]] + kept[edges[1:] - 1])
    spans = kept[edges[1:] - 1] - kept[edges[:-1]] + 1
    if np.all(widths == 1):
        first, second = middles[rows][:, None], middles[columns][:, None]
        return Pairs(_bins(first, second), where)
    nodes = middles[:, None] + _midpoints(_width_of(spans, NODES), NODES)
    first = np.repeat(nodes[rows], NODES, axis=1)
    second = np.tile(nodes[columns], (1, NODES))
    lags = np.stack([_lags(int(width)) for width in spans])
    inside = rows == columns
    first[inside], second[inside] = middles[:, None] - 0.5 * lags, middles[:, None] + 0.5 * lags
    last = kept[-1]
    return Pairs(_bins(np.clip(first, 0, last), np.clip(second, 0, last)), where)


def _bins(first: Any, second: Any) -> Bins:
    return Bins(first, second)


def _lags(width: int) -> np.ndarray:
    """Return NODES² lags that stand for those of the pairs of different frames of a block: means of equal shares."""
    if width == 1:
        return np.zeros(NODES**2)
    lags = np.repeat(np.arange(1, width), np.arange(width - 1, 0, -1))
    fine = np.interp((np.arange(64 * NODES**2) + 0.5) / (64 * NODES**2) * len(lags) - 0.5, np.arange(len(lags)), lags)
    return fine.reshape(NODES**2, -1).mean(1)
