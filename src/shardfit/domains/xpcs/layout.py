"""Rows of a fit: tiles of frames, each frame with the half of all frames that follow it, and all angles inside.

Every pair of frames is there once, every tile holds all lags and all angles, so that any split of the rows is balanced.
"""

import numpy as np

from shardfit.domains.xpcs.data import DEFAULT_SIGMA, Correlation

TILE = 2048  # pairs of a tile: the work arrays of all angles stay in a core's cache
LEAST_TILES = 16  # so that small data spread over devices as well


def frames_per_tile(n_frames: int) -> int:
    """Return how many frames a tile holds."""
    return max(1, min(TILE // (n_frames // 2), n_frames // LEAST_TILES))


def tiles(data: Correlation, level: float) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return rows, precision (n,) and how many points of the upper triangle of each angle count (n,).

    rows: frames (T, r); y (T, n, r·nt/2), the data less level; w, what squared residuals are multiplied with besides
    the precision of their angle: (T, r·nt/2) where all angles have the same points and noise, else (T, n, r·nt/2).
    """
    n, nt = data.c2.shape[:2]
    per_tile, reach = frames_per_tile(nt), nt // 2
    n_tiles = -(-nt // per_tile)
    frames = np.minimum(np.arange(n_tiles * per_tile), nt - 1).astype(np.int32)
    each = bool(np.isfinite(data.c2).all()) and np.ndim(data.sigma) < 2
    real = _pairs_once(nt, len(frames))
    y = np.empty((n_tiles, n, per_tile, reach))
    w = real.reshape(n_tiles, per_tile, reach) if each else np.empty_like(y)
    for row, frame in enumerate(frames):
        partners, here = (frame + 1 + np.arange(reach)) % nt, np.s_[row // per_tile, :, row % per_tile]
        y[here] = data.c2[:, frame, partners] - level
        if not each:
            w[here] = _weights(data, frame, partners) * np.isfinite(y[here]) * real[row]
    if not each:
        np.nan_to_num(y, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    counts = np.full(n, int(real.sum())) if each else np.sum(w > 0, axis=(0, 2, 3))
    rows = {"frames": frames.reshape(n_tiles, per_tile), "y": y, "w": w}
    rows |= {name: rows[name].reshape(*rows[name].shape[:-2], per_tile * reach) for name in ("y", "w")}
    return rows, _precision(data), counts


def _pairs_once(nt: int, n_rows: int) -> np.ndarray:
    """Return 1 where a pair counts (n_rows, nt/2): not in frames that fill a tile, nor twice at half a turn."""
    real = np.ones((n_rows, nt // 2))
    real[nt:] = 0.0
    if nt % 2 == 0:
        real[nt // 2 :, -1] = 0.0
    return real


def _weights(data: Correlation, frame: int, partners: np.ndarray) -> np.ndarray:
    """Return 1/σ² of pairs (n, nt/2) where it differs between points; frames of different noise are averaged."""
    sigma, shape = data.sigma, (len(data.phi), len(partners))
    if sigma is None or np.ndim(sigma) < 2:
        return np.ones(shape)
    if np.ndim(sigma) == 3:
        return 1.0 / sigma[:, frame, partners] ** 2
    return np.broadcast_to(2.0 / (sigma[:, frame, None] ** 2 + sigma[:, partners] ** 2), shape)


def _precision(data: Correlation) -> np.ndarray:
    """Return 1/σ² (n,) of the angles where each has one noise."""
    if np.ndim(data.sigma) >= 2:
        return np.ones(len(data.phi))
    sigma = DEFAULT_SIGMA if data.sigma is None else data.sigma
    return np.broadcast_to(1.0 / np.asarray(sigma, float) ** 2, (len(data.phi),)).copy()
