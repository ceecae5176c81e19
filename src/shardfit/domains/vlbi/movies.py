"""Movies: images of one source at several times, what an array sees of them, and their FITS cubes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra
from shardfit.domains.vlbi.fits_image import describe, read_cube
from shardfit.domains.vlbi.images import Image, visibilities
from shardfit.domains.vlbi.observation import frozen

TIMES = "TIME_H"  # extension of a FITS cube


@dataclass(frozen=True, eq=False)
class Movie:
    """Images of one grid and day. time_h: (frames,) h UTC since 0h of the images' mjd, rising.

    Example: `Movie(tuple(ring(grid, 0.6, r, w, asymmetry=0.5, position_angle_rad=a) for a in angles), hours)`.
    """

    frames: tuple[Image, ...]
    time_h: np.ndarray

    def __post_init__(self):
        frames = tuple(self.frames)
        if not frames:
            raise ValueError("Movie: no frames were given.")
        object.__setattr__(self, "frames", frames)
        object.__setattr__(self, "time_h", frozen(self.time_h, float, (len(frames),), "Movie.time_h"))
        if not (np.isfinite(self.time_h).all() and (np.diff(self.time_h) > 0).all()):
            raise ValueError("Movie: time_h must be finite and rise from frame to frame. Sort the frames.")
        if any(one.grid != frames[0].grid or one.mjd != frames[0].mjd for one in frames):
            raise ValueError("Movie: the frames differ in pixels or day. Regrid them, and count hours from one day.")

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def light_curve(self) -> np.ndarray:
        """Total flux of every frame, (frames,) Jy."""
        return np.array([one.flux for one in self.frames])

    @property
    def mean(self) -> Image:
        """Mean of all frames, each counted alike."""
        first = self.frames[0]
        return first.replace(values={k: np.mean([one.values[k] for one in self.frames], 0) for k in first.values})

    def shares(self, time_h: np.ndarray) -> np.ndarray:
        """Return the weight of every frame at every time, (times, frames): linear between frames, constant beyond."""
        corners = np.eye(len(self))
        return np.stack([np.interp(time_h, self.time_h, corner) for corner in corners], 1)

    def at(self, time_h: float) -> Image:
        """Return the image at a time, linear between frames."""
        share, first = self.shares(np.array([time_h]))[0], self.frames[0]
        mixed = {k: sum(w * one.values[k] for w, one in zip(share, self.frames, strict=True)) for k in first.values}
        return first.replace(values=mixed)


def seen(source: Image | Movie, time_h: np.ndarray, u: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
    """Return visibilities (n,) Jy by Stokes parameter of an image or movie at times (n,) and u, v (n,) wavelengths."""
    if isinstance(source, Image):
        return visibilities(source, u, v)
    share = source.shares(time_h)
    total = {name: np.zeros(len(u), complex) for name in source.frames[0].values}
    for one, weight in zip(source.frames, share.T, strict=True):
        rows = np.flatnonzero(weight)
        for name, part in visibilities(one, u[rows], v[rows]).items():
            total[name][rows] += weight[rows] * part
    return total


def write_movie(movie: Movie, path: Any, *, overwrite: bool = False) -> None:
    """Write the Stokes I frames as a FITS cube (frames, rows, columns), 64-bit, and their times in extension TIME_H."""
    with require_extra("write_movie", "vlbi"):
        from astropy.io import fits

    hdu = fits.PrimaryHDU(np.stack([one.values["I"][::-1] for one in movie.frames]))
    first, steps = movie.time_h[0], np.diff(movie.time_h)
    describe(hdu, movie.frames[0], [("TIME", float(first), float(steps.mean()) if len(steps) else 1.0, 1.0)])
    hdu.header["CUNIT3"] = "h"
    times = fits.ImageHDU(np.array(movie.time_h), name=TIMES)
    fits.HDUList([hdu, times]).writeto(path, overwrite=overwrite)


def read_movie(path: Any, *, pulse: str = "triangle") -> Movie:
    """Read a movie that `write_movie` wrote. Raises ValueError, naming the file, for anything else."""
    frames, hours = read_cube(path, TIMES, pulse=pulse)
    try:
        return Movie(tuple(frames), hours)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
