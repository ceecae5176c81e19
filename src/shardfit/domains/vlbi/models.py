"""Images of simple shapes about the size of a black hole's shadow: what simulated data are made of."""

from collections.abc import Callable

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, gaussian, ring


def model_image(name: str, grid: Image, flux_jy: float, scale: float = 1.0) -> Image:
    """Return 'ring', 'crescent', 'disk' or 'double' of this flux on the pixels of `grid`.

    scale: of all sizes, which are those of M87's shadow (25 µas resolve them about twice).
    """
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"model_image: scale={scale!r} must be positive.")
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}.{suggestion(str(name), MODELS)}")
    # the sky seen through smaller pixels is a larger one
    drawn = MODELS[name](grid.replace(pixel_rad=grid.pixel_rad / scale))
    return drawn.replace(pixel_rad=grid.pixel_rad).normalise(flux_jy)


def _ring(grid: Image) -> Image:
    """Diameter 42 µas, 12 µas thick, brightest to the south-south-east."""
    return ring(grid, 1.0, 21 * UAS, 12 * UAS, asymmetry=0.6, position_angle_rad=np.deg2rad(160))


def _disc(grid: Image, radius_uas: float, y_uas: float = 0.0) -> np.ndarray:
    """Uniform disc of brightness 1 whose rim falls off over a pixel."""
    x, y = np.meshgrid(grid.x, grid.y)
    inside = (radius_uas * UAS - np.hypot(x, y - y_uas * UAS)) / grid.pixel_rad
    return np.clip(inside + 0.5, 0.0, 1.0)


def _crescent(grid: Image) -> Image:
    """Disc of 56 µas with a hole of 34 µas displaced to the north, softened by 6 µas."""
    values = np.clip(_disc(grid, 28.0) - _disc(grid, 17.0, 8.0), 0.0, None)
    return grid.replace(values={"I": values}).blur(6 * UAS)


def _disk(grid: Image) -> Image:
    """Uniform disc of 60 µas, softened by 6 µas."""
    return grid.replace(values={"I": _disc(grid, 30.0)}).blur(6 * UAS)


def _double(grid: Image) -> Image:
    """Two Gaussians of 18 µas, 45 µas apart, the southern one brighter by a quarter."""
    north = gaussian(grid, 0.8, 18 * UAS, x_rad=-10 * UAS, y_rad=20 * UAS)
    south = gaussian(grid, 1.0, 18 * UAS, x_rad=10 * UAS, y_rad=-20 * UAS)
    return grid.replace(values={"I": north.values["I"] + south.values["I"]})


MODELS: dict[str, Callable[[Image], Image]] = {
    "ring": _ring,
    "crescent": _crescent,
    "disk": _disk,
    "double": _double,
}
