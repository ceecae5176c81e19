"""Image grid: pixel coordinates, the pulse that turns pixels into a sky, and the mask of pixels that are variables.

Arrays are (ny, nx): row 0 is the north edge, column 0 the east edge, flattened in C order. x is positive to the east.
"""

from dataclasses import dataclass

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.constants import UAS

PULSES = ("delta", "rect", "triangle", "gaussian")


@dataclass(frozen=True)
class Grid:
    """A regular grid of nx columns (east to west) and ny rows (north to south), pixel_rad radians each way.

    pulse: shape every pixel stands for ('delta', 'rect', 'triangle', 'gaussian'); its transform multiplies the
    visibilities.

    Example: `Grid(64, 64, 2e-12)`.
    """

    nx: int
    ny: int
    pixel_rad: float
    pulse: str = "triangle"

    def __post_init__(self):
        for name in ("nx", "ny"):
            if int(getattr(self, name)) != getattr(self, name) or getattr(self, name) < 1:
                raise ValueError(f"Grid: {name}={getattr(self, name)!r} must be a whole number of pixels, at least 1.")
        if not (np.isfinite(self.pixel_rad) and self.pixel_rad > 0):
            raise ValueError(f"Grid: pixel_rad={self.pixel_rad!r} must be a positive angle in radians.")
        if self.pulse not in PULSES:
            raise ValueError(f"Grid: unknown pulse {self.pulse!r}.{suggestion(self.pulse, PULSES)}")
        for name, kind in (("nx", int), ("ny", int), ("pixel_rad", float)):
            object.__setattr__(self, name, kind(getattr(self, name)))

    @property
    def n_pixels(self) -> int:
        """Number of pixels."""
        return self.nx * self.ny

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of an image array, (ny, nx)."""
        return self.ny, self.nx

    @property
    def x(self) -> np.ndarray:
        """East coordinate of every column, (nx,) radians, descending."""
        return (self.nx / 2 - 0.5 - np.arange(self.nx)) * self.pixel_rad

    @property
    def y(self) -> np.ndarray:
        """North coordinate of every row, (ny,) radians, descending."""
        return (self.ny / 2 - 0.5 - np.arange(self.ny)) * self.pixel_rad

    def pulse_factor(self, u: np.ndarray) -> np.ndarray:
        """Transform of the pulse along one axis at u (n,) wavelengths → (n,); the 2-D factor is the product of both."""
        w = 2 * np.pi * np.asarray(u, float) * self.pixel_rad
        if self.pulse == "delta":
            return np.ones_like(w)
        if self.pulse == "gaussian":
            return np.exp(-0.5 * (w / 3) ** 2)  # standard deviation: a third of a pixel
        return np.sinc(w / (2 * np.pi)) ** (2 if self.pulse == "triangle" else 1)

    def embed(self, values: np.ndarray, index: np.ndarray | None) -> np.ndarray:
        """Put masked pixel values (n,) onto the grid → (ny, nx), zero outside; `transforms.embed` is for tracing."""
        image = np.zeros(self.n_pixels, values.dtype)
        image[slice(None) if index is None else index] = values
        return image.reshape(self.shape)

    def check_baselines(self, u: np.ndarray, v: np.ndarray) -> None:
        """Raise if a baseline is longer than the pixels can follow: |u| or |v| beyond 1/(2 pixel), in wavelengths."""
        longest = float(np.abs([u, v]).max())
        if longest * self.pixel_rad > 0.5:
            raise ValueError(
                f"pixels of {self.pixel_rad / UAS:.4g} µas are too coarse for the longest baseline, {longest:.4g} "
                f"wavelengths along u or v: at most {0.5 / longest / UAS:.4g} µas ({0.5 / longest:.4g} rad) follow its "
                "fringes. Use more pixels, flag the long baselines, or say coarse_pixels=True if this is meant."
            )


def mask_index(grid: Grid, prior: np.ndarray, clipfloor: float = 0.0) -> np.ndarray | None:
    """Flat indices (n,) of the pixels with prior > clipfloor; None when that is every pixel.

    prior: (ny, nx) or (ny*nx,) Jy per pixel.
    """
    flat = np.asarray(prior, float).ravel()
    if flat.size != grid.n_pixels:
        raise ValueError(
            f"prior has {flat.size} pixels, but the grid has {grid.ny} x {grid.nx}. Regrid one of the two."
        )
    if np.isnan(flat).any():
        raise ValueError(
            f"prior is NaN in {int(np.isnan(flat).sum())} pixels. Give them a value; one below clipfloor masks them."
        )
    inside = flat > clipfloor
    if not inside.any():
        raise ValueError(
            f"no pixel of the prior exceeds clipfloor={clipfloor}: nothing is left to fit. Lower clipfloor."
        )
    return None if inside.all() else np.flatnonzero(inside).astype(np.int32)
