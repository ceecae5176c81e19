"""Correlation: measured two-time correlations of one sample, checked when made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardfit.domains.xpcs.forward import Grid

DEFAULT_SIGMA = 0.01  # what analyses take where nothing is known of the noise
SYMMETRY = 1e-6  # largest difference of C(i, j) and C(j, i), relative to the largest value
FLOW_ANGLES = ((-10.0, 10.0), (85.0, 95.0))


@dataclass(frozen=True, eq=False)
class Correlation:
    """Two-time correlations of n q-bins.

    Attributes
    ----------
    c2
        (n, nt, nt), symmetric in both frames. NaN or infinity marks points that take no part.
    phi
        (n,) azimuths in degrees, in the order of the file.
    q
        (n,) wave vectors in 1/Å; one number means the same for all.
    dt
        seconds between frames. Times start at 0.
    sigma
        standard deviation of c2: one number, (n,) per bin, (n, nt) or (1, nt) per frame, (n, nt, nt) per point; None:
        unknown, then fits take 0.01 and say that χ² is not calibrated. See `estimate_noise`.
    gap
        Å between the plates of a shear cell; needed by models with shear.
    source
        where it comes from, for reports.
    notes
        what was done to the data or noticed in them.
    diagonal
        (n, nt) c2 of equal frames as it was measured, with shot noise, where c2 has another there; None: that of c2.
        What the likelihood of speckle knows shot noise from.

    Example: `Correlation(c2, phi=[0.0, 45.0], q=0.0054, dt=0.1)`.

    """

    c2: np.ndarray
    phi: Any
    q: Any
    dt: float
    sigma: Any = None
    gap: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    diagonal: Any = None

    def __post_init__(self):
        c2 = np.asarray(self.c2)
        if c2.dtype.kind not in "fiu":
            raise TypeError(f"c2 is of type {c2.dtype}, not real numbers. Pass a float array (n, nt, nt).")
        c2 = c2.astype(np.float64, copy=False)
        c2 = c2[None] if c2.ndim == 2 else c2
        if c2.ndim != 3 or c2.shape[1] != c2.shape[2] or 0 in c2.shape:
            raise ValueError(f"c2 has shape {c2.shape}: it must be (n, nt, nt), one square matrix per q-bin.")
        if c2.shape[1] < 4:
            raise ValueError(f"c2 has {c2.shape[1]} frames, too few for a fit: at least 4 are needed.")
        _check_symmetry(c2)
        n, nt = c2.shape[:2]
        self._keep(c2, {(), (n,), (1, nt), (n, nt), (n, nt, nt)})
        if self.diagonal is not None:
            diagonal = np.asarray(self.diagonal, np.float64)
            if diagonal.shape != (n, nt):
                raise ValueError(f"diagonal has shape {diagonal.shape}; it must be {(n, nt)}, one number per frame.")
            object.__setattr__(self, "diagonal", diagonal)

    def _keep(self, c2: np.ndarray, sigma_shapes: set[tuple[int, ...]]) -> None:
        """Check what all kinds of data have, and keep it in its final form."""
        n = len(c2)
        phi, q = _per_bin("phi", self.phi, n), _per_bin("q", self.q, n)
        if np.any(q <= 0):
            raise ValueError(f"q = {q[q <= 0][0]} is not positive. Give wave vectors in 1/Å.")
        if not (np.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"dt={self.dt} must be a positive number of seconds between frames.")
        if self.gap is not None and not (np.isfinite(self.gap) and self.gap > 0):
            raise ValueError(f"gap={self.gap} must be a positive length in Å.")
        sigma = None if self.sigma is None else _checked_sigma(self.sigma, sigma_shapes)
        for name, value in {"c2": c2, "phi": phi, "q": q, "dt": float(self.dt), "sigma": sigma}.items():
            object.__setattr__(self, name, value)

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.c2.shape[1]

    @property
    def n_pairs(self) -> int:
        """Number of points of one bin that may take part."""
        return self.n_frames * (self.n_frames - 1) // 2

    @property
    def lag(self) -> np.ndarray:
        """Seconds between the two frames of every point, in the shape of one bin."""
        # differences of times, not of frames: whether a lag at a percentile counts is decided by its rounding
        return np.abs(self.t[:, None] - self.t[None, :])

    @property
    def pairs(self) -> Any:
        """The points as the forward model takes them."""
        return Grid()

    @property
    def t(self) -> np.ndarray:
        """Frame times (nt,) in seconds, from 0."""
        return np.linspace(0.0, self.dt * (self.n_frames - 1), self.n_frames)

    def frames(self, first: int = 1, last: int = -1) -> "Correlation":
        """Return frames first … last, counted from 1 and both included; −1: to the end. Times start at 0 again."""
        nt = self.n_frames
        stop = nt if last == -1 else last
        if not 1 <= first < stop <= nt:
            raise ValueError(f"frames {first} to {last}: the data have frames 1 to {nt}, and first must be below last.")
        cut = slice(first - 1, stop)
        return self.cut(cut)

    def cut(self, frames: slice) -> "Correlation":
        """Return the data of some frames, given as a slice; what lies between them counts as one step."""
        diagonal = None if self.diagonal is None else self.diagonal[:, frames]
        c2, sigma, step = self.c2[:, frames, frames], _cut_sigma(self.sigma, frames), frames.step or 1
        return replace(self, c2=c2, sigma=sigma, diagonal=diagonal, dt=self.dt * step)

    def take(self, index: Any) -> "Correlation":
        """Return some of the q-bins, by number or by a mask."""
        index = np.arange(len(self.phi))[index] if np.asarray(index).dtype == bool else np.atleast_1d(index)
        sigma = self.sigma
        if sigma is not None and np.ndim(sigma) and len(sigma) == len(self.phi):
            sigma = sigma[index]
        diagonal = None if self.diagonal is None else self.diagonal[index]
        return replace(self, c2=self.c2[index], phi=self.phi[index], q=self.q[index], sigma=sigma, diagonal=diagonal)

    def near_angles(self, ranges: Sequence[Sequence[float]] = FLOW_ANGLES, fallback: bool = True) -> "Correlation":
        """Return the bins whose azimuth, brought to (−180, 180], lies in a range; lower > upper wraps around.

        fallback: keep all, with a note, where none does; else that is an error.
        """
        phi = 180.0 - (180.0 - self.phi) % 360.0
        inside = np.zeros(len(phi), bool)
        for low, high in ranges:
            inside |= (phi >= low) & (phi <= high) if low <= high else (phi >= low) | (phi <= high)
        if inside.any():
            return self.take(inside)
        text = f"no azimuth lies in {[tuple(r) for r in ranges]}"
        if not fallback:
            raise ValueError(f"{text}; the data have {np.round(self.phi, 3).tolist()}. Widen the ranges.")
        return replace(self, notes=(*self.notes, f"All angles are kept: {text}."))


def diagonal_of(data: Correlation) -> np.ndarray:
    """Return the measured diagonal (n, nt), or that of c2 where no other was kept."""
    return np.diagonal(data.c2, axis1=1, axis2=2) if data.diagonal is None else data.diagonal


def _per_bin(name: str, values: Any, n: int) -> np.ndarray:
    array = np.asarray(values, np.float64)
    array = np.full(n, float(array)) if array.ndim == 0 else array
    if array.shape != (n,):
        raise ValueError(f"{name} has shape {array.shape} for {n} matrices. Give one number per matrix.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity: {array.tolist()[:8]}.")
    return array


def _check_symmetry(c2: np.ndarray) -> None:
    for k, matrix in enumerate(c2):
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(matrix - matrix.T)
        finite = np.isfinite(difference)
        if np.any(np.isfinite(matrix) != np.isfinite(matrix.T)):
            raise ValueError(f"c2[{k}]: a point is missing in one triangle only. Use symmetrised(c2).")
        worst = np.max(difference, initial=0.0, where=finite)
        if worst > SYMMETRY * np.max(np.abs(matrix), initial=1.0, where=np.isfinite(matrix)):
            raise ValueError(
                f"c2[{k}] is not symmetric: C(i, j) and C(j, i) differ by up to {worst:.3g}. If only one triangle is "
                "filled, or both were measured on their own, pass symmetrised(c2)."
            )


def _checked_sigma(sigma: Any, allowed: set[tuple[int, ...]]) -> np.ndarray:
    array = np.asarray(sigma, np.float64)
    if array.shape not in allowed:
        raise ValueError(f"sigma has shape {array.shape}; it may be a number or {sorted(allowed - {()}, key=len)}.")
    if not np.all(array > 0):  # NaN fails as well
        raise ValueError("sigma must be positive everywhere. Mark points without noise estimate by NaN in c2.")
    return array


def _cut_sigma(sigma: Any, cut: slice) -> Any:
    if sigma is None or np.ndim(sigma) < 2:
        return sigma
    return sigma[:, cut] if np.ndim(sigma) == 2 else sigma[:, cut, cut]
