"""Images onto other pixels, and onto each other."""

from collections.abc import Sequence

import numpy as np

from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image


def regrid(image: Image, npix: int, fov_rad: float) -> Image:
    """Return an image on npix x npix pixels of another field, about the same centre, each with the flux that it covers.

    Coarser pixels add up what falls into them; finer ones are linear between centres. What the new field
    does not hold is lost.

    Example: `regrid(image, 128, 160 * UAS)`.
    """
    if isinstance(npix, bool) or not isinstance(npix, int | np.integer) or npix < 1:
        raise ValueError(f"regrid: npix={npix!r} must be a positive whole number.")
    if not (np.isfinite(fov_rad) and fov_rad > 0):
        raise ValueError(f"regrid: fov_rad={fov_rad!r} must be positive; {100 * UAS:.3g} is 100 µas.")
    pixel = fov_rad / npix
    ratio = pixel / image.pixel_rad
    along_y, along_x = (_coarser(npix, n, ratio) if ratio >= 1 else _finer(npix, n, ratio) for n in image.shape)
    return image.replace(values={k: along_y @ plane @ along_x.T for k, plane in image.values.items()}, pixel_rad=pixel)


def align(images: Sequence[Image], to: Image | None = None) -> list[Image]:
    """Return images shifted onto one of them, the first unless given: closures leave positions open.

    The shift is where Stokes I correlates best, to a fraction of a pixel; all have the same pixels. What is shifted
    over an edge is lost.
    """
    if not images:
        return []
    target = images[0] if to is None else to
    return [shift(one, *_offset(one, target)) for one in images]


def shift(image: Image, east_rad: float, north_rad: float) -> Image:
    """Return an image moved by so much to the east and north, linear between pixels."""
    ny, nx = image.shape
    # columns run to the west and rows to the south
    along_x, along_y = _moved(nx, -east_rad / image.pixel_rad), _moved(ny, -north_rad / image.pixel_rad)
    return image.replace(values={k: along_y @ plane @ along_x.T for k, plane in image.values.items()})


def _offset(one: Image, target: Image) -> tuple[float, float]:
    """Return how far an image must move to the east and north, rad."""
    if one.grid != target.grid:
        raise ValueError(
            f"align: images of {one.shape} and {target.shape} pixels of {one.pixel_rad / UAS:.4g} and "
            f"{target.pixel_rad / UAS:.4g} µas. Use regrid first."
        )
    # twice as large, so that what leaves at one edge does not enter at the other
    size = [2 * n for n in one.shape]
    a, b = (np.fft.rfft2(i.values["I"] - i.values["I"].mean(), size) for i in (target, one))
    match = np.fft.irfft2(a * b.conj(), size)
    row, column = np.unravel_index(int(np.argmax(match)), match.shape)
    down = row + _vertex(match[(row + np.array([-1, 0, 1])) % size[0], column])
    right = column + _vertex(match[row, (column + np.array([-1, 0, 1])) % size[1]])
    down, right = ((x + n / 2) % n - n / 2 for x, n in zip((down, right), size, strict=True))
    return float(-right * one.pixel_rad), float(-down * one.pixel_rad)


def _vertex(three: np.ndarray) -> float:
    """Return where the parabola through three neighbouring values is highest, from the middle one, in steps."""
    curve = three[0] - 2 * three[1] + three[2]
    return float(0.5 * (three[0] - three[2]) / curve) if curve < 0 else 0.0


def _moved(n: int, by: float) -> np.ndarray:
    """Matrix (n, n) that moves values by so many steps to higher indices."""
    at = np.arange(n)[:, None] - by
    return np.maximum(0.0, 1 - np.abs(at - np.arange(n)))


def _coarser(new: int, old: int, ratio: float) -> np.ndarray:
    """Matrix (new, old): share of each old pixel that lies in each new one, both about one centre."""
    low = (np.arange(new) - new / 2)[:, None] * ratio
    other = np.arange(old) - old / 2
    return np.clip(np.minimum(low + ratio, other + 1) - np.maximum(low, other), 0, None)


def _finer(new: int, old: int, ratio: float) -> np.ndarray:
    """Matrix (new, old) that is linear between the centres of the old pixels; columns in the field sum to one."""
    at = (np.arange(new) + 0.5 - new / 2)[:, None] * ratio
    centre = np.arange(old) + 0.5 - old / 2
    inside = np.clip(at, centre[0], centre[-1]) if old > 1 else np.broadcast_to(centre, at.shape)
    covered = np.abs(at) <= old / 2
    return ratio * covered * np.maximum(0.0, 1 - np.abs(inside - centre))
