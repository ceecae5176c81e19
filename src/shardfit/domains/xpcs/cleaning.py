"""What is done to correlations before a fit: symmetry, the diagonal, noise, outliers."""

from dataclasses import replace

import numpy as np

from shardfit.domains.xpcs.data import Correlation

NEAR = 3  # entries on each side along row and column that the statistical rule looks at
TO_SIGMA = 1.4826  # standard deviation over median absolute deviation, of a normal


@np.errstate(invalid="ignore", over="ignore")
def symmetrised(c2: np.ndarray) -> np.ndarray:
    """Return matrices (..., nt, nt) made symmetric: a half matrix is mirrored, else both triangles are averaged.

    A triangle without any number but zeros and NaN is empty.
    """
    c2 = np.asarray(c2, np.float64)
    if c2.ndim < 2 or c2.shape[-1] != c2.shape[-2]:
        raise ValueError(f"correlations of shape {c2.shape}: they must be square matrices (..., nt, nt).")
    flipped = np.swapaxes(c2, -1, -2)
    upper = np.triu(np.ones(c2.shape[-2:], bool), 1)
    for filled, empty in ((c2, flipped), (flipped, c2)):
        # NaN marks bad frames in both triangles, also where the other one is not filled
        if not np.any(np.nan_to_num(empty[..., upper])):
            return np.where(upper, filled, np.where(upper.T, np.swapaxes(filled, -1, -2), c2))
    return 0.5 * (c2 + flipped)


@np.errstate(invalid="ignore", over="ignore")
def upright(c2: np.ndarray, origin: str = "") -> np.ndarray:
    """Return matrices (n, nt, nt) with time running down, from where their origin is: 'upper_left' or 'lower_left'.

    Unless it is said, the rows are turned where only that makes the matrices, or their filled halves, mirror images.
    """
    turned = c2[:, ::-1]
    if origin in ("upper_left", "lower_left"):
        return turned if origin == "lower_left" else c2
    return turned if _mirrored(turned) and not _mirrored(c2) else c2


def _mirrored(c2: np.ndarray) -> bool:
    whole = np.nan_to_num(symmetrised(c2))
    below, above = np.tril(np.nan_to_num(c2), -1), np.triu(np.nan_to_num(c2), 1)
    same = np.allclose(below, np.tril(whole, -1)) and np.allclose(above, np.triu(whole, 1))
    return bool(same or not below.any() or not above.any())


def one_half(c2: np.ndarray, populated: str, origin: str = "") -> np.ndarray:
    """Return upright matrices with zeros in the half that a file says it left out: 'upper_half' or 'lower_half'.

    The half meant is that of the matrix as stored; what a writer leaves there, ones for instance, is no correlation.
    """
    if populated not in ("upper_half", "lower_half") or _mirrored(c2):
        return c2
    # turning the rows of a matrix about takes what is above its other diagonal to below the main one
    above = (populated == "upper_half") != (origin == "lower_left")
    return np.triu(c2) if above else np.tril(c2)


@np.errstate(invalid="ignore", over="ignore")
def corrected_diagonal(c2: np.ndarray, rule: str = "basic") -> np.ndarray:
    """Return matrices (..., nt, nt) whose diagonal, which is no correlation, is replaced from its neighbours.

    rule: 'basic' means of the next off-diagonal values; 'interpolation' a line across them, the same but at the ends,
    which it extrapolates; 'median', 'mean', 'trimmed' of the three neighbours on each side along row and column.
    """
    c2 = np.array(c2, np.float64)
    nt = c2.shape[-1]
    i = np.arange(nt)
    beside = 0.5 * (c2[..., i[:-1], i[1:]] + c2[..., i[1:], i[:-1]])
    if rule in ("basic", "interpolation"):
        fresh = np.empty((*c2.shape[:-2], nt))
        fresh[..., 1:-1] = 0.5 * (beside[..., :-1] + beside[..., 1:])
        reach = 0.0 if rule == "basic" else 0.5
        fresh[..., 0] = beside[..., 0] + reach * (beside[..., 0] - beside[..., 1])
        fresh[..., -1] = beside[..., -1] + reach * (beside[..., -1] - beside[..., -2])
    elif rule in ("median", "mean", "trimmed"):
        fresh = np.stack([_of_neighbours(c2, k, rule) for k in range(nt)], axis=-1)
    else:
        raise ValueError(
            f"diagonal rule {rule!r}: use 'basic', 'interpolation', 'median', 'mean' or 'trimmed' (20 % at each end)."
        )
    c2[..., i, i] = fresh
    return c2


def _of_neighbours(c2: np.ndarray, k: int, rule: str) -> np.ndarray:
    near = [j for j in range(max(0, k - NEAR), min(c2.shape[-1], k + NEAR + 1)) if j != k]
    values = np.sort(np.concatenate([c2[..., k, near], c2[..., near, k]], axis=-1), axis=-1)
    if rule == "median":
        return np.median(values, axis=-1)
    cut = int(0.2 * values.shape[-1]) if rule == "trimmed" else 0
    return np.mean(values[..., cut : values.shape[-1] - cut], axis=-1)


def estimate_noise(data: Correlation) -> np.ndarray:
    """Return the standard deviation (n,) of c2 per bin, from differences of points one frame later at the same lag.

    The signal hardly changes from one frame to the next, so these differences are noise; their median absolute
    deviation is not moved by outliers. Neighbours at lag 1 share a frame and are left out.
    """
    _need_maps(data, "noise cannot be estimated from")
    found = []
    for matrix in data.c2:
        difference = (matrix[1:, 1:] - matrix[:-1, :-1])[np.triu_indices(data.n_frames - 1, 2)]
        difference = difference[np.isfinite(difference)]
        if difference.size < 10:
            raise ValueError("noise cannot be estimated: fewer than 10 pairs of neighbouring points. Give sigma.")
        found.append(TO_SIGMA * np.median(np.abs(difference - np.median(difference))) / np.sqrt(2))
    sigma = np.array(found)
    if not np.all(sigma > 0):
        raise ValueError(f"noise cannot be estimated: bin {int(np.argmin(sigma))} has no scatter. Give sigma.")
    return sigma


def without_outliers(data: Correlation, threshold: float = 6.0) -> Correlation:
    """Return data whose points far from the median of their lag are marked as missing (NaN).

    threshold: in robust standard deviations of the points of the same bin and lag.
    """
    _need_maps(data, "outliers cannot be found in")
    c2, nt = data.c2.copy(), data.n_frames
    i = np.arange(nt)
    for lag in range(1, nt):
        first, second = i[: nt - lag], i[lag:]
        values = c2[:, first, second]
        centre = np.nanmedian(values, axis=1, keepdims=True)
        spread = TO_SIGMA * np.nanmedian(np.abs(values - centre), axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            far = (np.abs(values - centre) > threshold * spread) & (spread > 0) & (nt - lag >= 8)
        values[far] = np.nan
        c2[:, first, second] = c2[:, second, first] = values
    count = int(np.sum(np.isnan(c2)) - np.sum(np.isnan(data.c2))) // 2
    return replace(
        data, c2=c2, notes=(*data.notes, f"{count} outliers beyond {threshold:g} σ of their lag are left out.")
    )


def _need_maps(data: Correlation, what: str) -> None:
    if data.c2.ndim != 3:
        raise ValueError(
            f"{what} means over bins: neighbouring frames are needed. Do it before averaging, or give sigma."
        )
