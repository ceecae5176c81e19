"""Rows of a fit: tiles of frames, each frame with the half of all frames that follow it, and all angles inside.

Every pair of frames is there once, every tile holds all lags and all angles, so that any split of the rows is balanced.
Frames are padded to a size class: pairs with padding have no weight, and maps of about one length share their programs.
"""

from typing import Any

import jax
import numpy as np

from shardfit.core.size_classes import size_class
from shardfit.domains.xpcs.bins import Binned
from shardfit.domains.xpcs.data import DEFAULT_SIGMA, Correlation
from shardfit.domains.xpcs.forward import Ahead, Bins

TILE = 2048  # pairs of a tile: the work arrays of all angles stay in a core's cache
LEAST_TILES = 16  # so that small data spread over devices as well
FRAMES = 16  # padding is up to a multiple of so many


def room_for_frames(n_frames: int) -> int:
    """Return how many frames a map has with padding: an even number."""
    return -(-size_class(n_frames) // FRAMES) * FRAMES


def frames_per_tile(n_frames: int) -> int:
    """Return how many frames a tile holds."""
    return max(1, min(TILE // (n_frames // 2), n_frames // LEAST_TILES))


def tiles_at_once(rows: dict[str, Any]) -> int:
    """Return how many tiles to evaluate together: small ones have little work of their own."""
    return max(1, TILE // rows["y"].shape[-1])


def tiles(data: Correlation, level: float) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return rows, precision (n,) and how many points of the upper triangle of each angle count (n,).

    rows: pairs, Ahead of frames (T, r); y (T, n, r·nt/2), the data less level; w, what squared residuals are multiplied
    with besides the precision of their angle: (T, r·nt/2) where all angles have the same points and noise, else
    (T, n, r·nt/2).
    """
    if isinstance(data, Binned):
        return _binned_tiles(data, level)
    n, nt = data.c2.shape[:2]
    room = room_for_frames(nt)
    per_tile, reach = frames_per_tile(room), room // 2
    n_tiles = -(-room // per_tile)
    frames = np.minimum(np.arange(n_tiles * per_tile), room - 1).astype(np.int32)
    real = _pairs_once(nt, room, len(frames))
    y = np.zeros((n_tiles, n, per_tile, reach))
    for row, frame in enumerate(frames[:nt]):
        here, left, turned = np.s_[row // per_tile, :, row % per_tile], min(reach, nt - 1 - frame), room - 1 - frame
        np.subtract(data.c2[:, frame, frame + 1 : frame + 1 + left], level, out=y[here][:, :left])
        np.subtract(data.c2[:, frame, : max(0, reach - turned)], level, out=y[here][:, turned:])
    # a sum is finite if all its parts are: no array of booleans
    each = bool(np.isfinite(np.sum(y))) and np.ndim(data.sigma) < 2
    w = real.reshape(n_tiles, per_tile, reach) if each else np.zeros_like(y)
    for row, frame in enumerate(() if each else frames[:nt]):
        partners = np.minimum((frame + 1 + np.arange(reach)) % room, nt - 1)
        here = np.s_[row // per_tile, :, row % per_tile]
        w[here] = _weights(data, frame, partners) * np.isfinite(y[here]) * real[row]
    if not each:
        np.nan_to_num(y, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    counts = np.full(n, int(real.sum())) if each else np.sum(w > 0, axis=(0, 2, 3))
    y, w = (each.reshape(*each.shape[:-2], per_tile * reach) for each in (y, w))
    return {"pairs": Ahead(frames.reshape(n_tiles, per_tile)), "y": y, "w": w}, _precision(data), counts


def with_points(rows: Any) -> Any:
    """Return the tiles that have points that count: a shard without any would say nothing."""
    counted = np.flatnonzero(np.any(np.asarray(rows["w"]) > 0, axis=tuple(range(1, np.ndim(rows["w"])))))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[counted], rows)


def _binned_tiles(data: Binned, level: float) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the same of bins: pairs Bins (T, r, s), y (T, n, r), w (T, n, r); copies of a bin fill the last tile."""
    n, m = data.c2.shape
    room = size_class(m)
    n_tiles = max(1, min(LEAST_TILES, room), -(-room // TILE))
    place = np.minimum(np.arange(n_tiles * -(-room // n_tiles)), m - 1)
    weights = (1.0 / data.sigma**2 if np.ndim(data.sigma) == 2 else np.ones((n, m))) * np.isfinite(data.c2)
    weights = weights[:, place] * (np.arange(len(place)) < m)
    y = np.nan_to_num(data.c2 - level, nan=0.0, posinf=0.0, neginf=0.0)[:, place]
    y, w = (np.moveaxis(each.reshape(n, n_tiles, -1), 1, 0) for each in (y, weights))
    pairs = Bins(*(each[place].reshape(n_tiles, -1, each.shape[1]) for each in (data.first, data.second)))
    return {"pairs": pairs, "y": y, "w": w}, _precision(data), np.sum(w > 0, axis=(0, 2))


def _pairs_once(nt: int, room: int, n_rows: int) -> np.ndarray:
    """Return 1 where a pair of nt frames counts (n_rows, room/2): not with padding, nor twice at half a turn."""
    partners = (np.arange(n_rows)[:, None] + 1 + np.arange(room // 2)) % room
    real = np.where(partners < nt, 1.0, 0.0)
    real[nt:] = 0.0
    real[room // 2 :, -1] = 0.0
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
